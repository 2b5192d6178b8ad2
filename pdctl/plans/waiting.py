"""Waiting for an instance to be back: from the act that restarts it to a real generation, one look after the other.

Held at every look:
- Nothing counts before the old process is seen to be gone and a new one to be there; an answer of the old process's
  HTTP side is none of the new one's.
- A new process that ends, or is replaced, has failed, however ready it was.
- The points come in their order, and none is passed that was not seen to hold. One that the instance is known not to
  serve is left out and said to be.
- Each wait has an end: ``stop`` for the old process, ``ready`` from its end on, ``LOST`` for a host that is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.engine import Health, ServerInfo
from pdctl.model.host import Unit
from pdctl.model.plan import Identity
from pdctl.model.probe import Attempt
from pdctl.model.router import Workers
from pdctl.plans.unit_words import ending_of, has_job, state_of
from pdctl.plans.workers import missing_workers

LOST = 60.0  # seconds without a sight of the process
IDLE_JOB = 10.0  # seconds in which an old process may stay although systemd has nothing to do
REFUSED = 30.0  # seconds for which an answer that was there before may be refused
SETTLING = 10.0  # seconds in which a program without a unit may put another process in its place (daemons do)
DEFINITE = (Why.METRICS_DISABLED, Why.NOT_FOUND, Why.AUTH, Why.NOT_METRICS)


class Phase(StrEnum):
    """What is waited for, in order."""

    STOP = "the old process to end"
    START = "a new process"
    HEALTH = "health"
    METRICS = "metrics"
    VERSION = "version"
    WORKERS = "workers"
    GENERATION = "a generation"
    READY = "ready"


ENGINE = (Phase.STOP, Phase.START, Phase.HEALTH, Phase.METRICS, Phase.VERSION, Phase.GENERATION, Phase.READY)
ROUTER = (Phase.STOP, Phase.START, Phase.HEALTH, Phase.METRICS, Phase.WORKERS, Phase.GENERATION, Phase.READY)
FACT_OF: Mapping[Phase, Fact] = {
    Phase.HEALTH: Fact.HEALTH,
    Phase.METRICS: Fact.METRICS,
    Phase.VERSION: Fact.SERVER_INFO,
    Phase.WORKERS: Fact.WORKERS,
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What an instance was before, and what is to come. ``left_out``: phases that it is known not to serve, with the
    reason. ``workers``: URLs a router must list, in these words if ``exact``. ``has_unit``: its process is known by its
    unit; ``told_systemd``: the act was systemd's own restart, not a command that may take its time."""

    instance: str
    phases: tuple[Phase, ...]
    old: Identity | None
    stop: float
    ready: float
    answered: frozenset[str] = frozenset()
    left_out: Mapping[Phase, str] = field(default_factory=dict)
    workers: tuple[str, ...] = ()
    exact: bool = False
    has_unit: bool = True
    told_systemd: bool = True


@dataclass(frozen=True, slots=True)
class Sight:
    """One look. ``present`` are the main processes that are there, None where that could not be seen (``why``).
    ``job_runs`` while a restart command does, ``job_status`` and ``job_said`` are of one that has ended."""

    at: float
    present: tuple[Identity, ...] | None = None
    why: str | None = None
    unit: Unit | None = None
    job_runs: bool = False
    job_status: int | None = None
    job_said: str = ""
    http: Mapping[Fact, Observation[object]] = field(default_factory=dict)
    log: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """How far the wait is. Times by the clock the sights have; ``notes`` are the phases that were not checked, with the
    reason; ``failed`` says in one line why it is over in vain."""

    expected: Expected
    begun: float
    phase: Phase = Phase.STOP
    since: float = 0.0
    gone_at: float | None = None
    born: Identity | None = None
    born_at: float | None = None
    passed: tuple[tuple[str, float], ...] = ()
    matter: str = ""
    log: str | None = None
    version: str | None = None
    notes: tuple[tuple[str, str], ...] = ()
    failed: str | None = None
    quiet_since: float | None = None
    down_looks: int = 0
    idle_looks: int = 0

    @property
    def is_over(self) -> bool:
        return self.failed is not None or self.phase is Phase.READY

    @property
    def told(self) -> tuple[str, ...]:
        """What was not checked, one line a reason."""
        reasons = dict.fromkeys(why for _, why in self.notes)
        return tuple(f"{', '.join(p for p, why in self.notes if why == r)} not checked: {r}" for r in reasons)

    @property
    def wants(self) -> Fact | None:
        """The fact to ask over HTTP at the next look."""
        return FACT_OF.get(self.phase) if not self.is_over else None

    def after(self, sight: Sight) -> Waiting:
        """How far it is after a look."""
        if self.is_over:
            return self
        here = replace(self, log=sight.log or self.log)
        if sight.present is None:
            return here._unseen(sight)
        here = replace(here, quiet_since=None)
        if any(p.is_same(self.expected.old) for p in sight.present) or here._is_leaving(sight):
            return here._still_there(sight)
        here = here if here.gone_at is not None else here._passed(Phase.STOP, sight.at, gone_at=sight.at)
        return here._new(sight) if sight.present else here._nobody(sight)

    def generated(self, attempt: Attempt, at: float) -> Waiting:
        """How far it is after a generation was tried."""
        if self.is_over or self.phase is not Phase.GENERATION:
            return self
        if attempt.good:
            return self._passed(Phase.GENERATION, at)._skipped(at)
        said = attempt.error or f"status {attempt.status}"
        return replace(self, matter=f"{said}: {attempt.detail}" if attempt.detail else said)._timed(at)

    def without(self, phase: Phase, why: str, at: float) -> Waiting:
        """How far it is when a phase that is waited for cannot be checked."""
        return replace(self, notes=(*self.notes, (phase.value, why)))._passed(phase, at, kept=False)._skipped(at)

    # --- the process --------------------------------------------------------------------------------------------------

    def _unseen(self, sight: Sight) -> Waiting:
        since = self.quiet_since if self.quiet_since is not None else sight.at
        here = replace(self, quiet_since=since, matter=sight.why or "its process could not be seen")
        if sight.at - since >= LOST:
            return here._fail(
                f"could not be seen for {sight.at - since:.0f} s ({here.matter}): how it stands is not known"
            )
        return here

    def _is_leaving(self, sight: Sight) -> bool:
        """Whether what is there is about to be ended by systemd's restart: an old process that nobody had seen yet, of
        a unit that systemd keeps starting."""
        unit = sight.unit
        if not sight.present or unit is None or self.born is not None or not self.expected.told_systemd:
            return False
        return unit.active == "deactivating" or (unit.active == "active" and has_job(unit))

    def _still_there(self, sight: Sight) -> Waiting:
        waited = sight.at - self.begun
        state = f" ({state_of(sight.unit)})" if sight.unit else ""
        here = replace(self, phase=Phase.STOP, matter=f"the old process is still there{state}")
        if sight.job_status:
            return here._fail(f"the restart command ended with status {sight.job_status}: {_end(sight.job_said)}")
        if waited > self.expected.stop:
            return here._fail(f"the old process is still there after {waited:.0f} s{state}")
        idle = sight.unit is not None and not has_job(sight.unit) and sight.unit.active == "active"
        here = replace(here, idle_looks=self.idle_looks + 1 if idle else 0)
        if here.idle_looks >= 3 and waited > IDLE_JOB and self.expected.told_systemd:
            return here._fail(f"systemd has given up restarting it: the old process runs on{state}")
        return here

    def _nobody(self, sight: Sight) -> Waiting:
        lived = f" {sight.at - self.born_at:.0f} s after it had started" if self.born_at is not None else ""
        here = replace(self, matter=f"no process ({state_of(sight.unit)})" if sight.unit else "no process")
        if sight.job_status:
            return here._fail(f"the restart command ended with status {sight.job_status}: {_end(sight.job_said)}")
        here = replace(here, down_looks=self.down_looks + 1)
        if here.down_looks < 2 or sight.job_runs:
            return here._timed(sight.at)
        why = self._gone_for_good(sight.unit, lived)
        return here._fail(why) if why else here._timed(sight.at)

    def _gone_for_good(self, unit: Unit | None, lived: str) -> str:
        """Why no process will come by itself, or none that stays; "" where one may yet come."""
        if unit is None:
            return f"the new process died{lived}" if self.born is not None else ""
        if (unit.sub or "").startswith("auto-restart"):
            return f"the new process died{lived}, and systemd tries again: {ending_of(unit)}"
        if unit.active not in ("failed", "inactive") or has_job(unit):
            return ""
        return f"{f'the new process died{lived}' if self.born else 'it did not start'}: {ending_of(unit)}"

    def _new(self, sight: Sight) -> Waiting:
        assert sight.present is not None
        youngest = max(sight.present, key=lambda p: (p.started is not None, p.started.timestamp() if p.started else 0))
        here = replace(self, down_looks=0)
        if self.born is None or self.born_at is None:
            here = replace(here, born=youngest, born_at=sight.at)._passed(Phase.START, sight.at)._skipped(sight.at)
        elif not any(p.is_same(self.born) for p in sight.present):
            lived = sight.at - self.born_at
            if self.expected.has_unit or lived > SETTLING:
                how = f": {ending_of(sight.unit)}" if sight.unit else ""
                return here._fail(f"the new process died {lived:.0f} s after it had started, and another came{how}")
            here = replace(here, born=youngest)
        return here._pages(sight)._timed(sight.at)

    # --- what it answers ----------------------------------------------------------------------------------------------

    def _pages(self, sight: Sight) -> Waiting:
        fact = self.wants
        seen = sight.http.get(fact) if fact is not None else None
        if seen is None:
            return self
        if isinstance(seen.got, Missed):
            return self._missed(seen.got, sight.at)
        wrong = self._wrong(seen)
        if wrong:
            return replace(self, matter=wrong)
        here = self
        if isinstance(seen.got.value, ServerInfo):
            here = replace(self, version=seen.got.value.version)
        return here._passed(self.phase, sight.at)._skipped(sight.at)

    def _wrong(self, seen: Observation[object]) -> str:
        """What is wrong with an answer that came; "" where nothing is."""
        assert isinstance(seen.got, Seen)
        value = seen.got.value
        if isinstance(value, Health) and not 200 <= value.status < 300:
            return f"status {value.status}"
        if isinstance(value, Workers):
            return missing_workers(value, self.expected.workers, self.expected.exact)
        return ""

    def _missed(self, missed: Missed, at: float) -> Waiting:
        here = replace(self, matter=f"{missed.why}: {missed.detail}" if missed.detail else str(missed.why))
        if missed.why not in DEFINITE or self.phase is Phase.HEALTH:
            return here
        fact = FACT_OF[self.phase]
        if fact.value not in self.expected.answered:
            return here.without(self.phase, here.matter, at)
        if at - self.since > REFUSED:
            return here._fail(f"it answered {fact} before the restart and refuses it now ({here.matter})")
        return here

    # --- steps --------------------------------------------------------------------------------------------------------

    def _passed(self, phase: Phase, at: float, *, gone_at: float | None = None, kept: bool = True) -> Waiting:
        begun = self.since or self.begun
        phases = self.expected.phases
        following = phases[phases.index(phase) + 1]
        passed = (*self.passed, (phase.value, round(at - begun, 3))) if kept else self.passed
        return replace(
            self,
            phase=following,
            since=at,
            passed=passed,
            matter="",
            gone_at=self.gone_at if gone_at is None else gone_at,
        )

    def _skipped(self, at: float) -> Waiting:
        """Past the phases that are left out."""
        here = self
        while here.phase in self.expected.left_out:
            note = (here.phase.value, self.expected.left_out[here.phase])
            here = replace(here, notes=(*here.notes, note))._passed(here.phase, at, kept=False)
        return here

    def _timed(self, at: float) -> Waiting:
        if self.is_over or self.gone_at is None or at - self.gone_at <= self.expected.ready:
            return self
        matter = f" ({self.matter})" if self.matter else ""
        return self._fail(f"not ready after {at - self.gone_at:.0f} s: still waiting for {self.phase}{matter}")

    def _fail(self, why: str) -> Waiting:
        return replace(self, failed=why)


def _end(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
