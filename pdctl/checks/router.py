"""The router's view against the engines': requests that age in it, workers it refuses although they are well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.memory import token_signs
from pdctl.checks.pinned_evidence import oldest
from pdctl.checks.plateau import series_text
from pdctl.checks.queues import total_readings
from pdctl.checks.scheduler import frozen_rows, judge_stopped
from pdctl.checks.trust import Inflight
from pdctl.checks.view import ClusterView, Count, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.router import RouterMetrics
from pdctl.model.window import At, Window

LEAST_S = 20.0
OPEN, HALF_OPEN = 1.0, 2.0
# Bootstrap is left out: a prefill whose requests wait for a decode that never got its half is idle all the same.
QUEUES = (Gauge.RUNNING, Gauge.INFLIGHT, Gauge.PREALLOC, Gauge.TRANSFER)


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Every router whose page was read."""
    view = view_of(window, cluster)
    for router in cluster.routers:
        pages = window.seen(router.name, Fact.METRICS, RouterMetrics)
        if pages:
            yield from judge_holds(view, router, pages)
            yield from judge_breakers(view, router, pages)


def judge_holds(view: ClusterView, router: Instance, pages: tuple[At[RouterMetrics], ...]) -> Iterator[Verdict]:
    """router-holds-requests when requests stay under way in the router while every engine was seen idle."""
    active = [Count(p.t, p.value.active_total, p) for p in pages if p.value.active_total is not None]
    old = oldest(pages[-1].value)
    if active and active[-1].value == 0 and not old:
        yield RuledOut("router-holds-requests", router.name, f"its active requests: {series_text(active)}")
        return
    if not old and (not stays(active) or any(e.still_since() != 0.0 for e in view.engines)):
        return
    idle = [idle_evidence(engine) for engine in view.engines]
    if not idle or any(e is None for e in idle):
        return
    evidence = [*age_evidence(pages), *active_evidence(active), *(e for e in idle if e)]
    count = max(old, active[-1].value if active else 0.0)
    yield found(
        "router-holds-requests",
        router.name,
        f"{count:g} request(s) age in {router.name} while every engine is idle",
        confidence=Confidence.CERTAIN if old and active else Confidence.LIKELY,
        evidence=evidence,
        since=pages[0].seen.at,
        limits=(
            "whether the router waits for an answer that was lost on a connection, or never sent the request: its "
            "sockets to the engines tell",
        ),
        next=(
            f"pdctl sockets {router.name}",
            f"pdctl logs {router.name} --slow 10",
            "pdctl explain router-holds-requests",
        ),
    )


def stays(active: list[Count]) -> bool:
    """Whether the router never had fewer than one request over a long enough span."""
    return len(active) >= 3 and min(a.value for a in active) >= 1 and active[-1].t - active[0].t >= LEAST_S


def age_evidence(pages: tuple[At[RouterMetrics], ...]) -> Iterator[Evidence]:
    for page in (pages[0], pages[-1])[: len(pages)]:
        told = [f"{b.count:g} of {b.gt:g} to {b.le:g} s" for b in page.value.ages if b.count > 0]
        if told:
            yield saw(f"requests under way in the router by age: {', '.join(told)}", page)


def active_evidence(active: list[Count]) -> Iterator[Evidence]:
    if active:
        yield saw(f"requests under way on a worker: {series_text(active)}", active[-1].at, active=active[-1].value)


def idle_evidence(engine: EngineView) -> Evidence | None:
    """Why an engine counts as idle at the end of the window, None when it was not seen to be. What a scheduler that
    stands still counted last is no sign that it is idle now."""
    if not engine.pages and not engine.loads:
        return None
    if any(True for dp in engine.dps for _ in frozen_rows(engine, dp)) or any(judge_stopped(engine)):
        return None
    owed = engine.http_active()
    if owed and owed[-1].value > orphans(engine):
        return None
    live = [r for q in QUEUES if (r := engine.live_total(q))]
    if live:
        return (
            None
            if any(r[-1].value > 0 for r in live)
            else saw(f"every live queue of {engine.name} is 0", live[0][-1].at)
        )
    idle = engine.idle_share()
    if idle is not None and idle > 0.9:
        return saw(f"{engine.name} is fully idle {idle:.0%} of the time", engine.pages[-1])
    if owed and engine.traits.http_active_streams:
        return saw(f"{engine.name} owes no HTTP answer", owed[-1].at)
    return idle_by_gauges(engine)


def orphans(engine: EngineView) -> float:
    """Requests that wait in bootstrap by the newest reading."""
    readings, _ = total_readings(engine, Gauge.BOOTSTRAP)
    return readings[-1].value if readings else 0.0


def idle_by_gauges(engine: EngineView) -> Evidence | None:
    """All gauges 0 all through the window and no counter moving: idle, where the release counts a batch's own requests
    (0.5.10.post1 and later); before, a 0 hides a pinned one."""
    if engine.traits.inflight not in (Inflight.OWN_30S, Inflight.OWN_AT_ONCE):
        return None
    if len(engine.pages) < 2 or token_signs(engine) or engine.still_since() not in (None, 0.0):
        return None
    values = [r for q in QUEUES if (r := total_readings(engine, q)[0])]
    if not values or any(c.value > 0 for r in values for c in r):
        return None
    return saw(f"every gauge of {engine.name} is 0 in {len(engine.pages)} samples, no counter moved", engine.pages[-1])


def judge_breakers(view: ClusterView, router: Instance, pages: tuple[At[RouterMetrics], ...]) -> Iterator[Verdict]:
    """router-circuit-open for each worker whose breaker is not closed at the end although the engine is well."""
    for worker, state in pages[-1].value.breaker.items():
        if state not in (OPEN, HALF_OPEN):
            continue
        engine = next((e for e in view.engines if same_url(e.instance.url, worker)), None)
        if engine is None or not well(engine):
            continue
        if state == HALF_OPEN and not all(p.value.breaker.get(worker) == HALF_OPEN for p in pages[-3:]):
            continue
        yield breaker_finding(router, pages, worker, state, engine, tuple(after_restart(view)))


def after_restart(view: ClusterView) -> Iterator[str]:
    """Why an open breaker may soon close: it opened on an engine that restarted while one looked."""
    names = [engine.name for engine in view.engines if engine.restarted is not None]
    if names:
        yield (
            f"{' and '.join(names)} restarted inside the window: a breaker that this opened lets requests through "
            "again by itself, a minute after it opened unless set otherwise; until then clients get 503"
        )


def breaker_finding(
    router: Instance,
    pages: tuple[At[RouterMetrics], ...],
    worker: str,
    state: float,
    engine: EngineView,
    against: tuple[str, ...],
) -> Verdict:
    """The finding for one worker."""
    word = "open" if state == OPEN else "half-open"
    first = next(p for p in pages if p.value.breaker.get(worker) == state)
    health = pages[-1].value.healthy.get(worker)
    evidence = [
        saw(f"the breaker of {worker} is {word} in the newest of {len(pages)} pages", pages[-1], cb_state=state)
    ]
    if health is not None:
        said = "healthy all the same" if health == 1 else "unhealthy as well"
        evidence.append(saw(f"the router calls the worker {said}", pages[-1], worker_health=health))
    why = engine.alive() or "its metrics are answered"
    evidence.append(
        Evidence(f"{engine.name} is well: {why}", engine.pages[-1].seen.at, engine.name, engine.pages[-1].seen.ask)
    )
    return found(
        "router-circuit-open",
        router.name,
        f"{router.name} refuses {engine.name} (breaker {word}) although the engine is well",
        confidence=Confidence.CERTAIN if engine.alive() else Confidence.LIKELY,
        evidence=evidence,
        since=first.seen.at,
        against=against,
        limits=("what opened it: one failing leg opens the breakers of both workers, so look at both engines' logs",),
        next=(f"pdctl logs {router.name}", f"pdctl logs {engine.name} --failures", "pdctl explain router-circuit-open"),
    )


def same_url(url: str | None, worker: str) -> bool:
    return bool(url) and (url or "").rstrip("/") == worker.split("@")[0].rstrip("/")


def well(engine: EngineView) -> bool:
    """Whether an engine answers to the end of the window and its scheduler was not seen to stop."""
    rows = engine.window.timeline(engine.name, Fact.METRICS)
    return bool(rows) and rows[-1].missed is None and not tuple(judge_stopped(engine))


CHECKS = (
    Check(
        "router",
        "requests that age in the router, workers it refuses",
        ("router-holds-requests", "router-circuit-open"),
        (Fact.METRICS,),
        judge,
    ),
)
