"""Pinned, judged on the HTTP requests the prefill still owes an answer: 0.5.8.post1 and later.

A prefill answers only when the KV transfer has ended, so a request under way is in bootstrap, waiting, forward or
inflight, whatever the scheduler's gauges say. Where nothing finishes and no batch runs, it is stuck between prefill and
decode, unless decode makes it wait or the scheduler does not turn. 0.5.8.post1 and 0.5.9 drop a streaming request from
the count at its headers, so there a 0 excludes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.checks.base import Verdict, found, saw
from pdctl.checks.handoff import counted, usual_stay
from pdctl.checks.memory import starved, token_signs
from pdctl.checks.pinned_evidence import peer_signal, router_signal, stack_signal
from pdctl.checks.plateau import Plateau, plateau, series_text
from pdctl.checks.scheduler import judge_stopped
from pdctl.checks.trust import Counts
from pdctl.checks.view import ClusterView, Count, EngineView
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked

LEAST_S, LEAST_READINGS = 30.0, 3
SLOW_FACTOR = 20.0  # times the engine's own mean transfer time
COUNTED_S = 20.0  # where stage counters show that nothing goes in or out meanwhile


def judge_by_http(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """Pinned, ruled out, or what stands in the way of telling."""
    readings = engine.http_active()
    if not readings or counts_tell(engine):
        return
    if engine.traits.http_active_streams and readings[-1].value == 0:
        yield RuledOut("request-pinned", engine.name, f"no HTTP request under way: {series_text(readings)}")
        return
    still = engine.still_since()
    flat = plateau([r for r in readings if still is None or r.t >= still])
    if flat is None:
        return
    obstacle = what_hinders(view, engine, flat)
    if obstacle:
        yield Unchecked("request-pinned", engine.name, obstacle)
        return
    second = tuple(http_seconds(view, engine, flat))
    yield found(
        "request-pinned",
        engine.name,
        f"{flat.stayed:g} request(s) got no answer from {engine.name} in {flat.seconds:.0f} s, with no batch running "
        "and nothing finished: they sit between prefill and decode",
        confidence=Confidence.CERTAIN if second else Confidence.LIKELY,
        evidence=(
            saw(
                f"HTTP requests without an answer: {series_text(flat.readings)}",
                flat.readings[-1].at,
                count=flat.stayed,
            ),
            *second,
        ),
        since=flat.readings[0].at.seen.at,
        against=tuple(frozen_counts(engine)),
        limits=(
            f"{engine.release} can't say in which queue they sit: its live counts are frozen while they do",
            *(() if second else ("one signal only: neither gauge, decode, router nor stack confirms it",)),
        ),
        next=(f"pdctl stacks {engine.name}", f"pdctl logs {engine.name} --failures", "pdctl explain request-pinned"),
    )


def counts_tell(engine: EngineView) -> bool:
    """Whether live counts are there that tell better: fresh ones, to the end of the window."""
    if engine.traits.counts == Counts.DATED:
        return all(renewed(engine, dp) for dp in engine.dps)
    return any(engine.fresh_rows(dp) for dp in engine.dps)


def renewed(engine: EngineView, dp: int | None) -> bool:
    """Whether each of a rank's snapshots was new when it was answered, near the end of the window. One that stands is
    of a rank that something is stuck in; a health check's batch renews it for a moment."""
    end = engine.pages[-1].t if engine.pages else 0.0
    lately = [at.t for at, _ in engine.rows(dp) if end - at.t < LEAST_S / 2]
    return bool(lately) and {at.t for at, _ in engine.fresh_rows(dp)} >= set(lately)


def what_hinders(view: ClusterView, engine: EngineView, flat: Plateau) -> str | None:
    """Why requests without an answer can't be called pinned (yet), None when nothing stands in the way."""
    start = flat.readings[0].t
    least = least_s(engine)
    if flat.seconds < least or len(flat.readings) < LEAST_READINGS:
        return f"{flat.stayed:g} without an answer for {flat.seconds:.0f} s; {least:.0f} s without a batch would tell"
    if engine.batches_since(start) and not only_probes(engine, start):
        return "batches still run, so they may be computed now"
    if engine.alive() is None:
        return "nothing shows that the scheduler turns: a stopped one looks the same"
    for decode in view.decodes:
        if tuple(judge_stopped(decode)):
            return f"the scheduler of {decode.name} does not turn and may make them wait"
        reasons = starved(decode, start) or token_signs(decode, start)
        if reasons:
            return f"{decode.name} still works ({reasons[0]}) and may make them wait"
        waiting = counted(decode, Gauge.PREALLOC, None, start)
        if waiting and waiting[-1].value >= 1:
            return f"{decode.name} holds requests in prealloc by its stage counters: {series_text(waiting)}"
    return waits_for_batch(engine, flat)


def least_s(engine: EngineView) -> float:
    """For how long an answer must be owed before it counts: longer where this engine's transfers take long."""
    if not counted(engine, Gauge.INFLIGHT, None):
        return LEAST_S
    return max(COUNTED_S, SLOW_FACTOR * (usual_stay(engine, Gauge.INFLIGHT) or 0.0))


def waits_for_batch(engine: EngineView, flat: Plateau) -> str | None:
    """Why all that is owed may wait for its forward pass by the stage counters (bootstrapped less forwarded), None
    where some of it is in bootstrap or in flight."""
    waiting = counted(engine, Gauge.QUEUE, None, flat.readings[0].t)
    if waiting and waiting[-1].value >= flat.last:
        return f"all of them may still wait for a batch by the stage counters: {series_text(waiting)}"
    return None


def only_probes(engine: EngineView, since: float) -> bool:
    """Whether the batches after ``since`` can all be health probes: no more batch lines than probes, and scheduled
    tokens to match."""
    probes = engine.probes(since)
    if not probes:
        return False
    tokens = engine.growth(Gauge.REALTIME_TOKENS, since=since)
    return tokens is None or tokens <= 4 * (probes + 1)


def http_seconds(view: ClusterView, engine: EngineView, flat: Plateau) -> Iterator[Evidence]:
    """Second signals that do not rest on the front end's count."""
    start = flat.readings[0].t
    yield from peer_signal(view, engine, start)
    yield from router_signal(view, engine, start)
    yield from stack_signal(engine)
    yield from held_tokens(engine, start)
    yield from standing_gauge(engine, start)


def held_tokens(engine: EngineView, since: float) -> Iterator[Evidence]:
    """KV tokens in use while every queue reads 0: a pinned request keeps its KV locked (seen on 0.5.15)."""
    for dp in engine.dps:
        rows = [(at, row) for at, row in engine.rows(dp) if at.t >= since]
        if rows and all((row.used_tokens or 0) > 0 and not row.running for _, row in rows):
            at, row = rows[-1]
            yield saw(f"{row.used_tokens} KV tokens stay in use with no request running or queued", at)


def standing_gauge(engine: EngineView, since: float) -> Iterator[Evidence]:
    """The inflight gauge above 0 with no batch and no probe in the span: the idle report would have written 0."""
    for dp in engine.dps:
        readings: tuple[Count, ...] = engine.gauge(Gauge.INFLIGHT, dp, since)
        if readings and min(r.value for r in readings) >= 1 and engine.probes(since) == 0:
            text = f"inflight gauge {series_text(readings)} with no batch and no health probe: never idle"
            yield saw(text, readings[-1].at, gauge=readings[-1].value)


def frozen_counts(engine: EngineView) -> Iterator[str]:
    """What /v1/loads says against it, and why that does not count."""
    for dp in engine.dps:
        zeros = [at for at, row in engine.rows(dp) if row.inflight == 0 and row.bootstrap == 0]
        if zeros:
            yield (
                f"/v1/loads says inflight 0 and bootstrap 0: in {engine.release} a snapshot from before the last "
                "batch, not renewed while a request is stuck"
            )
            return
