"""Whether engines and routers were seen idle, and whether new requests were seen to work: the ground on which a hang on
a connection is told from a busy cluster."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.checks.base import saw
from pdctl.checks.probe_paths import Path
from pdctl.checks.router import idle_evidence
from pdctl.checks.view import view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.engine import Health
from pdctl.model.finding import Evidence
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window


def idle_engines(window: Window, cluster: Cluster) -> tuple[list[Evidence], list[str]]:
    """Evidence for each engine seen idle, and the names of those that were not (busy, or not measured)."""
    idle, others = [], []
    for engine in view_of(window, cluster).engines:
        evidence = idle_evidence(engine)
        if evidence is not None:
            idle.append(evidence)
        else:
            others.append(engine.name)
    return idle, others


def idle_routers(window: Window, cluster: Cluster) -> tuple[list[Evidence], list[str]]:
    """As ``idle_engines``, by what the routers count as active."""
    idle, others = [], []
    for router in cluster.routers:
        page = window.last(router.name, Fact.METRICS, RouterMetrics)
        if page is not None and page.value.active_total == 0:
            idle.append(saw(f"{router.name} counts no active request", page))
        else:
            others.append(router.name)
    return idle, others


def all_quiet(window: Window, cluster: Cluster) -> tuple[Evidence, ...] | None:
    """Evidence that every engine is idle and no router holds a request; None where one is busy or was not measured. A
    router that has no such count (before 0.3.0) is passed over where the engines were measured."""
    engines, not_idle = idle_engines(window, cluster)
    if not engines or not_idle:
        return None
    for router in cluster.routers:
        page = window.last(router.name, Fact.METRICS, RouterMetrics)
        if page is not None and page.value.active_total:
            return None
    routers, _ = idle_routers(window, cluster)
    return (*engines, *routers)


def fresh_answers(window: Window, cluster: Cluster, paths: tuple[Path, ...]) -> Iterator[Evidence]:
    """What shows that new requests work: fresh probes, health checks that passed."""
    for path in paths:
        good = [a for a in path.fresh if a.good]
        if good and len(good) == len(path.fresh):
            took = max(a.took or 0.0 for a in good)
            way = " through the proxy" if path.via == "proxy" else ""
            yield saw(f"{len(good)} fresh requests to {path.to}{way} answered, the slowest in {took:.2f} s", path.seen)
    for engine in cluster.engines:
        yield from passed_health(window, engine)


def passed_health(window: Window, engine: Instance) -> Iterator[Evidence]:
    rows = window.timeline(engine.name, Fact.HEALTH)
    seen = window.last(engine.name, Fact.HEALTH, Health)
    if seen is not None and seen.value.status == 200 and rows[-1].missed is None:
        yield saw(f"{engine.name} passed its health check in {seen.value.took:.1f} s", seen)
