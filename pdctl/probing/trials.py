"""A probe's plan carried out: the requests of each stage in their threads, every attempt handed on as it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pdctl.model.probe import Attempt, Trial
from pdctl.model.probe_plan import LeftOut, ProbePlan, Stage
from pdctl.plans.probe import CONTROLS, SETTLE, SHORT
from pdctl.reach.generation import question_of
from pdctl.reach.probe_answer import Question
from pdctl.reach.probe_wire import CalledOff, Wire
from pdctl.reach.prober import Got, Prober

WORDS = 40  # of filling in each turn: what makes a conversation grow
LEAVES = (0.05, 1.0)  # seconds after which the first and the last client of a burst leave
PATIENCE = 2.0  # seconds for requests to end once they are called off
DEAD = "not even one generation alone works"
LOADING = frozenset({Trial.ROUNDS, Trial.MANY, Trial.ABORTS})
GIVE_UP = 2  # failures after which a conversation ends; hangs one after the other after which no more is asked alone

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
        dead: set[str] = set()
        for step in self._plan.steps:
            why = {stage: _why_not(stage, self._plan, dead) for stage in step}
            self.skipped += [LeftOut(stage.way.name, stage.trial, text) for stage, text in why.items() if text]
            self.progress.stage = ", ".join(dict.fromkeys(stage.title for stage in step))
            runs = [_Run(self._prober, stage, self) for stage in step if not why[stage]]
            if step[0].trial is Trial.IDLE:
                _idle(runs, self)
            else:
                self.together([run.stage_of for run in runs])
            for run in runs:
                self._on_stage(run.stage, tuple(run.attempts))
                if run.stage.trial is Trial.ONE and not any(a.good for a in run.attempts):
                    dead.add(run.stage.way.name)
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


def _why_not(stage: Stage, plan: ProbePlan, dead: Collection[str]) -> str | None:
    """Why a stage is left out: its path is dead, or it would load an engine of a cluster that serves nobody."""
    if stage.way.name in dead:
        return DEAD
    outer = [way.name for way in plan.ways if not way.instance.is_engine]
    if stage.trial in LOADING and stage.way.instance.is_engine and outer and all(name in dead for name in outer):
        return f"not even one generation through {', '.join(outer)} works: no load is added to that"
    return None


class _Run:
    """One stage. Its methods run in threads of the stage."""

    def __init__(self, prober: Prober, stage: Stage, trials: Trials) -> None:
        self.prober = prober
        self.stage = stage
        self.trials = trials
        self.attempts: list[Attempt] = []
        self._controls = CONTROLS
        self._lock = threading.Lock()

    def stage_of(self) -> None:
        """Does what the stage says."""
        doing = {
            Trial.HEALTH: self._health, Trial.ONE: self._one, Trial.ROUNDS: self._rounds, Trial.MANY: self._many,
            Trial.ABORTS: self._aborts,
        }  # fmt: skip
        doing[self.stage.trial]()

    # --- kinds --------------------------------------------------------------------------------------------------------

    def _health(self) -> None:
        way = self.stage.way
        sglang = way.instance.is_engine and way.instance.engine == "sglang"
        path = "/health_generate" if sglang else "/health"
        self._keep(lambda: self.prober.health(way, self._label(), path))

    def _one(self) -> None:
        hung = 0
        for _ in range(self.stage.repeat):
            attempt = self.fresh(self._question()).attempt
            hung = hung + 1 if attempt.error == "read-timeout" else 0
            if not attempt.good:
                self.control()
            if hung >= GIVE_UP:  # each holds its place in the cluster, and no more is learned
                return

    def _many(self) -> None:
        """Waves of requests that all start at the same moment, each on a connection of its own."""
        for wave in range(1, self.stage.repeat + 1):
            gate = threading.Barrier(self.stage.at_once)
            self.trials.together([partial(self._one_of_many, gate, wave)] * self.stage.at_once)

    def _one_of_many(self, gate: threading.Barrier, wave: int) -> None:
        with suppress(threading.BrokenBarrierError):  # one that could not start must not hold up the others
            gate.wait(PATIENCE)
        attempt = self.fresh(self._question(), self._label(concurrency=self.stage.at_once, round=wave)).attempt
        if not attempt.good:
            self.control()

    def _rounds(self) -> None:
        self.trials.together([partial(self._agent, number) for number in range(1, self.stage.agents + 1)])

    def _agent(self, number: int) -> None:
        """One growing conversation on one connection; after a failure on a new one, until that fails as well."""
        turns: tuple[str, ...] = ()
        wire: Wire | None = None
        failures = 0
        try:
            for round_ in range(1, self.stage.rounds + 1):
                label = self._label(round=round_, agent=number, concurrency=self.stage.agents)
                question = self._turn(turns)
                got = self._next(wire, question, label)
                wire = got.wire
                if got.attempt.good:
                    turns = (*question.turns, got.text)
                    continue
                failures += 1
                _close(wire)
                wire = None
                self.control()
                if failures >= GIVE_UP:
                    return
        finally:
            _close(wire)

    def _turn(self, turns: tuple[str, ...]) -> Question:
        """The next question of a conversation."""
        asked = self._question()
        return replace(asked, turns=(*turns, question_of(asked.nonce, WORDS)))

    def _next(self, wire: Wire | None, question: Question, label: Attempt) -> Got:
        """The next request of a conversation, on its connection while the other end keeps it."""
        if wire is None or not wire.can_go_on:
            return self._keep(lambda: self.prober.fresh(self.stage.way, question, label), close=False)
        return self._keep(lambda: self.prober.again(self.stage.way, wire, question, label), close=False)

    def _aborts(self) -> None:
        """A burst of clients that leave, then a look whether a fresh request is answered as before."""
        count = self.stage.at_once
        first, last = LEAVES
        waits = [first + (last - first) * n / max(1, count - 1) for n in range(count)]
        self.trials.together([partial(self._leaving, wait) for wait in waits])
        self.prober.pause(SETTLE)
        self.fresh(self.prober.question(most_tokens=SHORT), self._label(control=True))

    def _leaving(self, wait: float) -> None:
        question = replace(self._question(), leave_after=wait)
        self.fresh(question, self._label(concurrency=self.stage.at_once))

    # --- an idle connection -------------------------------------------------------------------------------------------

    def opened(self, gap: float) -> tuple[float, Wire] | None:
        """A connection that carried one request and may sit idle now; None where there is none."""
        got = self._keep(lambda: self.prober.fresh(self.stage.way, self._question(), self._label()), close=False)
        if got.attempt.good and got.wire is not None and got.wire.can_go_on:
            return gap, got.wire
        _close(got.wire)
        return None

    def after_gap(self, gap: float, wire: Wire) -> None:
        try:
            label = self._label(idle_s=gap, closed_after_s=self.prober.idle(wire, gap))
            got = self._keep(lambda: self.prober.again(self.stage.way, wire, self._question(), label))
        finally:
            wire.close()
        if not got.attempt.good:
            self.control()

    # --- one request --------------------------------------------------------------------------------------------------

    def control(self) -> None:
        """A generation on a fresh connection right after a failure, a few a stage: what fails on one connection and
        works on another is a fault of that connection."""
        with self._lock:
            if self._controls <= 0 or self.stage.trial is Trial.ABORTS:
                return
            self._controls -= CONTROLS if self.stage.trial in (Trial.IDLE, Trial.ONE) else 1
        self.fresh(self.prober.question(most_tokens=SHORT), self._label(control=True))

    def fresh(self, question: Question, label: Attempt | None = None) -> Got:
        return self._keep(lambda: self.prober.fresh(self.stage.way, question, label or self._label()))

    def _keep(self, make: Callable[[], Got], *, close: bool = True) -> Got:
        """Makes an attempt and keeps it. A request that was called off counts as cut, and is no attempt."""
        if self.prober.is_off:
            raise CalledOff
        self.trials.began()
        attempt: Attempt | None = None
        try:
            got = make()
            attempt = got.attempt
        finally:
            self.trials.ended(attempt)
        with self._lock:
            self.attempts.append(attempt)
        if close:
            _close(got.wire)
        return got

    def _question(self) -> Question:
        return self.prober.question(most_tokens=self.stage.most_tokens, stream=self.stage.stream)

    def _label(self, **more: object) -> Attempt:
        label = Attempt(self.stage.way.name, self.stage.way.via, trial=self.stage.trial.value, concurrency=1)
        return replace(label, **more)  # type: ignore[arg-type]


def _idle(runs: Sequence[_Run], trials: Trials) -> None:
    """The gaps of all paths at the same time. Connections are opened one after the other, the longest gap first, so
    that they are used again one after the other too."""
    waiting: list[threading.Thread] = []

    def open_all() -> None:
        for run, gap in sorted(((r, g) for r in runs for g in r.stage.gaps), key=lambda pair: -pair[1]):
            ready = run.opened(gap)
            if ready is not None:
                job = partial(run.after_gap, *ready)
                thread = threading.Thread(target=trials.guarded, args=(job,), daemon=True)
                waiting.append(thread)
                thread.start()

    trials.guarded(open_all)
    trials.wait_for(waiting)


def _close(wire: Wire | None) -> None:
    if wire is not None:
        wire.close()
