"""Whether an engine's scheduler loop went on while its stacks were dumped: what tells a hang from a busy engine, whose
stacks look the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from pdctl.checks.base import saw
from pdctl.checks.provenance import timed_out, utc
from pdctl.checks.scheduler import frozen_rows, still_counters
from pdctl.checks.trust import Counts
from pdctl.checks.view import EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import EngineMetrics, Gauge, Health, ServerInfo
from pdctl.model.events import Event, Kind, Log
from pdctl.model.finding import Evidence
from pdctl.model.window import At, Window

BEFORE_S = 180.0  # a complaint in the log this much before the first dump still speaks of the same standstill
LEAST_S = 5.0
BATCHES = (Kind.PREFILL_BATCH, Kind.DECODE_BATCH)
WORK = (Gauge.REALTIME_TOKENS, Gauge.GRAPH_PASSES, Gauge.GENERATION_TOKENS, Gauge.TRANSFERS_DONE)


def engine_of(window: Window, cluster: Cluster, name: str) -> EngineView | None:
    return next((e for e in view_of(window, cluster).engines if e.name == name), None)


def signs_of_life(engine: EngineView, t: float) -> Iterator[Evidence]:
    """What shows that the loop of every rank turned after ``t`` seconds into the window."""
    rows = [[at for at, _ in engine.fresh_rows(dp) if at.t >= t] for dp in engine.dps]
    if rows and all(rows):
        yield saw("its live queue counts are fresh", rows[0][-1])
    pages = tuple(p for p in engine.pages if p.t >= t)
    for counter in WORK:
        if (grown := growth(pages, counter)) > 0:
            yield saw(f"{counter} grew by {grown:.0f}", pages[-1])
            break
    if pages and least_turned(pages) > 0.01:
        yield saw("every rank's idle or CPU seconds advance", pages[-1])
    lines = engine.batch_lines(t)
    if lines:
        yield Evidence(f"{len(lines)} batches logged since", instance=engine.name)
    yield from answers_of_scheduler(engine, t)


def answers_of_scheduler(engine: EngineView, t: float) -> Iterator[Evidence]:
    """Answers that only a turning scheduler gives."""
    info = engine.window.last(engine.name, Fact.SERVER_INFO, ServerInfo)
    if info is not None and info.t >= t:
        yield saw("/server_info answered, which asks the scheduler", info)
    health = engine.window.last(engine.name, Fact.HEALTH, Health)
    if engine.traits.health_generates and health is not None and health.t >= t and health.value.status == 200:
        yield saw("its health check, itself a request, passed", health)


def growth(pages: tuple[At[EngineMetrics], ...], counter: Gauge) -> float:
    """How much a counter grew over pages that were all read within the time asked about."""
    if len(pages) < 2:
        return 0.0
    return (pages[-1].value.total(counter) or 0.0) - (pages[0].value.total(counter) or 0.0)


def least_turned(pages: tuple[At[EngineMetrics], ...]) -> float:
    """Idle and CPU seconds a second of the rank that has least (0.5.20 and later), 0.0 where not exported."""
    if len(pages) < 2 or pages[-1].t - pages[0].t < 1.0:
        return 0.0
    turned = []
    for rank in pages[-1].value.ranks(Gauge.SCHEDULER_CPU_SECONDS):
        parts = (Gauge.SCHEDULER_CPU_SECONDS, Gauge.IDLE_SECONDS)
        late, early = (sum(p.value.ranks(c).get(rank, 0.0) for c in parts) for p in (pages[-1], pages[0]))
        turned.append((late - early) / (pages[-1].t - pages[0].t))
    return min(turned, default=0.0)


def signs_of_standstill(engine: EngineView, t: float) -> Iterator[Evidence]:
    """What shows, apart from the stacks, that the loop itself stood still at ``t`` seconds into the window or after."""
    for dp in engine.dps:
        yield from frozen_rows(engine, dp)
    yield from still_counters(engine)
    yield from complaints(engine, t, (Kind.WATCHDOG, Kind.SOFT_WATCHDOG), "a watchdog")
    yield from unanswered(engine, t, Fact.SERVER_INFO, "/server_info, which asks the scheduler,")
    if engine.traits.counts == Counts.ASKED:
        yield from unanswered(engine, t, Fact.LOADS, "/v1/loads, which asks the scheduler,")


def signs_of_no_work(engine: EngineView, t: float) -> Iterator[Evidence]:
    """What shows that nothing was worked on, though the loop may turn: a health check queues behind requests that wait
    for memory (seen on 0.5.23), and a pinned request moves no counter either."""
    yield from complaints(engine, t, (Kind.HEALTH_FAILED,), "a failed health check")
    yield from unanswered(engine, t, Fact.HEALTH, "its health check")
    yield from unmoved_work(engine, t)


def unanswered(engine: EngineView, t: float, fact: Fact, words: str) -> Iterator[Evidence]:
    """An ask that got no answer in time near or after ``t``, and none later."""
    missed = [o for o in timed_out(engine.window.timeline(engine.name, fact)) if o.t >= t - BEFORE_S]
    answered = engine.window.seen(engine.name, fact, object)
    if missed and not (answered and answered[-1].t > missed[-1].t):
        yield Evidence(f"{words} got no answer in {missed[-1].took:.0f} s", missed[-1].at, engine.name, missed[-1].ask)


def complaints(engine: EngineView, t: float, kinds: tuple[Kind, ...], words: str) -> Iterator[Evidence]:
    """Records of these kinds in the log, after the last batch it holds."""
    for seen in engine.window.seen(engine.name, Fact.LOG, Log):
        last_batch = max((i for i, e in enumerate(seen.value.events) if e.kind in BATCHES), default=-1)
        said = [e for e in seen.value.events[last_batch + 1 :] if e.kind in kinds and is_near(engine, e, seen, t)]
        if said:
            yield saw(f"its log tells of {words} after its last batch", seen, count=len(said))


def is_near(engine: EngineView, event: Event, seen: At[Log], t: float) -> bool:
    """Whether a record is of the time of the dumps; one without a time, or in an unknown zone, counts as such."""
    when = seen.value.utc(event) or (utc(event.when) if event.when else None)
    if when is None:
        return True
    earliest = engine.window.start + timedelta(seconds=t - BEFORE_S)
    if seen.value.utc(event) is None:  # the zone is not known: whole quarter hours may lie between
        drift = abs((when - earliest).total_seconds())
        return drift <= 14 * 3600
    return when >= earliest


def unmoved_work(engine: EngineView, t: float) -> Iterator[Evidence]:
    """Requests run or are owed an answer, and no counter of work moved between pages read since ``t``."""
    pages = tuple(p for p in engine.pages if p.t >= t)
    if len(pages) < 2 or pages[-1].t - pages[0].t < LEAST_S:
        return
    busy = min((p.value.http_active if p.value.http_active is not None else p.value.total(Gauge.RUNNING) or 0.0)
               for p in pages)  # fmt: skip
    known = [c for c in WORK[:2] if pages[-1].value.total(c) is not None]
    if busy >= 1 and known and all(growth(pages, c) == 0 for c in WORK):
        yield saw(f"{busy:g} request(s) under way, and no counter of work moved", pages[-1])
