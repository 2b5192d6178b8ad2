"""When enough has been seen: the verdict would not change by looking longer, or nothing answers at all."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.checks import judge
from pdctl.checks.pinned import judge as judge_pinned
from pdctl.checks.view import ClusterView, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Finding, Report, RuledOut, Severity
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window

SILENT_ROUNDS = 3  # one miss may be chance, and a second may share its cause
LEAST_S = 10.0  # a plateau of 8 s counts, and a round takes its time
CALM_READINGS = 4
HELD_S = 24.0
SYMPTOMS = frozenset({"transfer-stuck"})  # of a blocked queue head at prefill, say, which shows itself later
EXPLAINING = ("queues", "scheduler", "router")  # what answers the question of pinned requests in another way
HANDOFF = (Gauge.BOOTSTRAP, Gauge.INFLIGHT, Gauge.PREALLOC, Gauge.TRANSFER)


def pinned_settled(window: Window, cluster: Cluster) -> bool:
    """Whether the question of pinned requests is answered: found for certain, or ruled out for every prefill; or
    cannot be, because nothing answers."""
    if silent(window):
        return True
    if window.seconds < LEAST_S:
        return False
    verdicts = judge_pinned(window, cluster)
    if any(isinstance(v, Finding) and v.confidence == Confidence.CERTAIN for v in verdicts):
        return True
    if not changing(view_of(window, cluster)) and sure(judge(window, cluster, modules=EXPLAINING).findings, window):
        return True
    if window.seconds < HELD_S and any(routed(view_of(window, cluster), r.name) for r in cluster.routers):
        return False  # a router that holds requests while the engines are empty shows itself a little later
    ruled_out = {v.subject for v in verdicts if isinstance(v, RuledOut)}
    return bool(cluster.prefills) and ruled_out >= {i.name for i in cluster.prefills}


def triage_settled(report: Report, window: Window, cluster: Cluster) -> bool:
    """Whether a triage may end: something critical is certain, or all is calm by live counts, or nothing answers.
    Anything that may yet become a finding (a queue that stands, a gauge nobody explains) is looked at longer."""
    if silent(window):
        return True
    if window.seconds < LEAST_S:
        return False
    if changing(view_of(window, cluster)):
        return False
    if sure(report.findings, window):
        return True
    if any(f.severity != Severity.INFO for f in report.findings):
        return False
    return calm(view_of(window, cluster))


def sure(findings: Iterable[Finding], window: Window) -> bool:
    """Whether something critical is certain, and what may lie behind it had the time to show itself."""
    certain = {f.name for f in findings if f.severity == Severity.CRITICAL and f.confidence == Confidence.CERTAIN}
    return bool(certain - SYMPTOMS) or (bool(certain) and window.seconds >= HELD_S)


def silent(window: Window) -> bool:
    """Whether nothing has been read of anybody, in some rounds of asking everybody: there is nothing to wait for."""
    asked = [window.timeline(name, Fact.METRICS) for name in window.subjects(Fact.METRICS)]
    if not asked or min(map(len, asked)) < SILENT_ROUNDS:
        return False
    return all(o.missed is not None for o in window.observations)


def changing(view: ClusterView) -> bool:
    """Whether an engine that had answered no longer does, or has just begun to: what comes next decides."""
    for engine in view.engines:
        rows = view.window.timeline(engine.name, Fact.METRICS)
        missed = [o.missed is not None for o in rows]
        if any(missed) and not all(missed) and True in missed[-3:]:
            return True
    return False


def calm(view: ClusterView) -> bool:
    """Whether every engine's live hand-off queues were empty in the last few readings and no router holds a request."""
    held = any(routed(view, router.name) for router in view.cluster.routers)
    return bool(view.engines) and not held and all(empty_lately(engine) for engine in view.engines)


def routed(view: ClusterView, router: str) -> bool:
    """Whether a router counts requests under way."""
    page = view.window.last(router, Fact.METRICS, RouterMetrics)
    return page is not None and bool(page.value.active_total or any(bucket.count for bucket in page.value.ages))


def empty_lately(engine: EngineView) -> bool:
    for dp in engine.dps:
        rows = [row for _, row in engine.fresh_rows(dp)][-CALM_READINGS:]
        if len(rows) < CALM_READINGS or any(row.count(queue) for row in rows for queue in HANDOFF):
            return False
    return True
