"""One rank that makes no progress while its siblings do, and entries left over in one rank's queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.memory import queue_readings
from pdctl.checks.plateau import constant, floor_of, series_text
from pdctl.checks.provenance import is_probe, pages_from
from pdctl.checks.view import ClusterView, Count, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.finding import Confidence, Evidence
from pdctl.model.rank import Rank
from pdctl.model.window import Window

LEAST_S, LIVE_S, LEAST_READINGS = 20.0, 8.0, 3
HANDOFF = {True: (Gauge.INFLIGHT, Gauge.BOOTSTRAP), False: (Gauge.TRANSFER, Gauge.PREALLOC)}
PROGRESS = (Gauge.REALTIME_TOKENS, Gauge.TRANSFERS_DONE, Gauge.GRAPH_PASSES)


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Every engine with several data-parallel ranks, and tensor ranks where all of them report."""
    view = view_of(window, cluster)
    for engine in view.engines:
        if len(engine.dps) > 1:
            yield from judge_dp(view, engine)
        yield from judge_tp_leak(engine)


def judge_dp(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """rank-stuck where siblings move, queue-leaked where nothing does and the siblings agree on zero."""
    for queue in HANDOFF[engine.is_prefill]:
        told = {dp: queue_readings(engine, queue, dp) for dp in engine.dps if dp is not None}
        readings = {dp: r for dp, (r, _) in told.items()}
        stuck = [dp for dp, (r, live) in told.items() if stands(r, LIVE_S if live else LEAST_S)]
        if not stuck or len(stuck) > max(1, len(readings) // 2):
            continue
        for dp in stuck:
            siblings = {other: r for other, r in readings.items() if other not in stuck}
            yield from judge_one(view, engine, queue, dp, readings[dp], siblings)


def stands(readings: tuple[Count, ...], seconds: float = LEAST_S) -> bool:
    """Whether a queue held the same number, above 0, in every reading of a span of so many seconds."""
    return (
        len(readings) >= LEAST_READINGS
        and constant(readings)
        and floor_of(readings) >= 1
        and readings[-1].t - readings[0].t >= seconds
    )


def judge_one(
    view: ClusterView,
    engine: EngineView,
    queue: Gauge,
    dp: int,
    readings: tuple[Count, ...],
    siblings: dict[int, tuple[Count, ...]],
) -> Iterator[Verdict]:
    start = readings[0].t
    if rank_moves(engine, dp, start):
        return
    moving = [other for other in siblings if rank_moves(engine, other, start) or varies(siblings[other])]
    seen = saw(f"{queue} of dp{dp}: {series_text(readings)}", readings[-1].at, count=readings[-1].value)
    if moving:
        others = [saw(f"{queue} of dp{o}: {series_text(siblings[o])}", siblings[o][-1].at) for o in moving[:3]]
        yield stuck_finding(engine, queue, dp, readings, (seen, *others, *silence(engine, dp, moving, start)))
    elif siblings and all(floor_of(r) == 0 and constant(r) for r in siblings.values()) and not requested(view, engine):
        yield leaked_finding(engine, Rank(dp=dp), queue, readings, seen)


def rank_moves(engine: EngineView, dp: int, since: float) -> bool:
    """Whether a rank's own counters grew or it logged a batch that is no health probe."""
    pages = pages_from(engine.pages, since)
    if len(pages) >= 2:
        for counter in PROGRESS:
            first, last = (p.value.by_dp(counter).get(dp) for p in (pages[0], pages[-1]))
            if first is not None and last is not None and last > first:
                return True
    return any(e.rank.dp == dp and not is_probe(e) for e in engine.batch_lines(since))


def varies(readings: tuple[Count, ...]) -> bool:
    return len(readings) >= 2 and not constant(readings)


def silence(engine: EngineView, dp: int, moving: list[int], since: float) -> Iterator[Evidence]:
    """What the log says of the ranks: lines of the siblings, none of this one."""
    lines = {o: len([e for e in engine.batch_lines(since) if e.rank.dp == o]) for o in moving}
    if any(lines.values()):
        said = ", ".join(f"dp{o} {n}" for o, n in sorted(lines.items()))
        yield Evidence(f"batch lines in the window: {said}, dp{dp} none", instance=engine.name)


def stuck_finding(
    engine: EngineView, queue: Gauge, dp: int, readings: tuple[Count, ...], evidence: tuple[Evidence, ...]
) -> Verdict:
    return found(
        "rank-stuck",
        engine.name,
        f"dp{dp} of {engine.name} makes no progress: {readings[-1].value:g} request(s) stand in its {queue} queue, its "
        "siblings move on and their sum looks healthy",
        confidence=Confidence.CERTAIN if len(evidence) >= 3 else Confidence.LIKELY,
        evidence=evidence,
        rank=Rank(dp=dp),
        since=readings[0].at.seen.at,
        limits=("which of the rank's tensor-parallel processes is to blame: their stacks tell",),
        next=(f"pdctl stacks {engine.name}", f"pdctl sample --ranks {engine.name}", "pdctl explain rank-stuck"),
    )


def leaked_finding(
    engine: EngineView, rank: Rank, queue: Gauge, readings: tuple[Count, ...], seen: Evidence
) -> Verdict:
    return found(
        "queue-leaked",
        engine.name,
        f"{readings[-1].value:g} entries remain in the {queue} queue of {engine.name} {rank} with no traffic, its "
        "siblings agree on zero",
        confidence=Confidence.LIKELY,
        evidence=(seen,),
        rank=rank,
        since=readings[0].at.seen.at,
        limits=("whether the entries still hold KV memory: compare its usage with its siblings'",),
        next=(f"pdctl sample --ranks {engine.name}", f"pdctl logs {engine.name}", "pdctl explain queue-leaked"),
    )


def requested(view: ClusterView, engine: EngineView) -> bool:
    """Whether a client or a peer still waits for what stands in the queue: then it is a request, not a leftover."""
    active = engine.http_active()
    if active:
        return active[-1].value >= 1
    queue = Gauge.TRANSFER if engine.is_prefill else Gauge.INFLIGHT
    return any((r := peer.live_total(queue)) and r[-1].value >= 1 for peer in view.peers(engine))


def judge_tp_leak(engine: EngineView) -> Iterator[Verdict]:
    """queue-leaked among tensor ranks, where each reports for itself: they hold the same requests by design."""
    if (
        len(engine.pages) < LEAST_READINGS
        or engine.pages[-1].t - engine.pages[0].t < LEAST_S
        or engine.batches_since(0.0)
    ):
        return
    for queue in HANDOFF[engine.is_prefill]:
        for rank in odd_ranks(engine.pages[-1].value, queue):
            counts = tuple(Count(p.t, v, p) for p in engine.pages if (v := p.value.ranks(queue).get(rank)) is not None)
            if stands(counts):
                seen = saw(f"{queue} of {rank}: {series_text(counts)}, siblings 0", counts[-1].at)
                yield leaked_finding(engine, rank, queue, counts, seen)


def odd_ranks(page: EngineMetrics, queue: Gauge) -> Iterator[Rank]:
    """Ranks above 0 whose tensor siblings of the same dp and pp rank all read 0."""
    ranks = page.ranks(queue)
    for rank, value in ranks.items():
        siblings = [v for r, v in ranks.items() if (r.dp, r.pp) == (rank.dp, rank.pp) and r != rank]
        if value > 0 and len(siblings) >= 2 and not any(siblings):
            yield rank


CHECKS = (
    Check(
        "ranks",
        "one rank that stands while its siblings move",
        ("rank-stuck", "queue-leaked"),
        (Fact.METRICS, Fact.LOADS),
        judge,
    ),
)
