"""A probe's plan carried out: the requests of each stage in their threads, every attempt handed on as it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pdctl.model.probe import Attempt, Trial
from pdctl.model.probe_plan import LeftOut, ProbePlan, Stage
from pdctl.probing.stage import StageRun, idle_together
from pdctl.reach.probe_wire import CalledOff
from pdctl.reach.prober import Prober

PATIENCE = 2.0  # seconds for requests to end once they are called off
DEAD = "not even one generation alone works"
HANGS = "generations alone hang"
LOADING = frozenset({Trial.ROUNDS, Trial.MANY, Trial.ABORTS})

Job = Callable[[], None]


@dataclass(slots=True)
class Progress:
    """How far a plan is."""

    stage: str = ""
    made: int = 0
    under_way: int = 0
    cut: int = 0


class Trials:
    """Carries a plan out in threads of its own. ``on_stage`` gets each stage with its attempts once it is over, what
    there is of it where it was called off; it is called in those threads. A path on which not even one generation works
    is asked nothing more: ``skipped``. ``error`` is what broke, if anything."""

    def __init__(self, prober: Prober, plan: ProbePlan, on_stage: Callable[[Stage, tuple[Attempt, ...]], None]) -> None:
        self.progress = Progress()
        self.error: BaseException | None = None
        self.skipped: list[LeftOut] = []
        self._prober = prober
        self._plan = plan
        self._on_stage = on_stage
        self._made: list[Attempt] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="pdctl-probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        return self._thread.ident is not None

    @property
    def is_over(self) -> bool:
        return self.has_begun and not self._thread.is_alive()

    @property
    def made(self) -> tuple[Attempt, ...]:
        """The attempts that have ended by now."""
        with self._lock:
            return tuple(self._made)

    def call_off(self) -> None:
        """Ends it: nothing more is sent, what is under way is cut. Waits a moment for that."""
        self._prober.call_off()
        if self.has_begun:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        dead: dict[str, str] = {}
        for step in self._plan.steps:
            why = {stage: _why_not(stage, self._plan, dead) for stage in step}
            self.skipped += [LeftOut(stage.way.name, stage.trial, text) for stage, text in why.items() if text]
            self.progress.stage = ", ".join(dict.fromkeys(stage.title for stage in step))
            runs = [StageRun(self._prober, stage, self) for stage in step if not why[stage]]
            if step[0].trial is Trial.IDLE:
                idle_together(runs, self)
            else:
                self.together([run.stage_of for run in runs])
            for run in runs:
                self._on_stage(run.stage, tuple(run.attempts))
                if run.stage.trial is Trial.ONE and (run.gave_up or not any(a.good for a in run.attempts)):
                    dead[run.stage.way.name] = HANGS if run.gave_up else DEAD
            if self._prober.is_off or self.error is not None:
                return

    def together(self, jobs: Sequence[Job]) -> None:
        """Runs jobs at the same time and waits for them; once called off, only a moment longer."""
        threads = [threading.Thread(target=self.guarded, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        self.wait_for(threads)

    def wait_for(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive() and not self._prober.is_off:
                thread.join(0.1)
        patience = PATIENCE
        for thread in threads:
            while thread.is_alive() and patience > 0:
                thread.join(0.1)
                patience -= 0.1

    def guarded(self, job: Job) -> None:
        try:
            job()
        except CalledOff:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            self.error = self.error or error
            self._prober.call_off()

    def began(self) -> None:
        with self._lock:
            self.progress.under_way += 1

    def ended(self, attempt: Attempt | None) -> None:
        with self._lock:
            self.progress.under_way -= 1
            if attempt is None:
                self.progress.cut += 1
            else:
                self.progress.made += 1
                self._made.append(attempt)


def _why_not(stage: Stage, plan: ProbePlan, dead: Mapping[str, str]) -> str | None:
    """Why a stage is left out: its path is dead, or it would load an engine of a cluster that serves nobody."""
    if stage.way.name in dead:
        return dead[stage.way.name]
    outer = [way.name for way in plan.ways if not way.instance.is_engine]
    if stage.trial in LOADING and stage.way.instance.is_engine and outer and all(name in dead for name in outer):
        return f"not even one generation through {', '.join(outer)} works: no load is added to that"
    return None
