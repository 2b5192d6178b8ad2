"""The report of ``pdctl probe``: what its requests show, and what the cluster's numbers show beside them.

A probe that could not be carried out is unknown: nothing green that was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pdctl.checks import judge, probe_fail
from pdctl.checks.base import found
from pdctl.checks.probe_matrix import attempts_of
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, Finding, InstanceReport, Report, Severity, Unchecked, by_weight
from pdctl.model.probe import Attempt
from pdctl.model.registry import FLOW, REGISTRY, ROUTER
from pdctl.model.window import Window

# A gauge nobody can read, or one of yesterday, is no answer to what a probe asks.
NOT_ABOUT = frozenset({"gauge-stale", "gauge-unavailable", "watchdog-silent"})
CAUSES = frozenset(entry.name for entry in REGISTRY.values() if entry.group == FLOW) - NOT_ABOUT
ABOUT = frozenset(
    {entry.name for entry in REGISTRY.values() if entry.group in (FLOW, ROUTER)} - NOT_ABOUT | {"endpoint-unreadable"}
)

QUESTIONS = ABOUT | {probe_fail.ECHO}


def judge_only_probe(window: Window, cluster: Cluster, *, stopped: str | None = None) -> Report:
    """The report cut down to what bears on requests and their way. ``stopped`` says why the plan was not carried out to
    its end, if it was not."""
    report = judge(window, cluster)
    findings = [f for f in report.findings if f.name in ABOUT]
    findings = [f for f in findings if not _explained(f, findings, cluster)]
    findings.sort(key=lambda f: probe_fail.depth_of(f.subject, cluster))  # of equals the inner one leads
    made = sum(len(rows) for rows in attempts_of(window).values())
    if not made:
        findings.append(_not_made(cluster, stopped or "none was made"))
    elif stopped is not None and not any(f.severity is not Severity.INFO for f in findings):
        findings.append(_not_finished(cluster, stopped, made))
    unchecked = [u for u in report.unchecked if u.what in QUESTIONS or u.why.startswith("the check broke")]
    if stopped is not None:
        unchecked.append(Unchecked("the rest of the plan", cluster.name, stopped))
    return replace(
        report,
        findings=tuple(by_weight(findings)),
        unchecked=tuple(unchecked),
        ruled_out=tuple(r for r in report.ruled_out if r.what in ABOUT),
        instances=tuple(_probed(row, attempts_of(window)) for row in report.instances),
    )


def _explained(finding: Finding, others: list[Finding], cluster: Cluster) -> bool:
    """Whether requests that fail are what another finding leads to: one at the same engine; for a router or proxy one
    at any engine, where the requests hang or come back with an error of the server's."""
    if not probe_fail.is_of_probe(finding):
        return False
    causes = [f for f in others if f.name in CAUSES and f.severity is not Severity.INFO]
    if any(f.subject == finding.subject for f in causes):
        return True
    engines = {engine.name for engine in cluster.engines}
    outer = finding.subject not in engines
    at_engines = any(set(f.subject.split("->")) <= engines for f in causes)
    return outer and probe_fail.is_of_server(finding) and at_engines


def _probed(row: InstanceReport, paths: Mapping[tuple[str, str], tuple[Attempt, ...]]) -> InstanceReport:
    """How an instance showed itself, its answers to the probe's requests included."""
    made = [a for (to, _), rows in paths.items() for a in rows if to == row.name]
    if any(a.status is not None for a in made):
        return replace(row, reachable=True, why=None)
    if made and row.reachable is None:
        return replace(row, reachable=False, why=f"{made[-1].error}: {made[-1].detail}")
    return row


def _not_made(cluster: Cluster, why: str) -> Finding:
    return found(
        "endpoint-unreadable",
        cluster.name,
        f"no request was made, so nothing is known: {why}",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(why),),
        next=("pdctl probe --help",),
    )


def _not_finished(cluster: Cluster, why: str, made: int) -> Finding:
    return found(
        "endpoint-unreadable",
        cluster.name,
        f"the probe ended before its plan, after {made} requests: {why}",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(f"ended early: {why}"),),
        limits=("what was tried until then worked; of the rest nothing is known",),
        next=("pdctl triage",),
    )
