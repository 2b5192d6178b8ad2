"""The proof after a restart: what has to be seen of the whole cluster before it counts as well.

A point that could be seen before the restart and cannot now is not proven. One that this release never tells is left
out, and said to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pdctl.model.answer import Fact, Missed, Observation, Why
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.finding import Finding, RuledOut, Unchecked
from pdctl.model.plan import Footing, Point, Proven
from pdctl.model.probe import Attempt
from pdctl.model.router import RouterMetrics, Workers
from pdctl.plans.nodes import leaders
from pdctl.plans.waiting import DEFINITE
from pdctl.plans.workers import missing_workers

BREAKERS = {0.0: "closed", 1.0: "open", 2.0: "half-open"}
PINNED = "request-pinned"
STILL = "still the process that was ready"


def wanted_workers(cluster: Cluster, router: Footing | None) -> tuple[tuple[str, ...], bool]:
    """The workers a router must list, and whether in these words: those it listed before; where it was not seen before
    the cluster's engines, which it may know by other addresses."""
    if router is not None and router.workers:
        return router.workers, True
    return tuple(engine.url for engine in cluster.engines if engine.url), False


def registered(router: Instance, before: Footing | None, seen: Observation[object] | None, cluster: Cluster) -> Point:
    """Whether every worker is registered and healthy."""
    missed = _missed(seen)
    if missed is not None:
        return _unseen("workers registered", router, before, Fact.WORKERS, missed)
    value = seen.got.value if seen is not None and not isinstance(seen.got, Missed) else None
    assert isinstance(value, Workers)
    wrong = missing_workers(value, *wanted_workers(cluster, before))
    if wrong:
        return Point("workers registered", router.name, Proven.NO, wrong)
    count, engines = len(value.rows), sum(1 for engine in cluster.engines if engine.url)
    more = f"; the inventory names {engines} engines" if engines > count else ""
    return Point("workers registered", router.name, Proven.YES, f"{count} listed, none called unhealthy{more}")


def breakers(router: Instance, before: Footing | None, seen: Observation[object] | None) -> Point:
    """Whether the router's breakers are closed. A page without any breaker tells nothing."""
    missed = _missed(seen)
    if missed is not None:
        return _unseen("breakers closed", router, before, Fact.METRICS, missed)
    value = seen.got.value if seen is not None and not isinstance(seen.got, Missed) else None
    assert isinstance(value, RouterMetrics)
    if not value.breaker:
        return Point("breakers closed", router.name, Proven.NOT_CHECKED, "its metrics name no breaker")
    other = [f"{url} {BREAKERS.get(state, state)}" for url, state in sorted(value.breaker.items()) if state != 0]
    if other:
        return Point("breakers closed", router.name, Proven.NO, ", ".join(other))
    return Point("breakers closed", router.name, Proven.YES, f"{len(value.breaker)} closed")


def pinned(cluster: Cluster, verdicts: Iterable[Finding | Unchecked | RuledOut]) -> Iterator[Point]:
    """Whether a request is pinned, by each prefill."""
    told: dict[str, Finding | Unchecked | RuledOut] = {}
    for verdict in verdicts:
        if isinstance(verdict, Finding):
            if verdict.name == PINNED:
                told[verdict.subject.partition("->")[0]] = verdict
        elif verdict.what == PINNED and not isinstance(told.get(verdict.subject), Finding):
            told[verdict.subject] = verdict
    for prefill in leaders(cluster.prefills):
        yield _pinned(prefill.name, told.pop(prefill.name, None))
    yield from (_pinned(name, verdict) for name, verdict in told.items() if isinstance(verdict, Finding))


def _pinned(name: str, verdict: Finding | Unchecked | RuledOut | None) -> Point:
    what = "no pinned request"
    if isinstance(verdict, Finding):
        return Point(what, name, Proven.NO, verdict.summary)
    if isinstance(verdict, RuledOut):
        return Point(what, name, Proven.YES, verdict.by)
    return Point(what, name, Proven.NOT_CHECKED, verdict.why if verdict is not None else "nothing told of it")


def generations(router: Instance, attempts: Sequence[Attempt]) -> Iterator[Point]:
    """A fresh generation and one on the connection it left open."""
    fresh, kept = "a fresh generation", "a kept-alive generation"
    if not attempts or not attempts[0].good:
        yield Point(fresh, router.name, Proven.NO, _said(attempts[0]) if attempts else "none was made")
        yield Point(kept, router.name, Proven.NO, "the fresh one failed")
        return
    yield Point(fresh, router.name, Proven.YES, _said(attempts[0]))
    if len(attempts) == 1:
        yield Point(kept, router.name, Proven.NOT_CHECKED, "it does not keep connections open")
    else:
        yield Point(kept, router.name, Proven.YES if attempts[1].good else Proven.NO, _said(attempts[1]))


def no_router(cluster: Cluster) -> Iterator[Point]:
    """What cannot be proven where the inventory names no router."""
    if not cluster.routers:
        why = "the inventory names no router"
        for what in ("workers registered", "breakers closed", "a fresh generation", "a kept-alive generation"):
            yield Point(what, cluster.name, Proven.NOT_CHECKED, why)


def failures(points: Iterable[Point]) -> tuple[str, ...]:
    """The points that were not proven, in words."""
    return tuple(f"{p.what} at {p.subject}: {p.says}" for p in points if p.proven is Proven.NO)


def _missed(seen: Observation[object] | None) -> Missed | None:
    if seen is None:
        return Missed(Why.NOT_ASKED, "no answer")
    return seen.missed


def _unseen(what: str, router: Instance, before: Footing | None, fact: Fact, missed: Missed) -> Point:
    """A point whose answer did not come: left out only where the router is known not to give it."""
    said = f"{missed.why}: {missed.detail}" if missed.detail else str(missed.why)
    known_before = before is not None and fact.value in before.answered
    if missed.why in (*DEFINITE, Why.NOT_ASKED) and not known_before:
        return Point(what, router.name, Proven.NOT_CHECKED, said)
    return Point(what, router.name, Proven.NO, f"{fact.value} could not be read ({said})")


def _said(attempt: Attempt) -> str:
    if attempt.good:
        took = f" in {attempt.took:.2f} s" if attempt.took is not None else ""
        return f"answered {attempt.status}{took}"
    said = attempt.error or f"status {attempt.status}"
    return f"{said}: {attempt.detail}" if attempt.detail else said
