"""Gauges that prove nothing: left over from earlier, or not written by this release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.pinned import judge as judge_pinned
from pdctl.checks.plateau import constant, floor_of, series_text
from pdctl.checks.scheduler import judge_wedged
from pdctl.checks.trust import Counts, Inflight
from pdctl.checks.view import Count, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Finding, Unchecked
from pdctl.model.window import Window

LEAST_S = 20.0
QUIET_S = 30.0
GAUGES = (Gauge.INFLIGHT, Gauge.BOOTSTRAP, Gauge.TRANSFER, Gauge.PREALLOC, Gauge.RUNNING)


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Only where nothing better told: with live counts at hand a leftover gauge hides nothing."""
    view = view_of(window, cluster)
    verdicts = judge_pinned(window, cluster)
    untold = {v.subject for v in verdicts if isinstance(v, Unchecked)}
    if any(isinstance(v, Finding) for v in verdicts):
        return
    for engine in view.engines:
        if any(engine.fresh_rows(dp) for dp in engine.dps):
            continue
        if engine.is_prefill and engine.name in untold and quiet(engine):
            yield from judge_unavailable(engine)
        if not tuple(judge_wedged(engine)):  # where a batch hangs the gauges are of now
            yield from judge_stale(engine)


def judge_unavailable(engine: EngineView) -> Iterator[Verdict]:
    """gauge-unavailable where the release's inflight gauge is dead and nothing else counts its requests."""
    if (
        not engine.pages
        or not engine.traits.known
        or engine.traits.inflight not in (Inflight.DEAD, Inflight.REPUBLISHED)
    ):
        return
    instead = (
        "/v1/loads" if engine.traits.counts == Counts.ASKED else "the router's requests_active and ages, or stacks"
    )
    yield found(
        "gauge-unavailable",
        engine.name,
        f"{engine.release} does not report how many requests are being handed over; read {instead}",
        confidence=Confidence.CERTAIN,
        evidence=(saw(dead_text(engine), engine.pages[-1]),),
        limits=("whether anything is pinned could not be judged from this engine's page",),
        next=(f"pdctl stacks {engine.name}", "pdctl explain gauge-unavailable"),
    )


def quiet(engine: EngineView) -> bool:
    """Whether nothing finished in the last half minute or more: behind traffic no release can exclude a stuck one."""
    still = engine.still_since()
    return bool(engine.pages) and (still is None or engine.pages[-1].t - still >= QUIET_S)


def dead_text(engine: EngineView) -> str:
    value = engine.pages[-1].value.total(Gauge.INFLIGHT)
    how = {
        Inflight.DEAD: "is never written by this release's prefill while something is in the queue",
        Inflight.REPUBLISHED: "repeats the last batch's number for ever",
    }[engine.traits.inflight]
    return f"the inflight gauge reads {'nothing' if value is None else f'{value:g}'} and {how}"


def judge_stale(engine: EngineView) -> Iterator[Verdict]:
    """gauge-stale where a gauge stands above 0 to the end of the window while nothing else moves, and neither an HTTP
    count nor an idle counter says what is true."""
    still = engine.still_since()
    if still is None or len(engine.pages) < 3 or settled(engine):
        return
    for gauge in GAUGES:
        for dp in engine.dps:
            readings = engine.gauge(gauge, dp, still)
            if leftover(engine, readings):
                yield stale(engine, gauge, readings)
                return


def leftover(engine: EngineView, readings: tuple[Count, ...]) -> bool:
    """Whether a gauge stood above 0, unchanged and unwritten, to the end."""
    if len(readings) < 3 or not constant(readings) or floor_of(readings) < 1:
        return False
    return readings[-1].t - readings[0].t >= LEAST_S and engine.batches_since(readings[0].t) is not True


def settled(engine: EngineView) -> bool:
    """Whether another source says what is true: nothing owed over HTTP, idle all the time, or no request at all by
    /get_load."""
    active, idle = engine.http_active(), engine.idle_share()
    if any(engine.sums(dp) for dp in engine.dps):
        return all(none_left(engine, dp) for dp in engine.dps)
    return bool(active and active[-1].value == 0) or (idle is not None and idle > 0.9)


def none_left(engine: EngineView, dp: int | None) -> bool:
    """Whether a rank was seen at the end without any request, waiting or running."""
    sums, idle = engine.sums(dp), engine.held_tokens(dp)
    return bool(sums and idle) and sums[-1].value == 0 and idle[-1].t == sums[-1].t


def stale(engine: EngineView, gauge: Gauge, readings: tuple[Count, ...]) -> Verdict:
    longer = () if engine.traits.inflight == Inflight.REPUBLISHED else ("pdctl pinned --for 90s",)
    return found(
        "gauge-stale",
        engine.name,
        f"{engine.name}'s {gauge} gauge stands at {readings[-1].value:g} while no batch runs: it may be a leftover, "
        "and is evidence in neither direction",
        confidence=Confidence.LIKELY,
        evidence=(saw(f"{gauge} gauge: {series_text(readings)}, no counter moved", readings[-1].at),),
        since=readings[0].at.seen.at,
        limits=("an engine rewrites it 30 s after its last batch if idle; one stuck entry keeps it for ever",),
        next=(*longer, f"pdctl stacks {engine.name}", "pdctl explain gauge-stale"),
    )


CHECKS = (
    Check(
        "gauges",
        "gauges that prove nothing",
        ("gauge-stale", "gauge-unavailable"),
        (Fact.METRICS,),
        judge,
    ),
)
