"""Wrapping at words, by columns as a terminal counts them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

# One word of a shell command: quoted parts stay together.
_SHELL_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
# The space of "67 s" is none to break a line at.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s/s|s|min|h|d|KB|MB|GB|%|tokens/s)(?![\w/]))")
# What is filled together: a heading, a blank line, a point or a paragraph with the lines that go on with it.
_PARTS = re.compile(r"(?m)^(?:#.*|[ \t]*|(?:[-*] |\d+\. )?\S.*(?:\n(?![-*] |\d+\. |#)[ \t]*\S.*)*)$")
_POINT = re.compile(r"(?:[-*] |\d+\. |#+ )")
_SGR = re.compile(r"\x1b\[[\d;]*m")


def columns(text: str) -> int:
    """How many terminal columns the text takes: 2 for East Asian wide characters, 0 for combining ones and colours."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(_char_columns(char) for char in _SGR.sub("", text))


def _char_columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, width: int) -> str:
    """The text with spaces up to ``width`` columns; longer text stays whole."""
    return text + " " * max(0, width - columns(text))


def wrap(text: str, width: int, first: str = "", rest: str | None = None) -> Iterator[str]:
    """Lines of at most ``width`` columns, broken between words; a word longer than a line stays whole on its own.

    ``first`` opens the first line, ``rest`` (spaces as wide as ``first`` unless given) all others.
    """
    words = [word.replace("\0", " ") for word in _BEFORE_UNIT.sub("\0", text).split(" ")]
    yield from _fill(words, width, first, " " * columns(first) if rest is None else rest, "")


def wrap_command(command: str, width: int, first: str = "", rest: str | None = None) -> Iterator[str]:
    """A shell command that can be pasted as shown: broken lines end in a backslash, never inside quotes."""
    words = _SHELL_WORD.findall(command)
    if " ".join(words) != command.strip():  # a quote is open: leave it as it is
        words = [command]
    yield from _fill(words, width, first, " " * columns(first) if rest is None else rest, " \\")


def flowed(text: str, width: int) -> Iterator[str]:
    """Lines of prose kept as they are where all of them fit; else its paragraphs and points filled anew. Headings (#)
    and blank lines stand alone."""
    lines = text.splitlines()
    if all(columns(line) <= width for line in lines):
        yield from lines
        return
    for part in _PARTS.findall(text):
        point = _POINT.match(part)
        first = point[0] if point else ""
        yield from wrap(" ".join(part[len(first) :].split()), width, first) if part.strip() else [""]


def _fill(words: Iterable[str], width: int, first: str, rest: str, broken: str) -> Iterator[str]:
    """Greedy fill; ``broken`` ends every line but the last."""
    line, empty, room = first, True, width - len(broken)
    for word in words:
        if not word:
            continue
        if not empty and columns(line) + 1 + columns(word) > room:
            yield line + broken
            line, empty = rest, True
        line = f"{line}{word}" if empty else f"{line} {word}"
        empty = False
    if not empty or first.strip():
        yield line.rstrip()


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names in one breath: "a", "a and b", "a, b and c", with ``most`` "a, b and 7 more"."""
    if most is not None and len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: "1 sample", "9 samples"."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def moment(at: datetime) -> str:
    """A time in UTC to the second: "2026-11-29 20:37:31 UTC"; "(no zone)" where the time names none."""
    if at.tzinfo is None:
        return f"{at:%Y-%m-%d %H:%M:%S} (no zone)"
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def clock(at: datetime) -> str:
    """The time of day in UTC to the second: "20:37:31 UTC"."""
    return moment(at)[11:]


def period(start: datetime, end: datetime) -> str:
    """From when to when: "2026-11-29 20:37:31 to 20:37:39 UTC"; the day again only where it is another."""
    first, last = moment(start), moment(end)
    if first == last:
        return first
    same_zone = first[19:] == last[19:]
    return f"{first[:19] if same_zone else first} to {last[11:] if same_zone and first[:10] == last[:10] else last}"


def rfc3339(at: datetime) -> str:
    """RFC 3339 with Z, with a fraction only where there is one; a time without zone is given without Z."""
    if at.tzinfo is None:
        return at.isoformat()
    return at.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def span(seconds: float) -> str:
    """A length of time for people: "8.0 s", "5 min 12 s", "3 h 4 min", "2 d 5 h"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, big, small_size, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {big} {rest} {small}" if rest else f"{whole // size} {big}"
    raise AssertionError(seconds)
