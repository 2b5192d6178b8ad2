"""Pinned behind traffic: a floor under live counts while requests flow past it.

Little's law bounds what turnover explains: with L completions a second that stay w seconds in the queue, it holds L*w
on average, and by Markov's inequality is non-empty in at most that share of independent readings. Readings that were
never empty, against odds of one in a million, are something that stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pdctl.checks.base import Verdict, found, saw
from pdctl.checks.handoff import turnover
from pdctl.checks.pinned_evidence import second_signals
from pdctl.checks.pinned_live import mean_transfer_s, rank_text
from pdctl.checks.plateau import floor_of, mean_of, series_text, tail
from pdctl.checks.trust import Counts
from pdctl.checks.view import ClusterView, Count, EngineView
from pdctl.checks.witness import SURE, Odds, at_most, batch_counts, odds, paced, still_there, witnesses
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, RuledOut, Unchecked

LOOP_S = 0.03  # the transfer time is taken when the loop sees its end (seen on 0.5.23); room for a late turn
LEAST_READINGS, LEAST_S, LEAST_DONE = 8, 20.0, 2
CLEAR = 0.2  # a share of the time that leaves room for what else the seconds of transfers leave out
SLOW_FACTOR = 20.0  # a transfer this many times longer than the mean is out of the ordinary


def judge_under_flow(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """For each rank with live inflight counts: against all odds never empty since it was last seen so (pinned), or
    can't be told behind this much traffic; ruled out where every rank was seen empty and not long ago."""
    empty: list[str] = []
    for dp in engine.dps:
        readings = engine.live(Gauge.INFLIGHT, dp)
        if len(readings) < 2:
            continue
        full = tail(readings)
        if len(full) < len(readings) and seen_empty_lately(engine, readings) and not waits(engine, dp):
            empty.append(f"live inflight {rank_text(dp)}{series_text(readings)}")
            continue
        if not full:
            yield Unchecked("request-pinned", engine.name, old_text(engine, readings, dp))
            continue
        against = explained(engine, dp, full)
        if against is not None and against.log < SURE and not met_each_time(engine, dp, full[0].t):
            yield floor_finding(view, engine, dp, full, against)
        else:
            text = flow_text(full, dp) if flows(engine) else short_text(full, dp)
            yield Unchecked("request-pinned", engine.name, text)
    if len(empty) == len(engine.dps):
        yield RuledOut("request-pinned", engine.name, "; ".join(empty[:2]))


def seen_empty_lately(engine: EngineView, readings: tuple[Count, ...]) -> bool:
    """Whether the queue was seen empty near the end of what was seen of the engine."""
    end = max(at[-1].t for at in (engine.pages, engine.loads) if at)
    return end - max(r.t for r in readings if r.value < 1) < LEAST_S


def waits(engine: EngineView, dp: int | None) -> bool:
    """Whether requests stand in bootstrap all the while and to the end."""
    readings = engine.live(Gauge.BOOTSTRAP, dp)
    full = tail(readings)
    return bool(full) and (len(full) == len(readings) or full[-1].t - full[0].t >= LEAST_S)


def old_text(engine: EngineView, readings: tuple[Count, ...], dp: int | None) -> str:
    if waits(engine, dp):
        return f"requests stand in bootstrap {rank_text(dp)}({series_text(engine.live(Gauge.BOOTSTRAP, dp))})"
    return f"live inflight {rank_text(dp)}was last seen empty at {readings[-1].t:.0f} s and is not renewed since"


def met_each_time(engine: EngineView, dp: int | None, since: float) -> bool:
    """Whether the readings may have met a request each time, as both come at a pace, and no batch says otherwise."""
    return paced(engine, Gauge.INFLIGHT, dp, since) and not any(batch_counts(engine, dp, since))


def explained(engine: EngineView, dp: int | None, readings: tuple[Count, ...]) -> Odds | None:
    """The odds that turnover alone explains these readings; None where nothing bounds it. Counts of releases before
    0.5.19 are taken at batch boundaries: more often with something in the queue (see ``pinned_stage`` for those)."""
    span = readings[-1].t - readings[0].t
    if engine.traits.counts != Counts.LIVE or span < LEAST_S:
        return None
    flow = turnover(engine, ("prefill_transfer_kv_cache",), dp, readings[0].t)
    if flow is not None and flow.done:
        if span < SLOW_FACTOR * flow.stay:
            return None
        return odds(readings, at_most(flow), flow.stay, still_there(engine, Gauge.INFLIGHT, dp, readings[0].t, flow))
    share = turnover_share(engine, dp, readings)
    if share is None:
        return None
    return Odds(floor_of(readings), share, independent(engine, readings) * math.log(max(share, 1e-9)))


def turnover_share(engine: EngineView, dp: int | None, readings: tuple[Count, ...]) -> float | None:
    """The greatest share of the time turnover alone can keep the queue non-empty, by the count of finished transfers
    and their mean time, for pages without stage counters; None when it can't be bounded."""
    span = readings[-1].t - readings[0].t
    done = engine.growth(Gauge.TRANSFERS_DONE, dp, readings[0].t, whole=not engine.one_of_several(dp))
    mean = mean_in_window_s(engine, readings[0].t)
    if mean is None or done is None or span <= 0:
        return None
    if done < LEAST_DONE:
        return None  # nothing flows: a standing queue is another rule's business
    most = done + 2.0 * math.sqrt(done) + 2.0  # what a longer look might have counted
    return min(1.0, (most / span) * (mean + LOOP_S))


def mean_in_window_s(engine: EngineView, since: float) -> float | None:
    """Mean KV transfer time of the transfers that ended in the window, in seconds."""
    done, ms = engine.growth(Gauge.TRANSFERS_DONE, since=since), engine.growth(Gauge.TRANSFER_MS, since=since)
    return ms / done / 1000.0 if done and ms is not None else mean_transfer_s(engine)


def independent(engine: EngineView, readings: tuple[Count, ...]) -> float:
    """How many readings lie far enough apart to be independent, 0 of too few: farther than a request stays."""
    span, stay = readings[-1].t - readings[0].t, (mean_in_window_s(engine, readings[0].t) or 0.0) + LOOP_S
    if len(readings) < LEAST_READINGS or span < LEAST_S:
        return 0.0
    return min(float(len(readings)), span / stay)


def floor_finding(
    view: ClusterView, engine: EngineView, dp: int | None, readings: tuple[Count, ...], against: Odds
) -> Verdict:
    """The finding for a floor that turnover can't hold."""
    floor, since = floor_of(readings), readings[0].t
    beside = tuple(witnesses(view, engine, dp, since, live=False))
    second = (*second_signals(view, engine, since), *beside)
    text = f"live inflight {series_text(readings)}, never below {floor:g}; turnover {against.words}"
    return found(
        "request-pinned",
        engine.name,
        f"{floor:g} request(s) stay in {engine.name}'s inflight queue behind traffic that flows past",
        confidence=Confidence.CERTAIN if beside or (second and against.share < CLEAR) else Confidence.LIKELY,
        evidence=(saw(text, readings[-1].at, count=floor, mean=round(mean_of(readings), 2)), *second),
        rank=engine.rank_to_name(dp),
        since=readings[0].at.seen.at,
        limits=("requests have no identity in any answer: that the same ones stay is inferred from rates",),
        next=(f"pdctl stacks {engine.name}", "pdctl explain request-pinned"),
    )


def flows(engine: EngineView) -> bool:
    """Whether any request finished in the window."""
    return bool(engine.still_since())


def short_text(readings: tuple[Count, ...], dp: int | None) -> str:
    return (
        f"inflight {rank_text(dp)}was never empty ({series_text(readings)}) and nothing finished, but not for long "
        "enough to tell a stuck request from a slow one"
    )


def flow_text(readings: tuple[Count, ...], dp: int | None) -> str:
    return (
        f"inflight {rank_text(dp)}was never empty ({series_text(readings)}) but requests flow: turnover explains it, a "
        f"stuck one behind it can't be excluded; it shows when traffic pauses, or in the stacks"
    )
