"""Mutes: who does not want to hear of which finding, until when and why; and when that no longer holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pdctl.model.finding import WORST_FIRST, Finding, Report, Severity

# How much of a fault there is: what a summary counts, else what evidence calls a count. Other numbers (times, shares,
# totals since a process began) grow or fluctuate by themselves.
_COUNTED = re.compile(
    r"(?<![\w.-])(\d+(?:\.\d+)?)(?: of \d+)? (?:\w+ )?"
    r"(?:request|connection|slot|entr|socket|completion|files? open|transfer)"
)
_COUNTS = frozenset(
    {"count", "slow", "failed", "ranks", "restarts", "syn_recv", "requests_active", "http_requests_active"}
)
SERIES = "counts"


@dataclass(frozen=True, slots=True)
class Print:
    """A finding reduced to what tells whether it got worse. ``count`` is how many it counts, None where it counts
    nothing; ``confidence`` is kept to be shown: it depends on how long was looked, not on how bad it is."""

    severity: str
    confidence: str
    rank: str = ""
    count: float | None = None


@dataclass(frozen=True, slots=True)
class Mute:
    """One finding of one subject, muted. ``made`` and ``until`` are aware. ``was`` is the finding as it was when it was
    muted, None while it was not seen yet; a ``sticky`` one stays when it gets worse. ``shared``: it stands beside the
    inventory, for everybody who reads that."""

    finding: str
    on: str
    made: datetime
    until: datetime
    who: str
    why: str
    sticky: bool = False
    was: tuple[Print, ...] | None = None
    shared: bool = False

    @property
    def key(self) -> str:
        """What tells it from others."""
        return f"{self.finding}@{self.on}@{self.made.timestamp():.6f}"

    def is_on(self, at: datetime) -> bool:
        return self.made <= at < self.until

    def fits(self, finding: Finding) -> bool:
        """Whether it is about this finding: of its subject, or of a pair its subject is part of."""
        return finding.name == self.finding and self.on in (finding.subject, *finding.subject.split("->"))


@dataclass(frozen=True, slots=True)
class Lifted:
    """A mute that lifted itself, and why."""

    mute: Mute
    why: str

    def __str__(self) -> str:
        return f"the mute of {self.mute.finding} on {self.mute.on} (by {self.mute.who}) is lifted: {self.why}"


@dataclass(frozen=True, slots=True)
class Muted:
    """A report with its mutes applied. ``lifted`` are those that no longer hold, ``first_seen`` those whose finding was
    seen for the first time, with how it was."""

    report: Report
    lifted: tuple[Lifted, ...] = ()
    first_seen: tuple[tuple[Mute, tuple[Print, ...]], ...] = ()


def print_of(finding: Finding) -> Print:
    """What of a finding tells whether it got worse."""
    return Print(finding.severity.value, finding.confidence.value, str(finding.rank), count_of(finding))


def count_of(finding: Finding) -> float | None:
    """How many requests, connections, slots and the like the finding is about; None where it counts none.

    >>> count_of(Finding("x", Severity.WARNING, Confidence.LIKELY, "p", "3 request(s) stand for 40 s"))
    3.0
    """
    said = _COUNTED.search(finding.summary)
    if said:
        return float(said[1])
    counts = [n for seen in finding.evidence for key, value in seen.values.items() for n in _numbers(key, value)]
    return max(counts, default=None)


def _numbers(key: str, value: object) -> Iterator[float]:
    """The count under a key of evidence; of a series the newest."""
    if key == SERIES and isinstance(value, list | tuple) and value:
        key, value = "count", value[-1]
    if key in _COUNTS and isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def apply(report: Report, mutes: Iterable[Mute]) -> Muted:
    """The report with the findings muted that somebody muted and that did not get worse since. One that fits no
    finding changes nothing. What counts is the time of the report, so a recording is muted as it was then."""
    findings = list(report.findings)
    lifted: list[Lifted] = []
    first: list[tuple[Mute, tuple[Print, ...]]] = []
    for mute in mutes:
        about = [n for n, finding in enumerate(findings) if finding.muted is None and mute.fits(finding)]
        if not about or not mute.is_on(_aware(report.end)):
            continue
        now = tuple(print_of(findings[n]) for n in about)
        why = None if mute.sticky or mute.was is None else worse(mute.was, now)
        if why is not None:
            lifted.append(Lifted(mute, why))
            continue
        if mute.was is None:
            first.append((mute, now))
        for n in about:
            findings[n] = replace(findings[n], muted=shown(mute))
    return Muted(report.with_findings(findings), tuple(lifted), tuple(first))


def worse(was: tuple[Print, ...], now: tuple[Print, ...]) -> str | None:
    """Why what is seen now is worse than what was muted, None where it is not: a higher severity, a rank more, or a
    greater count."""
    if (severity := _severity(now)) < _severity(was):
        return f"it is {WORST_FIRST[severity].value} now"
    ranks = {p.rank for p in was}
    more = {p.rank for p in now} - ranks
    if more and "" not in ranks:
        return f"it is seen at {', '.join(sorted(more)).strip(', ') or 'the whole instance'} as well"
    old, new = _count(was), _count(now)
    if old is not None and new is not None and new > old:
        return f"it counts {new:g}, and {old:g} when it was muted"
    return None


def shown(mute: Mute) -> Mapping[str, str]:
    """What a muted finding says of its mute."""
    return {"who": mute.who, "why": mute.why, "until": mute.until.astimezone(UTC).isoformat(timespec="seconds")}


def _severity(prints: tuple[Print, ...]) -> int:
    return min(WORST_FIRST.index(Severity(p.severity)) for p in prints)


def _count(prints: tuple[Print, ...]) -> float | None:
    counts = [p.count for p in prints if p.count is not None]
    return max(counts, default=None)


def _aware(when: datetime) -> datetime:
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def rows_of(prints: Iterable[Print]) -> list[dict[str, object]]:
    """The prints as rows of JSON."""
    return [{"severity": p.severity, "confidence": p.confidence, "rank": p.rank, "count": p.count} for p in prints]


def prints_in(rows: object) -> tuple[Print, ...] | None:
    """The prints of rows of JSON, None of none. Raises KeyError or TypeError for what are no such rows."""
    if not isinstance(rows, list) or not rows:
        return None
    return tuple(Print(str(r["severity"]), str(r["confidence"]), str(r["rank"]), r["count"]) for r in rows)
