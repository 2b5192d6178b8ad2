"""Pinned, judged on the counters of request stages: 0.5.3 and later, whatever the gauges say (see ``handoff``).

They are exact at every page but may have drifted for good, so a floor under them is called pinned only where something
that does not rest on them says the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.checks.base import Verdict, found, saw
from pdctl.checks.handoff import STEPS, counted, since_outlier, stayers, turnover, unmoved_since, usual_stay
from pdctl.checks.memory import starved, token_progress_known, token_signs
from pdctl.checks.pinned_evidence import http_signal, idle_signal, router_signal, stack_signal, sums_signal
from pdctl.checks.pinned_gauge import overdue, routed_none
from pdctl.checks.pinned_http import held_tokens, standing_gauge
from pdctl.checks.plateau import floor_of, series_text, tail
from pdctl.checks.scheduler import judge_stopped
from pdctl.checks.view import ClusterView, Count, EngineView
from pdctl.checks.witness import (
    SURE,
    account,
    at_most,
    batch_counts,
    batches_prove,
    bootstrap_gauge,
    computes,
    odds,
    paced,
    still_there,
    witnesses,
)
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, Unchecked

LEAST_S = 8.0  # far above a transfer's milliseconds
UNKNOWN_PACE_S = 20.0  # where nothing that left the queue says how long one stays
FLOW_S = 20.0
SLOW_FACTOR = 20.0  # and this many times the queue's own mean stay
LEAST_READINGS = 3
Readings = tuple[Count, ...]


def judge_by_stages(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """For each rank of a prefill: pinned by a floor that stands still, or that turnover can't hold; else nothing, or
    why not."""
    for dp in engine.dps:
        yield from judge_queue(view, engine, dp, Gauge.INFLIGHT)
        yield from judge_queue(view, engine, dp, Gauge.BOOTSTRAP)


def judge_queue(view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge) -> Iterator[Verdict]:
    """The verdict on one rank's queue: on those that were in it for long whatever else went through, else on its
    floor since the last one that a timeout ended."""
    if not contradicted(view, engine, queue):
        old = tuple(judge_stayers(view, engine, dp, queue))
        yield from old or judge_since_outlier(view, engine, dp, queue)


def judge_stayers(view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge) -> Iterator[Verdict]:
    """Pinned where fewer came into a queue than are in it, over a span in which each of them would long have left."""
    old, end = stayers(engine, queue, dp), engine.pages[-1].t if engine.pages else 0.0
    if old is None or end - old.since < max(FLOW_S, SLOW_FACTOR * old.usual):
        return
    readings = counted(engine, queue, dp, old.since)
    if len(readings) < LEAST_READINGS or hindrance_of(view, engine, queue, old.since):
        return
    second = seconds(view, engine, dp, queue, old.since, quiet=True)
    if second:
        words = f"{old.count:g} of them for all of it: fewer came in since than are there"
        yield told(engine, dp, queue, readings, second, words)


def judge_since_outlier(view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge) -> Iterator[Verdict]:
    cut = since_outlier(engine, queue, dp, SLOW_FACTOR, FLOW_S)
    readings = tail(counted(engine, queue, dp, cut))
    if len(readings) < LEAST_READINGS:
        return
    hindrance = hindrance_of(view, engine, queue, readings[0].t)
    if hindrance:
        yield Unchecked("request-pinned", engine.name, hindrance)
        return
    yield from judge_rank(view, engine, dp, queue, readings)


def contradicted(view: ClusterView, engine: EngineView, queue: Gauge) -> bool:
    """Whether another source says at the end of the window that there is no such request: nothing owed over HTTP
    (0.5.10 and later), or nothing under way on this engine in any router (an orphan is in none)."""
    owed = engine.http_active()
    if engine.traits.http_active_streams and owed and owed[-1].value == 0:
        return True
    return queue == Gauge.INFLIGHT and routed_none(view, engine)


def judge_rank(
    view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge, readings: Readings
) -> Iterator[Verdict]:
    """The verdict on one rank's floor: while nothing moves, else behind what moves."""
    unmoved = unmoved_since(engine, queue, dp)
    still = tuple(r for r in readings if r.t >= unmoved)
    if len(still) >= LEAST_READINGS and still[-1].t - still[0].t >= needed_s(engine, queue):
        second = seconds(view, engine, dp, queue, still[0].t, quiet=True)
        yield told(engine, dp, queue, still, second, "nothing entered or left it")
        return
    yield from judge_flow(view, engine, dp, queue, readings)


def judge_flow(
    view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge, readings: Readings
) -> Iterator[Verdict]:
    """The verdict on a floor behind traffic, where the odds or the batch lines' own account speak against turnover."""
    since = readings[0].t
    flow = turnover(engine, (STEPS[queue].left,), dp, since)
    if flow is None or not flow.done or readings[-1].t - since < max(FLOW_S, SLOW_FACTOR * flow.stay):
        return
    kept = account(engine, dp, since) if queue == Gauge.INFLIGHT else None
    if kept is not None and kept.oldest >= max(FLOW_S, SLOW_FACTOR * flow.stay):
        words = f"one of them for {kept.oldest:.0f} s at least, behind {flow.done:.0f} that passed through"
        yield told(engine, dp, queue, readings, (kept.evidence,), words)
        return
    against = odds(readings, at_most(flow), flow.stay, still_there(engine, queue, dp, since, flow))
    if against is None:
        return
    if against.log > SURE and not (queue == Gauge.INFLIGHT and batches_prove(engine, dp, since)):
        return
    if paced(engine, queue, dp, since) and not any(batch_counts(engine, dp, since)):
        return
    second = seconds(view, engine, dp, queue, since, quiet=False)
    short = against.words if against.log <= SURE else "leaves no chance to what each batch line counts beyond its own"
    yield told(engine, dp, queue, readings, second, f"turnover ({flow.done:.0f} passed through) {short}")


def needed_s(engine: EngineView, queue: Gauge) -> float:
    """How long a queue must stand before it counts."""
    stay = usual_stay(engine, queue)
    return max(LEAST_S, SLOW_FACTOR * stay) if stay else UNKNOWN_PACE_S


def hindrance_of(view: ClusterView, engine: EngineView, queue: Gauge, since: float) -> str | None:
    """Why what stands in a queue can't be called pinned, None when nothing stands in the way."""
    if tuple(judge_stopped(engine)):
        return "its scheduler does not turn"
    if engine.alive() is None and not engine.batches_since(0.0):
        return "nothing shows that the scheduler turns: a stopped one looks the same"
    for decode in view.decodes if engine.is_prefill else ():
        if tuple(judge_stopped(decode)):
            return f"the scheduler of {decode.name} does not turn and may make them wait"
        reasons = starved(decode, since)
        if reasons:
            return f"{decode.name} is short of KV memory ({reasons[0]}) and may make them wait"
    return held_by_decode(view, since) if queue == Gauge.BOOTSTRAP else None


def held_by_decode(view: ClusterView, since: float) -> str | None:
    """Why requests in bootstrap may be decode's to admit: it holds some in prealloc, or none could be read."""
    if not view.decodes:
        return "they may wait for a decode, and none is in the inventory"
    for decode in view.decodes:
        waiting = decode.live_total(Gauge.PREALLOC, since) or counted(decode, Gauge.PREALLOC, None, since)
        if waiting and floor_of(waiting) >= 1:
            return f"{decode.name} holds them in prealloc: {series_text(waiting)}"
        if not decode.pages:
            return f"they may wait for {decode.name}, which could not be read"
    return None


def seconds(
    view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge, since: float, *, quiet: bool
) -> tuple[Evidence, ...]:
    """What else says so, apart from the stage counters of this engine."""
    more: list[Evidence] = []
    if queue == Gauge.INFLIGHT:
        more += witnesses(view, engine, dp, since)
    elif queue == Gauge.BOOTSTRAP:
        more += bootstrap_gauge(engine, dp, since)
    quiet = quiet or (not engine.is_prefill and not token_signs(engine, since))
    return (*more, *(quiet_signals(view, engine, dp, queue, since) if quiet else stack_signal(engine)))


def quiet_signals(
    view: ClusterView, engine: EngineView, dp: int | None, queue: Gauge, since: float
) -> Iterator[Evidence]:
    """Second signals that count where nothing moves. What a decode owes may be a long answer: it counts where nothing
    is computed."""
    if engine.is_prefill and computes(engine, since):
        yield from stack_signal(engine)
        return
    if engine.is_prefill or (token_progress_known(engine) and not token_signs(engine, since)):
        yield from http_signal(engine, since)
        yield from router_signal(view, engine, since)
    yield from stack_signal(engine)
    if queue != Gauge.INFLIGHT:
        yield from sums_signal(engine, dp, since)
    if queue == Gauge.BOOTSTRAP:
        return
    yield from idle_signal(engine, since)
    if engine.is_prefill:
        yield from overdue(view, since)
        yield from held_tokens(engine, since)
        yield from standing_gauge(engine, since)


def judge_stage_decode(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """A decode's transfer queue that stands by its stage counters while no prefill holds the other half."""
    ranks = [dp for dp in engine.dps if not engine.fresh_rows(dp)]
    if not ranks or not all(empty(p) for p in view.prefills):
        return
    for dp in ranks:
        yield from judge_queue(view, engine, dp, Gauge.TRANSFER)


def empty(prefill: EngineView) -> bool:
    """Whether a prefill was seen to hold nothing at the end of the window."""
    owed = prefill.http_active()
    if owed and prefill.traits.http_active_streams:
        return owed[-1].value == 0
    queues = [counted(prefill, queue, None) for queue in (Gauge.INFLIGHT, Gauge.QUEUE)]
    return all(r and r[-1].value == 0 for r in queues)


def told(
    engine: EngineView, dp: int | None, queue: Gauge, readings: Readings, second: tuple[Evidence, ...], words: str
) -> Verdict:
    """The finding for one rank's queue, or what it lacks."""
    floor, span = floor_of(readings), readings[-1].t - readings[0].t
    if not second:
        where = "" if dp is None else f" of dp{dp}"
        return Unchecked(
            "request-pinned",
            engine.name,
            f"its stage counters leave {floor:g} in the {queue} queue{where}, but such a difference can stay behind "
            "after aborts and retries, and nothing else says the same; its stacks would tell",
        )
    steps = STEPS[queue]
    text = f"{queue} by the stage counters ({steps.entered} less {steps.left}): {series_text(readings)}; {words}"
    return found(
        "request-pinned",
        engine.name,
        f"{floor:g} request(s) stay in {engine.name}'s {queue} queue for {span:.0f} s; {words}",
        confidence=Confidence.CERTAIN,
        evidence=(saw(text, readings[-1].at, count=floor, queue=queue.value), *second),
        rank=engine.rank_to_name(dp),
        since=readings[0].at.seen.at,
        limits=("requests have no identity in any answer: that the same ones stay is inferred from counts",),
        next=(f"pdctl stacks {engine.name}", f"pdctl logs {engine.name} --failures", "pdctl explain request-pinned"),
    )
