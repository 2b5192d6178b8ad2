"""Two windows side by side, for people and as JSON (schema ``pdctl.compare/1``)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pdctl.model.comparison import Comparison, Difference, Kind, Side, Spread
from pdctl.model.finding import Finding, Severity, Status
from pdctl.render.look import Look, Mark
from pdctl.render.text import counted, listed, period, rfc3339, wrap
from pdctl.render.wire import dumps, finding_value, number, text
from pdctl.render.words import MARK_OF

SCHEMA = "pdctl.compare/1"
TITLES = {
    Kind.FINDING: "Findings",
    Kind.INSTANCE: "Instances",
    Kind.RESTART: "Restarts",
    Kind.VERSION: "Releases",
    Kind.SETTING: "Settings",
    Kind.SCRIPT: "Scripts and files",
    Kind.GAUGE: "Gauges, beyond their own noise",
    Kind.RATE: "Rates, beyond their own noise",
    Kind.SOCKETS: "Sockets",
}
NOUNS = {
    Kind.FINDING: ("finding", "findings"),
    Kind.INSTANCE: ("instance", "instances"),
    Kind.RESTART: ("process", "processes"),
    Kind.VERSION: ("release", "releases"),
    Kind.SETTING: ("setting", "settings"),
    Kind.SCRIPT: ("file", "files"),
    Kind.GAUGE: ("gauge", "gauges"),
    Kind.RATE: ("rate", "rates"),
    Kind.SOCKETS: ("group of connections", "groups of connections"),
}
MOST_NAMES = 6  # of one reason for not comparing; all are in -o json


def compare_lines(comparison: Comparison, look: Look) -> Iterator[str]:
    """The verdict in a line, then what differs by kind, what is alike, what could not be compared."""
    yield from _head(comparison, look)
    yield from _side("A", comparison.before, look)
    yield from _side("B", comparison.after, look)
    yield from _load(comparison.load, look)
    for kind, rows in groupby(comparison.differences, key=lambda d: d.kind):
        yield ""
        yield TITLES[kind]
        for row in rows:
            yield from _row(row, look)
    yield from _alike(comparison, look)
    yield from _gaps(comparison, look)


def _head(comparison: Comparison, look: Look) -> Iterator[str]:
    count = len(comparison.differences)
    if not comparison.compared and not count:
        mark, word, said = Mark.UNKNOWN, "CANNOT TELL", "nothing could be compared"
    elif count:
        mark, word, said = Mark.WARN, "DIFFERS", f"{counted(count, 'difference')} from A to B"
    else:
        mark, word, said = Mark.OK, "ALIKE", f"{counted(comparison.compared, 'thing')} compared, none differs"
    yield from wrap(said, look.width, f"{look.mark(mark)} {look.paint(word, mark)}  ", "  ")


def _side(letter: str, side: Side, look: Look) -> Iterator[str]:
    status = "nothing wrong was seen" if side.report.status is Status.OK else f"was {side.report.status.value}"
    said = f"{side.source}: {period(side.start, side.end)}, {counted(side.samples, 'sample')}; {status}"
    yield from wrap(look.say(said), look.width, f"  {letter}  ", "     ")


def _load(load: Difference | None, look: Look) -> Iterator[str]:
    if load is not None:
        said = f"Another load: {load.subject} {load.before} -> {load.after} {load.unit}; gauges and rates follow it."
        yield from wrap(look.say(said), look.width, "  ", "  ")


def _row(row: Difference, look: Look) -> Iterator[str]:
    if row.finding is not None:
        yield from _finding(row, row.finding, look)
        return
    said = f"{row.subject} {row.what}: {_words(row.before)} -> {_words(row.after)}"
    if row.unit:
        said += f" {row.unit}"
    if row.noise is not None:
        said += f" ({f'{row.by}, ' if row.by == 'mean' else ''}chance alone makes up to {row.noise:.2g})"
    yield from wrap(look.say(said), look.width, f"  {look.mark(Mark.WARN)} ", "    ")


def _finding(row: Difference, finding: Finding, look: Look) -> Iterator[str]:
    new = row.before == "not there"
    mark = MARK_OF[finding.severity] if new else Mark.OK if finding.severity is not Severity.INFO else Mark.INFO
    muted = ", muted" if finding.muted is not None else ""
    said = f"{'new' if new else 'gone'}: {finding.name} at {row.subject} ({finding.severity.value}{muted})"
    yield from wrap(look.say(said), look.width, f"  {look.mark(mark)} ", "    ")
    yield from wrap(look.say(finding.summary), look.width, "      ")


def _words(value: str | None) -> str:
    return "not there" if value is None else value or '""'


def _alike(comparison: Comparison, look: Look) -> Iterator[str]:
    rows = sorted(comparison.alike, key=lambda pair: list(Kind).index(pair[0]))
    if rows:
        yield ""
        said = listed([counted(count, *NOUNS[kind]) for kind, count in rows])
        yield from wrap(f"Alike: {said}", look.width, f"{look.mark(Mark.OK)} ", "  ")


def _gaps(comparison: Comparison, look: Look) -> Iterator[str]:
    rows = comparison.not_compared
    if rows:
        yield ""
        yield f"Not compared: {len(rows)}"
    for why in dict.fromkeys(row.why for row in rows):
        names = [f"{row.subject} {row.what}" for row in rows if row.why == why]
        said = look.say(f"{listed(names, MOST_NAMES)}: {why}")
        yield from wrap(said, look.width, f"  {look.mark(Mark.UNCHECKED)} ", "    ")


# --- JSON --------------------------------------------------------------------------------------------------------


def compare_json(comparison: Comparison) -> str:
    """One JSON document."""
    return dumps(compare_value(comparison), indent=2)


def compare_value(comparison: Comparison) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "differs": bool(comparison.differences),
        "load_differs": comparison.load is not None,
        "before": _side_value(comparison.before),
        "after": _side_value(comparison.after),
        "differences": [_value(row) for row in comparison.differences],
        "alike": {kind.value: count for kind, count in comparison.alike},
        "not_compared": [
            {"subject": text(row.subject), "what": text(row.what), "why": text(row.why)}
            for row in comparison.not_compared
        ],
    }


def _side_value(side: Side) -> dict[str, Any]:
    return {
        "source": text(side.source),
        "cluster": text(side.report.cluster),
        "status": side.report.status.value,
        "window": {"start": rfc3339(side.start), "end": rfc3339(side.end), "samples": side.samples},
    }


def _value(row: Difference) -> dict[str, Any]:
    value: dict[str, Any] = {
        "kind": row.kind.value,
        "subject": text(row.subject),
        "what": text(row.what),
        "before": None if row.before is None else text(row.before),
        "after": None if row.after is None else text(row.after),
    }
    if row.spreads is not None:
        value |= {"by": row.by, "unit": row.unit, "noise": number(row.noise or 0.0)}
        value["spreads"] = [_spread(spread) for spread in row.spreads]
    if row.finding is not None:
        value["finding"] = finding_value(row.finding)
    return value


def _spread(spread: Spread) -> dict[str, Any]:
    return {
        "readings": spread.count,
        "median": number(spread.median),
        "mean": number(spread.mean),
        "spread": number(spread.scale),
        "worth": number(round(spread.worth, 2)),
    }
