"""The report of a look, short or long: every rule on the whole of it, on its newest part by itself, and what neither
could tell.

Nothing is green that was not measured. That a cluster is well takes more than rules that stayed silent: where something
is under way and was not seen to move, or where whether a request is pinned stayed open on an engine that was not seen
to work, the report is unknown. Where requests go through to the end, that one more could stick behind them is no
verdict on what was seen; it is listed as not checked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pdctl.checks import judge
from pdctl.checks.glance import NAME, moves, with_standing
from pdctl.checks.lately import newest_of, with_lately
from pdctl.checks.only_pinned import GLANCE_S, QUESTION, explained, unanswered
from pdctl.checks.view import view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Finding, Report, Status, by_weight
from pdctl.model.window import Window


def judge_over_time(
    window: Window, cluster: Cluster, *, only: Collection[str] = (), skip: Collection[str] = ()
) -> Report:
    """The report on a window of any length. ``only`` and ``skip`` as in ``judge``."""
    newest = newest_of(window)
    report = judge(window, cluster, only=only, skip=skip)
    if newest is not window:
        report = with_lately(report, [judge(newest, cluster, only=only, skip=skip)])
    return report if left_out(only, skip) else unless_measured(report, newest, cluster)


def left_out(only: Collection[str], skip: Collection[str]) -> bool:
    """Whether the question of what moves was not to be asked."""
    asked = {NAME, QUESTION, "pinned"}
    return (bool(only) and not asked & set(only)) or bool({NAME, QUESTION} & set(skip))


def unless_measured(report: Report, newest: Window, cluster: Cluster, short_s: float = GLANCE_S) -> Report:
    """The report with what the newest part of the window leaves open as findings of unknown severity. A window of less
    than ``short_s`` seconds was cut short (0: it was looked for as long as it took)."""
    if not newest.subjects(Fact.METRICS):
        return report
    report = with_standing(report, newest, cluster)
    if report.status != Status.OK:
        return report
    return replace(
        report, findings=tuple(by_weight((*report.findings, *open_questions(report, newest, cluster, short_s))))
    )


def open_questions(report: Report, newest: Window, cluster: Cluster, short_s: float) -> list[Finding]:
    """Engines of which it stayed open whether a request is pinned: all after a look cut short, else those that were
    not seen to work."""
    engines = {engine.name: engine for engine in view_of(newest, cluster).engines}
    return [
        unanswered(question, engines.get(question.subject))
        for question in report.unchecked
        if question.what == QUESTION
        and not explained(question, list(report.findings))
        and (newest.seconds < short_s or question.subject not in engines or not moves(engines[question.subject]))
    ]
