"""At which line of a TOML text a table or key stands. The readers of TOML say what is wrong, not where."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = re.compile(r"""\s*(\[\[?)\s*["']?([\w-]+)["']?\s*\]\]?\s*(?:\#.*)?$""")
_KEY = re.compile(r"""\s*["']?([\w-]+)["']?\s*[=.]""")
_TRIPLE = re.compile(r'"""|' + "'''")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the file something stands: a table (None: before the first), which of its kind (from 0), a key of it
    (None: the table as a whole)."""

    table: str | None = None
    index: int = 0
    key: str | None = None


def line_of(text: str, place: Place) -> int | None:
    """The line, from 1, at which ``place`` stands; that of its table where the key is not there, None where neither is.

    >>> line_of('name = "a"\\n[[host]]\\nname = "b"\\n', Place("host", 0, "name"))
    3
    """
    table_line = None
    for number, table, index, key in _entries(text):
        if (table, index) != (place.table, place.index):
            continue
        if key == place.key:
            return number
        if key is None:
            table_line = number
    return table_line


def _entries(text: str) -> Iterator[tuple[int, str | None, int, str | None]]:
    """(line, table, index, key) of each header (key None) and key; what stands inside multi-line strings is none."""
    table: str | None = None
    seen: dict[str, int] = {}
    closing = None
    for number, line in enumerate(text.splitlines(), 1):
        if closing is None:
            if header := _HEADER.match(line):
                table = header[2]
                seen[table] = seen.get(table, -1) + 1
                yield number, table, seen[table], None
            elif key := _KEY.match(line):
                yield number, table, seen.get(table, 0) if table else 0, key[1]
        closing = _still_open(line, closing)


def _still_open(line: str, closing: str | None) -> str | None:
    """The quotes that end the multi-line string in which ``line`` ends, None where it ends outside of one."""
    for quotes in _TRIPLE.findall(line):
        if closing is None:
            closing = quotes
        elif quotes == closing:
            closing = None
    return closing
