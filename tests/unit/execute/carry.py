"""Carrying plans out in the simulated cluster, and what must hold whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from sim import LOCK, Killed, Sim, owner

from pdctl.execute import journal
from pdctl.execute.events import Happening, Kind
from pdctl.execute.record import Record, Run, last_run
from pdctl.execute.run import carry_out
from pdctl.model.plan import Act, End, Outcome, Owner, Plan, Proven, Wish
from pdctl.plans.restart import plan_restart, steps_of


class Dying(Record):
    """A record whose lines are counted among the things that pdctl does; killed in the middle of one, it is torn."""

    def _append(self, kind: str, **fields: object) -> None:
        sim = SIMS[self.plan.id]
        try:
            with sim.counted() as n:
                sim.written.append(n)
                super()._append(kind, **fields)
        except Killed:
            self._tear(sim)
            raise

    def _tear(self, sim: Sim) -> None:
        faults = sim.faults
        if faults.torn and sim.calls == faults.kill and self.journal_file is not None:
            with self.journal_file.open("ab") as file:
                file.write(b'{"v":1,"at":"2026-11-30T00:00:00+00:00","who":"a","kind":"step-d')


SIMS: dict[str, Sim] = {}


@dataclass
class Story:
    """One plan in one simulated cluster, through as many runs of pdctl as it takes."""

    sim: Sim
    file: Path
    wish: Wish = field(default_factory=Wish)
    plan_id: str = "run-1"
    told: list[Happening] = field(default_factory=list)
    tries: int = 0

    def plan(self) -> Plan:
        self.sim.settle()
        plan = plan_restart(self.sim.cluster, self.wish, self.sim.ground(), self.plan_id)
        self.sim.planned = {s.instance or "" for s in plan.restarts}
        SIMS[plan.id] = self.sim
        return plan

    def begin(self, plan: Plan | None = None, who: Owner | None = None) -> Outcome | None:
        """The first run; None where pdctl was killed in it."""
        return self._carry(plan or self.plan(), None, who)

    def resume(self, who: Owner | None = None) -> Outcome | None:
        """A further run, from the journal."""
        run = last_run(journal.read(self.file).entries, self.sim.cluster.name)
        if run is None:
            return self.begin(who=who)
        assert run.plan is not None, run.unreadable
        return self._carry(replace(run.plan, steps=steps_of(self.sim.cluster, run.plan.wish)), run, who)

    def _carry(self, plan: Plan, run: Run | None, who: Owner | None) -> Outcome | None:
        self.tries += 1
        self.sim.frozen = False
        mine = who or replace(owner(run=plan.id), token=f"token-{self.tries}")
        try:
            return carry_out(
                self.sim, self.sim.cluster, plan, Dying(plan, self.file), mine, LOCK, tell=self._tell, run=run
            )
        except Killed:
            return None

    def _tell(self, happening: Happening) -> None:
        self.told.append(happening)
        if happening.kind is Kind.FAILED and happening.step is not None and happening.step.act is not Act.PROVE:
            self.sim.frozen = True

    @property
    def run(self) -> Run | None:
        return last_run(journal.read(self.file).entries, self.sim.cluster.name)


def long_after(sim: Sim) -> None:
    """Long enough for a lock to be stale."""
    sim.clock.advance(150.0)
    sim.settle()


def all_done(story: Story, outcome: Outcome | None) -> None:
    """Everything of the plan is restarted, ready, and nothing is left behind."""
    assert outcome is not None and outcome.end is End.DONE, outcome and outcome.why
    assert outcome.proof and outcome.after is not None, "done is what was proven, by the run that says so"
    assert all(point.proven is not Proven.NO for point in outcome.proof)
    for step in outcome.plan.restarts:
        name = step.instance or ""
        assert story.sim.ready(name) or just_lost(story, name), name
        assert story.sim.units[name].run >= 2, name
    told = any("the lock may be left on" in note for note in outcome.notes)
    assert told or all(m.lock is None for m in story.sim.machines.values())


def just_lost(story: Story, name: str) -> bool:
    """Whether it was taken away after the last look there was, while the locks were given up."""
    return story.sim.clock.now() - story.sim.units[name].lost_at < 1.0


def nothing_silent(story: Story, outcome: Outcome | None) -> None:
    """A unit that pdctl restarted and that does not run is told, and pdctl did not stumble over itself."""
    if outcome is None or outcome.end is End.DONE:
        return
    assert "internal error" not in (outcome.why or "")
    told = {s.instance: s for s in outcome.standing}
    for name, unit in story.sim.units.items():
        machine = story.sim.machines[unit.instance.host or ""]
        if unit.starts and (not unit.alive or not machine.up) and not just_lost(story, name):
            assert name in told and told[name].down is not False, f"{name} is down and nothing says so"
