"""What a command that looks at hosts needed and did not get: said as a finding, so that it never passes for fine.

Not part of triage: there a host's answers are a help, here they are the question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import found
from pdctl.checks.seeing import REASON
from pdctl.model.answer import Fact, Missed, Observation, Seen
from pdctl.model.cluster import Instance
from pdctl.model.finding import Confidence, Evidence, Finding
from pdctl.model.host import Processes
from pdctl.model.window import Window


def unseen(
    window: Window, instances: Iterable[Instance], facts: Iterable[Fact], why: dict[str, str]
) -> Iterator[Finding]:
    """A finding for each instance of which none of a fact's answers could be read, of itself or of its host. ``why``
    holds what is known already of instances that could not be asked at all."""
    wanted = tuple(facts)
    for instance in instances:
        for fact in wanted:
            missed = _missed(window, instance, fact)
            if instance.name in why and (missed is not None or not was_seen(window, instance, fact)):
                yield not_read(instance, f"the {fact.value} of {instance.name}", why[instance.name], missed)
            elif missed is not None:
                yield not_read(instance, f"the {fact.value} of {instance.name}", words(missed), missed)


def _rows(window: Window, instance: Instance, fact: Fact) -> tuple[Observation[object], ...]:
    """Of the instance itself, and of its host (any host, where that is not known: a recording may know better)."""
    host = f"host:{instance.host}" if instance.host else "host:"
    subjects = [
        s for s in window.subjects(fact) if s == instance.name or s == host or (host == "host:" and s[:5] == host)
    ]
    return tuple(o for subject in subjects for o in window.timeline(subject, fact))


def was_seen(window: Window, instance: Instance, fact: Fact) -> bool:
    """Whether something was read; an empty list of processes says that there are none, which is not seeing them."""
    good = [o.got.value for o in _rows(window, instance, fact) if isinstance(o.got, Seen)]
    return any(not isinstance(value, Processes) or value.rows for value in good)


def _missed(window: Window, instance: Instance, fact: Fact) -> Observation[object] | None:
    """The newest miss, where nothing was read."""
    rows = _rows(window, instance, fact)
    if any(isinstance(o.got, Seen) for o in rows):
        return None
    return rows[-1] if rows else None


def words(missed: Observation[object]) -> str:
    """Why it was missed, in words."""
    assert isinstance(missed.got, Missed)
    reason = REASON.get(missed.got.why, str(missed.got.why))
    return f"{reason}: {missed.got.detail}" if missed.got.detail else reason


def not_read(instance: Instance, what: str, why: str, missed: Observation[object] | None = None) -> Finding:
    """The finding that ``what`` could not be read, and why."""
    evidence = (Evidence(why, missed.at, missed.subject, missed.ask),) if missed else (Evidence(why),)
    return found(
        "endpoint-unreadable",
        instance.name,
        f"{what} could not be read: {why}",
        confidence=Confidence.CERTAIN,
        evidence=evidence,
        limits=("nothing is concluded about this instance from its silence",),
        next=("pdctl explain endpoint-unreadable",),
    )
