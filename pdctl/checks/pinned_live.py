"""Pinned, judged on live queue counts: releases 0.5.8.post1 to 0.5.12.post1 (asked of the scheduler), 0.5.16 and later
while the snapshot's own time advances (always while the loop turns from 0.5.19)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pdctl.checks.base import Verdict, found, saw
from pdctl.checks.memory import starved
from pdctl.checks.pinned_evidence import oldest, router_signal, second_signals
from pdctl.checks.plateau import Plateau, fall, plateau, series_text
from pdctl.checks.trust import Counts
from pdctl.checks.view import ClusterView, Count, EngineView
from pdctl.model.answer import Fact
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, Finding, RuledOut, Unchecked
from pdctl.model.router import RouterMetrics

LEAST_S = 8.0  # a queue that stood this long with nothing finishing; far above a transfer's milliseconds
UNKNOWN_PACE_S = 20.0  # where no finished transfer says how long one takes
BLIND_S = 30.0  # where no counter says whether anything moves
LEAST_READINGS = 3
RECENT_S = 15.0  # two rounds of slow asking
SLOW_FACTOR = 20.0  # and this many times the engine's own mean transfer time
PREFILL_QUEUES = (Gauge.INFLIGHT, Gauge.BOOTSTRAP)


def judge_live_prefill(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """Pinned where a queue of a rank never fell while nothing moved on; ruled out where each queue was seen empty."""
    judged = False
    empty: list[str] = []
    for dp in engine.dps:
        still = engine.quiet_since(dp)
        for queue in PREFILL_QUEUES:
            readings = engine.live(queue, dp)
            if not readings:
                continue
            judged = True
            flat = plateau([r for r in readings if still is None or r.t >= still])
            if flat is None or draining_down(readings):
                if readings[-1].value == 0 and is_recent(engine, readings[-1]):
                    empty.append(f"{queue} {rank_text(dp)}{series_text(readings)}")
                continue
            yield from pinned_queue(view, engine, dp, queue, flat)
    if judged and len(empty) == 2 * len(engine.dps):
        yield RuledOut("request-pinned", engine.name, f"live counts: {'; '.join(empty[:2])}")


def is_recent(engine: EngineView, reading: Count) -> bool:
    """Whether a reading is of the end of what was seen: a snapshot that is not renewed any more says nothing of now."""
    end = max(at[-1].t for at in (engine.pages, engine.loads) if at)
    return end - reading.t < RECENT_S


def pinned_queue(
    view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge, flat: Plateau
) -> Iterator[Finding | Unchecked]:
    """The verdict on one queue's plateau; nothing where it is too short to tell."""
    start = flat.readings[0].t
    if flat.seconds < needed_s(engine, queue, dp) or len(flat.readings) < LEAST_READINGS:
        return
    why = (waits_for_decode(view, start) or held_by_router(view, engine, start)) if queue == Gauge.BOOTSTRAP else None
    if why:
        yield Unchecked("request-pinned", engine.name, f"{flat.last:g} wait in bootstrap, {why}")
        return
    yield pinned(engine, dp, queue, flat, second_signals(view, engine, start))


def needed_s(engine: EngineView, queue: Gauge, dp: int | None) -> float:
    """How long a queue must stand before it counts: longer where this engine's own transfers take long, or where
    nothing says how long they take or whether anything moves."""
    if engine.quiet_since(dp) is None:
        return BLIND_S
    mean = mean_transfer_s(engine)
    if queue == Gauge.INFLIGHT:
        return max(LEAST_S, SLOW_FACTOR * mean) if mean else UNKNOWN_PACE_S
    return LEAST_S


def mean_transfer_s(engine: EngineView) -> float | None:
    """Mean KV transfer time since the engine started, in seconds (histogram of 0.5.10.post1 and later)."""
    for page in reversed(engine.pages):
        done, ms = page.value.total(Gauge.TRANSFERS_DONE), page.value.total(Gauge.TRANSFER_MS)
        if done and ms is not None:
            return ms / done / 1000.0
    return None


def waits_for_decode(view: ClusterView, since: float) -> str | None:
    """Why a standing bootstrap queue may be decode's doing, None when every decode was seen empty or stuck as well."""
    if not view.decodes:
        return "and no decode is in the inventory to tell starvation from an orphan"
    for decode in view.decodes:
        reasons = starved(decode, since)
        if reasons:
            return f"while {decode.name} is short of KV memory: {reasons[0]}"
        prealloc = decode.live_total(Gauge.PREALLOC, since)
        if prealloc and min(r.value for r in prealloc) >= 1:
            return f"and {decode.name} holds them in prealloc: {series_text(prealloc)}"
        if not decode.pages:
            return f"and {decode.name} could not be read"
        if not prealloc and decode.traits.counts in (Counts.LIVE, Counts.ASKED):
            return f"and {decode.name}'s live counts are not renewed: its scheduler may not turn"
    return None


def held_by_router(view: ClusterView, engine: EngineView, since: float) -> str | None:
    """Why orphans in bootstrap are the router's: it counts them as under way, long since, and decode has nothing."""
    for router in view.cluster.routers:
        page = view.window.last(router.name, Fact.METRICS, RouterMetrics)
        if page is not None and oldest(page.value) >= 1 and any(router_signal(view, engine, since)):
            return f"half of requests {router.name} holds: decode never got the other (see router-holds-requests)"
    return None


def draining_down(readings: tuple[Count, ...]) -> bool:
    """Whether a queue is on its way down: it fell in the last readings, and by more than it has left."""
    falling = fall(readings)
    if falling is None or len(readings) < 3:
        return False
    recent = readings[-1].value < readings[-3].value
    return recent and max(r.value for r in readings) >= 2 * readings[-1].value


def pinned(engine: EngineView, dp: int | None, queue: Gauge, flat: Plateau, second: tuple[Evidence, ...]) -> Finding:
    """The finding for one queue of one rank."""
    rank = engine.rank_to_name(dp)
    grew = f" ({flat.last:g} by now)" if flat.last > flat.stayed else ""
    summary = (
        f"{flat.stayed:g} request(s) stand in {engine.name}'s {queue} queue{grew} and did not leave in "
        f"{flat.seconds:.0f} s, while nothing finished"
    )
    text = f"live {queue}: {series_text(flat.readings)}"
    first = saw(text, flat.readings[-1].at, count=flat.stayed, queue=queue.value)
    return found(
        "request-pinned",
        engine.name,
        summary,
        confidence=Confidence.CERTAIN if second else Confidence.LIKELY,
        evidence=(first, *second),
        rank=rank,
        since=flat.readings[0].at.seen.at,
        limits=limits_of(engine, queue, bool(second)),
        next=(f"pdctl stacks {engine.name}", f"pdctl logs {engine.name} --failures", "pdctl explain request-pinned"),
    )


def limits_of(engine: EngineView, queue: Gauge, second: bool) -> Iterator[str]:
    """What the verdict does not show."""
    yield "no engine lists request ids, so which requests these are is not known; they may be older than the window"
    if queue == Gauge.INFLIGHT:
        yield "whether the wire, the transfer worker or one rank is to blame: all ranks' stacks tell"
    else:
        yield "whether decode never got its half or refused it: the router's and decode's logs tell"
    if not second:
        yield "one signal only: no HTTP count, peer, router or stack confirms it"


def rank_text(dp: int | None) -> str:
    return "" if dp is None else f"dp{dp} "


def judge_live_decode(view: ClusterView, engine: EngineView, known: tuple[Finding, ...]) -> Iterator[Verdict]:
    """A decode's transfer queue that stands while every prefill is empty: the other half is gone."""
    if known or _any_busy(view):
        return
    still = engine.still_since()
    for dp in engine.dps:
        readings = engine.live(Gauge.TRANSFER, dp)
        flat = plateau([r for r in readings if still is None or r.t >= still])
        if flat is None or draining_down(readings) or len(flat.readings) < LEAST_READINGS:
            continue
        if flat.seconds < (LEAST_S if view.prefills else 30.0):
            continue
        second = second_signals(view, engine, flat.readings[0].t)
        empty = tuple(_empty_prefills(view, flat.readings[0].t))
        yield pinned(engine, dp, Gauge.TRANSFER, flat, (*second, *empty))


@lru_cache(maxsize=4)
def _any_busy(view: ClusterView) -> bool:
    """Whether any prefill is busy: asked for each decode, and the same for all."""
    return any(_busy(prefill) for prefill in view.prefills)


def _busy(prefill: EngineView) -> bool:
    """Whether a prefill has, or may have, a counterpart for what a decode waits for."""
    queues = (Gauge.RUNNING, Gauge.QUEUE, Gauge.BOOTSTRAP, Gauge.INFLIGHT)
    rows = [prefill.live_total(queue) for queue in queues]
    return not any(rows) or any(r and r[-1].value > 0 for r in rows)


def _empty_prefills(view: ClusterView, since: float) -> Iterator[Evidence]:
    for prefill in view.prefills:
        readings = prefill.live_total(Gauge.INFLIGHT, since)
        if readings:
            yield saw(f"live inflight of {prefill.name}: {series_text(readings)}", readings[-1].at)
