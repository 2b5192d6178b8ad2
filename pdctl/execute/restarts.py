"""The instances of a batch restarted, and waited for until each is ready or has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.errors import StepFailed
from pdctl.execute.doing import GENERATE, Doing
from pdctl.execute.events import Happening, Kind
from pdctl.execute.expect import cannot_generate, expected_of
from pdctl.execute.seeing import LOOK_TIMEOUT, Looked, look_at
from pdctl.model.answer import Answer
from pdctl.model.cluster import Host, Instance
from pdctl.model.plan import State, Step, StepResult
from pdctl.plans.unit_words import has_job
from pdctl.plans.waiting import Phase, Sight, Waiting
from pdctl.reach.act import BEGUN_BEFORE, Mark, job_ask, mark_ask, read_mark, unit_ask

POLL = 1.0  # seconds between looks
TELL_EVERY = 10.0  # seconds between words on a wait that does not move


@dataclass(slots=True)
class _Wait:
    """One restart under way."""

    step: Step
    waiting: Waiting
    mark: str | None
    told_at: float = 0.0
    is_written: bool = False


def restart_batch(doing: Doing, batch: Sequence[Step]) -> None:
    """Restarts the instances of a batch, one act after the other, and waits for all of them together. Raises
    StepFailed when one failed; those that were begun are waited for all the same, no act follows."""
    waits: list[_Wait] = []
    failure: StepFailed | None = None
    for step in batch:
        if doing.results.get(step.id, StepResult(step.id, State.LEFT)).state is State.DONE:
            continue
        try:
            waits.append(_restart(doing, step))
        except StepFailed as error:
            failure = error
            break
    errors = _wait_for(doing, waits)
    if failure is not None or errors:
        raise failure or errors[0]


def _restart(doing: Doing, step: Step) -> _Wait:
    """Makes the act, unless its effect can be seen already."""
    instance, host = doing.instance(step), doing.host(step)
    clock, expected = doing.world.clock, expected_of(doing.cluster, doing.plan, step)
    begun = clock.now()
    attempts = doing.attempts.get(step.id, 0)
    if attempts and (seen := _already(doing, step, instance, host, attempts)) is not None:
        doing.results[step.id] = StepResult(step.id, State.BEGUN)
        doing.tell(Happening(Kind.BEGIN, f"{step.says}: {seen}", step))
        mark = doing.permit.mark(step.id, attempts) if instance.restart_command else None
        return _Wait(step, Waiting(expected, begun, since=begun), mark)
    making = job_ask if instance.restart_command else unit_ask
    attempt = attempts + 1
    ask = making(host, doing.permit, step.id, attempt, step.command, doing.said(step))
    doing.tell(Happening(Kind.BEGIN, f"{step.says}: {ask}", step))
    doing.begin(step, str(ask))
    answer = doing.world.act(ask)
    doing.record.step_acted(step, attempt, answer.status, said_by(answer) if answer.error is not None else "")
    _judge_act(doing, step, host, attempt, answer)
    mark = doing.permit.mark(step.id, attempt) if instance.restart_command else None
    return _Wait(step, Waiting(expected, begun, since=begun), mark)


def _already(doing: Doing, step: Step, instance: Instance, host: Host, attempts: int) -> str | None:
    """What shows that an act begun by an earlier run took effect, or is taking it; None where nothing does, so that it
    is to be made. Raises StepFailed where that cannot be seen."""
    mark_path = doing.permit.mark(step.id, attempts)
    (answer,) = doing.world.look([mark_ask(host, mark_path, instance.name)], LOOK_TIMEOUT)
    mark = read_mark(answer) if answer is not None else None
    sight = look_at(doing.world, [Looked(instance, host, log=False)])[instance.name]
    if mark is None or sight.present is None:
        raise doing.failed(step, f"whether it took effect cannot be seen: {sight.why or 'the host does not answer'}")
    footing = doing.plan.ground.of(step.instance)
    old = footing.process if footing is not None else None
    return _effect(mark, sight, [p for p in sight.present if not p.is_same(old)] != [])


def _effect(mark: Mark, sight: Sight, is_new: bool) -> str | None:
    if is_new:
        return "a new process is there already"
    if mark.runs:
        return "its command still runs"
    if mark.begun and sight.unit is not None and has_job(sight.unit):
        return "systemd is at it"
    return None


def _judge_act(doing: Doing, step: Step, host: Host, attempt: int, answer: Answer) -> None:
    """Raises StepFailed where the act was not made, or failed. Where the connection broke, its mark tells."""
    if answer.error is None or answer.status == BEGUN_BEFORE:
        return
    if answer.status is not None:
        raise doing.failed(step, said_by(answer))
    ask = mark_ask(host, doing.permit.mark(step.id, attempt), step.instance or "")
    (seen,) = doing.world.look([ask], LOOK_TIMEOUT)
    mark = read_mark(seen) if seen is not None else None
    if mark is not None and mark.begun and mark.status in (0, None):
        return
    known = "nothing was done there" if mark is not None and not mark.begun else "whether it was done is not known"
    raise doing.failed(step, f"{answer.detail or answer.error}: {known}")


def said_by(answer: Answer) -> str:
    """What a command that failed said first (systemctl says the reason first and where to read on last)."""
    lines = [line.strip() for line in (answer.body or b"").decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[0][:300] if lines else answer.detail or f"exit status {answer.status}"


def _wait_for(doing: Doing, waits: list[_Wait]) -> list[StepFailed]:
    """Waits until each is ready or has failed. Returns the failures, in the order they came."""
    errors: list[StepFailed] = []
    clock = doing.world.clock
    while any(not w.waiting.is_over for w in waits):
        doing.locks.beat()
        moved = _look_once(doing, [w for w in waits if not w.waiting.is_over])
        for wait in [w for w in waits if w.waiting.is_over and not w.is_written]:
            wait.is_written = True
            error = _end(doing, wait)
            errors += [error] if error is not None else []
        if not moved and any(not w.waiting.is_over for w in waits):
            clock.sleep(POLL)
    return errors


def _look_once(doing: Doing, open_waits: list[_Wait]) -> bool:
    """One look at each; whether any got further."""
    wanted = [
        Looked(doing.instance(w.step), doing.host(w.step), w.waiting.wants, w.mark) for w in open_waits
    ]  # fmt: skip
    sights = look_at(doing.world, wanted)
    moved = False
    for wait in open_waits:
        before = wait.waiting
        wait.waiting = before.after(sights[wait.step.instance or ""])
        moved = _told(doing, wait, before) or moved
    return _generations(doing, open_waits) or moved


def _generations(doing: Doing, open_waits: list[_Wait]) -> bool:
    """A real generation at each instance that has come so far; whether any got further."""
    moved, asked = False, []
    for wait in open_waits:
        if wait.waiting.phase is not Phase.GENERATION or wait.waiting.is_over:
            continue
        footing = doing.plan.ground.of(wait.step.instance)
        version = wait.waiting.version or (footing.version if footing is not None else None)
        why = cannot_generate(doing.instance(wait.step), version)
        if why is None:
            asked.append(wait)
        else:
            wait.waiting = wait.waiting.without(Phase.GENERATION, why, doing.world.clock.now())
            moved = True
    attempts = doing.world.generate([doing.instance(w.step) for w in asked], GENERATE)
    for wait in asked:
        before = wait.waiting
        wait.waiting = before.generated(attempts[wait.step.instance or ""], doing.world.clock.now())
        moved = _told(doing, wait, before) or moved
    return moved


def _told(doing: Doing, wait: _Wait, before: Waiting) -> bool:
    """Tells what was passed, and now and then what is still waited for; whether it got further."""
    now, new = doing.world.clock.now(), wait.waiting
    elapsed = now - new.begun
    for phase, _ in new.passed[len(before.passed) :]:
        doing.tell(Happening(Kind.PASSED, phase, wait.step, elapsed, new.log))
    moved = new.phase is not before.phase
    if not moved and not new.is_over and now - wait.told_at >= TELL_EVERY:
        wait.told_at = now
        matter = f" ({new.matter})" if new.matter else ""
        doing.tell(Happening(Kind.WAIT, f"waiting for {new.phase}{matter}", wait.step, elapsed, new.log))
    return moved


def _end(doing: Doing, wait: _Wait) -> StepFailed | None:
    """Writes down how a restart ended."""
    waiting, step = wait.waiting, wait.step
    took = doing.world.clock.now() - waiting.begun
    result = StepResult(
        step.id, State.DONE, "; ".join(("ready", *waiting.told)), took, waiting.born, waiting.version, waiting.passed,
        waiting.log,
    )  # fmt: skip
    if waiting.failed is not None:
        return doing.failed(step, waiting.failed, result)
    doing.done(step, result)
    return None
