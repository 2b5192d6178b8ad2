"""Whether the ground a plan stands on is still what it was when the plan was shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdctl.model.cluster import Cluster
from pdctl.model.plan import Act, Footing, Ground, Identity, Plan, State, Step, StepResult
from pdctl.plans.restart import steps_of
from pdctl.plans.restart_rules import refusals_of


def shifts_of(cluster: Cluster, plan: Plan, now: Ground, results: Mapping[str, StepResult]) -> tuple[str, ...]:
    """What is not any more as the plan says, in words. What the run itself has changed is as it should be: an instance
    that was restarted must still be the process that was seen to be ready, one whose restart was begun may be any."""
    return tuple(_shifts(cluster, plan, now, results))


def _shifts(cluster: Cluster, plan: Plan, now: Ground, results: Mapping[str, StepResult]) -> Iterator[str]:
    if now.inventory != plan.ground.inventory:
        yield "the inventory has been changed"
        return
    if [(s.id, s.batch) for s in steps_of(cluster, plan.wish)] != [(s.id, s.batch) for s in plan.steps]:
        yield "this pdctl would take other steps for the same wish"
        return
    for step in plan.restarts:
        result = results.get(step.id)
        footing = now.of(step.instance)
        if result is not None and result.state is State.DONE:
            yield from _after(step, result.after, footing)
            continue
        before = plan.ground.of(step.instance)
        if result is None or result.state is State.LEFT:
            yield from _process(step, before, footing)
        yield from _script(step, before, footing)
    yield from _new_refusals(cluster, plan, now)


def _after(step: Step, after: Identity | None, footing: Footing | None) -> Iterator[str]:
    """A restarted instance that runs on."""
    process = footing.process if footing is not None else None
    if process is None or not process.is_same(after):
        stands = str(process) if process is not None else _missing(footing)
        yield f"{step.instance}, which was restarted and ready as {after}, is now {stands}"


def _process(step: Step, before: Footing | None, footing: Footing | None) -> Iterator[str]:
    """An instance that was not touched yet."""
    old = before.process if before is not None else None
    new = footing.process if footing is not None else None
    if (old is None and new is None) or _flaps(before, footing):
        return
    if old is None:
        yield f"{step.instance} was not running and is now {new}"
    elif new is None or not new.is_same(old):
        yield f"{step.instance} was {old} and is now {new if new is not None else _missing(footing)}"


def _flaps(before: Footing | None, footing: Footing | None) -> bool:
    """Whether systemd was restarting it by itself when the plan was made, and only went on with that."""
    if before is None or footing is None or footing.restarts is None:
        return False
    known = before.restarts or 0
    if (before.state or "").startswith("activating (auto-restart"):
        return footing.restarts >= known
    return 0 < known < footing.restarts


def _missing(footing: Footing | None) -> str:
    if footing is None:
        return "not to be seen"
    return footing.state or footing.why or "not running"


def _script(step: Step, before: Footing | None, footing: Footing | None) -> Iterator[str]:
    old = before.script if before is not None else None
    new = footing.script if footing is not None else None
    if old is None or old.sha256 is None:
        return
    if new is None or new.sha256 is None:
        why = new.why if new is not None else "not looked at"
        yield f"{old.path} of {step.instance} cannot be read any more ({why})"
    elif new.sha256 != old.sha256:
        yield f"{old.path} of {step.instance} has been changed"


def _new_refusals(cluster: Cluster, plan: Plan, now: Ground) -> Iterator[str]:
    """Rules that are broken now and were not when the plan was made; those overridden by name stay so."""
    known = {(r.rule, r.subject) for r in plan.refusals}
    for refusal in refusals_of(cluster, plan.wish, now, [s for s in plan.steps if s.act is Act.RESTART]):
        if not refusal.forced and (refusal.rule, refusal.subject) not in known:
            yield f"{refusal.rule}: {refusal.subject}: {refusal.why}"
