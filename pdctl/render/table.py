"""Samples for people: a screen that is repainted, and a line a sample where there is no screen."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

from pdctl.model.cluster import Role
from pdctl.render.columns import COLUMNS, Column, Kind
from pdctl.render.csv import note_of
from pdctl.render.look import Look, Mark
from pdctl.render.series import Cell, Gone, Row, Sample
from pdctl.render.spark import Point, spark
from pdctl.render.text import moment, pad, wrap

KEPT = 240  # samples a sparkline can show at most
TITLE, VALUE, TAG = 16, 9, 16  # columns of the full table
CELL, LEAST_SPARK = 9, 8  # columns of the compact one

_SHORT = {
    "bootstrap": "bootstr.", "retracted": "retract.", "token_usage": "KV", "http_active": "HTTP",
    "throughput": "tok/s", "scheduled_s": "sched/s", "finished_s": "done/s", "failed": "failed",
    "aborted": "aborted", "oldest_s": "oldest s", "breakers_open": "breakers", "requests_s": "req/s", "errors": "5xx",
}  # fmt: skip

Key = tuple[str, int | None]


class History:
    """The last rows of each instance and rank, as many as a screen can show."""

    def __init__(self, kept: int = KEPT) -> None:
        self.latest: Sample | None = None
        self._kept = kept
        self._rows: dict[Key, deque[Row]] = {}

    def add(self, sample: Sample) -> None:
        """Takes in a sample."""
        self.latest = sample
        for row in sample.rows:
            self._rows.setdefault((row.instance, row.dp), deque(maxlen=self._kept)).append(row)

    def cells(self, row: Row, key: str) -> list[tuple[float, Cell]]:
        """The cells of one column of an instance or rank that were asked, with when, oldest first."""
        rows = self._rows.get((row.instance, row.dp), ())
        return [(r.t, r.cells[key]) for r in rows if key in r.cells and r.cells[key].asked]


# --- one line a sample --------------------------------------------------------------------------------------------


def sample_line(sample: Sample, look: Look) -> str:
    """One line: the time, then each instance with its numbers as key=value, in the same order each time. ``-`` is a
    number that was not seen; ``counts`` says whether the queues are live counts or gauges' last reports."""
    first, *rest = (_told(row, look) for row in sample.rows)
    return " | ".join((f"{_stamp(sample.at)} {first}", *rest))


def _stamp(at: datetime) -> str:
    """The time to the millisecond, as wide in every line."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _told(row: Row, look: Look) -> str:
    words = [f"{column.key}={_plain(row.cells[column.key], column)}" for column in _shown(row)]
    if row.role != Role.ROUTER:
        words.append(f"counts={_counts(row)}")
    return look.say(" ".join([name_of(row), *words, f"note={note_of(row).replace(' ', ',') or '-'}"]))


def _plain(cell: Cell, column: Column) -> str:
    return _number(cell.best, column)


def _number(value: float | None, column: Column) -> str:
    return "-" if value is None else f"{value:.{column.digits}f}"


def _counts(row: Row) -> str:
    queues = [row.cells[c.key] for c in _shown(row) if c.kind is Kind.QUEUE]
    live = [cell for cell in queues if cell.live is not None]
    return "gauge" if not live else "live" if len(live) == len(queues) else "mixed"


def name_of(row: Row) -> str:
    """The instance, with its rank: "prefill-0", "prefill-0/dp2"."""
    return row.instance if row.dp is None else f"{row.instance}/dp{row.dp}"


def _shown(row: Row) -> Iterator[Column]:
    return (column for column in COLUMNS if column.shown and column.key in row.cells)


# --- the screen ---------------------------------------------------------------------------------------------------


def table_lines(history: History, look: Look, title: str, height: int | None = None) -> list[str]:
    """The newest sample with its past as sparklines: in full, or a line an instance where that is too high, or as many
    of those as fit, with a count of the rest. ``height`` in lines; None for as many as it takes."""
    sample = history.latest
    if sample is None:
        return [title, "no sample yet"]
    head = [look.paint(f"{title}  sample {sample.number} at {moment(sample.at)}", "bold")]
    full = [*head, *(line for row in sample.rows for line in _block(row, history, look))]
    if height is None or len(full) <= height:
        return full
    compact = [*head, *_compact(sample, history, look)]
    if len(compact) <= height:
        return compact
    left = len(compact) - height + 1
    return [*compact[: height - 1], f"and {left} more lines: a higher window, or -o csv, shows them"]


def _block(row: Row, history: History, look: Look) -> Iterator[str]:
    past = {column.key: history.cells(row, column.key) for column in _shown(row)}
    yield _heading(row, any(past.values()), look)
    if not any(cell.best is not None for cells in past.values() for _, cell in cells):
        return
    width = max(LEAST_SPARK, min(KEPT, look.width - 2 - TITLE - VALUE - TAG - 2))
    absent: list[str] = []
    for column in _shown(row):
        cells = past[column.key]
        if not cells or (cells[-1][1].is_absent and all(cell.best is None for _, cell in cells)):
            absent.append(column.title)
            continue
        t, cell = cells[-1]
        value = _plain(cell, column).rjust(VALUE)
        tag = pad(_tag(cell, column, row.t - t), TAG)
        yield f"  {pad(column.title, TITLE)}{value} {tag} {_drawn(cells, column, width, look)}".rstrip()
    if absent:
        yield from wrap(", ".join(absent), look.width, "  not on its page: ", "    ")


def _heading(row: Row, asked: bool, look: Look) -> str:
    note = note_of(row)
    said = look.say("  ".join(word for word in (name_of(row), row.role.value, note if asked else "not asked") if word))
    if row.missed or not asked:
        return f"{look.mark(Mark.UNKNOWN)} {look.paint(said, Mark.UNKNOWN)}"
    return look.paint(said, Mark.WARN if row.restarted else "bold")


def _tag(cell: Cell, column: Column, age: float) -> str:
    """What kind of number stands there: a live count (with the gauge where they differ), a gauge, why there is none,
    or how old it is where this sample did not ask for it."""
    if cell.best is None:
        return str(cell.gone)
    if age > 0:
        return f"{age:.0f} s ago"
    if cell.live is not None:
        gauge = _number(cell.value, column)
        return "live" if gauge in ("-", _number(cell.live, column)) else f"live, gauge {gauge}"
    return "gauge" if column.kind in (Kind.QUEUE, Kind.GAUGE) else ""


def _drawn(cells: list[tuple[float, Cell]], column: Column, width: int, look: Look) -> str:
    top = 1.0 if column.key in ("token_usage", "idle") else None
    return spark([_point(cell) for _, cell in cells[-width:]], look.ascii, top)


def _point(cell: Cell) -> Point:
    if cell.best is not None:
        return cell.best
    if cell.gone is Gone.RESTART:
        return "restart"
    return "absent" if cell.is_absent else None


def _compact(sample: Sample, history: History, look: Look) -> Iterator[str]:
    """A line an instance, under a heading for each role."""
    names = max(len(look.say(name_of(row))) for row in sample.rows) + 4
    for role in dict.fromkeys(row.role for row in sample.rows):
        rows = [row for row in sample.rows if row.role == role]
        room = (look.width - names - LEAST_SPARK) // CELL
        columns = list(_shown(rows[0]))[: max(1, room)]
        yield look.paint(pad(role.value, names) + "".join(_short(c).rjust(CELL) for c in columns), "dim")
        for row in rows:
            yield _compact_line(row, columns, names, history, look)


def _compact_line(row: Row, columns: list[Column], names: int, history: History, look: Look) -> str:
    past = [history.cells(row, column.key) for column in columns]
    newest = [cells[-1][1] if cells else Cell() for cells in past]
    values = "".join(_plain(cell, column).rjust(CELL) for cell, column in zip(newest, columns, strict=True))
    width = max(LEAST_SPARK, min(KEPT, look.width - names - CELL * len(columns) - 1))
    unread = bool(row.missed) or not any(past)
    mark = look.mark(Mark.UNKNOWN) if unread else look.mark(Mark.WARN) if row.restarted else " "
    drawn = _drawn(past[0], columns[0], width, look)
    return f"{mark} {pad(look.say(name_of(row)), names - 2)}{values} {drawn}".rstrip()


def _short(column: Column) -> str:
    """A heading of at most eight characters."""
    return _SHORT.get(column.key, column.title)
