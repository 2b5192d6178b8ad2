"""How a column's number is read from a page, and counters compared between two pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdctl.model.answer import Observation, Seen
from pdctl.model.engine import COUNTERS, EngineMetrics, Gauge, LoadRow, Loads, parse_release
from pdctl.model.fresh import age_of, is_fresh
from pdctl.model.router import RouterMetrics
from pdctl.render.columns import Column, Kind

QUEUES = (Gauge.INFLIGHT, Gauge.BOOTSTRAP, Gauge.PREALLOC, Gauge.TRANSFER, Gauge.QUEUE, Gauge.RUNNING)


@dataclass(frozen=True, slots=True)
class Counted:
    """A page that was read, and when in seconds since the window's start."""

    t: float
    page: EngineMetrics | RouterMetrics

    def count(self, column: Column, dp: int | None) -> float | None:
        """The running total behind a column, None where the page does not hold it."""
        if isinstance(self.page, RouterMetrics):
            return _router_count(column.key, self.page) if dp is None else None
        values = [_engine_value(self.page, source, dp) for source in column.sources]
        held = [v for v in values if v is not None]
        return sum(held) if held else None


def totals(seen: Observation[Any] | None) -> Counted | None:
    """The page of an observation, None where none could be read."""
    if seen is None or not isinstance(seen.got, Seen) or not isinstance(seen.got.value, EngineMetrics | RouterMetrics):
        return None
    return Counted(seen.t, seen.got.value)


def started_anew(before: Counted | None, now: Counted | None) -> bool:
    """Whether the process behind a page began anew since the page before: a counter fell, or its start time moved."""
    if before is None or now is None:
        return False
    if isinstance(before.page, EngineMetrics) and isinstance(now.page, EngineMetrics):
        return _engine_anew(before.page, now.page)
    if isinstance(before.page, RouterMetrics) and isinstance(now.page, RouterMetrics):
        pairs = [(before.page.requests, now.page.requests), (before.page.duration_count, now.page.duration_count)]
        return any(b is not None and n is not None and n < b for b, n in pairs)
    return False


def _engine_anew(before: EngineMetrics, now: EngineMetrics) -> bool:
    starts = before.total(Gauge.START_TIME), now.total(Gauge.START_TIME)
    if None not in starts and starts[0] != starts[1]:
        return True
    pairs = ((before.total(counter), now.total(counter)) for counter in COUNTERS)
    return any(b is not None and n is not None and n < b for b, n in pairs)


def read_gauge(column: Column, dp: int | None, page: EngineMetrics | RouterMetrics) -> float | None:
    """The page's value for a column that is no counter."""
    if isinstance(page, RouterMetrics):
        return _router_now(column.key, page) if dp is None else None
    if column.kind is Kind.NOW:
        return page.http_active if dp is None else None
    return _engine_value(page, column.sources[0], dp)


def _engine_value(page: EngineMetrics, source: Gauge, dp: int | None) -> float | None:
    return page.total(source) if dp is None else page.by_dp(source).get(dp)


def _router_now(key: str, page: RouterMetrics) -> float | None:
    if key == "active":
        return page.active_total
    if key == "breakers_open":
        return float(sum(state != 0 for state in page.breaker.values())) if page.breaker else None
    held = [bucket.gt for bucket in page.ages if bucket.count > 0]
    return max(held, default=0.0) if page.ages else None


def _router_count(key: str, page: RouterMetrics) -> float | None:
    if key == "requests_s":
        return page.requests
    errors = [count for code, count in page.responses.items() if code.startswith("5")]
    return sum(errors) if errors else None


def dps_of(now: Counted | None, loads: Loads | None) -> tuple[int, ...]:
    """The numbered data-parallel ranks that were seen; none for an engine of one."""
    seen: set[int | None] = {row.dp for row in loads.rows} if loads else set()
    if now is not None and isinstance(now.page, EngineMetrics):
        seen.update(dp for gauge in QUEUES for dp in now.page.by_dp(gauge))
    numbered = sorted(dp for dp in seen if dp is not None)
    return tuple(numbered) if len(numbered) > 1 else ()


def live_count(column: Column, dp: int | None, loads: Loads | None) -> float | None:
    """The count an engine gave when it was asked: of a rank, or summed over all (the greatest of a ratio). None where
    it gave none, or one that is or may be old."""
    if column.kind is not Kind.QUEUE or loads is None:
        return None
    rows = [row for row in loads.rows if dp is None or row.dp == dp]
    values = [_live_value(column.sources[0], row) for row in rows if _fresh(row, loads)]
    held = [v for v in values if v is not None]
    if not held or len(held) != len(rows):
        return None
    return max(held) if column.sources[0] == Gauge.TOKEN_USAGE else sum(held)


def _live_value(queue: Gauge, row: LoadRow) -> float | None:
    if queue == Gauge.TOKEN_USAGE:
        return row.token_usage
    count = row.count(queue)
    return None if count is None else float(count)


def is_old(loads: Loads | None) -> bool:
    """Whether a row's own time says that it is from before: its scheduler has not renewed it."""
    return loads is not None and any(row.timestamp is not None and not _fresh(row, loads) for row in loads.rows)


def _fresh(row: LoadRow, loads: Loads) -> bool:
    return is_fresh(row, age_of(row, loads.answered), parse_release(loads.version))
