"""A probe for people and for programs: the matrix of path by kind, times, the plan and its load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pdctl.model.finding import Finding, Report, Severity, by_weight
from pdctl.model.probe import Attempt, Cell, Course, Fate, Matrix, Row, Spread, Trial, row_of
from pdctl.model.probe_plan import Load, ProbePlan, Stage
from pdctl.render.human import finding_lines, headline, muted_lines, other_lines, report_foot
from pdctl.render.look import Look, Mark
from pdctl.render.text import columns, counted, listed, pad, wrap
from pdctl.render.wire import plain, text

MARK_OF = {
    Fate.GOOD: Mark.OK,
    Fate.NOT_RUN: Mark.UNCHECKED,
    Fate.CLOSED: Mark.WARN,
    Fate.WRONG: Mark.BAD,
    Fate.FAILED: Mark.BAD,
    Fate.CUT: Mark.BAD,
    Fate.HUNG: Mark.BAD,
}
WORD = {Fate.WRONG: "wrong", Fate.FAILED: "fail", Fate.CUT: "cut off", Fate.HUNG: "hang"}
BROKEN = (Fate.WRONG, Fate.FAILED, Fate.CUT, Fate.HUNG)
GAP = "  "


# --- for people -------------------------------------------------------------------------------------------------------


def probe_lines(report: Report, matrix: Matrix, notes: Iterable[str], look: Look) -> Iterator[str]:
    """The verdict, the matrix with its times, the findings in full, and what bounds them."""
    ranked = by_weight(f for f in report.findings if f.muted is None)
    lead = next((f for f in ranked if f.severity is not Severity.INFO), None)
    yield from headline(report, lead, look)
    yield from matrix_lines(matrix, look)
    yield from _courses(matrix.courses, look)
    yield from _remarks(matrix.remarks, look)
    if lead is not None:
        yield ""
        yield from finding_lines(lead, look, report)
    yield from _others([f for f in ranked if f is not lead], look, lead is not None)
    yield from muted_lines(report, look)
    yield from _not_tried(matrix, look)
    yield from _meanings(notes, look)
    yield from report_foot(report, look)


def _others(findings: list[Finding], look: Look, is_led: bool) -> Iterator[str]:
    yield from other_lines(findings, look, "Also found" if is_led else "Found")


def matrix_lines(matrix: Matrix, look: Look) -> Iterator[str]:
    """Path by kind; one line a cell where a line a path does not fit."""
    rows = [row for row in matrix.rows if any(c.fate is not Fate.NOT_RUN for c in row.cells.values())]
    if not rows:
        return
    yield ""
    table = [("path", *(t.value for t in matrix.trials))]
    table += [(look.say(row.to), *(cell_words(row.cells[t], t) for t in matrix.trials)) for row in rows]
    widths = [
        max(columns(line[i]) + (2 if i and n else 0) for n, line in enumerate(table)) for i in range(len(table[0]))
    ]
    gap = next((g for g in (GAP, " ") if len(GAP) + sum(widths) + len(g) * (len(widths) - 1) <= look.width), None)
    if gap is None:
        yield from _stacked(rows, matrix.trials, look)
    else:
        heads = zip(table[0], widths, strict=True)
        yield GAP + look.paint(gap.join(pad(word, width) for word, width in heads).rstrip(), "dim")
        for row, line in zip(rows, table[1:], strict=True):
            yield GAP + gap.join(_cells(row, line, matrix.trials, widths, look)).rstrip()
    yield from _times(rows, matrix.trials, look)


def _cells(row: Row, line: tuple[str, ...], trials: tuple[Trial, ...], widths: list[int], look: Look) -> Iterator[str]:
    yield pad(line[0], widths[0])
    for trial, words, width in zip(trials, line[1:], widths[1:], strict=True):
        yield f"{look.mark(MARK_OF[row.cells[trial].fate])} {pad(words, width - 2)}"


def _stacked(rows: list[Row], trials: tuple[Trial, ...], look: Look) -> Iterator[str]:
    for row in rows:
        yield f"{GAP}{look.say(row.to)}"
        for trial in trials:
            cell = row.cells[trial]
            words = f"{trial.value}: {cell_words(cell, trial)}"
            yield from wrap(words, look.width, f"    {look.mark(MARK_OF[cell.fate])} ")


def cell_words(cell: Cell, trial: Trial) -> str:
    """A cell in few words; the mark before it says the rest."""
    if cell.fate is Fate.NOT_RUN:
        return "not tried" if cell.why != "it closes the connection after each answer" else "kept none"
    if trial is Trial.IDLE and cell.fate is Fate.CLOSED:
        return f"closed, {cell.idle_fails_s:g} s" if cell.idle_fails_s is not None else "closed"
    if cell.fate in BROKEN:
        return f"{cell.tried - cell.good}/{cell.tried} {WORD[cell.fate]}"
    if trial is Trial.IDLE:
        return f"ok {cell.idle_ok_s:g} s" if cell.idle_ok_s is not None else "ok"
    if trial is Trial.ABORTS:
        return "ok after"
    if cell.tried == 1 and cell.took is not None:
        return f"ok {seconds(cell.took.median)}"
    return f"ok {cell.good}/{cell.tried}"


def _times(rows: list[Row], trials: tuple[Trial, ...], look: Look) -> Iterator[str]:
    """The times of what was answered: medians, and the greatest where there were several."""
    told = [(row, t) for row in rows for t in trials if t not in (Trial.HEALTH, Trial.ABORTS) and row.cells[t].took]
    if not told:
        return
    yield ""
    yield from wrap("Times of what was answered (median; most)", look.width, "", "  ")
    width = max(columns(look.say(f"{row.to} {t.value}")) for row, t in told) + 2
    for row, trial in told:
        cell = row.cells[trial]
        first = cell.first if trial in (Trial.MANY, Trial.ROUNDS) else None  # the others are not streamed
        parts = (("first token", first), ("between tokens", cell.between), ("whole", cell.took))
        words = ", ".join(f"{name} {_spread(spread)}" for name, spread in parts if spread is not None)
        name = look.say(f"{row.to} {trial.value}")
        yield from wrap(words, look.width, f"{GAP}{pad(name, width)}", " " * (width + len(GAP)))
    yield from (line for row in rows for line in _connections(row, look))


def _connections(row: Row, look: Look) -> Iterator[str]:
    used = counted(row.reused, "request")
    words = f"{look.say(row.to)}: {counted(row.opened, 'connection')} opened, {used} over a used one"
    yield from wrap(words, look.width, GAP)


def _spread(spread: Spread) -> str:
    most = f" ({seconds(spread.most)})" if spread.count > 1 else ""
    return f"{seconds(spread.median)}{most}"


def seconds(value: float) -> str:
    """Seconds as people read them: "3 ms", "0.31 s", "12.4 s"."""
    if value < 0.0995:
        return f"{value * 1000:.1f} ms" if value < 0.001 else f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def _courses(courses: Iterable[Course], look: Look) -> Iterator[str]:
    """What the cluster counted meanwhile; a count that stayed 0 goes without saying."""
    told: dict[str, list[str]] = {}
    for course in courses:
        if course.most > 0:
            kind = "" if course.live else " (gauge)"
            words = f"{course.name}{kind} {course.least:g} to {course.most:g}, {course.last:g} at the end"
            told.setdefault(course.instance, []).append(words)
    if told:
        yield ""
        yield "Counted meanwhile"
    for name, words_of in told.items():
        yield from wrap(look.say(f"{name}: {'; '.join(words_of)}"), look.width, GAP, "    ")


def _remarks(remarks: Iterable[str], look: Look) -> Iterator[str]:
    for index, remark in enumerate(remarks):
        if index == 0:
            yield ""
            yield "By difference"
        yield from wrap(look.say(remark), look.width, f"{GAP}- ")


def _meanings(notes: Iterable[str], look: Look) -> Iterator[str]:
    for index, note in enumerate(notes):
        if index == 0:
            yield ""
            yield "What was asked"
        yield from wrap(look.say(note), look.width, f"{GAP}- ")


def _not_tried(matrix: Matrix, look: Look) -> Iterator[str]:
    """What was left out and why, once for all paths of which the same kinds were left out for the same reason."""
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for row in matrix.rows:
        by_why: dict[str, list[str]] = {}
        for trial, cell in row.cells.items():
            if cell.fate is Fate.NOT_RUN and cell.why not in (None, "not tried"):
                by_why.setdefault(cell.why or "", []).append(trial.value)
        for why, trials in by_why.items():
            groups.setdefault((why, tuple(trials)), []).append(row.to)
    if groups:
        yield ""
        yield "Not tried"
    for (why, kinds), names in groups.items():
        words = look.say(f"{listed(kinds)} at {listed(names, 6)}: {why}")
        yield from wrap(words, look.width, f"{GAP}{look.mark(Mark.UNCHECKED)} ", "    ")


# --- the plan ---------------------------------------------------------------------------------------------------------


def load_line(load: Load, deadline: float) -> str:
    """The load a plan puts on the cluster, in one line."""
    return (
        f"up to {counted(load.requests, 'request')}, {load.at_once} at once, up to {load.tokens} new tokens, about "
        f"{load.seconds:.0f} s where all is answered, {deadline:g} s at most"
    )


def plan_lines(plan: ProbePlan, deadline: float, look: Look) -> Iterator[str]:
    """The plan in the order it is carried out."""
    yield from wrap(f"Load: {load_line(plan.load, deadline)}", look.width, "", "  ")
    for number, step in enumerate(plan.steps, start=1):
        words = "; at the same time ".join(f"{look.say(stage.title)}: {stage_words(stage)}" for stage in step)
        yield from wrap(words, look.width, f"{GAP}{number:2}. ", "      ")
    for note in dict.fromkeys(f"{way.name}: {way.note}" for way in plan.ways if way.note):
        yield from wrap(look.say(note), look.width, f"{GAP}- ")


def stage_words(stage: Stage) -> str:
    """What a stage sends."""
    if stage.trial is Trial.HEALTH:
        return "one health check"
    if stage.trial is Trial.ONE:
        return f"{counted(stage.repeat, 'generation')} on a fresh connection"
    if stage.trial is Trial.IDLE:
        gaps = ", ".join(f"{gap:g}" for gap in stage.gaps)
        return f"a connection used again after {gaps} s without a request"
    if stage.trial is Trial.ROUNDS:
        return f"{stage.agents} conversations of {stage.rounds} rounds, each on one kept-alive connection, streamed"
    if stage.trial is Trial.MANY:
        waves = f", {stage.repeat} times" if stage.repeat > 1 else ""
        return f"{stage.at_once} generations at once, streamed{waves}"
    return f"{stage.at_once} requests whose clients leave within a second, then one generation"


# --- for programs -----------------------------------------------------------------------------------------------------


def plan_value(plan: ProbePlan, deadline: float) -> dict[str, Any]:
    """The plan as JSON says it."""
    load = plan.load
    return {
        "load": {
            "requests": load.requests, "at_once": load.at_once, "tokens": load.tokens, "seconds": load.seconds,
            "deadline_s": deadline,
        },
        "steps": [[_stage_value(stage) for stage in step] for step in plan.steps],
        "left_out": [{"to": text(x.to), "trial": x.trial.value, "why": text(x.why)} for x in plan.left_out],
        "notes": {text(way.name): text(way.note) for way in plan.ways if way.note},
    }  # fmt: skip


def _stage_value(stage: Stage) -> dict[str, Any]:
    return {
        "to": text(stage.way.name), "via": stage.way.via, "trial": stage.trial.value, "requests": stage.requests,
        "at_once": stage.at_once, "tokens": stage.tokens, "stream": stage.stream, "gaps_s": list(stage.gaps),
        "agents": stage.agents, "rounds": stage.rounds, "repeat": stage.repeat,
        "url": text(stage.way.instance.url or ""), "through_host": stage.way.host,
    }  # fmt: skip


def matrix_value(matrix: Matrix) -> dict[str, Any]:
    """The matrix as JSON says it; times in seconds."""
    return {
        "paths": [
            {
                "to": text(row.to), "via": row.via, "role": row.role, "opened": row.opened, "reused": row.reused,
                "cells": {trial.value: _cell_value(cell) for trial, cell in row.cells.items()},
            }
            for row in matrix.rows
        ],
        "remarks": [text(remark) for remark in matrix.remarks],
        "counts": [_course_value(course) for course in matrix.courses],
    }  # fmt: skip


def _cell_value(cell: Cell) -> dict[str, Any]:
    value: dict[str, Any] = {"fate": cell.fate.value, "tried": cell.tried, "good": cell.good}
    if cell.fate is Fate.NOT_RUN:
        return value | {"why": text(cell.why or "")}
    value |= {"errors": {text(word): count for word, count in (cell.errors or {}).items()}}
    for key, spread in (("first_s", cell.first), ("between_s", cell.between), ("took_s", cell.took)):
        value[key] = None if spread is None else _spread_value(spread)
    for key in ("idle_ok_s", "idle_fails_s", "closed_after_s"):
        value[key] = plain(getattr(cell, key))
    return value | {"hung_at": list(cell.hung_at)}


def _course_value(course: Course) -> dict[str, Any]:
    return {
        "instance": text(course.instance), "name": course.name, "readings": course.readings,
        "least": plain(course.least), "most": plain(course.most), "last": plain(course.last), "live": course.live,
    }  # fmt: skip


def _spread_value(spread: Spread) -> dict[str, Any]:
    return {
        "count": spread.count, "median": plain(spread.median), "p95": plain(spread.p95), "most": plain(spread.most)
    }  # fmt: skip


def attempt_value(attempt: Attempt) -> dict[str, Any]:
    """One attempt as JSON and captures say it."""
    return {key: text(value) if isinstance(value, str) else plain(value) for key, value in row_of(attempt).items()}
