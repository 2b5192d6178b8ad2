"""What every step of a run shares, and how each is written down and told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pdctl.errors import StepFailed
from pdctl.execute.events import Happening, Kind, Tell
from pdctl.execute.locks import Locks
from pdctl.execute.record import Record
from pdctl.execute.world import World
from pdctl.model.cluster import Cluster, Host, Instance
from pdctl.model.plan import Plan, State, Step, StepResult
from pdctl.plans.restart import host_of
from pdctl.reach.act import Permit, permit_of

GENERATE = 30.0  # seconds of silence after which a generation has failed


@dataclass(slots=True)
class Doing:
    """What every step needs. ``attempts`` counts how often each step's act was begun, earlier runs included."""

    world: World
    cluster: Cluster
    plan: Plan
    record: Record
    locks: Locks
    tell: Tell
    results: dict[str, StepResult]
    attempts: dict[str, int]
    permit: Permit = field(init=False)

    def __post_init__(self) -> None:
        self.permit = permit_of(self.locks.path, self.locks.owner)

    def instance(self, step: Step) -> Instance:
        found = self.cluster.instance(step.instance or "")
        if found is None:
            raise StepFailed(f"{step.instance} is not in the inventory any more")
        return found

    def host(self, step: Step) -> Host:
        found = host_of(self.instance(step), self.cluster)
        if found is None:
            raise StepFailed(f"the host of {step.instance} is not known")
        return found

    def begin(self, step: Step, command: str) -> int:
        """Writes down that a step's act is about to be made. Returns which attempt it is."""
        attempt = self.attempts.get(step.id, 0) + 1
        self.record.step_begun(step, attempt, command)
        self.attempts[step.id] = attempt
        self.results[step.id] = StepResult(step.id, State.BEGUN)
        return attempt

    def done(self, step: Step, result: StepResult) -> None:
        self.record.step_done(step, result)
        self.results[step.id] = result
        self.tell(Happening(Kind.DONE, result.detail, step, result.took))

    def failed(self, step: Step, why: str, result: StepResult | None = None) -> StepFailed:
        """Writes a failure down; the error to raise."""
        result = replace(result or StepResult(step.id, State.FAILED), state=State.FAILED, detail=why)
        self.results[step.id] = result
        self.tell(Happening(Kind.FAILED, why, step, result.took, result.last_log))
        self.record.step_failed(step, result)
        return StepFailed(f"{step.says}: {why}")

    def said(self, step: Step) -> str:
        """The line for the host's syslog."""
        return f"{self.locks.owner.who}: {step.says} (pdctl restart of {self.plan.cluster}, run {self.plan.id})"
