"""The gauges and rates of an instance in a window, as series of readings to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

from pdctl.checks.noise import LEAST
from pdctl.checks.view import EngineView, engine_view
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.comparison import ARRIVALS, Kind
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.host import Gpus
from pdctl.model.router import RouterMetrics
from pdctl.model.window import At, Window

P = TypeVar("P")
Sums = tuple[float, float]  # of what was measured, and how often
QUEUES = (
    Gauge.RUNNING, Gauge.QUEUE, Gauge.BOOTSTRAP, Gauge.INFLIGHT, Gauge.PREALLOC, Gauge.TRANSFER, Gauge.RETRACTED,
)  # fmt: skip
GAUGES: tuple[tuple[Gauge, str, float], ...] = (  # with unit and grain
    *((queue, "requests", 1.0) for queue in QUEUES),
    (Gauge.PAUSED, "requests", 1.0),
    (Gauge.GRAMMAR, "requests", 1.0),
    (Gauge.DEFERRED_RELEASE, "requests", 1.0),
    (Gauge.HOST_RECEIVE, "requests", 1.0),
    (Gauge.TOKEN_USAGE, "of KV memory", 0.02),
    (Gauge.PENDING_PREALLOC_USAGE, "of KV memory", 0.02),
    (Gauge.MAX_TOKENS, "tokens", 1.0),
    (Gauge.GEN_THROUGHPUT, "tokens/s", 1.0),
    (Gauge.UTILIZATION, "", 0.02),
)
COUNTERS: tuple[tuple[Gauge, str, float], ...] = (
    (Gauge.GENERATION_TOKENS, "tokens/s", 1.0),
    (Gauge.PROMPT_TOKENS, "tokens/s", 1.0),
    (Gauge.REQUESTS, "/s", 0.02),
    (Gauge.ABORTED, "/s", 0.02),
    (Gauge.BOOTSTRAP_FAILED, "/s", 0.0),
    (Gauge.TRANSFER_FAILED, "/s", 0.0),
    (Gauge.RETRIES, "/s", 0.0),
    (Gauge.TRANSFERS_DONE, "/s", 0.02),
    (Gauge.GRAPH_PASSES, "/s", 0.1),
    (Gauge.REALTIME_TOKENS, "tokens/s", 1.0),
    (Gauge.IDLE_SECONDS, "s/s", 0.05),
    (Gauge.SCHEDULER_CPU_SECONDS, "s/s", 0.05),
)
# Counters that are not there before they first count (seen on 0.5.23): absent beside others that are there is 0.
FAILURES = frozenset({Gauge.ABORTED, Gauge.BOOTSTRAP_FAILED, Gauge.TRANSFER_FAILED, Gauge.RETRIES})
OLD_S = 30.0  # seconds of a request under way in a router


@dataclass(frozen=True, slots=True)
class Series:
    """Readings of one thing over a window, oldest first. ``grain`` is the least difference of it that matters."""

    kind: Kind
    name: str
    unit: str
    grain: float
    values: tuple[float, ...]


def series_of(window: Window, cluster: Cluster, instance: Instance) -> dict[str, Series]:
    """Every series of the instance, by name. Those of an engine are of its last process alone."""
    found: list[Series] = [*_answer_times(window, instance)]
    if instance.is_engine:
        found += _engine(engine_view(window, instance))
    elif instance.role is Role.ROUTER:
        found += _router(window, instance)
    return {series.name: series for series in found if series.values}


def gpu_series(window: Window, subject: str) -> dict[str, Series]:
    """The GPUs of a host, by index."""
    seen = window.seen(subject, Fact.GPU, Gpus)
    found: dict[str, list[float]] = {}
    for at in seen:
        for row in at.value.rows:
            for word, value in (
                ("utilization", row.utilization), ("power", row.power_w), ("memory", row.memory_used_mib)
            ):  # fmt: skip
                if value is not None:
                    found.setdefault(f"gpu {row.index} {word}", []).append(value)
    units = {"utilization": ("%", 5.0), "power": ("W", 20.0), "memory": ("MiB", 512.0)}
    return {n: Series(Kind.GAUGE, n, *units[n.split()[-1]], tuple(v)) for n, v in found.items()}


def _answer_times(window: Window, instance: Instance) -> Iterator[Series]:
    took = tuple(o.took for o in window.timeline(instance.name, Fact.METRICS) if o.missed is None)
    yield Series(Kind.GAUGE, "time to answer /metrics", "s", 0.05, took)


# --- engines -----------------------------------------------------------------------------------------------------


def _engine(engine: EngineView) -> Iterator[Series]:
    for dp in engine.dps if len(engine.dps) > 1 else (None,):
        where = f" dp{dp}" if dp is not None else ""
        for gauge, unit, grain in GAUGES:
            values = _live(engine, gauge, dp) or tuple(c.value for c in engine.gauge(gauge, dp))
            yield Series(Kind.GAUGE, f"{gauge.value}{where}", unit, grain, values)
    active = tuple(c.value for c in engine.http_active())
    yield Series(Kind.GAUGE, "HTTP requests under way", "requests", 1.0, active)
    for counter, unit, grain in COUNTERS:
        yield Series(Kind.RATE, counter.value, unit, grain, tuple(_rates(engine, counter)))
    yield Series(Kind.GAUGE, "mean KV transfer", "ms", 1.0, tuple(_means(engine.pages, _transfers)))
    for stage in sorted({name for page in engine.pages for name in page.value.stage_counts}):
        values = tuple(_means(engine.pages, partial(_stage, stage)))
        yield Series(Kind.GAUGE, f"mean time in {stage}", "s", 0.005, values)


def _live(engine: EngineView, gauge: Gauge, dp: int | None) -> tuple[float, ...]:
    """The live counts of a queue, where there are enough: a gauge may be a leftover."""
    if gauge not in QUEUES:
        return ()
    rows = engine.live(gauge, dp) if dp is not None else engine.live_total(gauge)
    return tuple(r.value for r in rows) if len(rows) >= LEAST else ()


def _rates(engine: EngineView, counter: Gauge) -> Iterator[float]:
    for before, after in pairwise(engine.pages):
        old, new = (_total(page, counter) for page in (before, after))
        if old is not None and new is not None and after.t > before.t and new >= old:
            yield (new - old) / (after.t - before.t)


def _total(page: At[EngineMetrics], counter: Gauge) -> float | None:
    value = page.value.total(counter)
    if value is None and counter in FAILURES and page.value.total(Gauge.REQUESTS) is not None:
        return 0.0
    return value


def _means(pages: Sequence[At[P]], sums: Callable[[P], Sums | None]) -> Iterator[float]:
    """The mean between each page and the next, where anything was measured."""
    for before, after in pairwise(pages):
        old, new = sums(before.value), sums(after.value)
        if old is not None and new is not None and new[1] > old[1] and new[0] >= old[0]:
            yield (new[0] - old[0]) / (new[1] - old[1])


def _transfers(page: EngineMetrics) -> Sums | None:
    done, ms = page.total(Gauge.TRANSFERS_DONE), page.total(Gauge.TRANSFER_MS)
    return None if done is None or ms is None else (ms, done)


def _stage(name: str, page: EngineMetrics) -> Sums | None:
    counts, sums = page.stage_counts.get(name), page.stage_sums.get(name)
    return None if not counts or not sums else (sum(sums.values()), sum(counts.values()))


# --- routers -----------------------------------------------------------------------------------------------------


def _router(window: Window, instance: Instance) -> Iterator[Series]:
    pages = window.seen(instance.name, Fact.METRICS, RouterMetrics)
    active = tuple(a for page in pages if (a := page.value.active_total) is not None)
    yield Series(Kind.GAUGE, "requests under way", "requests", 1.0, active)
    old = tuple(sum(b.count for b in p.value.ages if b.gt >= OLD_S) for p in pages if p.value.ages)
    yield Series(Kind.GAUGE, f"requests under way for {OLD_S:.0f} s and longer", "requests", 1.0, old)
    yield Series(Kind.RATE, ARRIVALS, "/s", 0.02, tuple(_paged(pages, lambda p: p.requests)))
    for first in "245":
        values = tuple(_paged(pages, partial(_answers, first)))
        yield Series(Kind.RATE, f"answers {first}xx", "/s", 0.02 if first == "2" else 0.0, values)
    yield Series(Kind.RATE, "errors", "/s", 0.0, tuple(_paged(pages, lambda p: _summed(p.errors, p.families))))
    yield Series(Kind.RATE, "retries", "/s", 0.0, tuple(_paged(pages, lambda p: _summed(p.retries, p.families))))
    yield Series(Kind.GAUGE, "mean time of a request", "s", 0.05, tuple(_means(pages, _durations)))
    yield Series(Kind.GAUGE, "workers refused", "workers", 1.0, tuple(_refused(p.value) for p in pages))


def _paged(pages: Sequence[At[RouterMetrics]], total: Callable[[RouterMetrics], float | None]) -> Iterator[float]:
    for before, after in pairwise(pages):
        old, new = total(before.value), total(after.value)
        if old is not None and new is not None and after.t > before.t and new >= old:
            yield (new - old) / (after.t - before.t)


def _answers(digit: str, page: RouterMetrics) -> float | None:
    """Answers of one class; 0 of a class that was not needed yet on a page that counts answers."""
    if not page.responses:
        return None
    return sum(count for status, count in page.responses.items() if status.startswith(digit))


def _summed(values: Mapping[str, float], families: int) -> float | None:
    """A family appears after its first use: absent on a page that holds others is 0."""
    return sum(values.values()) if values or families else None


def _durations(page: RouterMetrics) -> Sums | None:
    total, count = page.duration_sum, page.duration_count
    return None if total is None or count is None else (total, count)


def _refused(page: RouterMetrics) -> float:
    names = {*(w for w, state in page.breaker.items() if state >= 1), *(w for w, ok in page.healthy.items() if not ok)}
    return float(len(names))
