"""Two probes side by side: what differs beyond noise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pdctl.model.probe import Attempt


@dataclass(frozen=True, slots=True)
class Saved:
    """A probe as it was saved. ``note`` is what its maker said of it."""

    cluster: str
    started: datetime | None
    attempts: tuple[Attempt, ...]
    note: str | None = None


class Verdict(StrEnum):
    """How B is to A."""

    SAME = "same"  # no difference beyond noise, or one too small to matter
    WORSE = "worse"
    BETTER = "better"
    FEW = "few"  # too few to tell


class Measure(StrEnum):
    """What is compared."""

    FAILURES = "failures"
    FIRST = "first token"  # of streams
    BETWEEN = "between tokens"
    WHOLE = "whole answer"


@dataclass(frozen=True, slots=True)
class Side:
    """One probe's side: how many moments were looked at, and the median of what each showed in seconds (for failures:
    how many requests there were, and how many failed)."""

    count: int
    value: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of one kind on one path. ``low`` and ``high`` bound B's median less A's in seconds; None for
    failures and where there are too few. ``chance``: how likely failures so unevenly spread are by chance."""

    to: str
    via: str
    trial: str
    measure: Measure
    a: Side
    b: Side
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Two probes compared. ``level`` is the confidence of each interval: such that all of them together hold at 95 in
    100. ``only_a`` and ``only_b`` name what the other has none of."""

    rows: tuple[Comparison, ...]
    level: float
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
