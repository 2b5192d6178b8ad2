"""Rows in columns as wide as their widest cell; the last column takes what is left of the line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pdctl.render.look import Look
from pdctl.render.text import columns, pad

GAP = "  "
LEAST = 16  # columns for the last cell, however narrow the screen


def grid(
    head: Sequence[str], rows: Sequence[Sequence[str]], look: Look, *, right: Collection[int] = (), indent: str = "  "
) -> Iterator[str]:
    """A heading and the rows. ``right`` are the columns that hold numbers; a column without any cell is left out. Cells
    are taken as safe to show. A last cell that does not fit is cut, with dots that say so."""
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]
    widths = {i: max(columns(row[i]) for row in (head, *rows)) for i in kept}
    for number, row in enumerate((head, *rows)):
        line = _line(row, kept, widths, right, indent, look.width)
        yield look.paint(line, "dim") if number == 0 else line


def _line(
    row: Sequence[str], kept: Sequence[int], widths: dict[int, int], right: Collection[int], indent: str, width: int
) -> str:
    cells = []
    for i in kept[:-1]:
        filled = " " * (widths[i] - columns(row[i])) + row[i] if i in right else pad(row[i], widths[i])
        cells.append(filled)
    before = indent + GAP.join(cells) + (GAP if cells else "")
    last = row[kept[-1]] if kept else ""
    if kept and kept[-1] in right:
        last = " " * (widths[kept[-1]] - columns(last)) + last
    return (before + cut(last, max(LEAST, width - columns(before)))).rstrip()


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits with three dots after it."""
    if columns(text) <= width:
        return text
    kept = ""
    for char in text:
        if columns(kept + char) > width - 3:
            break
        kept += char
    return f"{kept}..."
