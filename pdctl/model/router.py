"""What a router says of itself: its metrics page and its list of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AgeBucket:
    """Requests under way in the router whose age in seconds is in (gt, le]; buckets are not cumulative."""

    gt: float
    le: float
    count: float


@dataclass(frozen=True, slots=True)
class RouterMetrics:
    """One read router page (sglang-router 0.1.9 to 0.3.2, smg). Workers are keyed by their URL. A family the page
    does not hold is an empty mapping or None: families appear only after first use."""

    family: str  # "smg" or "sgl_router"
    active: Mapping[str, float] = field(default_factory=dict)
    breaker: Mapping[str, float] = field(default_factory=dict)  # 0 closed, 1 open, 2 half-open
    healthy: Mapping[str, float] = field(default_factory=dict)
    consecutive_failures: Mapping[str, float] = field(default_factory=dict)
    ages: tuple[AgeBucket, ...] = ()
    requests: float | None = None  # PD requests begun, running total
    responses: Mapping[str, float] = field(default_factory=dict)  # by status code, running totals
    errors: Mapping[str, float] = field(default_factory=dict)  # by "worker_type/error_type", running totals
    retries: Mapping[str, float] = field(default_factory=dict)  # by worker type, running totals
    duration_sum: float | None = None  # seconds, running total
    duration_count: float | None = None
    connections: float | None = None  # leaks in 0.3.2 and smg 1.13: no truth
    families: int = 0

    @property
    def active_total(self) -> float | None:
        """Greatest over workers: each PD request is counted once on each of its two legs."""
        return max(self.active.values()) if self.active else None


@dataclass(frozen=True, slots=True)
class Worker:
    """One row of the router's ``/workers``."""

    url: str
    kind: str | None  # "prefill" | "decode" | other
    healthy: bool | None = None
    load: float | None = None
    bootstrap_port: int | None = None


@dataclass(frozen=True, slots=True)
class Workers:
    rows: tuple[Worker, ...]
