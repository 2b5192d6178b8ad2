"""draining: queues that fall by themselves. Wait; it ends by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.memory import starved
from pdctl.checks.plateau import fall, plateau, series_text
from pdctl.checks.queues import total_readings
from pdctl.checks.view import EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence
from pdctl.model.window import Window

LEAST_S = 4.0
QUEUES = {True: (Gauge.BOOTSTRAP, Gauge.INFLIGHT), False: (Gauge.PREALLOC, Gauge.TRANSFER)}


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each engine whose live hand-off queue is on its way down and not empty yet."""
    for engine in view_of(window, cluster).engines:
        for queue in QUEUES[engine.is_prefill]:
            yield from judge_queue(engine, queue)


def judge_queue(engine: EngineView, queue: Gauge) -> Iterator[Verdict]:
    """draining when the queue lost a third and two or more since its top, kept falling, and is not starved."""
    readings, live = total_readings(engine, queue)
    falling = fall(readings)
    if not live or falling is None or readings[-1].value < 1:
        return
    rate, began = falling
    tail = [r for r in readings if r.t >= began]
    top, last = tail[0].value, tail[-1].value
    half = tail[len(tail) // 2].value
    if top - last < 2 or last > top * 2 / 3 or half <= last or tail[-1].t - began < LEAST_S:
        return
    flat = plateau(tail)
    if flat is not None and flat.seconds > (tail[-1].t - began) / 3 and len(flat.readings) >= 3:
        return  # what is left stands
    if engine.restarted is not None and engine.restarted.t >= began:
        return
    if not engine.is_prefill and starved(engine, began):
        return
    left = last / rate
    bound = bounding_timeout(engine, queue)
    yield found(
        "draining",
        engine.name,
        f"{engine.name}'s {queue} queue falls by itself: {top:g} to {last:g} in {tail[-1].t - began:.0f} s, empty in "
        f"about {left:.0f} s at this pace{bound}",
        confidence=Confidence.LIKELY,
        evidence=(saw(f"live {queue}: {series_text(tail)}", tail[-1].at, per_second=round(rate, 2)),),
        since=tail[0].at.seen.at,
        limits=("the pace may change, and the last of them may stay: look again when it should have ended",),
        next=("pdctl pinned", "pdctl explain draining"),
    )


def bounding_timeout(engine: EngineView, queue: Gauge) -> str:
    """The timeout that ends the wait at the latest, in words."""
    seconds = engine.traits.bootstrap_timeout_s if queue == Gauge.BOOTSTRAP else engine.traits.waiting_timeout_s
    if queue == Gauge.INFLIGHT or seconds is None:
        return "; no timeout of the engine bounds it"
    name = "BOOTSTRAP" if queue == Gauge.BOOTSTRAP else "WAITING"
    return f"; SGLANG_DISAGGREGATION_{name}_TIMEOUT bounds it ({seconds:.0f} s by default)"


CHECKS = (Check("draining", "queues that fall by themselves", ("draining",), (Fact.LOADS,), judge),)
