"""What engines and routers counted while a probe ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.checks.queues import total_readings
from pdctl.checks.view import Count, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.probe import Course
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window

PREFILL = (Gauge.BOOTSTRAP, Gauge.QUEUE, Gauge.INFLIGHT)
DECODE = (Gauge.PREALLOC, Gauge.TRANSFER, Gauge.QUEUE, Gauge.RUNNING)


def courses_of(window: Window, cluster: Cluster) -> Iterator[Course]:
    """Each queue's least, greatest and last count, live where the release counts live, and requests under way on
    routers."""
    for engine in view_of(window, cluster).engines:
        for gauge in PREFILL if engine.is_prefill else DECODE:
            readings, live = total_readings(engine, gauge)
            if readings:
                yield _course(engine.name, gauge.value, readings, live)
    for router in cluster.routers:
        pages = window.seen(router.name, Fact.METRICS, RouterMetrics)
        active = [Count(p.t, p.value.active_total, p) for p in pages if p.value.active_total is not None]
        if active:
            yield _course(router.name, "active", active, True)


def _course(name: str, what: str, readings: Sequence[Count], live: bool) -> Course:
    values = [c.value for c in readings]
    return Course(name, what, len(values), min(values), max(values), values[-1], live)
