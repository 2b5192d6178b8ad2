"""What pdctl concludes: findings with their evidence, what was not checked, and the report that holds both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from pdctl.model.rank import WHOLE, Rank


class Severity(StrEnum):
    CRITICAL = "critical"
    UNKNOWN = "unknown"
    WARNING = "warning"
    INFO = "info"


class Confidence(StrEnum):
    """certain: two independent signals agree and nothing speaks against; likely: one strong signal, the missing one
    named in the limits; possible: consistent with what was seen, other explanations remain."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


# Worst first. A run that could not see enough is unknown, never ok; a known fault outranks a blind spot.
WORST_FIRST = (Severity.CRITICAL, Severity.UNKNOWN, Severity.WARNING, Severity.INFO)
STATUS_OF: Mapping[Severity, Status] = {
    Severity.CRITICAL: Status.CRITICAL,
    Severity.UNKNOWN: Status.UNKNOWN,
    Severity.WARNING: Status.WARNING,
    Severity.INFO: Status.OK,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen. ``ask`` is how to see it again."""

    saw: str
    at: datetime | None = None
    instance: str | None = None
    ask: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A conclusion. ``name`` is one of the registry's stable names; ``subject`` an instance, or "a->b" for a pair."""

    name: str
    severity: Severity
    confidence: Confidence
    subject: str
    summary: str
    rank: Rank = WHOLE
    since: datetime | None = None
    evidence: tuple[Evidence, ...] = ()
    against: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    muted: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Something a report does not judge, and why."""

    what: str
    subject: str
    why: str


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A fault that what was seen speaks against, and by what."""

    what: str
    subject: str
    by: str


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """How an instance showed itself in the window."""

    name: str
    role: str
    version: str | None = None
    reachable: bool | None = None
    why: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a judging command says. Its status is the worst severity among unmuted findings; a check that broke
    (an error of pdctl's own, listed under ``unchecked``) makes an otherwise fine report unknown."""

    cluster: str
    start: datetime
    end: datetime
    samples: int
    findings: tuple[Finding, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    instances: tuple[InstanceReport, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    broken: bool = False

    @property
    def status(self) -> Status:
        status = status_of(self.findings)
        return Status.UNKNOWN if self.broken and status in (Status.OK, Status.WARNING) else status

    def with_findings(self, findings: Iterable[Finding]) -> Report:
        return replace(self, findings=tuple(findings))


def status_of(findings: Iterable[Finding]) -> Status:
    """The worst status among unmuted findings; info counts as ok."""
    severities = {f.severity for f in findings if f.muted is None}
    return next((STATUS_OF[s] for s in WORST_FIRST if s in severities), Status.OK)


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Findings worst first, causes before what can follow from them, the surest first among equals, else in the order
    given."""
    sure = list(Confidence)
    ranked = sorted(findings, key=lambda f: (WORST_FIRST.index(f.severity), sure.index(f.confidence)))
    return _causes_first(ranked)


# What can follow from what: a consequence is told after its cause, where both are equally bad.
FOLLOWS: Mapping[str, frozenset[str]] = {
    "router-circuit-open": frozenset(
        {"peer-stale", "transfer-pair-broken", "scheduler-stopped", "engine-crashed", "device-hang", "role-mismatch"}
    ),
    "request-pinned": frozenset({"ranks-diverged", "device-hang", "engine-crashed", "scheduler-stopped"}),
    "transfer-stuck": frozenset({"ranks-diverged", "engine-crashed", "scheduler-stopped", "queue-head-blocked"}),
    "transfer-pair-broken": frozenset({"peer-stale", "role-mismatch"}),
    "router-holds-requests": frozenset({"scheduler-stopped", "engine-crashed", "accept-queue-full"}),
    "scheduler-stopped": frozenset({"ranks-diverged", "device-hang", "engine-crashed"}),
}


def _causes_first(findings: list[Finding]) -> list[Finding]:
    """The findings with each consequence after the causes that are there and as severe as itself."""
    out: list[Finding] = []
    waiting = list(findings)
    left = Counter((f.severity, f.name) for f in waiting)
    while waiting:
        free = (n for n, f in enumerate(waiting) if not any(left[f.severity, cause] for cause in _causes_of(f.name)))
        chosen = waiting.pop(next(free, 0))
        left[chosen.severity, chosen.name] -= 1
        out.append(chosen)
    return out


def _causes_of(name: str) -> frozenset[str]:
    return FOLLOWS.get(name, frozenset())
