"""What ``pdctl probe`` writes: its report with the matrix, its plan, saved probes, two of them compared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from pdctl.commands.aim import handed_out
from pdctl.commands.common import Output
from pdctl.errors import INTERRUPTED, UsageError
from pdctl.exits import FailOn, exit_of

if TYPE_CHECKING:
    from pdctl.model.cluster import Cluster
    from pdctl.model.finding import Report
    from pdctl.model.probe import Attempt, Matrix
    from pdctl.model.probe_compare import Compared, Saved
    from pdctl.model.probe_plan import ProbePlan
    from pdctl.model.window import Window


class Result:
    """A probe judged: its report, its matrix, every attempt, and the plan it was made by (None for a recording)."""

    def __init__(
        self, window: Window, cluster: Cluster, plan: ProbePlan | None, deadline: float, stopped: str | None
    ) -> None:
        from pdctl.checks.only_probe import judge_only_probe
        from pdctl.checks.probe_matrix import attempts_of, matrix_of
        from pdctl.checkup.mutes import applied

        left_out = [(row.to, row.trial, row.why) for row in plan.left_out] if plan is not None else []
        self.plan = plan
        self.deadline = deadline
        self.cluster = cluster
        self.started = window.start
        self.report: Report = applied(judge_only_probe(window, cluster, stopped=stopped), cluster)[0]
        self.matrix: Matrix = matrix_of(window, cluster, left_out)
        made = [a for rows in attempts_of(window).values() for a in rows]
        self.attempts: list[Attempt] = sorted(made, key=lambda a: a.begun_s or 0.0)

    @property
    def notes(self) -> list[str]:
        """What direct generations mean, for the ways that were asked one."""
        ways = self.plan.ways if self.plan is not None else ()
        return [f"{way.name}: {way.note}" for way in ways if way.note]

    def value(self) -> dict[str, Any]:
        """What the JSON report holds besides."""
        from pdctl.render.probe import attempt_value, matrix_value, plan_value

        planned = plan_value(self.plan, self.deadline) if self.plan is not None else None
        return {"plan": planned, **matrix_value(self.matrix), "attempts": list(map(attempt_value, self.attempts))}


def emit_probe(result: Result, output: Output, *, ascii_only: bool, fail_on: FailOn, interrupted: bool) -> NoReturn:
    """Writes the report in the form asked for and ends the command."""
    from pdctl import outlet

    result.report = handed_out(result.report)
    outlet.write_lines(_lines(result, output, ascii_only))
    raise typer.Exit(INTERRUPTED if interrupted else exit_of(result.report.status, fail_on))


def _lines(result: Result, output: Output, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.look import look
    from pdctl.render.wire import dumps, report_jsonl, report_value

    if output is Output.HUMAN:
        from pdctl.render.probe import probe_lines

        yield from probe_lines(result.report, result.matrix, result.notes, look(ascii_only))
    elif output is Output.SHORT:
        from pdctl.render.short import short_line

        yield short_line(result.report, look(ascii_only))
    elif output is Output.JSON:
        yield dumps(report_value(result.report) | {"probe": result.value()}, indent=2)
    else:
        from pdctl.render.probe import attempt_value

        yield from (dumps({"kind": "attempt"} | _renamed(attempt_value(a))) for a in result.attempts)
        yield report_jsonl(result.report)


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """An attempt's own kind under another key: each line of JSONL says what it is under "kind"."""
    return {("request" if key == "kind" else key): value for key, value in row.items()}


def emit_plan(plan: ProbePlan, deadline: float, output: Output, *, ascii_only: bool) -> NoReturn:
    """Writes the plan and ends the command."""
    from pdctl import outlet
    from pdctl.render.look import look
    from pdctl.render.probe import load_line, plan_lines, plan_value
    from pdctl.render.wire import dumps

    if output is Output.HUMAN:
        outlet.write_lines(plan_lines(plan, deadline, look(ascii_only)))
    elif output is Output.SHORT:
        outlet.write_lines([load_line(plan.load, deadline)])
    else:
        value = {"schema": "pdctl.probe-plan/1", **plan_value(plan, deadline)}
        outlet.write_lines([dumps(value, indent=2 if output is Output.JSON else None)])
    raise typer.Exit(0)


# --- saved probes -----------------------------------------------------------------------------------------------------


def check_place(path: Path) -> None:
    """Raises UsageError where a probe can't be saved: better before its requests than after."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "is a directory" if path.is_dir() else f"no file can be made in {folder}"
        raise UsageError(f"--save {path}: {why}")


def save(path: Path, result: Result, note: str | None) -> None:
    """Writes a probe to a file, whole or not at all; says so where the disk does not take it: the report is to be seen
    all the same."""
    from pdctl import __version__, outlet
    from pdctl.facts.probe_compare import SCHEMA
    from pdctl.render.text import rfc3339
    from pdctl.render.wire import dumps, text

    head = {
        "schema": SCHEMA, "pdctl": __version__, "cluster": text(result.cluster.name),
        "started": rfc3339(result.started), "note": text(note) if note else None,
        "status": result.report.status.value,
    }  # fmt: skip
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(dumps({**head, **result.value()}, indent=1) + "\n", "utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        outlet.say(f"not saved: {path}: {error.strerror}")


def emit_comparison(a: Path, b: Path, output: Output, *, ascii_only: bool, fail_on: FailOn) -> NoReturn:
    """Compares two saved probes, writes what differs, and ends the command: 0 where B is no worse, 1 where it takes
    longer, 2 where more of its requests fail, 3 where there are too few to tell."""
    from pdctl import outlet
    from pdctl.facts.probe_compare import compare
    from pdctl.model.finding import Status
    from pdctl.model.probe_compare import Measure, Verdict
    from pdctl.render.probe_compare import overall

    saved = _read(a), _read(b)
    compared = compare(*saved)
    outlet.write_lines(_compared_lines(compared, *saved, output, ascii_only))
    worse = {row.measure for row in compared.rows if row.verdict is Verdict.WORSE}
    status = Status.UNKNOWN if overall(compared) is Verdict.FEW else Status.WARNING if worse else Status.OK
    raise typer.Exit(exit_of(Status.CRITICAL if Measure.FAILURES in worse else status, fail_on))


def _compared_lines(compared: Compared, a: Saved, b: Saved, output: Output, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.look import look
    from pdctl.render.probe_compare import compare_lines, compare_value, sentence
    from pdctl.render.wire import dumps

    if output is Output.HUMAN:
        yield from compare_lines(compared, a, b, look(ascii_only))
    elif output is Output.SHORT:
        yield look(ascii_only).say(sentence(compared))
    else:
        yield dumps(compare_value(compared, a, b), indent=2 if output is Output.JSON else None)


def _read(path: Path) -> Saved:
    from pdctl.facts.base import Unreadable
    from pdctl.facts.probe_compare import read_saved

    try:
        return read_saved(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    except Unreadable as error:
        raise UsageError(f"{path}: {error}", "Save probes with: pdctl probe --save FILE") from None
