"""One line of a log file, cut into the records it holds: colours and foreign prefixes stripped, time and rank read.

A line may be wrapped by whatever collected it (journald, docker compose, kubectl, a container runtime, Loki, klog), and
two processes that share a pipe may write two records on one line. Bytes that are no UTF-8 are kept as ``\\xff``.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from pdctl.facts.log_time import Calendar, in_zone_of, read_stamp
from pdctl.facts.log_wrap import unwrapped
from pdctl.model.rank import WHOLE, Rank

LONGEST = 8192  # characters of one record; the middle of a longer one is left out
MOST_PREFIXES = 6  # collectors nested around one record

_ANSI = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_ANSI_TEXT = re.compile(_ANSI.pattern.decode())
# The engines' own prefix: [2026-11-12 03:14:00.123 DP0 TP0], local time (engine releases 0.4.6 to 0.5.23)
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)((?: [A-Z][A-Z_]*\d{1,9})*)\]")
_TAGS = re.compile(r"(?: ?\[[^\]]{0,120}\])*:? *")  # [file.py:42][INFO]: or [http_server]
_RANK = re.compile(r"([A-Z][A-Z_]*?)(\d{1,9})")
_RANK_FIELDS = {"DP": "dp", "PP": "pp", "TP": "tp", "EP": "ep", "ATTN_CP": "cp", "CP": "cp"}  # MOE_DP: no field
_REQUEST_DUMP = re.compile(r"(?:Receive|Finish)\b|\{")  # holds users' text: never cut, whatever stands in it
# Where a second record of a router begins on a line that already holds one.
_GLUED = re.compile(r"(?<=[^\s\d])(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? +(?:TRACE|DEBUG|INFO|WARN|ERROR) )")

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_CLOCK = r"\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_FOREIGN = re.compile(
    rf"""\s*(?:
      (?P<iso>{_ISO})\ +(?:std(?:out|err)\ [FP]\ )?(?:\S+\ [\w@.:/-]+\[\d+\]:\ )?            # kubectl, CRI, short-iso
    | <\d{{1,3}}>1\ (?P<syslog>{_ISO})\ \S+\ \S+\ \S+\ \S+\ (?:-|\[[^\]]*\])\                    # RFC 5424
    | (?P<journal>[A-Z][a-z]{{2}}\ [\ \d]\d\ {_CLOCK})\ \S+\ [^\s:\[]{{1,64}}(?:\[\d+\])?:\      # journald short
    | (?P<loki>[A-Z][a-z]{{2}}\ \d\d?,\ \d{{4}}\ @\ {_CLOCK})\s+
    | [IWEF](?P<glog>\d{{4}}\ {_CLOCK})\ +\d+\ [^\]\s]{{1,120}}\]\                               # glog, klog
    | (?:INFO|DEBUG|WARNING|ERROR|CRITICAL)\ (?P<vllm>\d\d-\d\d\ \d\d:\d\d:\d\d)\ \[[^\]]{{1,120}}\]\  # vLLM
    | \((?P<process>[\w-]{{1,40}})\ pid=\d+\)\                                                  # vLLM
    | \[pod/[^\]]{{1,300}}\]\                                                                   # kubectl --prefix
    | [\w.-]{{1,80}}\ *\|\                                                                      # docker compose
    )""",
    re.X,
)
_ENGINE_DP = re.compile(r"EngineCore_DP(\d+)")
_LEVEL = re.compile(r"\s*(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR)\s+")


class Record(NamedTuple):
    """One record: its text from its own prefix on, its message after all prefixes, its time and rank where it names
    them. ``line`` counts from 1; ``part`` is its place among the records of one line; ``ended`` is False for the last
    record of a text that does not end in a newline."""

    text: str
    message: str
    when: datetime | None
    rank: Rank
    line: int
    part: int = 0
    ended: bool = True


def records(line: bytes, number: int, calendar: Calendar) -> list[Record]:
    """The records of one line, in the order written; none for an empty line. ``calendar`` supplies the year that
    some prefixes leave out, and learns it from those that name it."""
    if b"\x1b" in line:
        line = _ANSI.sub(b"", line)
    text = line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
    if len(text) > LONGEST:
        text = shortened(text)
    found = _plain(text, number, calendar) or _any(text, number, calendar)
    if found and not line.endswith(b"\n"):
        found[-1] = found[-1]._replace(ended=False)
    return found


def _plain(text: str, number: int, calendar: Calendar) -> list[Record] | None:
    """The one record of an engine's ordinary line: the bulk of a log, read without further ado."""
    if not text.startswith("[20") or text.find("[20", 3) > 0:
        return None
    stamp = _STAMP.match(text)
    if stamp is None:
        return None
    end = stamp.end()
    plain = text[end : end + 1] == " " and text[end + 1 : end + 2] != "["
    message = text[end + 1 :] if plain else text[_after_tags(text, end) :]
    return [Record(text, message, calendar.learn(read_stamp(stamp[1])), rank_of(stamp[2]), number)]


def _any(text: str, number: int, calendar: Calendar) -> list[Record]:
    if text[:1] == "{" and (inside := unwrapped(text)) is not None:
        rows = _ANSI_TEXT.sub("", inside.text).splitlines()
        return [
            r for part, row in enumerate(rows) for r in _of_text(shortened(row), number, calendar, inside.when, part)
        ]
    return _of_text(text, number, calendar, None, 0) if text and not text.isspace() else []


def shortened(text: str) -> str:
    """The text, the middle left out where it is longer than a record may be."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} ...[{len(text) - 2 * half} characters left out]... {text[-half:]}"


def _of_text(text: str, number: int, calendar: Calendar, outer: datetime | None, part: int) -> list[Record]:
    found: list[Record] = []
    for piece in (pieces := _pieces(text)):
        message, when, rank = _read_prefixes(piece, calendar, outer)
        if piece is not pieces[-1] and _is_only_prefix(message):
            outer = when
        else:
            found.append(Record(piece, message, when, rank, number, part + len(found)))
    return found


def _pieces(text: str) -> list[str]:
    """The line cut where a further record begins. What stands before the first engine prefix is a piece as well."""
    cuts = {0}
    if text.find("[20", 1) > 0 and not _is_request_dump(text):
        cuts.update(m.start() for m in _STAMP.finditer(text, 1))
    if text.count("http_request{") > 1:
        cuts.update(m.start() for m in _GLUED.finditer(text))
    if len(cuts) == 1:
        return [text]
    starts = sorted(cuts)
    return [text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]


def _is_request_dump(text: str) -> bool:
    stamp = _STAMP.match(text)
    return stamp is not None and _REQUEST_DUMP.match(text, _after_tags(text, stamp.end())) is not None


def _after_tags(text: str, at: int) -> int:
    tags = _TAGS.match(text, at)
    return tags.end() if tags else at


def _is_only_prefix(message: str) -> bool:
    """Whether a piece before another record was nothing but the wrapping of that record."""
    return not message.strip()


def _read_prefixes(piece: str, calendar: Calendar, outer: datetime | None) -> tuple[str, datetime | None, Rank]:
    """Message, time and rank. The innermost time counts; an outer one that names its zone gives the zone."""
    stamp = _STAMP.match(piece)
    if stamp is not None:
        when = calendar.learn(read_stamp(stamp[1]))
        return piece[_after_tags(piece, stamp.end()) :], in_zone_of(when, outer), rank_of(stamp[2])
    return _read_foreign(piece, calendar, outer)


def _read_foreign(piece: str, calendar: Calendar, when: datetime | None) -> tuple[str, datetime | None, Rank]:
    at, rank = 0, WHOLE
    for _ in range(MOST_PREFIXES):
        found = _FOREIGN.match(piece, at)
        if found is None:
            break
        at = found.end()
        when = in_zone_of(calendar.read_foreign(found.groupdict()), when)
        if (dp := _ENGINE_DP.match(found["process"] or "")) is not None:
            rank = Rank(dp=int(dp[1]))
    level = _LEVEL.match(piece, at) if at else None
    return piece[level.end() if level else at :], when, rank


@lru_cache(maxsize=4096)
def rank_of(tokens: str) -> Rank:
    """The rank that a prefix's or a process title's tokens name, in any order: ``DP1 PP0 ATTN_CP0 TP3 EP3``."""
    named = {_RANK_FIELDS[m[1]]: int(m[2]) for m in _RANK.finditer(tokens) if m[1] in _RANK_FIELDS}
    return Rank(**named) if named else WHOLE


def message_of(text: str) -> str:
    """A record's text without the prefixes that stand before its message."""
    return _read_prefixes(text, Calendar(), None)[0]
