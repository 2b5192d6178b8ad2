"""What a check is: a row that names what it finds and needs, and a pure function that judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, Finding, RuledOut, Unchecked
from pdctl.model.rank import WHOLE, Rank
from pdctl.model.registry import REGISTRY
from pdctl.model.window import At, Window

Verdict = Finding | Unchecked | RuledOut


@dataclass(frozen=True, slots=True)
class Check:
    """One rule or small family. ``findings`` are the registry names it may yield; ``needs`` the facts of which at
    least one must have been read somewhere, else the check is listed as not checked; ``title`` what it looks for."""

    name: str
    title: str
    findings: tuple[str, ...]
    needs: tuple[Fact, ...]
    judge: Callable[[Window, Cluster], Iterable[Verdict]]


def found(
    name: str,
    subject: str,
    summary: str,
    *,
    confidence: Confidence,
    evidence: Iterable[Evidence],
    rank: Rank = WHOLE,
    since: datetime | None = None,
    against: Iterable[str] = (),
    limits: Iterable[str] = (),
    next: Iterable[str] = (),
) -> Finding:
    """A finding with the severity the registry gives its name. Raises KeyError for a name that is not there."""
    return Finding(
        name, REGISTRY[name].severity, confidence, subject, summary, rank, since,
        tuple(evidence), tuple(against), tuple(limits), tuple(next),
    )  # fmt: skip


def saw(text: str, at: At[object] | None = None, **values: object) -> Evidence:
    """Evidence from an observation: what was seen there, when, of whom, and how to see it again."""
    if at is None:
        return Evidence(text, values=values)
    return Evidence(text, at.seen.at, at.seen.subject, at.seen.ask, values)


def saw_of(text: str, at: At[object], values: Mapping[str, object]) -> Evidence:
    """As ``saw``, for values whose names are not identifiers."""
    return Evidence(text, at.seen.at, at.seen.subject, at.seen.ask, dict(values))
