"""A run in the journal: written before and after each act, and read back to go on with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from pdctl.execute import journal
from pdctl.execute.journal import Entry
from pdctl.model.plan import End, Owner, Plan, Point, Standing, State, Step, StepResult

BEGUN, RESUMED, DONE, STOPPED = "restart-begun", "restart-resumed", "restart-done", "restart-stopped"
STEP_BEGUN, STEP_ACTED, STEP_DONE, STEP_FAILED = "step-begun", "step-acted", "step-done", "step-failed"
LOCKED = "lock-taken"


@dataclass(frozen=True, slots=True)
class Record:
    """Writes one run. Each call returns when it is on the disk, and raises JournalError where it cannot be."""

    plan: Plan
    journal_file: Path | None = None

    def begun(self, owner: Owner) -> None:
        """The plan whole, so that whoever goes on with it has it."""
        self._append(BEGUN, plan=msgspec.to_builtins(self.plan), forced=self._forced(), pid=owner.pid)

    def resumed(self, owner: Owner, left: Iterable[str]) -> None:
        self._append(RESUMED, left=list(left), forced=self._forced(), pid=owner.pid)

    def locked(self, hosts: Iterable[str], over: Iterable[str]) -> None:
        self._append(LOCKED, hosts=list(hosts), over=list(over))

    def step_begun(self, step: Step, attempt: int, command: str) -> None:
        self._step(STEP_BEGUN, step, attempt=attempt, host=step.host, command=command)

    def step_acted(self, step: Step, attempt: int, status: int | None, said: str) -> None:
        self._step(STEP_ACTED, step, attempt=attempt, status=status, said=said)

    def step_done(self, step: Step, result: StepResult) -> None:
        self._step(STEP_DONE, step, result=msgspec.to_builtins(result))

    def step_failed(self, step: Step, result: StepResult) -> None:
        self._step(STEP_FAILED, step, result=msgspec.to_builtins(result))

    def done(self, proof: Iterable[Point]) -> None:
        self._append(DONE, proof=[f"{p.what} at {p.subject}: {p.proven} ({p.says})" for p in proof])

    def stopped(self, end: End, why: str, standing: Iterable[Standing]) -> None:
        self._append(STOPPED, end=end.value, why=why, standing=[f"{s.instance}: {s.says}" for s in standing])

    def _forced(self) -> list[str]:
        return [f"{r.rule}: {r.subject}: {r.why}" for r in self.plan.refusals if r.forced]

    def _step(self, kind: str, step: Step, **fields: object) -> None:
        self._append(kind, step=step.id, says=step.says, instance=step.instance, **fields)

    def _append(self, kind: str, **fields: object) -> None:
        journal.append(
            kind, journal_file=self.journal_file, run=self.plan.id, cluster=self.plan.cluster, **fields
        )  # fmt: skip


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """A run as the journal has it. ``end`` is None for one that was cut off (killed, or under way); ``attempts`` is how
    often each step's act was begun; ``unreadable`` says why its plan cannot be gone on with."""

    id: str
    cluster: str
    who: str
    at: datetime
    plan: Plan | None = None
    unreadable: str | None = None
    forced: tuple[str, ...] = ()
    results: dict[str, StepResult] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    end: End | None = None
    why: str | None = None
    last: datetime | None = None
    pid: int | None = None
    entries: list[Entry] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.end is End.DONE


def runs_of(entries: Iterable[Entry]) -> tuple[Run, ...]:
    """Every run of a restart, oldest first."""
    runs: dict[str, Run] = {}
    for entry in entries:
        run_id = entry.text("run")
        if run_id is None:
            continue
        if entry.kind == BEGUN:
            runs[run_id] = _opened(run_id, entry)
        if run_id in runs:
            _add(runs[run_id], entry)
    return tuple(runs.values())


def last_run(entries: Iterable[Entry], cluster: str) -> Run | None:
    """The newest run of a cluster that began a step; where none did, the newest of all; None where there was none."""
    runs = [run for run in runs_of(entries) if run.cluster == cluster]
    begun = [run for run in runs if run.attempts]
    return next(reversed(begun or runs), None)


def _opened(run_id: str, entry: Entry) -> Run:
    run = Run(run_id, entry.text("cluster") or "", entry.who, entry.at)
    try:
        run.plan = msgspec.convert(entry.fields.get("plan"), Plan)
    except msgspec.ValidationError as error:
        run.unreadable = f"its plan in the journal cannot be read: {error}"
    return run


def _add(run: Run, entry: Entry) -> None:
    run.entries.append(entry)
    run.last = entry.at
    step = entry.text("step")
    if entry.kind in (BEGUN, RESUMED):
        run.end, run.why = None, None
        run.forced = tuple(dict.fromkeys((*run.forced, *_texts(entry.fields.get("forced")))))
        run.pid = _whole(entry.fields.get("pid"))
    elif entry.kind == STEP_BEGUN and step is not None:
        run.attempts[step] = max(run.attempts.get(step, 0), _whole(entry.fields.get("attempt")) or 1)
        run.results[step] = StepResult(step, State.BEGUN)
    elif entry.kind in (STEP_DONE, STEP_FAILED) and step is not None:
        run.results[step] = _result(step, entry)
    elif entry.kind == DONE:
        run.end = End.DONE
    elif entry.kind == STOPPED:
        run.end, run.why = _end(entry), entry.text("why")


def _result(step: str, entry: Entry) -> StepResult:
    """The result; one that cannot be read counts as begun: the world then tells."""
    try:
        return msgspec.convert(entry.fields.get("result"), StepResult)
    except msgspec.ValidationError:
        return StepResult(step, State.BEGUN)


def _end(entry: Entry) -> End:
    try:
        return End(entry.text("end") or "")
    except ValueError:
        return End.FAILED


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: Any) -> Iterator[str]:
    yield from (item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
