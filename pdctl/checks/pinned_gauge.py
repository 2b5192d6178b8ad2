"""Pinned, judged on gauges alone: what a value that does not change proves, release by release.

Gauges are rewritten when the scheduler is idle: 30 s after the last batch (to 0.5.15), at once when fully idle (0.5.16
and later). So a gauge that stays above 0 for longer than that, with no batch in between, proves a non-empty queue,
where the release writes the gauge at all and no health probe re-armed the timer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pdctl.checks.base import Verdict, found, saw
from pdctl.checks.handoff import counted
from pdctl.checks.memory import token_signs
from pdctl.checks.pinned_evidence import active_on, router_signal, stack_signal
from pdctl.checks.plateau import floor_of, series_text
from pdctl.checks.provenance import timed_out
from pdctl.checks.trust import Counts, Inflight
from pdctl.checks.view import ClusterView, Count, EngineView
from pdctl.model.answer import Fact
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, Finding, RuledOut, Unchecked
from pdctl.model.router import RouterMetrics

OVERDUE_S = 35.0  # the idle report waits 30 s after the last batch
LEAST_READINGS = 3
TELLING = (Inflight.OTHERS, Inflight.OWN_30S, Inflight.OWN_AT_ONCE)
IDLE_WRITTEN = (Gauge.RUNNING, Gauge.TRANSFER, Gauge.PREALLOC, Gauge.QUEUE)


def judge_by_gauge(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """Pinned by the inflight gauge or by an overdue idle report; else what is missing."""
    if any(engine.fresh_rows(dp) for dp in engine.dps) or not engine.pages:
        return
    if engine.traits.http_active and engine.http_active():
        return
    told = False
    for dp in engine.dps:
        for verdict in by_inflight(view, engine, dp):
            told = told or isinstance(verdict, Finding)
            yield verdict
    if not told:
        yield from by_overdue_report(view, engine)


def by_inflight(view: ClusterView, engine: EngineView, dp: int | None) -> Iterator[Verdict]:
    """The verdict on one rank's inflight gauge, where the release's gauge can tell at all."""
    if engine.traits.inflight not in TELLING:
        return
    still = engine.quiet_since(dp)
    readings = standing(engine.gauge(Gauge.INFLIGHT, dp, still or 0.0))
    if len(readings) < LEAST_READINGS or readings[-1].t - readings[0].t < OVERDUE_S:
        return
    start = readings[0].t
    hindrance = gauge_hindrance(view, engine, dp, start)
    if hindrance:
        yield Unchecked("request-pinned", engine.name, hindrance)
        return
    second = (*router_signal(view, engine, start), *stack_signal(engine), *overdue(view, start))
    yield pinned_by_gauge(engine, readings, second)


def standing(readings: tuple[Count, ...]) -> tuple[Count, ...]:
    """The trailing readings that are equal and at least 1."""
    kept: list[Count] = []
    for reading in reversed(readings):
        if reading.value < 1 or (kept and reading.value != kept[-1].value):
            break
        kept.append(reading)
    return tuple(reversed(kept))


def gauge_hindrance(view: ClusterView, engine: EngineView, dp: int | None, since: float) -> str | None:
    """Why a standing inflight gauge proves nothing here, None when it does."""
    if silent(engine):
        return f"the scheduler of {engine.name} did not answer: a stopped one leaves its gauges as they were"
    if engine.batches_since(since, dp):
        return "batches run in the window and each counts its own requests: the gauge alone can't tell"
    if engine.quiet_since(dp) is None and engine.batches_since(since, dp) is None:
        return "no counter and no log shows whether batches ran, so a standing gauge can be turnover"
    if engine.traits.inflight == Inflight.OWN_30S and engine.probes(since) != 0:
        seen = engine.probes(since)
        how = "health probes came" if seen else "whether health probes came can't be seen"
        return f"{how}: on {engine.release} each parks the inflight gauge at 1 or more on a healthy, idle engine"
    return None


def pinned_by_gauge(engine: EngineView, readings: tuple[Count, ...], second: tuple[Evidence, ...]) -> Finding:
    """The finding: the gauge stood although an idle engine would have rewritten it."""
    span = readings[-1].t - readings[0].t
    text = f"inflight gauge: {series_text(readings)}, no batch meanwhile"
    return found(
        "request-pinned",
        engine.name,
        f"{readings[-1].value:g} request(s) stand in {engine.name}'s inflight queue: the gauge stood for {span:.0f} s, "
        "and an idle engine would have rewritten it",
        confidence=Confidence.CERTAIN if second else Confidence.LIKELY,
        evidence=(saw(text, readings[-1].at, gauge=readings[-1].value), *second),
        since=readings[0].at.seen.at,
        limits=tuple(gauge_limits(engine, bool(second))),
        next=(f"pdctl stacks {engine.name}", "pdctl explain request-pinned"),
    )


def gauge_limits(engine: EngineView, second: bool) -> Iterator[str]:
    if engine.traits.fully_idle_gate:
        yield "another non-empty queue (bootstrap, grammar, HiCache) can freeze a leftover inflight value as well"
    if engine.traits.inflight != Inflight.OTHERS:
        yield "a health probe counts itself: the number may be one too high"
    if not second:
        yield "one signal only: no router, decode or stack confirms it"


def by_overdue_report(view: ClusterView, engine: EngineView) -> Iterator[Verdict]:
    """The last resort, for releases that can't count: a decode whose idle report is overdue, and a router that counts
    the request. Without the router's count there is nothing to tell from."""
    still = max((e.still_since() or 0.0 for e in view.engines), default=0.0)
    late = tuple(overdue(view, still))
    routed = tuple(router_signal(view, engine, still))
    stacks = tuple(stack_signal(engine))
    reports = [idle_report(decode) for decode in view.decodes]
    if not engine.traits.stages:
        reports = []  # before 0.5.3 what a client gave up stays in a queue of prefill, and neither would know of it
    elif routed_none(view, engine):
        yield RuledOut("request-pinned", engine.name, "the router has no request under way on it")
        return
    if reports and all(reports) and not entered_since(view, engine):
        yield RuledOut("request-pinned", engine.name, "; ".join(r for r in reports if r))
    elif why := unproven(view, engine, bool(stacks)):
        yield Unchecked("request-pinned", engine.name, why)
    elif (routed and (late or stacks)) or (late and stacks):
        yield found(
            "request-pinned",
            engine.name,
            f"at least one request is stuck between {engine.name} and decode; {engine.release} can't count it",
            confidence=Confidence.CERTAIN if stacks and (late or routed) else Confidence.LIKELY,
            evidence=(*routed, *late, *stacks),
            limits=("how many, and in which queue, this release does not report",),
            next=(f"pdctl stacks {engine.name}", "pdctl explain request-pinned"),
        )
    else:
        yield Unchecked("request-pinned", engine.name, blind_text(engine))


def unproven(view: ClusterView, engine: EngineView, in_the_call: bool) -> str | None:
    """Why a router's count and a late report prove no stuck hand-off, None when they may: a scheduler that stopped, a
    batch that hangs and a queue whose head is not admitted hold requests as well. A worker thread seen in the transfer
    call leaves no doubt; else the stage counters (0.5.3 and later) must leave something in a hand-off queue."""
    for one in (engine, *view.decodes):
        if silent(one):
            return f"the scheduler of {one.name} did not answer, and a stopped one holds requests as well"
    if in_the_call or entered_since(view, engine):
        return None
    return f"requests are under way, but nothing of {engine.release} shows that one is being handed over"


def silent(engine: EngineView) -> bool:
    """Whether the newest question that only the scheduler can answer got no answer in time."""
    for fact in (Fact.SERVER_INFO, Fact.LOADS):
        rows = engine.window.timeline(engine.name, fact)
        if rows and timed_out(rows[-1:]):
            return True
    return False


def entered_since(view: ClusterView, engine: EngineView) -> bool:
    """Whether the stage counters leave something in a hand-off queue at the end of the window: a report that zeroed
    the gauges says nothing of what came after it, nor of a prefill's orphans in bootstrap."""
    told = [counted(engine, queue, None) for queue in (Gauge.INFLIGHT, Gauge.BOOTSTRAP)]
    told += [counted(decode, queue, None) for decode in view.decodes for queue in (Gauge.TRANSFER, Gauge.PREALLOC)]
    return any(readings and readings[-1].value >= 1 for readings in told)


def overdue(view: ClusterView, since: float) -> Iterator[Evidence]:
    """A decode's gauges stand above 0 although its idle report would have zeroed them 30 s after the last batch: one
    of its queues is not empty (waiting, transfer or prealloc to 0.5.10, any from 0.5.11)."""
    for decode in view.decodes:
        if not decode.pages or decode.traits.counts == Counts.LIVE or not decode.traits.known:
            continue
        if token_signs(decode, since) or decode.pages[-1].t - since < OVERDUE_S:
            continue
        for queue in IDLE_WRITTEN:
            readings = standing(decode.gauge(queue, decode.dps[0], since))
            if len(readings) >= LEAST_READINGS and readings[-1].t - readings[0].t >= OVERDUE_S:
                text = f"{decode.name}'s {queue} gauge stood at {series_text(readings)}: its idle report is overdue"
                yield saw(text, readings[-1].at, gauge=readings[-1].value)
                break


def idle_report(decode: EngineView) -> str | None:
    """How a decode's idle report was seen after the last movement: gauges fell to 0 with no batch between, which takes
    empty transfer and prealloc queues; None when none was seen."""
    still = decode.still_since()
    pages = [p for p in decode.pages if still is not None and p.t >= still]
    for before, after in pairwise(pages):
        values = [(before.value.total(q), after.value.total(q)) for q in IDLE_WRITTEN]
        if any(old for old, _ in values) and not any(new for _, new in values):
            return f"{decode.name}'s idle report at {after.t:.0f} s zeroed its gauges: no transfer or prealloc left"
    return None


def routed_none(view: ClusterView, engine: EngineView) -> bool:
    """Whether every router was seen with nothing under way on this worker at the end of the window."""
    newest = [view.window.last(r.name, Fact.METRICS, RouterMetrics) for r in view.cluster.routers]
    counts = [active_on(page.value, engine.instance.url) if page else None for page in newest]
    return bool(counts) and all(count == 0 for count in counts)


def blind_text(engine: EngineView) -> str:
    readings = engine.gauge(Gauge.INFLIGHT, engine.dps[0])
    if engine.traits.inflight in (Inflight.DEAD, Inflight.REPUBLISHED):
        return f"{engine.release} can't report its inflight queue; stacks would tell"
    if readings and floor_of(readings) >= 1:
        return (
            f"the inflight gauge reads {series_text(readings)}, which proves nothing here; 60 s without traffic would"
        )
    return "a single stuck request need not show in this release's gauges; stacks or the router's metrics would tell"
