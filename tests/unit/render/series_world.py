"""Hand-made observations for the tests of samples."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow, Loads
from pdctl.model.rank import Rank
from pdctl.model.router import AgeBucket, RouterMetrics

START = datetime(2026, 11, 29, 20, 0, 0, tzinfo=UTC)
PREFILL = Instance("prefill-0", Role.PREFILL, "http://127.0.0.1:30000")
DECODE = Instance("decode-0", Role.DECODE, "http://127.0.0.1:30100")
ROUTER = Instance("router-0", Role.ROUTER, "http://127.0.0.1:8000", metrics_url="http://127.0.0.1:29000/metrics")
CLUSTER = Cluster("prod-a", (PREFILL, DECODE, ROUTER))
JUST_PREFILL = Cluster("prod-a", (PREFILL,))


def seen(t: float, subject: str, fact: Fact, value: object, took: float = 0.01) -> Observation[object]:
    return Observation(subject, fact, t, START + timedelta(seconds=t), took, "GET x", Seen(value))


def missed(t: float, subject: str, fact: Fact = Fact.METRICS, why: Why = Why.READ_TIMEOUT) -> Observation[object]:
    return Observation(subject, fact, t, START + timedelta(seconds=t), 5.0, "GET x", Missed(why))


def page(
    t: float, subject: str, http: float | None = None, **values: float | Mapping[int, float]
) -> Observation[object]:
    """A metrics page: gauges by their canonical name with _ for -, a number or numbers by data-parallel rank."""
    read: dict[Gauge, dict[Rank, float]] = {}
    for name, value in values.items():
        gauge = Gauge(name.replace("_", "-"))
        by_dp = value if isinstance(value, Mapping) else {None: value}
        read[gauge] = {Rank(dp=dp, tp=0): float(v) for dp, v in by_dp.items()}
    return seen(t, subject, Fact.METRICS, EngineMetrics(read, http_active=http))


def loads(
    t: float, subject: str, *rows: LoadRow, version: str = "0.5.19", age: float | None = 0.05
) -> Observation[object]:
    """Live counts of a server whose clock says 1000 + t; each row's snapshot ``age`` seconds old, None for undated."""
    stamped = tuple(
        LoadRow(
            **{**{n: getattr(r, n) for n in LoadRow.__slots__}, "timestamp": None if age is None else 1000 + t - age}
        )
        for r in rows
    )
    return seen(t, subject, Fact.LOADS, Loads(stamped, version, 1000 + t))


def router(t: float, **values: object) -> Observation[object]:
    return seen(t, "router-0", Fact.METRICS, RouterMetrics("smg", **values))  # type: ignore[arg-type]


def age_bucket(gt: float, count: float) -> AgeBucket:
    return AgeBucket(gt, gt * 2 or 30.0, count)
