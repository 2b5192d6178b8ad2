"""What traffic alone explains, and witnesses for what it does not.

L requests on average are in a queue, by the seconds they spent in their stages (Little's law). Where a count is taken
at batches and not at any time, the time that forward passes take is added, as it can only then have seen the batch
before. Two tests ask whether readings come from such a queue; neither takes anything else for granted of the traffic:

- It holds k or more for at most a share L/k of the time (Markov). So n readings far enough apart to be independent,
  each k or more, have odds of at most (L/k)**n.
- Of readings N that are L on average, the product of all 1 + b(N/L - 1) is 1 on average, for any stake b from 0 to 1:
  it is the gain of one who bets on more than L. That it ever is g or more has odds of at most 1/g (Ville). A request
  that stays lifts every reading by one, and so it shows behind a queue that is seldom empty as well, where the first
  test is blind. What is in the queue at the end has not spent its seconds yet, so they are added to L as though the
  last that came were there: a queue that grows is not taken for one that something stays in.

Of readings closer together than a request stays, every m-th are independent; the m-th root of the gain is a gain
(Hoelder's inequality).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from pdctl.checks.base import saw
from pdctl.checks.handoff import Turnover, counted, entries, newest_seconds, turnover
from pdctl.checks.pinned_http import only_probes
from pdctl.checks.plateau import floor_of, mean_of, series_text
from pdctl.checks.provenance import pages_from
from pdctl.checks.trust import Counts, Inflight
from pdctl.checks.view import ClusterView, Count, EngineView
from pdctl.model.engine import Gauge
from pdctl.model.finding import Evidence

SURE = math.log(1e-6)  # odds that turnover explains the readings, for a verdict
WITNESS = math.log(1e-4)  # and for a witness of it, whose own doubt the verdict's readings share
STAGES = ("prefill_forward", "prefill_transfer_kv_cache")
STAKES = (0.3, 0.6, 0.9, 1.0)
SLACK = 1.5  # seconds of a request's way through prefill that no stage counts: tokenising, waiting, answering


@dataclass(frozen=True, slots=True)
class Odds:
    """Readings that were never below ``floor``: ``share`` of the time turnover alone keeps it so, ``log`` the natural
    logarithm of the odds that it did at each of them. ``mean`` is theirs, ``held`` what turnover makes of it at most.
    ``by_mean``: it is the mean that speaks, not the floor."""

    floor: float
    share: float
    log: float
    mean: float = 0.0
    held: float = 0.0
    by_mean: bool = False

    @property
    def words(self) -> str:
        """How turnover falls short of the readings."""
        if self.by_mean:
            return f"makes {self.held:.2g} of the {self.mean:.2g} that are there on average, at most"
        return f"fills it for {self.share:.1%} of the time at most"


def odds(readings: Iterable[Count], held: float, stay: float, there: float | None = None) -> Odds | None:
    """The odds for these readings where turnover holds ``held`` on average, each for ``stay`` seconds; None of
    readings that touched zero or are too few. ``there``: how many it may have held on average over just this span,
    those that are still there at the end included (``still_there``); None where that is not known, and then their
    mean is not asked."""
    rows = tuple(readings)
    if len(rows) < 3 or floor_of(rows) < 1:
        return None
    floor, span = floor_of(rows), rows[-1].t - rows[0].t
    share = min(1.0, held / floor)
    independent = min(float(len(rows)), 1.0 + span / stay if stay > 0 else float(len(rows)))
    log = independent * math.log(max(share, 1e-9))
    by_mean = math.inf if there is None else math.log(2.0) - gain(rows, there) * independent / len(rows)
    return Odds(floor, share, min(log, by_mean), mean_of(rows), there or held, by_mean < log)


def gain(readings: tuple[Count, ...], held: float) -> float:
    """The natural logarithm of what betting on more than ``held`` gains over these readings, at the stake that gains
    most of a few; that there are several to choose from is paid for."""
    most = max(held, 1e-9)
    gains = (sum(math.log(1.0 + stake * (r.value / most - 1.0)) for r in readings) for stake in STAKES)
    return max(gains) - math.log(len(STAKES))


def still_there(engine: EngineView, queue: Gauge, dp: int | None, since: float, flow: Turnover) -> float | None:
    """How many requests turnover held on average over the span from ``since`` on: those that left, by ``flow``, and
    those that are in the queue at the end, had they come last of all. None where the counters of stages do not tell."""
    readings = counted(engine, queue, dp, since)
    if len(readings) < 2:
        return None
    span = readings[-1].t - readings[0].t
    return flow.held + newest_seconds(engine, queue, dp, since, readings[-1].value) / span


def at_most(flow: Turnover) -> float:
    """What ``flow.held`` may really be: a longer look might have counted more."""
    return flow.held * (flow.done + 2.0 * math.sqrt(flow.done) + 2.0) / flow.done if flow.done else 0.0


def paced(engine: EngineView, queue: Gauge, dp: int | None, since: float) -> bool:
    """Whether requests came at a fixed pace, as a load generator's or a prober's do: readings at a pace of their own
    can then meet one of them each time, and are not independent."""
    came = list(entries(engine, queue, dp, since))
    mean = sum(came) / len(came) if came else 0.0
    return mean >= 0.9 and sum((n - mean) ** 2 for n in came) / len(came) < 0.05 * mean


def witnesses(
    view: ClusterView, engine: EngineView, dp: int | None, since: float, *, live: bool = True
) -> Iterator[Evidence]:
    """What shows, apart from the stage counters of this engine (and its live counts, unless ``live``), that its
    inflight queue was never empty."""
    flow = passing(engine, dp, since)
    if flow is None:
        return
    there = still_there(engine, Gauge.INFLIGHT, dp, since, flow)
    for text, readings in live_readings(engine, dp, since) if live else ():
        yield from against(text, readings, flow, there)
    yield from batch_counts(engine, dp, since)
    if not computes(engine, since):
        yield from peer_counts(view, engine, since)
        yield from owed_answers(engine, since)


def computes(engine: EngineView, since: float) -> bool:
    """Whether a prefill may all the while have computed, or had waiting, what its front end and the decodes count as
    well: a long prompt in its chunks looks like a request in flight to them."""
    batches = engine.batches_since(since)
    if batches is False or (batches and only_probes(engine, since)):
        return False
    waiting = counted(engine, Gauge.QUEUE, None, since)
    return not waiting or floor_of(waiting) >= 1


def batch_counts(engine: EngineView, dp: int | None, since: float) -> Iterator[Evidence]:
    """Those witnesses that are taken at the instants of batches, whatever the pace of the readings."""
    flow = passing(engine, dp, since)
    if flow is None:
        return
    there = still_there(engine, Gauge.INFLIGHT, dp, since, flow)
    for text, readings in (*gauge_readings(engine, dp, since), *line_readings(engine, dp, since)):
        yield from against(text, readings, flow, there)


def batches_prove(engine: EngineView, dp: int | None, since: float) -> bool:
    """Whether the batch lines by themselves leave turnover no chance: there may be many of them between two pages."""
    flow = passing(engine, dp, since)
    if flow is None:
        return False
    there = still_there(engine, Gauge.INFLIGHT, dp, since, flow)
    told = (odds(readings, flow.held, flow.stay, there) for _, readings in line_readings(engine, dp, since))
    return any(found is not None and found.log < SURE for found in told)


def passing(engine: EngineView, dp: int | None, since: float) -> Turnover | None:
    """What forward passes and transfers hold together, at most."""
    forward, transfer = (turnover(engine, (stage,), dp, since) for stage in STAGES)
    if forward is None or transfer is None:
        return None
    return Turnover(at_most(forward) + at_most(transfer), transfer.done, forward.stay + transfer.stay)


def against(text: str, readings: tuple[Count, ...], flow: Turnover, there: float | None) -> Iterator[Evidence]:
    found = odds(readings, flow.held, flow.stay, there)
    if found is not None and found.log < WITNESS:
        yield saw(f"{text}: {series_text(readings)}", readings[-1].at, floor=found.floor)


@dataclass(frozen=True, slots=True)
class Account:
    """``oldest``: seconds for which at least one of those now in flight must have been there; ``evidence`` says how."""

    floor: float
    oldest: float
    evidence: Evidence


def account(engine: EngineView, dp: int | None, since: float) -> Account | None:
    """What the batch lines leave unaccounted for, None where they can't tell. What a line written after its batch
    (0.5.10 and later) counts beyond that batch came with earlier ones, so it was in flight since the line before: a
    floor of k under all lines is k times their span in request-seconds. What finished transfers spent is known; the
    rest was spent by those that are still in flight, and the longest of them has at least its share of it."""
    readings = next((r for _, r in line_readings(engine, dp, since)), ())
    if engine.traits.inflight == Inflight.OTHERS or len(readings) < 8 or floor_of(readings) < 1:
        return None
    floor, span = floor_of(readings), readings[-1].t - readings[0].t
    flow = turnover(engine, ("prefill_transfer_kv_cache",), dp, readings[0].t)
    ended = counted(engine, Gauge.INFLIGHT, dp)
    if flow is None or not ended or not flow.done:
        return None
    pages = pages_from(engine.pages, readings[0].t)
    spent = flow.held * (pages[-1].t - pages[0].t)
    oldest = (floor * span - spent) / max(1.0, ended[-1].value)
    text = (
        f"each of {len(readings)} batch lines over {span:.0f} s counts {floor:g} or more in flight beyond its own "
        f"batch; finished transfers account for {spent:.0f} of these {floor * span:.0f} request-seconds"
    )
    return Account(floor, oldest, Evidence(text, instance=engine.name))


Named = tuple[str, tuple[Count, ...]]


def live_readings(engine: EngineView, dp: int | None, since: float) -> Iterator[Named]:
    if engine.traits.counts != Counts.NONE:
        yield "live inflight", engine.live(Gauge.INFLIGHT, dp, since)


def gauge_readings(engine: EngineView, dp: int | None, since: float) -> Iterator[Named]:
    """The inflight gauge where batches rewrite it and their own requests are known: not counted (0.5.3 to 0.5.8), or
    as many as the running gauge says of the same report (0.5.16 and later)."""
    readings = engine.gauge(Gauge.INFLIGHT, dp, since)
    if not engine.batches_since(since, dp) and engine.traits.inflight == Inflight.OWN_AT_ONCE:
        return
    if engine.traits.inflight == Inflight.OTHERS:
        yield "inflight gauge, which leaves a batch's own out", readings
    elif engine.traits.inflight == Inflight.OWN_AT_ONCE:
        own = {r.t: r.value for r in engine.gauge(Gauge.RUNNING, dp, since)}
        rest = tuple(Count(r.t, r.value - own[r.t], r.at) for r in readings if r.t in own)
        yield "inflight gauge less the last batch's own", rest


def line_readings(engine: EngineView, dp: int | None, since: float) -> Iterator[Named]:
    """What each batch line counts in flight beyond its own batch."""
    if not engine.pages or engine.traits.inflight not in (Inflight.OTHERS, Inflight.OWN_30S, Inflight.OWN_AT_ONCE):
        return
    own = engine.traits.inflight != Inflight.OTHERS
    end = engine.window.start + timedelta(seconds=engine.pages[-1].t)
    rows = []
    for line in engine.batch_lines(since, dp):
        if line.when is None or line.when > end or "inflight" not in line.numbers:
            continue
        t = (line.when - engine.window.start).total_seconds()
        value = line.numbers["inflight"] - (line.numbers.get("new_seq", 0.0) if own else 0.0)
        rows.append(Count(t, value, engine.pages[-1]))
    yield "in flight beyond its own batch, by each batch line", tuple(rows)


def peer_counts(view: ClusterView, engine: EngineView, since: float) -> Iterator[Evidence]:
    """The decodes' transfer queues, by their own counters, were never all empty: a room is in one of them while it is
    in this prefill's inflight queue."""
    if len(view.prefills) > 1:
        return
    for decode in view.decodes:
        flow = turnover(decode, ("decode_transferred",), None, since)
        readings = decode.live_total(Gauge.TRANSFER, since) or counted(decode, Gauge.TRANSFER, None, since)
        there = still_there(decode, Gauge.TRANSFER, None, since, flow) if flow is not None else None
        found = odds(readings, at_most(flow), flow.stay, there) if flow is not None else None
        if found is not None and found.log < WITNESS:
            yield saw(f"transfer of {decode.name}: {series_text(readings)}", readings[-1].at, floor=found.floor)


def owed_answers(engine: EngineView, since: float) -> Iterator[Evidence]:
    """The front end owed an answer at every reading, against the odds of its traffic."""
    stages = ("prefill_prepare", "prefill_bootstrap", "prefill_forward", "prefill_transfer_kv_cache")
    flow = turnover(engine, stages, None, since)
    readings = engine.http_active(since)
    found = odds(readings, SLACK * at_most(flow), flow.stay) if flow is not None else None
    if found is not None and found.log < WITNESS:
        yield saw(f"HTTP requests without an answer: {series_text(readings)}", readings[-1].at, floor=found.floor)


def bootstrap_gauge(engine: EngineView, dp: int | None, since: float) -> Iterator[Evidence]:
    """The bootstrap gauge says the same at the end, and was written in the span: by batches, or by the idle report,
    which up to 0.5.10 does not wait for this queue and comes every 30 s."""
    readings = engine.gauge(Gauge.BOOTSTRAP, dp, since)
    if len(readings) < 3 or readings[-1].value < 1:
        return
    long = readings[-1].t - readings[0].t >= 35.0 and not engine.traits.fully_idle_gate
    if long or engine.batches_since(since, dp) or len({r.value for r in readings}) > 1:
        yield saw(f"bootstrap gauge: {series_text(readings)}", readings[-1].at, gauge=readings[-1].value)
