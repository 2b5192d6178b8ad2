"""The report of a staged check: what its stages' rules say of a window and of its newest parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdctl.checks import judge
from pdctl.checks.glance import NAME
from pdctl.checks.lately import with_lately
from pdctl.checks.only_pinned import GLANCE_S
from pdctl.checks.over_time import unless_measured
from pdctl.checks.stages import STAGES, Chosen, open_questions
from pdctl.model.checkrun import StageRun
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Finding, Report, Unchecked, by_weight
from pdctl.model.window import Window

LEFT_OUT = "left out by --only or --skip"  # what judge says of a rule that was not wanted


def stages_of(chosen: Chosen, report: Report, cut: dict[str, str] | None = None) -> tuple[StageRun, ...]:
    """Every stage with why it was not run, if so, and what it left open."""
    why_not = {**chosen.why_not, **(cut or {})}
    left = open_questions(report, chosen.modules)
    return tuple(
        StageRun(s.name, s.title, s.findings, why_not.get(s.name), {n: left[n] for n in s.findings if n in left})
        for s in STAGES
    )


def judged(
    windows: Sequence[Window],
    cluster: Cluster,
    chosen: Chosen,
    more: Sequence[Finding] = (),
    cut: dict[str, str] | None = None,
    *,
    newest: Window | None = None,
    short_s: float = GLANCE_S,
) -> Report:
    """The report of the stages chosen, on a window and on its newest parts (``windows``, the whole first). A stage that
    was not run is one line, not one for each of its rules. What is under way and was not seen to move in the ``newest``
    part (the last one given, unless named) is unknown, as it is in a triage; ``short_s`` as there."""
    whole, *parts = (
        judge(window, cluster, only=chosen.only, skip=chosen.skip, modules=chosen.modules) for window in windows
    )
    report = with_lately(whole, parts)
    if chosen.has("queues") and NAME not in chosen.skip:
        report = unless_measured(report, newest or windows[-1], cluster, short_s)
    why_not = {**chosen.why_not, **(cut or {})}
    not_run = tuple(
        Unchecked(f"{s.name}: {s.title}", cluster.name, why_not[s.name]) for s in STAGES if s.name in why_not
    )
    rest = tuple(u for u in report.unchecked if u.why != LEFT_OUT)
    findings = tuple(by_weight([*report.findings, *(f for f in more if f not in report.findings)]))
    return replace(report, findings=findings, unchecked=(*rest, *not_run))
