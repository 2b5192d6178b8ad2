"""A check's outcome for people, and as JSON: the report, and how the run went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pdctl.model.checkrun import CheckRun, StageRun
from pdctl.model.finding import Finding, Report, Severity
from pdctl.render.look import Look, Mark
from pdctl.render.text import counted, listed, rfc3339, span, wrap
from pdctl.render.wire import dumps, number, report_jsonl, report_value, text
from pdctl.render.words import MARK_OF

WORST = (Severity.CRITICAL, Severity.UNKNOWN, Severity.WARNING)


def check_lines(run: CheckRun, look: Look, *, whole: bool = False) -> Iterator[str]:
    """The report as triage tells it, and each stage; where all is well (and not ``whole``) the verdict and stages."""
    from pdctl.render.human import headline, muted_lines, triage_lines

    if whole or any(f.muted is None and f.severity in WORST for f in run.report.findings):
        yield from triage_lines(run.report, look)
    else:
        yield from headline(run.report, None, look)
        yield from muted_lines(run.report, look)
    yield ""
    yield "Stages"
    for stage in run.stages:
        yield from _stage_lines(run.report, stage, look)
    yield from wrap(_foot(run), look.width)


def _stage_lines(report: Report, stage: StageRun, look: Look) -> Iterator[str]:
    mark, said = stage_said(report, stage)
    yield from wrap(look.say(said), look.width, f"  {look.mark(mark)} {stage.name:<9}", " " * 13)


def stage_said(report: Report, stage: StageRun) -> tuple[Mark, str]:
    """How a stage came out: its mark and a few words. A stage in which nothing could be measured gets no tick."""
    if stage.why is not None:
        return Mark.UNCHECKED, f"not run: {stage.why}"
    bad = _worst(report, stage)
    if bad is not None:
        others = len({f.name for f in _of(report, stage)}) - 1
        return MARK_OF[bad.severity], f"{bad.name} at {bad.subject}" + (f", and {others} more" if others else "")
    if not any(i.reachable for i in report.instances):
        return Mark.UNCHECKED, "nothing could be read"
    if stage.open:
        return Mark.UNCHECKED, f"nothing wrong seen; not told everywhere: {listed(tuple(stage.open), 3)}"
    muted = [f for f in report.findings if f.name in stage.findings and f.muted is not None]
    return Mark.OK, stage.title + (f" ({len(muted)} muted)" if muted else "")


def _of(report: Report, stage: StageRun) -> list[Finding]:
    return [f for f in report.findings if f.muted is None and f.name in stage.findings and f.severity in WORST]


def _worst(report: Report, stage: StageRun) -> Finding | None:
    return min(_of(report, stage), key=lambda f: WORST.index(f.severity), default=None)


def _foot(run: CheckRun) -> str:
    looked = f"It took {run.took_s:.2f} s"
    if not run.runs:
        return f"{looked}; no earlier run was judged with it."
    return f"{looked}; {counted(run.runs, 'earlier run')} of the last {span(run.seconds)} were judged with it."


def check_json(run: CheckRun) -> str:
    """The report as one JSON document (``pdctl.report/1``) with a further key, ``check``: how the run went."""
    return dumps({**report_value(run.report), "check": check_value(run)}, indent=2)


def check_jsonl(run: CheckRun) -> str:
    """The report as JSON lines; before its summary a line of kind ``check``."""
    *rows, summary = report_jsonl(run.report).splitlines()
    return "\n".join([*rows, dumps({"kind": "check", **check_value(run)}), summary])


def check_value(run: CheckRun) -> dict[str, Any]:
    """How the run went, as values that JSON knows."""
    return {
        "stages": [_stage_value(stage) for stage in run.stages],
        "took_s": number(round(run.took_s, 4)),
        "deadline_s": number(run.deadline_s),
        "earlier_runs": run.runs,
        "earlier_s": number(round(run.seconds, 1)),
        "last_success": rfc3339(run.last_success) if run.last_success else None,
        "evidence": None if run.kept is None else text(run.kept),
        "notes": [text(note) for note in run.notes],
    }


def _stage_value(stage: StageRun) -> dict[str, Any]:
    left = {name: text(why) for name, why in stage.open.items()}
    return {"name": stage.name, "ran": stage.ran, "why": None if stage.why is None else text(stage.why), "open": left}
