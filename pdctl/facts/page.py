"""Reading a metrics page (Prometheus text format, OpenMetrics) for the wanted families only.

A page is split into lines once, each line costs one search and two set look-ups, and only lines of wanted families
are read further. Label blocks repeat from family to family (one per rank), so each distinct one is read once a page.

What ends a page: the format wants a line feed after the last line. A page without one was cut, and TRUNCATED is the
answer even when its last line looks whole, because ``12`` may have been ``12345.0`` and the families that should
follow are missing. The one exception is a last line ``# EOF``, which is how OpenMetrics says "this was all".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from pdctl.facts.base import Unreadable
from pdctl.model.answer import Why

Labels = Mapping[str, str]
Sample = tuple[Labels, float]
CHUNK = 1 << 18  # bytes split into lines at once
LONG_LINE = 1 << 16  # bytes
MOST_NAMES = 20_000  # a real page has some 200
MOST_LINES = 1_000_000  # that of an engine of 36 ranks has 10,000
SHORT_BLOCK = 512  # bytes: longer ones are not remembered from page to page
NO_LABELS: Labels = MappingProxyType({})

# name="value" and what follows it: a comma or the end of the block. Names may be quoted (Prometheus 3).
_PAIR = re.compile(
    rb'[ \t]*(?:"([^"\\]*(?:\\.[^"\\]*)*)"|([^\s=,"{}]+))[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*([,}])', re.DOTALL
)
_NAME_END = re.compile(rb"[{\s]")
_PLAIN_PAIR = re.compile(r'([A-Za-z_]\w*)="([^"]*)"[,}]', re.ASCII)
_CLOSE = re.compile(rb"[ \t]*\}")
_NUMBER = re.compile(rb"(?i)[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?|nan)")
_ESCAPE = re.compile(r'\\([\\n"])')
_PARTS = frozenset({"bucket", "sum", "count", "total", "created"})


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted samples by sample name, in page order, and the names of all samples on the page."""

    samples: Mapping[str, list[Sample]]
    names: frozenset[str]
    lines: int

    def of(self, name: str) -> list[Sample]:
        return self.samples.get(name, [])

    def families(self, *prefixes: str) -> int:
        """How many families whose names start so the page holds; a histogram's parts count once."""
        return len({_family(name) for name in self.names if name.startswith(prefixes)})


def read_page(body: bytes, wanted: Collection[bytes], content_type: str | None = None) -> Page:
    """The wanted samples of a page. NaN is kept as NaN. Raises Unreadable: EMPTY, NOT_METRICS (a web page, JSON, or
    a wanted line that is no sample), TRUNCATED (see above; also a page cut between two lines of one family)."""
    refuse_other_text(body)
    _refuse_cut_line(body, content_type)
    found, names, lines = _wanted_lines(body, wanted)
    page = Page(_samples(found), names, lines)
    _refuse_cut_family(body, page)
    return page


def refuse_other_text(body: bytes) -> None:
    """Raise Unreadable where the body is empty, or plainly a web page or JSON."""
    head = body[:512].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head and not body.strip():
        raise Unreadable(Why.EMPTY, "the answer has no body")
    if head.startswith(b"<"):
        raise Unreadable(Why.NOT_METRICS, "a web page came instead of metrics")
    if head.startswith((b"[", b'"')) or re.match(rb"\{\s*(\}|\"[^\"]*\"\s*:)", head):
        raise Unreadable(Why.NOT_METRICS, "JSON came instead of metrics")


def _refuse_cut_line(body: bytes, content_type: str | None) -> None:
    if _last_line(body) == b"# EOF":
        return
    if content_type is not None and "openmetrics" in content_type.lower():
        raise Unreadable(Why.TRUNCATED, "truncated: an OpenMetrics page without its # EOF")
    if not body.endswith(b"\n"):
        raise Unreadable(Why.TRUNCATED, f"truncated: the page ends within a line, after {len(body)} bytes")


def _refuse_cut_family(body: bytes, page: Page) -> None:
    """A page may also be cut at the end of a line. Every exporter seen (prometheus_client in single and multiprocess
    mode, the routers' Rust exporter) writes a histogram's buckets before its count, and TYPE after HELP."""
    last = _last_line(body)
    if last.startswith(b"# HELP "):
        raise Unreadable(Why.TRUNCATED, "truncated: the page ends after a HELP line")
    name = _text(_NAME_END.split(last, 1)[0])
    stem, _, part = name.rpartition("_")
    if part == "bucket" or (part == "sum" and f"{stem}_bucket" in page.names and f"{stem}_count" not in page.names):
        raise Unreadable(Why.TRUNCATED, f"truncated: the page ends within the histogram {stem[:80]}")


def _last_line(body: bytes) -> bytes:
    """Looked for in the page's end alone: stripping the whole would copy it, however large it is."""
    end = body[-LONG_LINE:].rstrip()
    if b"\n" not in end:
        end = body.rstrip()
    return end[end.rfind(b"\n") + 1 :].strip()


def _wanted_lines(body: bytes, wanted: Collection[bytes]) -> tuple[dict[bytes, list[bytes]], frozenset[str], int]:
    """The raw lines of each wanted name, every name seen, and the number of lines. Most lines go on with the name of
    the line before: those are told by their beginning alone."""
    names: set[bytes] = set()
    found: dict[bytes, list[bytes]] = {}
    count = 0
    for lines in _chunks(body):
        count += len(lines)
        _sort_out(lines, wanted, names, found)
        if len(names) > MOST_NAMES or count > MOST_LINES:
            raise Unreadable(Why.NOT_METRICS, f"no engine writes such a page: {len(names)} names on {count} lines")
    if any(_odd(name) for name in names):
        return _wanted_lines(b"".join(_plain(line) + b"\n" for lines in _chunks(body) for line in lines), wanted)
    return found, frozenset(_text(n) for n in names if n[:1] != b"#"), count


def _chunks(body: bytes) -> Iterator[list[bytes]]:
    """The page's lines, a stretch at a time: a hostile page of many short lines must not cost many times its size."""
    at, end = 0, len(body)
    while at < end:
        cut = body.find(b"\n", at + CHUNK)
        cut = end if cut < 0 else cut + 1
        lines = body[at:cut].split(b"\n")
        if not lines[-1]:
            lines.pop()  # after the last line feed
        yield lines
        at = cut


def _sort_out(
    lines: list[bytes], wanted: Collection[bytes], names: set[bytes], found: dict[bytes, list[bytes]]
) -> None:
    beginning, sink = b"\n", None
    for line in lines:
        if line.startswith(beginning):
            if sink is not None:
                sink.append(line)
            continue
        cut = line.find(b"{")
        if cut > 0:
            name = line[:cut]
            beginning = line[: cut + 1]
        elif line[:1] == b"#" or not (words := line.split(None, 1)):
            continue
        else:
            name = words[0]
            beginning = b"\n"
        names.add(name)
        sink = found.setdefault(name, []) if name in wanted else None
        if sink is not None:
            sink.append(line)


def _odd(name: bytes) -> bool:
    """White space around a name: legal in the format, written by no exporter known, so read the slow way."""
    return name[:1] != b"#" and name != name.strip()


def _plain(line: bytes) -> bytes:
    """The line without odd white space, and without the exemplar of a sample that has no labels of its own."""
    head, brace, rest = line.strip().partition(b"{")
    head = head.rstrip()
    if head[:1] != b"#" and len(head.split(None, 1)) > 1:
        return head.partition(b"#")[0]
    return head + brace + rest


def _samples(found: Mapping[bytes, list[bytes]]) -> dict[str, list[Sample]]:
    blocks: dict[bytes, Labels] = {}
    return {_text(name): [_sample(line, len(name), blocks) for line in lines] for name, lines in found.items()}


def _sample(line: bytes, start: int, blocks: dict[bytes, Labels]) -> Sample:
    if line[start : start + 1] != b"{":
        return NO_LABELS, _value(line[start:])
    end = line.rfind(b"}") + 1
    block = line[start:end]
    labels = blocks.get(block)
    if labels is None:
        labels = _known_labels(block) if len(block) <= SHORT_BLOCK else _plain_labels(block)
        if labels is None:
            labels, end = _labels(line, start)
        blocks[line[start:end]] = labels
    return labels, _value(line[end:])


@lru_cache(maxsize=2048)
def _known_labels(block: bytes) -> Labels | None:
    """As ``_plain_labels``: an engine writes the same blocks on each of its pages. Nobody changes what is shared so."""
    labels = _plain_labels(block)
    return None if labels is None else MappingProxyType(dict(labels))


def _plain_labels(block: bytes) -> Labels | None:
    """The labels of a block as exporters write them: no escapes, no odd white space. The pairs found must make up the
    whole block, and only the last may end it; None for any other block, which is read by its grammar."""
    if b"\\" in block or block.count(b'"}') != 1:
        return None
    text = block.decode("utf-8", "replace")
    pairs = _PLAIN_PAIR.findall(text)
    return dict(pairs) if sum(len(n) + len(v) + 4 for n, v in pairs) + 1 == len(text) else None


def _labels(line: bytes, start: int) -> tuple[Labels, int]:
    """The label block that opens at ``start``, and where it ends: found by its grammar, as values may hold braces."""
    labels: dict[str, str] = {}
    at = start + 1
    while (pair := _PAIR.match(line, at)) is not None:
        quoted, bare, value, stop = pair.groups()
        labels[_unescape(quoted) if bare is None else _text(bare)] = _unescape(value)
        at = pair.end()
        if stop == b"}":
            return labels, at
    close = _CLOSE.match(line, at)  # no labels, or a comma after the last one
    if close is None:
        raise Unreadable(Why.NOT_METRICS, f"a line of {_text(line[:start])[:80]} is no metrics line")
    return labels, close.end()


def _value(rest: bytes) -> float:
    """The value after name and labels; a timestamp and an exemplar may follow it and are left out."""
    try:
        return float(rest) if b"_" not in rest else _first_of(rest)  # Python takes 1_000 for a number
    except ValueError:
        return _first_of(rest)


def _first_of(rest: bytes) -> float:
    words = rest.partition(b"#")[0].split()
    if 1 <= len(words) <= 2 and all(map(_NUMBER.fullmatch, words)):
        return float(words[0])
    raise Unreadable(Why.NOT_METRICS, "a metrics line has no number for its value")


def _unescape(raw: bytes) -> str:
    text = _text(raw)
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _family(name: str) -> str:
    stem, _, part = name.rpartition("_")
    return stem if part in _PARTS else name
