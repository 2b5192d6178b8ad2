"""The report of ``pdctl pinned``: the same verdicts as a triage, cut down to the one question.

Where the question could not be answered the report is unknown: nothing green that was not measured."""

from __future__ import annotations

from dataclasses import replace

from pdctl.checks import judge
from pdctl.checks.base import found
from pdctl.checks.trust import Counts
from pdctl.checks.view import EngineView, view_of
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, Finding, Report, Unchecked, by_weight
from pdctl.model.window import Window

ABOUT = frozenset(
    {
        "request-pinned",
        "transfer-stuck",
        "prealloc-wedged",
        "decode-starved",
        "rank-stuck",
        "queue-leaked",
        "scheduler-stopped",
        "engine-restarted",
        "draining",
        "gauge-stale",
        "gauge-unavailable",
        "watchdog-silent",
        "router-holds-requests",
        "endpoint-unreadable",
    }
)
QUESTION = "request-pinned"
GLANCE_S = 29.0  # a triage looks for 30 s where it is not sure before: a window of less was cut short


def judge_only_pinned(window: Window, cluster: Cluster) -> Report:
    """The report cut down to what bears on pinned requests. An engine about which it could not be told, and of which
    no finding says why, makes it unknown."""
    report = judge(window, cluster)
    findings = [f for f in report.findings if f.name in ABOUT]
    open_questions = [u for u in report.unchecked if u.what == QUESTION]
    if not any(f.name == QUESTION for f in findings):
        engines = {engine.name: engine for engine in view_of(window, cluster).engines}
        findings += [unanswered(u, engines.get(u.subject)) for u in open_questions if not explained(u, findings)]
    return replace(
        report,
        findings=tuple(by_weight(findings)),
        unchecked=tuple(open_questions),
        ruled_out=tuple(r for r in report.ruled_out if r.what in ABOUT),
    )


def explained(question: Unchecked, findings: list[Finding]) -> bool:
    """Whether another finding says what the engine's queue is about: starvation, a restart, a router that holds."""
    said = {f.name for f in findings} - {"engine-restarted", "draining"}
    return bool(said & {"decode-starved", "prealloc-wedged", "transfer-stuck", "router-holds-requests"}) or any(
        f.subject == question.subject and f.name in ("scheduler-stopped", "gauge-unavailable", "endpoint-unreadable")
        for f in findings
    )


def unanswered(question: Unchecked, engine: EngineView | None) -> Finding:
    """The question left open, as a finding of unknown severity: this engine's numbers can't answer it."""
    longer = ("pdctl pinned --for 120s",) if engine is not None and time_tells(engine) else ()
    return found(
        "gauge-unavailable",
        question.subject,
        f"whether a request is pinned on {question.subject} can't be told: {question.why}",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(question.why, instance=question.subject),),
        limits=("it is neither shown nor excluded",),
        next=(f"pdctl stacks {question.subject}", *longer, "pdctl explain gauge-unavailable"),
    )


def time_tells(engine: EngineView) -> bool:
    """Whether a longer look could answer it: the release counts or writes something that shows a request which stays,
    or is not known."""
    traits = engine.traits
    return not traits.known or traits.stages or traits.http_active or traits.counts != Counts.NONE
