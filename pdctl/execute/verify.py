"""The proof at the end of a restart: the whole cluster as its clients use it, not each instance for itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pdctl.errors import StepFailed
from pdctl.execute.doing import GENERATE, Doing
from pdctl.execute.events import Happening, Kind
from pdctl.execute.seeing import LOOK_TIMEOUT
from pdctl.facts import read
from pdctl.facts.asks import asks_for
from pdctl.model.answer import Fact, Observation
from pdctl.model.cluster import Instance
from pdctl.model.plan import Ground, Point, Proven, State, Step, StepResult
from pdctl.plans import proof
from pdctl.plans.nodes import leaders
from pdctl.plans.restart import host_of

PATIENCE = 90.0  # seconds: a breaker that is half-open closes after a minute
POLL = 3.0
WINDOW = 20.0
TOLD_AS = {Proven.YES: Kind.PASSED, Proven.NO: Kind.FAILED, Proven.NOT_CHECKED: Kind.NOTE}


class NotProven(StepFailed):
    """The proof failed, with everything that was seen."""

    def __init__(self, message: str, points: tuple[Point, ...], after: Ground) -> None:
        super().__init__(message)
        self.points = points
        self.after = after


def prove(doing: Doing, step: Step) -> tuple[tuple[Point, ...], Ground]:
    """Every point of the proof, and the ground after it. Raises NotProven where one is not proven."""
    clock, begun = doing.world.clock, doing.world.clock.now()
    doing.tell(Happening(Kind.BEGIN, step.says, step))
    doing.begin(step, "(only looks and requests)")
    points = _settled(doing, step, begun)
    points += _pinned(doing)
    points += list(proof.no_router(doing.cluster))
    after = doing.world.survey(doing.locks.owner)
    points += list(_still_runs(doing, after))
    for point in points:
        doing.tell(
            Happening(TOLD_AS[point.proven], f"{point.what} at {point.subject}: {point.proven}: {point.says}", step)
        )
    wrong = proof.failures(points)
    took = clock.now() - begun
    if wrong:
        doing.failed(step, "; ".join(wrong), StepResult(step.id, State.FAILED, took=took))
        raise NotProven("not proven: " + "; ".join(wrong), tuple(points), after)
    doing.done(step, StepResult(step.id, State.DONE, "proven", took))
    return tuple(points), after


def _settled(doing: Doing, step: Step, begun: float) -> list[Point]:
    """The points of the routers, asked until they hold or the patience is over."""
    clock = doing.world.clock
    while True:
        doing.locks.beat()
        points = [point for router in doing.cluster.routers for point in _router(doing, router)]
        wrong = proof.failures(points)
        waited = clock.now() - begun
        if not wrong or waited > PATIENCE:
            return points
        doing.tell(Happening(Kind.WAIT, f"not yet: {'; '.join(wrong)}", step, waited))
        clock.sleep(POLL)


def _router(doing: Doing, router: Instance) -> Iterator[Point]:
    """Requests first: breakers have no state before the first one."""
    before = doing.plan.ground.of(router.name)
    attempts = doing.world.generate_pair(router, GENERATE) if router.url else ()
    host = host_of(router, doing.cluster)
    via = host.name if host is not None and host.ssh is not None else None
    asks = asks_for(router, (Fact.METRICS, Fact.WORKERS), via=via)
    answers = doing.world.look(asks, LOOK_TIMEOUT)
    seen: dict[Fact, Observation[object]] = {a.fact: read(a, router) for a in answers if a is not None}
    yield proof.registered(router, before, seen.get(Fact.WORKERS), doing.cluster)
    yield proof.breakers(router, before, seen.get(Fact.METRICS))
    yield from proof.generations(router, attempts)


def _still_runs(doing: Doing, after: Ground) -> Iterator[Point]:
    """Whether everything that was restarted is still the process that was ready."""
    for restart in doing.plan.restarts:
        result, footing = doing.results.get(restart.id), after.of(restart.instance)
        if result is None or result.state is not State.DONE:
            continue
        process = footing.process if footing is not None else None
        same = process is not None and process.is_same(result.after)
        seen = (footing.state or footing.why or "no process") if footing is not None else "not looked at"
        said = str(process) if process is not None else seen
        yield Point(proof.STILL, restart.instance or "", Proven.YES if same else Proven.NO, said)


def _pinned(doing: Doing) -> list[Point]:
    from pdctl.checks.pinned import judge

    asked = replace(doing.cluster, instances=leaders(doing.cluster.instances))
    return list(proof.pinned(asked, judge(doing.world.window(WINDOW), asked)))
