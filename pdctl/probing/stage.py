"""One stage of a probe carried out: its requests in their threads, second tries after failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pdctl.model.probe import Attempt, Trial
from pdctl.model.probe_plan import Stage
from pdctl.plans.probe import CONTROLS, SETTLE, SHORT
from pdctl.reach.generation import question_of
from pdctl.reach.probe_answer import Question
from pdctl.reach.probe_wire import CalledOff, Wire
from pdctl.reach.prober import Got, Prober

if TYPE_CHECKING:
    from pdctl.probing.trials import Trials

WORDS = 40  # of filling in each turn: what makes a conversation grow
LEAVES = (0.05, 1.0)  # seconds after which the first and the last client of a burst leave
START_S = 2.0  # seconds that requests which are to start together wait for each other
GIVE_UP = 2  # failures after which a conversation ends; hangs one after the other after which no more is asked alone


class StageRun:
    """One stage. Its methods run in threads of the stage."""

    def __init__(self, prober: Prober, stage: Stage, trials: Trials) -> None:
        self.prober = prober
        self.stage = stage
        self.trials = trials
        self.attempts: list[Attempt] = []
        self.gave_up = False  # generations alone hung, one after the other
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
                self.gave_up = True
                return

    def _many(self) -> None:
        """Waves of requests that all start at the same moment, each on a connection of its own."""
        for wave in range(1, self.stage.repeat + 1):
            gate = threading.Barrier(self.stage.at_once)
            self.trials.together([partial(self._one_of_many, gate, wave)] * self.stage.at_once)

    def _one_of_many(self, gate: threading.Barrier, wave: int) -> None:
        with suppress(threading.BrokenBarrierError):  # one that could not start must not hold up the others
            gate.wait(START_S)
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


def idle_together(runs: Sequence[StageRun], trials: Trials) -> None:
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
