"""The lengths of the hand-off queues by the schedulers' own counters of request stages.

A scheduler observes how long each request spent in each stage of its way (``per_stage_req_latency_seconds``, release
0.5.3 and later; 0.5.2 has no such histogram). It counts a request out of one stage as it goes into the next queue, so
entered less left is that queue's length at the instant of the page, while the gauges stand as some batch left them:

- inflight of prefill: ``prefill_forward`` less ``prefill_transfer_kv_cache``
- bootstrap of prefill: ``prefill_prepare`` less ``prefill_bootstrap`` (to 0.5.9; later releases leave out the first)
- waiting or in its forward pass on prefill: ``prefill_bootstrap`` less ``prefill_forward``
- prealloc of decode: ``decode_prepare`` less ``decode_bootstrap``
- transfer of decode: ``decode_bootstrap`` less ``decode_transferred``

What failed is subtracted where it never reached the second stage: failed bootstraps always, failed transfers from
0.5.10 on. Before, the stage is observed for them as well (``disaggregation/prefill.py`` and ``decode.py`` of 0.5.3,
0.5.6 and 0.5.9: for every request that leaves; ``observability/req_time_stats.py`` and its callers of 0.5.10.post1,
0.5.15, 0.5.19 and 0.5.23: for those that succeed). A failure counter that is absent has counted none.

Seen to hold at every sample of recordings of real engines of 0.5.6, 0.5.9, 0.5.10.post1, 0.5.15, 0.5.19 and 0.5.23:
idle, under load, with requests pinned and probed, in a storm of aborts (181 failed transfers), with decode's memory
full, after a burst.

The difference can drift, and for good: a request aborted in its forward pass, and one whose optimistic prefill is
tried again or whose bootstrap fails after it, counts as forwarded and never enters the queue (seen in the source of
0.5.15 and 0.5.23); a request aborted while it waits stays in "waiting" (4 in the recordings of 0.5.23); counters kept
in a multiprocess directory over a restart hold what the dead process had. A drifted difference looks like a stuck
request for ever, so by itself it proves nothing: where the front end owes fewer answers than it says are in flight,
the rest is drift and is taken off; and a verdict on it needs a second signal that does not rest on these counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pdctl.checks.provenance import pages_from
from pdctl.checks.view import Count, EngineView
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.rank import Rank
from pdctl.model.window import At


@dataclass(frozen=True, slots=True)
class Steps:
    """The stages by which a queue is entered and left, and the counter of what leaves it otherwise."""

    entered: str
    left: str
    failed: Gauge | None = None


STEPS: Mapping[Gauge, Steps] = {
    Gauge.INFLIGHT: Steps("prefill_forward", "prefill_transfer_kv_cache", Gauge.TRANSFER_FAILED),
    Gauge.BOOTSTRAP: Steps("prefill_prepare", "prefill_bootstrap", Gauge.BOOTSTRAP_FAILED),
    Gauge.QUEUE: Steps("prefill_bootstrap", "prefill_forward"),
    Gauge.PREALLOC: Steps("decode_prepare", "decode_bootstrap", Gauge.BOOTSTRAP_FAILED),
    Gauge.TRANSFER: Steps("decode_bootstrap", "decode_transferred", Gauge.TRANSFER_FAILED),
}
DRIFT_SHARE = 0.1  # of the pages must show a drift: one may have met a health probe, which no front end owes


def counted(engine: EngineView, queue: Gauge, dp: int | None, since: float = 0.0) -> tuple[Count, ...]:
    """A queue's length at each page by the stage counters, less what is known for drift; () where the release or the
    page has none. ``dp`` None is the whole engine."""
    if not engine.traits.stages:
        return ()
    drift = drift_of(engine) if queue == Gauge.INFLIGHT else 0.0
    told = ((page, length(engine, page.value, queue, dp)) for page in engine.pages if page.t >= since)
    return tuple(Count(page.t, max(0.0, value - drift), page) for page, value in told if value is not None)


def undrifted(engine: EngineView, queue: Gauge, dp: int | None, since: float = 0.0) -> tuple[Count, ...]:
    """As ``counted``, where the front end bears it out on every page: it owes at least as many answers as stand in the
    queue, one probe aside (0.5.10 and later count a request to the end of its body); () where it does not."""
    if not engine.traits.http_active_streams:
        return ()
    whole = counted(engine, queue, None)
    owed = {page.t: page.value.http_active for page in engine.pages}
    if not whole or any((owed[c.t] is None) or c.value > (owed[c.t] or 0.0) + 1.0 for c in whole):
        return ()
    return counted(engine, queue, dp, since)


def length(engine: EngineView, page: EngineMetrics, queue: Gauge, dp: int | None) -> float | None:
    """Entered less left on one page: of a rank, or summed over the data-parallel ranks. Of several tensor or pipeline
    ranks that report for themselves the least: a request that is stuck is so on each."""
    steps = STEPS[queue]
    by_dp: dict[int | None, float] = {}
    for rank, entered in page.stage_counts.get(steps.entered, {}).items():
        if dp is None or rank.dp == dp:
            value = entered - left(engine, page, queue, rank)
            by_dp[rank.dp] = min(value, by_dp.get(rank.dp, value))
    return sum(by_dp.values()) if by_dp else None


def left(engine: EngineView, page: EngineMetrics, queue: Gauge, rank: Rank) -> float:
    """How many left a rank's queue since its process started: moved on, or failed."""
    steps = STEPS[queue]
    gone = page.stage_counts.get(steps.left, {}).get(rank, 0.0)
    apart = steps.failed == Gauge.BOOTSTRAP_FAILED or engine.traits.stage_failures_apart
    return gone + (page.ranks(steps.failed).get(rank, 0.0) if steps.failed and apart else 0.0)


def drift_of(engine: EngineView) -> float:
    """How many of those in flight by the counters are not there: more than the front end owes answers (0.5.10 and
    later, where it counts a request to the end of its body), on a tenth of the pages and two at least."""
    if not engine.traits.http_active_streams:
        return 0.0
    over = []
    for page in engine.pages:
        value, owed = length(engine, page.value, Gauge.INFLIGHT, None), page.value.http_active
        if value is not None and owed is not None:
            over.append(value - owed)
    rank = max(2, round(DRIFT_SHARE * len(over)))
    return max(0.0, sorted(over, reverse=True)[rank - 1]) if len(over) >= rank else 0.0


def seconds_in(page: EngineMetrics, stages: tuple[str, ...], dp: int | None) -> tuple[float, float]:
    """The seconds all requests spent in these stages since the process started, and how many went through the last of
    them; of tensor ranks that report for themselves the greatest."""
    seconds = sum(_folded(page.stage_sums.get(stage, {}), dp) for stage in stages)
    return seconds, _folded(page.stage_counts.get(stages[-1], {}), dp)


def _folded(values: Mapping[Rank, float], dp: int | None) -> float:
    by_dp: dict[int | None, float] = {}
    for rank, value in values.items():
        if dp is None or rank.dp == dp:
            by_dp[rank.dp] = max(value, by_dp.get(rank.dp, value))
    return sum(by_dp.values())


@dataclass(frozen=True, slots=True)
class Turnover:
    """What went through a stage in a span: ``held`` is how many were in it on average (Little's law, exact: the wait
    for the loop's turn is in it), ``done`` how many went through, ``stay`` seconds each was in it."""

    held: float
    done: float
    stay: float


def turnover(engine: EngineView, stages: tuple[str, ...], dp: int | None, since: float = 0.0) -> Turnover | None:
    """The turnover of one or several stages from ``since`` on, None where it is not counted."""
    pages = pages_from(engine.pages, since)
    if not engine.traits.stages or len(pages) < 2 or pages[-1].t <= pages[0].t:
        return None
    if not any(pages[-1].value.stage_counts.get(stage) for stage in stages):
        return None
    (before, some), (after, more) = (seconds_in(p.value, stages, dp) for p in (pages[0], pages[-1]))
    spent, done = max(0.0, after - before), max(0.0, more - some)
    return Turnover(spent / (pages[-1].t - pages[0].t), done, spent / done if done else 0.0)


def usual_stay(engine: EngineView, queue: Gauge) -> float | None:
    """Seconds a request spends in a queue on average since the engine started, None before the first one left it. Of
    the window's pages the least: up to 0.5.9 a timeout adds its 300 s to the sum."""
    told = (seconds_in(page.value, (STEPS[queue].left,), None) for page in engine.pages)
    return min((seconds / done for seconds, done in told if done), default=None)


def since_outlier(engine: EngineView, queue: Gauge, dp: int | None, factor: float, least: float) -> float:
    """Seconds into the window since which no request left a queue after a stay far out of the ordinary (``factor``
    times what is usual there, ``least`` seconds at least): one that a timeout ended says nothing of turnover. Usual is
    the mean of those before the window, or what most stretches of it show, whichever is less: each that a timeout
    ended lifts a mean, and would hide the next one."""
    stretches, usual = _stays(engine, queue, dp)
    slow = (t for t, spent, count in stretches if spent - count * usual > max(least, factor * usual))
    return max(slow, default=0.0)


def _stays(engine: EngineView, queue: Gauge, dp: int | None) -> tuple[list[tuple[float, float, float]], float]:
    """For each stretch between two pages in which requests left a queue: its end, the seconds these had spent there,
    and how many they were; and what is usual for one (see ``since_outlier``)."""
    told = [(page.t, *seconds_in(page.value, (STEPS[queue].left,), dp)) for page in engine.pages]
    stretches = [(t, new - old, m - n) for (_, old, n), (t, new, m) in pairwise(told) if m > n]
    means = [told[0][1] / told[0][2]] if told and told[0][2] else []
    means += [median(spent / count for _, spent, count in stretches)] if stretches else []
    return stretches, min(means, default=0.0)


@dataclass(frozen=True, slots=True)
class Stayers:
    """``count`` of those in a queue at the end that were there all the while since ``since`` (seconds into the window):
    fewer came in after it than are there. ``usual`` seconds are what one stays."""

    count: float
    since: float
    usual: float


def stayers(engine: EngineView, queue: Gauge, dp: int | None) -> Stayers | None:
    """Those that are in a queue longest, by its counters alone; None where as many came in as are there. More that
    went their way since than came in are the queue itself on its way, however long it takes: those that are left stand
    behind them. What a timeout ended did not go its way."""
    readings = counted(engine, queue, dp)
    if not readings or readings[-1].value < 1:
        return None
    came, found = 0.0, None
    _, usual = _stays(engine, queue, dp)
    stretches = tuple(zip(pairwise(engine.pages), entries(engine, queue, dp), strict=True))
    for (before, _), entered in reversed(stretches):
        came += entered
        if readings[-1].value - came < 1:
            break
        if _moved_on(engine, queue, dp, before.t) <= came:
            found = Stayers(readings[-1].value - came, before.t, usual)
    return found


def _moved_on(engine: EngineView, queue: Gauge, dp: int | None, since: float) -> float:
    """How many left a queue for the next one since a page, failed ones not counted (before 0.5.10 their stage is
    observed as well)."""
    steps, pages = STEPS[queue], pages_from(engine.pages, since)
    old, new = (_folded(page.value.stage_counts.get(steps.left, {}), dp) for page in (pages[0], pages[-1]))
    apart = steps.failed == Gauge.BOOTSTRAP_FAILED or engine.traits.stage_failures_apart
    if apart or steps.failed is None:
        return new - old
    one = engine.one_of_several(dp)
    return new - old - (engine.growth(steps.failed, dp, since, whole=not one) or 0.0)


def unmoved_since(engine: EngineView, queue: Gauge, dp: int | None) -> float:
    """Seconds into the window since which no request entered or left a queue by the counters."""
    moved = 0.0
    for before, after in pairwise(engine.pages):
        if any(_went(before, after, stage, dp) for stage in (STEPS[queue].entered, STEPS[queue].left)):
            moved = after.t
    return moved


def _went(before: At[EngineMetrics], after: At[EngineMetrics], stage: str, dp: int | None) -> bool:
    old, new = (_folded(p.value.stage_counts.get(stage, {}), dp) for p in (before, after))
    return new > old


def entries(engine: EngineView, queue: Gauge, dp: int | None, since: float = 0.0) -> Iterator[float]:
    """How many entered a queue between each two pages."""
    pages = [p for p in engine.pages if p.t >= since]
    for before, after in pairwise(pages):
        old, new = (_folded(p.value.stage_counts.get(STEPS[queue].entered, {}), dp) for p in (before, after))
        yield max(0.0, new - old)


def newest_seconds(engine: EngineView, queue: Gauge, dp: int | None, since: float, count: float) -> float:
    """Request-seconds from ``since`` to the last page of the ``count`` requests that came into a queue last; of those
    that came before ``since`` all the while. What came between two pages is taken to have come evenly spread, and each
    of it twice as long before the second one, as far as the first one lets it."""
    pages = [p for p in engine.pages if p.t >= since]
    spent, left_over = 0.0, count
    stretches = zip(pairwise(pages), entries(engine, queue, dp, since), strict=True)
    for (before, after), came in reversed(tuple(stretches)):
        took, long = min(left_over, came), after.t - before.t
        spent += took * (pages[-1].t - after.t + (min(long, long * took / came) if came else 0.0))
        left_over -= took
    return spent + left_over * (pages[-1].t - pages[0].t if pages else 0.0)
