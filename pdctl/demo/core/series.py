"""Counters and histograms of one process, by family and extra labels, as a Prometheus client keeps them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]
NONE: Labels = ()


def labels(**named: str) -> Labels:
    return tuple(sorted(named.items()))


class Histogram:
    """Bucket counts (not cumulative), sum and count."""

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self.count += times


class Series:
    """What has been counted so far. A series that was never counted is not there."""

    def __init__(self, buckets: Mapping[str, tuple[float, ...]]) -> None:
        self._buckets = buckets
        self.counters: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}

    def count(self, family: str, amount: float = 1.0, extra: Labels = NONE) -> None:
        rows = self.counters.setdefault(family, {})
        rows[extra] = rows.get(extra, 0.0) + amount

    def observe(self, family: str, value: float, extra: Labels = NONE, times: int = 1) -> None:
        rows = self.histograms.setdefault(family, {})
        if extra not in rows:
            rows[extra] = Histogram(self._buckets.get(family, ()))
        rows[extra].observe(value, times)
