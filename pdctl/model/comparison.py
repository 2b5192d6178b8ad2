"""What differs between two windows of a cluster, as values that any form of output can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pdctl.model.finding import Finding, Report

ARRIVALS = "requests begun"  # the rate of a router that is the load: what comes in, whatever becomes of it


class Kind(StrEnum):
    """What a difference is about, in the order they are told."""

    FINDING = "finding"
    INSTANCE = "instance"
    RESTART = "restart"
    VERSION = "version"
    SETTING = "setting"
    SCRIPT = "script"
    GAUGE = "gauge"
    RATE = "rate"
    SOCKETS = "sockets"


@dataclass(frozen=True, slots=True)
class Spread:
    """A gauge or rate over a window: ``count`` readings, their median and mean, ``scale`` their spread about the median
    (1.4826 times the median absolute deviation: the standard deviation of what is normal), and ``worth``: as how many
    independent readings they count, since neighbours in time are alike."""

    count: int
    median: float
    mean: float
    scale: float
    deviation: float
    worth: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs. ``before`` and ``after`` in words, None where it is not there. Of a gauge or rate,
    ``spreads`` are both sides', ``unit`` their unit and ``noise`` how large a difference chance alone could make;
    ``by`` is "median" or "mean"; of a finding, ``finding`` is the one that is there."""

    kind: Kind
    subject: str
    what: str
    before: str | None = None
    after: str | None = None
    spreads: tuple[Spread, Spread] | None = None
    unit: str = ""
    noise: float | None = None
    by: str | None = None
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Something that only one side could show, or neither, and why."""

    subject: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: where it came from, and from when to when."""

    source: str
    start: datetime
    end: datetime
    samples: int
    report: Report


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that came of it. ``alike`` counts, by kind, what was compared and did not differ."""

    before: Side
    after: Side
    differences: tuple[Difference, ...] = ()
    alike: tuple[tuple[Kind, int], ...] = ()
    not_compared: tuple[NotCompared, ...] = ()

    @property
    def load(self) -> Difference | None:
        """The rate at which requests came in through a router, where it is another: gauges and other rates follow it
        without anything being wrong."""
        return next((d for d in self.differences if d.kind is Kind.RATE and d.what == ARRIVALS), None)

    @property
    def compared(self) -> int:
        """How many things could be compared at all, but for findings and instances."""
        plain = (Kind.FINDING, Kind.INSTANCE)
        told = sum(1 for d in self.differences if d.kind not in plain)
        return told + sum(count for kind, count in self.alike if kind not in plain)
