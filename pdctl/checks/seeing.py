"""endpoint-unreadable: a needed answer did not come, or was no answer. Nothing is concluded from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pdctl.checks.base import Check, Verdict, found
from pdctl.checks.trust import Counts
from pdctl.checks.view import view_of
from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.finding import Confidence, Evidence, Unchecked
from pdctl.model.window import Window

REASON = {
    Why.METRICS_DISABLED: "metrics-disabled",
    Why.AUTH: "unauthorized",
    Why.READ_TIMEOUT: "timeout",
    Why.CONNECT_TIMEOUT: "timeout",
    Why.CONNECT_REFUSED: "refused",
    Why.REDIRECT_LOOP: "redirect",
}
ADVICE = {
    "metrics-disabled": "start the engine with --enable-metrics",
    "unauthorized": "give its key (api_key_env or api_key_file in pdctl.toml)",
    "refused": "see whether its process runs and listens",
    "timeout": "see whether its HTTP front end is blocked (pdctl sockets, pdctl stacks)",
    "not-metrics": "see what answers at that address",
    "redirect": "give the address it redirects to",
    "tls": "give the private CA (ca_file in pdctl.toml)",
}
PLAIN_PORT = "does this port speak TLS?"  # as reach/faults.py words an answer without TLS to a TLS greeting
PLAIN = "write http:// in its URL if that port speaks no TLS"


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each instance whose metrics were asked for and not readable at the end of the window."""
    if not window.subjects(Fact.METRICS) and not any(isinstance(o.got, Seen) for o in window.observations):
        yield nothing_finding(window, cluster)
        return
    for instance in cluster.instances:
        if instance.role == Role.PROXY:
            continue
        rows = window.timeline(instance.name, Fact.METRICS)
        if not rows and left_out(window, instance):
            yield left_out_finding(window, instance)
        elif not rows:
            yield from never_asked(window, instance)
        elif unreadable(rows):
            yield unreadable_finding(instance, rows)
    yield from unread_loads(window, cluster)


def nothing_finding(window: Window, cluster: Cluster) -> Verdict:
    """A window without a single answer that could be read: an empty recording, or a look that ended before it began."""
    return found(
        "endpoint-unreadable",
        cluster.name,
        "nothing was measured, so nothing is known: this window holds no answer that could be read",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence("no answer that could be read", window.end),),
        limits=("nothing is concluded about the cluster from this",),
        next=("pdctl triage", "pdctl explain endpoint-unreadable"),
    )


def never_asked(window: Window, instance: Instance) -> Iterator[Verdict]:
    """An instance nobody asked: said, never taken for well."""
    why = "its metrics were not asked for" if instance.metrics else "the inventory names no metrics address for it"
    if not any(window.asked(instance.name, fact) for fact in (Fact.LOADS, Fact.WORKERS)):
        yield Unchecked("queues and counters", instance.name, why)


def left_out(window: Window, instance: Instance) -> bool:
    """Whether an engine has no answer at all in a window that holds others' metrics: a recording cut off on the way, or
    a look that ended before it answered."""
    asked = any(window.asked(instance.name, fact) for fact in (Fact.LOADS, Fact.SERVER_INFO))
    return instance.is_engine and instance.metrics is not None and not asked and bool(window.subjects(Fact.METRICS))


def left_out_finding(window: Window, instance: Instance) -> Verdict:
    asked = window.subjects(Fact.METRICS)
    return found(
        "endpoint-unreadable",
        instance.name,
        f"{instance.name}'s metrics could not be read: this window holds no answer of it",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(f"metrics of {', '.join(asked)} and none of {instance.name}", window.end, instance.name),),
        limits=("nothing is concluded about this instance from its silence",),
        next=("pdctl triage", "pdctl explain endpoint-unreadable"),
    )


def unreadable(rows: tuple[Observation[Any], ...]) -> bool:
    """Whether the newest answers are missing: all of them, or the last two, or the last of few."""
    missed = [isinstance(o.got, Missed) for o in rows]
    return all(missed) or all(missed[-2:]) or (missed[-1] and len(missed) <= 2)


def unreadable_finding(instance: Instance, rows: tuple[Observation[Any], ...]) -> Verdict:
    """The finding, with the reason of the newest miss."""
    last = rows[-1]
    assert isinstance(last.got, Missed)
    reason = REASON.get(last.got.why, str(last.got.why))
    misses = sum(isinstance(o.got, Missed) for o in rows)
    words = [*([reason] if reason != Why.OTHER or not last.got.detail else []), *filter(None, [last.got.detail])]
    advice = PLAIN if reason == Why.TLS and PLAIN_PORT in (last.got.detail or "") else ADVICE.get(reason)
    return found(
        "endpoint-unreadable",
        instance.name,
        f"{instance.name}'s metrics could not be read: {': '.join(words)}",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(f"{reason} in {misses} of {len(rows)} asks", last.at, instance.name, last.ask),),
        since=next(o.at for o in rows if isinstance(o.got, Missed)),
        limits=("nothing is concluded about this instance from its silence",),
        next=((f"{advice[0].upper()}{advice[1:]}",) if advice else ()) + ("pdctl explain endpoint-unreadable",),
    )


def unread_loads(window: Window, cluster: Cluster) -> Iterator[Verdict]:
    """Live counts this release has and that could not be read."""
    for engine in view_of(window, cluster).engines:
        rows = window.timeline(engine.name, Fact.LOADS)
        if not rows or engine.traits.counts == Counts.NONE or not all(isinstance(o.got, Missed) for o in rows):
            continue
        last = rows[-1].got
        assert isinstance(last, Missed)
        yield Unchecked("live queue counts", engine.name, last.detail or str(last.why))


CHECKS = (Check("seeing", "answers that did not come", ("endpoint-unreadable",), (), judge),)
