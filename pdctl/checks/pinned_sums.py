"""Pinned, judged on what ``/get_load`` says: releases before 0.5.8, which have no ``/v1/loads`` (0.4.9 and later; seen
on 0.5.6).

The scheduler itself is asked, so what it says is of its instant. It says sums: on prefill the bootstrap queue with the
waiting one, on decode prealloc, transfer and waiting. A request in flight is in neither; its KV is in use (seen on
0.5.6: tokens above 0 with no request). So the two sides are read together: a request that goes its way waits on decode
from its arrival until its KV is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from pdctl.checks.base import Verdict, found, saw
from pdctl.checks.memory import PROBE_TOKENS, token_signs
from pdctl.checks.pinned_evidence import router_signal, stack_signal
from pdctl.checks.plateau import Plateau, floor_of, plateau, series_text
from pdctl.checks.view import ClusterView, Count, EngineView
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked

LEAST_S, LEAST_READINGS = 20.0, 3
Readings = tuple[Count, ...]


def judge_by_sums(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """For each rank of a prefill: requests that wait and have no other half, KV that stays in use with no request;
    ruled out where every rank was seen to hold nothing at the end."""
    if not any(engine.sums(dp) for dp in engine.dps):
        return
    if all(empty(engine, dp) for dp in engine.dps):
        texts = [f"{series_text(engine.held_tokens(dp))} KV tokens in use" for dp in engine.dps]
        yield RuledOut("request-pinned", engine.name, f"/get_load: no request waits, {texts[0]}")
        return
    told = [v for dp in engine.dps for v in (*judge_orphans(view, engine, dp), *judge_in_flight(view, engine, dp))]
    yield from told or [Unchecked("request-pinned", engine.name, not_yet(engine))]


def not_yet(engine: EngineView) -> str:
    """What is there at the end by the scheduler's own word, so that nobody else's word that nothing is stuck counts."""
    waiting = sum(sums[-1].value for dp in engine.dps if (sums := engine.sums(dp)))
    held = sum(tokens[-1].value for dp in engine.dps if (tokens := engine.held_tokens(dp)))
    what = f"{waiting:g} request(s) wait in it" if waiting else f"{held:g} KV tokens are in use in it"
    if len(engine.pages) > 1 and engine.pages[-1].t - engine.pages[0].t > LEAST_S:
        return f"{what} by /get_load, and that comes and goes: a stuck one behind it can't be excluded"
    return f"{what} by /get_load; {LEAST_S:g} s of that while nothing finishes would tell"


def empty(engine: EngineView, dp: int | None) -> bool:
    """Whether a rank was seen at the end to hold no request and no KV of one."""
    sums, tokens = engine.sums(dp), engine.held_tokens(dp)
    return bool(sums and tokens) and sums[-1].value == tokens[-1].value == 0 and sums[-1].t == tokens[-1].t


def judge_orphans(view: ClusterView, engine: EngineView, dp: int | None) -> Iterator[Verdict]:
    """Requests that wait on prefill while no decode has a request that waits: they got no other half."""
    flat = standing(engine, dp)
    if flat is None:
        return
    start = flat.readings[0].t
    others = [total(decode, start) for decode in view.decodes]
    if not others or not all(readings and floor_of(readings) == readings[-1].value == 0 for readings in others):
        why = f"{flat.last:g} wait in bootstrap or for their forward pass, and a decode may make them wait"
        yield Unchecked("request-pinned", engine.name, why)
        return
    seen = (
        saw(f"none waits on {d.name}: {series_text(r)}", r[-1].at) for d, r in zip(view.decodes, others, strict=True)
    )
    words = (
        f"{flat.stayed:g} request(s) wait in {engine.name} for {flat.seconds:.0f} s, and no decode has their other half"
    )
    yield told(view, engine, dp, flat.readings, words, tuple(seen))


def judge_in_flight(view: ClusterView, engine: EngineView, dp: int | None) -> Iterator[Verdict]:
    """KV that stays in use while no request waits or runs: of a request in flight, where a decode waits for one."""
    still = nothing_finished(engine, dp)
    held = steady(engine.held_tokens(dp, still or 0.0))
    if still is None or len(held) < LEAST_READINGS or held[-1].t - held[0].t < LEAST_S:
        return
    if held[-1].t < engine.sums(dp)[-1].t:
        return
    second = (*peers(view, held[0].t), *router_signal(view, engine, held[0].t), *stack_signal(engine))
    text = (
        f"{floor_of(held):g} KV tokens stay in use on {engine.name} for {held[-1].t - held[0].t:.0f} s with no request"
    )
    if not second:
        yield Unchecked(
            "request-pinned", engine.name, f"{text} waiting or running; nothing else says that one is in flight"
        )
        return
    words = (
        f"at least one request is in flight from {engine.name} to decode and does not arrive: {text} waiting or running"
    )
    yield told(view, engine, dp, held, words, second)


def steady(readings: Readings) -> Readings:
    """The readings at the end that are all the same, and not 0, but for a health check's few tokens in some: tokens
    that move are of a request that is computed."""
    kept: list[Count] = []
    for reading in reversed(readings):
        values = [reading.value, *(count.value for count in kept)]
        if min(values) <= 0 or max(values) - min(values) > PROBE_TOKENS:
            break
        kept.append(reading)
    return tuple(reversed(kept))


def judge_sums_decode(view: ClusterView, decode: EngineView) -> Iterator[Verdict]:
    """Requests that wait on decode while nothing comes out of it and every prefill holds nothing at all."""
    for dp in decode.dps:
        flat = standing(decode, dp)
        if flat is None or token_signs(decode, flat.readings[0].t):
            continue
        if not view.prefills or not all(empty(p, rank) for p in view.prefills for rank in p.dps):
            continue
        seen = tuple(saw(f"{p.name} holds no request and no KV of one", p.sums(p.dps[0])[-1].at) for p in view.prefills)
        words = f"{flat.stayed:g} request(s) wait in {decode.name} for {flat.seconds:.0f} s"
        yield told(view, decode, dp, flat.readings, f"{words}, and no prefill has their other half", seen)


def standing(engine: EngineView, dp: int | None) -> Plateau | None:
    """The readings at the end over which a rank's sum never fell while nothing finished; None of too few."""
    still = nothing_finished(engine, dp)
    flat = plateau(engine.sums(dp, still or 0.0)) if still is not None else None
    if flat is None or len(flat.readings) < LEAST_READINGS or flat.seconds < LEAST_S:
        return None
    return flat


def nothing_finished(engine: EngineView, dp: int | None) -> float | None:
    """Seconds into the window since which no request finished; None where nothing tells. Where no counter is on any
    page none ever finished: they are not there before their first increment."""
    still = engine.quiet_since(dp)
    return 0.0 if still is None and len(engine.pages) > 1 else still


def total(decode: EngineView, since: float) -> Readings:
    """How many requests wait on a decode for what a prefill sends, by its sums or its live counts; () where neither is
    there, of every rank."""
    by_rank = [decode.sums(dp, since) for dp in decode.dps]
    if all(by_rank):
        return tuple(sorted(chain(*by_rank), key=lambda count: (count.t, count.value)))
    return (*decode.live_total(Gauge.PREALLOC, since), *decode.live_total(Gauge.TRANSFER, since))


def peers(view: ClusterView, since: float) -> Iterator[Evidence]:
    """A decode has a request that waits all the while."""
    for decode in view.decodes:
        for dp in decode.dps:
            readings = decode.sums(dp, since)
            if len(readings) >= 2 and floor_of(readings) >= 1 and not token_signs(decode, since):
                yield saw(f"requests that wait on {decode.name} by /get_load: {series_text(readings)}", readings[-1].at)


def told(
    view: ClusterView, engine: EngineView, dp: int | None, readings: Readings, words: str, second: tuple[Evidence, ...]
) -> Verdict:
    """The finding. It is certain where a third party says the same: router or stack."""
    more = (*router_signal(view, engine, readings[0].t), *stack_signal(engine))
    outside = [e for e in more if e not in second]
    first = saw(
        f"by /get_load, which asks the scheduler: {series_text(readings)}", readings[-1].at, last=readings[-1].value
    )
    return found(
        "request-pinned",
        engine.name,
        words,
        confidence=Confidence.CERTAIN if more else Confidence.LIKELY,
        evidence=(first, *second, *outside),
        rank=engine.rank_to_name(dp),
        since=readings[0].at.seen.at,
        limits=(
            f"{engine.release} gives sums over queues: in which of them they wait is not told",
            *(() if more else ("neither a router nor a stack confirms it",)),
        ),
        next=(f"pdctl stacks {engine.name}", f"pdctl logs {engine.name} --failures", "pdctl explain request-pinned"),
    )
