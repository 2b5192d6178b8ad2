"""responses-lost: somebody still waits on an old socket, no queue holds the request, and new ones work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.listings import by_subject, owners_of, ports_of
from pdctl.checks.pinned_evidence import oldest
from pdctl.checks.plateau import floor_of, series_text
from pdctl.checks.probe_paths import paths_of
from pdctl.checks.provenance import timed_out
from pdctl.checks.quiet import fresh_answers
from pdctl.checks.trust import Inflight
from pdctl.checks.view import ClusterView, Count, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.host import SocketRow
from pdctl.model.router import RouterMetrics
from pdctl.model.window import At, Window

LEAST_S = 20.0
OLD_MS = 60_000
QUEUES = (
    Gauge.RUNNING, Gauge.QUEUE, Gauge.BOOTSTRAP, Gauge.INFLIGHT, Gauge.PREALLOC, Gauge.TRANSFER, Gauge.RETRACTED,
)  # fmt: skip
ENDS = (Gauge.PROMPT_TOKENS, Gauge.REQUESTS)  # of requests that ended, in whatever way
WORK = (Gauge.GENERATION_TOKENS, Gauge.REALTIME_TOKENS, Gauge.TRANSFERS_DONE)


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each engine that owes an answer, then each router that waits for one no engine owes."""
    view = view_of(window, cluster)
    empty = {engine.name: empty_queues(engine) for engine in view.engines}
    for engine in view.engines:
        owed = owed_by(engine)
        if owed and owed[-1].value == 0:
            yield RuledOut("responses-lost", engine.name, f"its HTTP requests under way: {series_text(owed)}")
    if not view.engines or any(evidence is None for evidence in empty.values()):
        return
    works = tuple(new_work(view, cluster))
    if not works:
        return
    unheld = tuple(e for e in empty.values() if e is not None)
    found_any = False
    for engine in view.engines:
        for verdict in by_engine(engine, cluster, unheld, works):
            found_any = True
            yield verdict
    if not found_any:
        yield from by_router(view, cluster, unheld, works)


def empty_queues(engine: EngineView) -> Evidence | None:
    """Why no queue of the engine holds a request all through the window; None where one may."""
    live = [readings for q in QUEUES if (readings := engine.live_total(q))]
    if live:
        long_enough = len(live[0]) >= 2 and live[0][-1].t - live[0][0].t >= LEAST_S
        if not long_enough or any(c.value > 0 for readings in live for c in readings):
            return None
        return saw(f"every live queue of {engine.name} is 0 in {len(live[0])} readings", live[0][-1].at)
    return empty_by_gauges(engine)


def empty_by_gauges(engine: EngineView) -> Evidence | None:
    """Gauges say it only where a batch of this window came before them, and only in releases that put them right at
    once when the engine falls idle (0.5.16 and later)."""
    if engine.traits.inflight != Inflight.OWN_AT_ONCE:
        return None
    worked = next((late.t for early, late in pairwise(engine.pages) if worked_between(early, late)), None)
    pages = tuple(p for p in engine.pages if worked is not None and p.t >= worked)
    if len(pages) < 2 or any((p.value.total(q) or 0) > 0 for p in pages for q in QUEUES):
        return None
    return saw(f"every queue gauge of {engine.name} is 0 in {len(pages)} samples since a batch ran", pages[-1])


def worked_between(early: At[EngineMetrics], late: At[EngineMetrics]) -> bool:
    return any((late.value.total(c) or 0) > (early.value.total(c) or 0) for c in (*WORK, *ENDS))


def owed_by(engine: EngineView) -> tuple[Count, ...]:
    """HTTP requests under way (a hanging /server_info counts as one: seen on 0.5.23)."""
    readings = engine.http_active()
    hanging = 1.0 if timed_out(engine.window.timeline(engine.name, Fact.SERVER_INFO)) else 0.0
    return tuple(Count(c.t, max(0.0, c.value - hanging), c.at) for c in readings)


def new_work(view: ClusterView, cluster: Cluster) -> Iterator[Evidence]:
    """What shows that new requests go through."""
    for engine in view.engines:
        for counter in WORK:
            grown = engine.growth(counter)
            if grown:
                yield saw(f"{engine.name} works: {counter} grew by {grown:.0f}", engine.pages[-1])
                break
    yield from fresh_answers(view.window, cluster, tuple(paths_of(view.window)))


def by_engine(
    engine: EngineView, cluster: Cluster, unheld: tuple[Evidence, ...], works: tuple[Evidence, ...]
) -> Iterator[Verdict]:
    """The finding for an engine that owes answers by its HTTP count, by its sockets, or by both."""
    owed = owed_by(engine)
    counted = len(owed) >= 3 and floor_of(owed) >= 1 and owed[-1].t - owed[0].t >= LEAST_S
    sockets = list(owing_sockets(engine.window, cluster, engine.instance))
    if not counted and (not sockets or owed):
        return
    evidence = [*sockets, *unheld, *works]
    if counted:
        evidence.insert(0, saw(f"HTTP requests under way: {series_text(owed)}", owed[-1].at, active=floor_of(owed)))
    count = floor_of(owed) if counted else float(str(sockets[0].values["count"]))
    yield found(
        "responses-lost",
        engine.name,
        f"{count:.0f} request(s) on {engine.name} wait for an answer that no queue holds, while new ones work",
        confidence=Confidence.CERTAIN if counted and sockets else Confidence.LIKELY,
        evidence=evidence,
        since=evidence[0].at,
        limits=limits(counted, bool(sockets)),
        next=(f"pdctl sockets {engine.name}", f"pdctl logs {engine.name}", "pdctl explain responses-lost"),
    )


def limits(counted: bool, sockets: bool) -> tuple[str, ...]:
    told = ["a client that reads its answer slowly owes itself the rest: look at unacknowledged bytes"]
    if not counted:
        told.append("this release does not count HTTP requests under way: the sockets alone say it")
    if not sockets:
        told.append("no socket listing with idle times (ss -i) was at hand to see them wait")
    return tuple(told)


def owing_sockets(window: Window, cluster: Cluster, instance: Instance) -> Iterator[Evidence]:
    """Connections to an instance's port on which a request came long ago and nothing was sent since."""
    owners = owners_of(window, cluster)
    for listings in by_subject(window).values():
        newest = listings[-1]
        rows = [
            r for r in newest.rows
            if r.local_port in ports_of(instance) and owes(r) and owners.of(r, newest) == instance.name
        ]  # fmt: skip
        if rows:
            longest = max(r.last_recv_ms or 0 for r in rows) / 1000
            text = f"{len(rows)} connection(s) with a request received and unanswered for up to {longest:.0f} s"
            yield saw(text, newest.at, count=len(rows))


def owes(row: SocketRow) -> bool:
    """The last bytes came in, were read, and none went out after them."""
    if row.state != "ESTAB" or row.recv_q or row.send_q or row.last_recv_ms is None or row.last_send_ms is None:
        return False
    return row.last_recv_ms >= OLD_MS and row.last_send_ms > row.last_recv_ms


def by_router(
    view: ClusterView, cluster: Cluster, unheld: tuple[Evidence, ...], works: tuple[Evidence, ...]
) -> Iterator[Verdict]:
    """The finding for a router whose requests age although no engine owes an answer and new requests end."""
    if any(c.value > 0 for engine in view.engines for c in owed_by(engine)[-1:]):
        return
    for router in cluster.routers:
        pages = view.window.seen(router.name, Fact.METRICS, RouterMetrics)
        active = [Count(p.t, p.value.active_total, p) for p in pages if p.value.active_total is not None]
        if (
            len(active) < 3
            or floor_of(active) < 1
            or not oldest(pages[-1].value)
            or not finishes(pages[0].value, pages[-1].value)
        ):
            continue
        yield found(
            "responses-lost",
            router.name,
            f"{floor_of(active):g} request(s) wait in {router.name} for answers no engine owes, while new ones end",
            confidence=Confidence.LIKELY,
            evidence=(
                saw(f"requests under way in the router: {series_text(active)}", active[-1].at),
                saw(f"{oldest(pages[-1].value):g} of them are old", pages[-1]),
                *unheld,
                *works,
            ),
            since=active[0].at.seen.at,
            limits=("the sockets between router and engines, at both ends, show which side dropped the answer",),
            next=(f"pdctl sockets {router.name}", "pdctl explain responses-lost"),
        )


def finishes(first: RouterMetrics, last: RouterMetrics) -> bool:
    """Whether the router ended requests inside the window."""
    ended = sum(last.responses.values()) - sum(first.responses.values())
    counted = (last.duration_count or 0.0) - (first.duration_count or 0.0)
    return ended > 0 or counted > 0


CHECKS = (
    Check(
        "responses-lost",
        "requests that wait on old sockets while no queue holds them",
        ("responses-lost",),
        (Fact.METRICS, Fact.LOADS),
        judge,
    ),
)
