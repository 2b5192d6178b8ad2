"""Carrying out a restart plan: lock, look whether the ground still holds, then batch by batch do, verify, write down.

Held whatever happens (tests interrupt it everywhere):
- Nothing is done before the locks of all hosts are ours and the ground was looked at again; each act looks once more
  whether the host's lock is still ours.
- An act is in the journal before it is made. One whose effect can be seen is not made again, by no run.
- No batch begins before every step of the one before it was verified, and every instance restarted so far is still the
  process that was ready. After the first failure no act follows, in the same batch neither.
- However it ends short of kill -9, every instance touched is looked at once more, and what does not run is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pdctl.errors import PdctlError, StepFailed
from pdctl.execute.doing import Doing
from pdctl.execute.events import Happening, Kind, Tell, nobody, unfailing
from pdctl.execute.locks import Locks
from pdctl.execute.record import Record, Run
from pdctl.execute.restarts import restart_batch
from pdctl.execute.seeing import Looked, look_at
from pdctl.execute.steps import back_up, drain
from pdctl.execute.verify import NotProven, prove
from pdctl.execute.world import World
from pdctl.model.cluster import Cluster, Host
from pdctl.model.plan import (
    SHIFTED,
    Act,
    End,
    Ground,
    Outcome,
    Owner,
    Plan,
    Point,
    Standing,
    State,
    Step,
    StepResult,
)
from pdctl.plans.restart import host_of, rest_of
from pdctl.plans.shift import shifts_of
from pdctl.plans.unit_words import has_job, state_of
from pdctl.plans.waiting import Sight
from pdctl.reach.act import tidy_ask

LEAVE = 10.0  # seconds
AGAIN = 3  # looks more at what was not seen when all is over


@dataclass(slots=True)
class Carrying:
    """One run under way."""

    world: World
    cluster: Cluster
    plan: Plan
    record: Record
    owner: Owner
    lock_path: str
    tell: Tell = nobody
    results: dict[str, StepResult] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    proof: tuple[Point, ...] = ()
    after: Ground | None = None
    notes: list[str] = field(default_factory=list)
    locks: Locks = field(init=False)
    doing: Doing = field(init=False)

    def __post_init__(self) -> None:
        hosts = dict.fromkeys(h for s in self.plan.steps if (h := self._host(s)) is not None)
        forced = "other-restart" in self.plan.wish.force
        self.locks = Locks(self.world, tuple(hosts), self.lock_path, self.owner, forced)
        self.doing = Doing(
            self.world, self.cluster, self.plan, self.record, self.locks, self.tell, self.results, self.attempts
        )

    # --- the whole ----------------------------------------------------------------------------------------------------

    def carry_out(self, resumed: bool) -> Outcome:
        """Does what is left of the plan."""
        end, why = End.DONE, None
        try:
            self._go(resumed)
        except PdctlError as error:
            end, why = End.FAILED, error.message
        except KeyboardInterrupt:
            end, why = End.INTERRUPTED, "interrupted"
        except Exception as error:  # noqa: BLE001 - what was touched must be looked at and told, whatever broke
            end, why = End.FAILED, f"an internal error of pdctl: {type(error).__name__}: {error}{_place(error)}"
        return self._ended(end, why)

    def _go(self, resumed: bool) -> None:
        left = rest_of(self.plan.steps, self._done())
        self.locks.take()
        if resumed:
            self.record.resumed(self.owner, [s.id for s in left])
        else:
            self.record.begun(self.owner)
        self.record.locked([h.name for h in self.locks.taken], self.locks.over)
        for note in self.locks.over:
            self.tell(Happening(Kind.NOTE, note))
        self._check_ground()
        for number in sorted({s.batch for s in left}):
            self._batch([s for s in left if s.batch == number])

    def _check_ground(self) -> None:
        shifts = shifts_of(self.cluster, self.plan, self.world.survey(self.owner), self.results)
        if shifts:
            raise StepFailed(f"{SHIFTED}: {'; '.join(shifts)}")

    def _batch(self, batch: Sequence[Step]) -> None:
        self._still_standing()
        act = batch[0].act
        if act is Act.RESTART:
            restart_batch(self.doing, batch)
        elif act is Act.DRAIN:
            drain(self.doing, batch[0])
        elif act is Act.BACKUP:
            for step in batch:
                back_up(self.doing, step)
        else:
            try:
                self.proof, self.after = prove(self.doing, batch[0])
            except NotProven as error:
                self.proof, self.after = error.points, error.after
                raise

    def _still_standing(self) -> None:
        """Every instance restarted so far is still the process that was ready. Raises StepFailed."""
        for step, result, sight in self._sights(lambda r: r.state is State.DONE):
            if sight.present is None:
                raise StepFailed(
                    f"{step.instance}, which was restarted and ready, cannot be seen any more: {sight.why}"
                )
            if not any(p.is_same(result.after) for p in sight.present):
                now = ", ".join(map(str, sight.present)) or (state_of(sight.unit) if sight.unit else "no process")
                raise StepFailed(f"{step.instance}, which was restarted and ready as {result.after}, is now {now}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def _ended(self, end: End, why: str | None) -> Outcome:
        standing = self._standing() if end is not End.DONE else ()
        why = self._written(end, why, standing)
        end = End.FAILED if end is End.DONE and why else end
        self._leave(tidy=end is End.DONE)
        return Outcome(
            self.plan, end, tuple(self.results.values()), why, self.proof, standing, self.plan.ground, self.after,
            tuple(self.notes),
        )  # fmt: skip

    def _leave(self, tidy: bool) -> None:
        """Leaves the hosts as they were found: no marks once all is done, no lock. A second Ctrl-C ends that, too."""
        try:
            if tidy:
                self.world.look([tidy_ask(host, self.doing.permit) for host in self.locks.taken], LEAVE)
            left = self.locks.release()
        except KeyboardInterrupt:
            left = ["some hosts"]
        if left:
            where = ", ".join(left)
            self.notes.append(f"the lock may be left on {where}: it counts no more once this pdctl has ended")

    def _written(self, end: End, why: str | None, standing: Sequence[Standing]) -> str | None:
        """Writes the end down; a journal that takes no more is said, and is what ended it where nothing else did. A
        Ctrl-C at this moment must not keep from being told how everything stands."""
        try:
            if end is End.DONE:
                self.record.done(self.proof)
            else:
                self.record.stopped(end, why or "", standing)
        except PdctlError as error:
            self.notes.append(error.message)
            return why or error.message
        except KeyboardInterrupt:
            self.notes.append("interrupted while the end was written down: pdctl history may call this run cut off")
        return why

    def _standing(self) -> tuple[Standing, ...]:
        """How everything that was touched stands now."""
        try:
            touched = self._sights_of_all()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what was not looked at is said, not hidden
            names = [s.instance or "" for s in self.plan.restarts if s.id in self.results]
            return tuple(Standing(name, None, f"could not be looked at: {error}") for name in names)
        return tuple(_stands(step, result, sight) for step, result, sight in touched)

    def _sights_of_all(self) -> list[tuple[Step, StepResult, Sight]]:
        """A sight of everything touched; again where a look that was interrupted is still in the way of a new one."""
        touched = self._sights(lambda r: r.state is not State.LEFT)
        for _ in range(AGAIN):
            if all(sight.present is not None for _, _, sight in touched):
                break
            self.world.clock.sleep(1.0)
            touched = self._sights(lambda r: r.state is not State.LEFT)
        return touched

    def _sights(self, which: Callable[[StepResult], bool]) -> list[tuple[Step, StepResult, Sight]]:
        """A sight of each instance whose restart stands so."""
        steps = [s for s in self.plan.restarts if s.id in self.results and which(self.results[s.id])]
        looked = []
        for step in steps:
            instance, host = self.cluster.instance(step.instance or ""), self._host(step)
            if instance is not None and host is not None:
                attempts = self.attempts.get(step.id, 0) if instance.restart_command else 0
                mark = self.doing.permit.mark(step.id, attempts) if attempts else None
                looked.append(Looked(instance, host, mark=mark, log=False))
        sights = look_at(self.world, looked) if looked else {}
        return [(s, self.results[s.id], sights[s.instance or ""]) for s in steps]

    def _done(self) -> set[str]:
        return {name for name, result in self.results.items() if result.state is State.DONE}

    def _host(self, step: Step) -> Host | None:
        instance = self.cluster.instance(step.instance or "")
        return host_of(instance, self.cluster) if instance is not None else None


def _place(error: Exception) -> str:
    """Where it broke, as `` (steps.py:41)``."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return f" ({step.tb_frame.f_code.co_filename.rpartition('/')[2]}:{step.tb_lineno})" if step is not None else ""


def _stands(step: Step, result: StepResult, sight: Sight) -> Standing:
    name = step.instance or ""
    if sight.present is None:
        return Standing(name, None, f"not known: {sight.why}")
    unit = f", {step.unit} is {state_of(sight.unit)}" if sight.unit is not None else ""
    if not sight.present and (sight.job_runs or (sight.unit is not None and has_job(sight.unit))):
        return Standing(name, True, f"NOT RUNNING at this moment, its restart is still under way there{unit}")
    if not sight.present:
        return Standing(name, True, f"NOT RUNNING{unit}")
    runs = ", ".join(map(str, sight.present))
    if result.state is State.DONE and any(p.is_same(result.after) for p in sight.present):
        return Standing(name, False, f"restarted and ready: {runs}{unit}", ready=True)
    return Standing(name, False, f"runs, and was not seen to be ready: {runs}{unit}")


def carry_out(
    world: World,
    cluster: Cluster,
    plan: Plan,
    record: Record,
    owner: Owner,
    lock_path: str,
    *,
    tell: Tell = nobody,
    run: Run | None = None,
) -> Outcome:
    """Carries a plan out, or what ``run`` left of it. Never raises for what the world does."""
    carrying = Carrying(world, cluster, plan, record, owner, lock_path, unfailing(tell))
    if run is not None:
        carrying.results.update({k: replace(r) for k, r in run.results.items() if plan.step(k) is not None})
        carrying.attempts.update(run.attempts)
    return carrying.carry_out(resumed=run is not None)
