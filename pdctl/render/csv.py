"""Samples as CSV and as JSON lines, for programs: the same columns in every release of an engine, in a fixed order."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from pdctl.model.answer import Fact, Why
from pdctl.render.columns import COLUMNS, Kind
from pdctl.render.escape import safe
from pdctl.render.series import Cell, Gone, Row, Sample
from pdctl.render.text import rfc3339
from pdctl.render.wire import dumps, number, text

LIVE = "_live"  # ending of the column that holds the count asked for, beside the gauge's
_VALUES = tuple(name for c in COLUMNS for name in ((c.key, c.key + LIVE) if c.kind is Kind.QUEUE else (c.key,)))
HEADER = ("at", "t", "sample", "instance", "role", "rank", *_VALUES, "note")


def csv_header() -> str:
    """The header line."""
    return ",".join(HEADER)


def csv_lines(sample: Sample) -> Iterator[str]:
    """One line an instance (and rank). What was not seen is an empty field, never 0; ``note`` says why."""
    for row in sample.rows:
        values = dict(_numbers(row))
        head = (rfc3339(sample.at), f"{sample.t:.3f}", sample.number, safe(row.instance), row.role.value)
        rank = "" if row.dp is None else row.dp
        yield _line((*head, rank, *(values.get(name, "") for name in _VALUES), note_of(row)))


def jsonl_lines(sample: Sample) -> Iterator[str]:
    """One object an instance (and rank). A number that was not seen is null, and ``gone`` says why by its key."""
    for row in sample.rows:
        yield dumps(_row_value(sample, row))


def note_of(row: Row) -> str:
    """What a reader of the numbers must know: a restart, answers that were missed; empty when there is nothing."""
    notes = ["restart"] if row.restarted else []
    notes += [f"{fact}:{why}" for fact, why in row.missed.items() if not _expected(fact, why)]
    return " ".join(notes)


def _expected(fact: Fact, why: str) -> bool:
    """Releases before 0.5.8.post1 have no live counts: that they are not found is no news in every line."""
    return fact == Fact.LOADS and why == Why.NOT_FOUND


def _numbers(row: Row) -> Iterator[tuple[str, float | int | str]]:
    for key, cell in row.cells.items():
        if cell.value is not None:
            yield key, number(round(cell.value, 6))
        if cell.live is not None:
            yield key + LIVE, number(round(cell.live, 6))


def _line(fields: tuple[object, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(fields)
    return out.getvalue()


def _row_value(sample: Sample, row: Row) -> dict[str, Any]:
    return {
        "kind": "sample",
        "at": rfc3339(sample.at),
        "t": round(sample.t, 3),
        "sample": sample.number,
        "instance": text(row.instance),
        "role": row.role.value,
        "rank": None if row.dp is None else {"dp": row.dp},
        "values": {key: _number(cell.value) for key, cell in row.cells.items()},
        "live": {key: _number(cell.live) for key, cell in row.cells.items() if cell.live is not None},
        "gone": {key: _reason(cell) for key, cell in row.cells.items() if cell.gone is not None},
        "missed": {str(fact): why for fact, why in row.missed.items()},
        "restarted": row.restarted,
    }


def _number(value: float | None) -> float | int | str | None:
    return None if value is None else number(round(value, 6))


def _reason(cell: Cell) -> str:
    return str(cell.gone or Gone.ABSENT)
