"""Probing a cluster: requests of pdctl's own beside rounds of asking, both in one window, everything kept on disk.

with Probing(cluster, how) as probing:
    versions = probing.releases(engines)
    probed = probing.run(plan)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from pdctl.checks.probe_guard import suffering
from pdctl.facts import read
from pdctl.facts.asks import asks_for
from pdctl.gather import Gatherer
from pdctl.keep import Keeper, keeping
from pdctl.model.answer import Answer, Fact, Observation, Seen, Why
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.engine import Loads, ServerInfo
from pdctl.model.probe import Attempt, Trial, row_of
from pdctl.model.probe_plan import LeftOut, ProbePlan, Stage
from pdctl.model.window import Window
from pdctl.probing.trials import Progress, Trials
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.hosts import Hosts
from pdctl.reach.prober import HANG_AFTER, Prober
from pdctl.reach.url import shown
from pdctl.sample import sample
from pdctl.watch import Look, plan_of

AFTER = 2  # rounds of asking once the requests are over
AFTER_TROUBLE = 10.0  # seconds: rules need 8 to tell what stands still; a router counts a client that left for 5


@dataclass(frozen=True, slots=True)
class How:
    """How to probe: seconds of silence that count as a hang, what answers must match, the model to ask for, seconds
    between rounds of asking, for one answer of those, and for everything; where to keep the raw answers; seconds for
    which the cluster is looked at after requests that failed (None: ``AFTER_TROUBLE``)."""

    hang_after: float = HANG_AFTER
    expect: re.Pattern[str] | None = None
    model: str | None = None
    interval_s: float = 1.0
    timeout_s: float = 5.0
    deadline_s: float = 120.0
    record: Path | None = None
    after_s: float | None = None


@dataclass(slots=True)
class Probed:
    """What came of it. ``stopped`` says why it ended before the plan did, ``cut`` how many requests were under way
    then, ``skipped`` what was left out on the way. ``kept`` is where the raw answers are; ``notes`` say what went wrong
    with keeping them."""

    window: Window
    attempts: tuple[Attempt, ...]
    stopped: str | None = None
    interrupted: bool = False
    cut: int = 0
    skipped: tuple[LeftOut, ...] = ()
    kept: Path | None = None
    notes: list[str] = field(default_factory=list)


class Probing:
    """One probe of a cluster: its hosts, its window, its capture."""

    def __init__(self, cluster: Cluster, how: How, *, clock: Clock | None = None) -> None:
        self.cluster = cluster
        self.how = how
        self.clock = clock or SystemClock()
        self._stack = ExitStack()
        self._hosts: Hosts | None = None
        self._keeper: Keeper | None = None
        self._gatherer: Gatherer | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(self.cluster.with_local(), clock=self.clock))
            keeper = stack.enter_context(keeping(self.how.record, self.cluster))
            gatherer = Gatherer(self.cluster, clock=self.clock, commands=hosts, via=hosts.dial, on_answer=keeper.add)
            self._gatherer = stack.enter_context(gatherer)
            self._hosts, self._keeper = hosts, keeper
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def remote(self) -> frozenset[str]:
        """The hosts that SSH leads to."""
        return frozenset(host.name for host in self.cluster.hosts if host.ssh)

    def releases(self, engines: Iterable[Instance]) -> dict[str, str | None]:
        """The release of each engine as it says itself, None where it does not. Live counts name it too, and are
        answered by an engine whose scheduler stands still."""
        assert self._gatherer is not None
        out: dict[str, str | None] = {}
        asks: list[HttpAsk] = []
        for engine in engines:
            out[engine.name] = None
            via = engine.host if engine.host in self.remote else None
            asks += asks_for(engine, (Fact.LOADS, Fact.SERVER_INFO), via=via)
        for answer in self._gatherer.gather(asks, self.how.timeout_s):
            got = read(answer, self.cluster.instance(answer.subject)).got
            if isinstance(got, Seen) and isinstance(got.value, ServerInfo | Loads):
                out[answer.subject] = got.value.version or out[answer.subject]
        return out

    def run(self, plan: ProbePlan, tell: Callable[[str], None] = lambda _: None) -> Probed:
        """Carries the plan out while the cluster is sampled. Ctrl-C, the deadline and a cluster that suffers end it
        with what was seen so far. ``tell`` gets how far it is."""
        assert self._gatherer is not None and self._hosts is not None and self._keeper is not None
        return _Run(self, plan, self._gatherer, self._hosts, self._keeper, tell).run()


class _Run:
    """One plan under way: the main thread samples, the trials' threads send."""

    def __init__(
        self,
        probing: Probing,
        plan: ProbePlan,
        gatherer: Gatherer,
        hosts: Hosts,
        keeper: Keeper,
        tell: Callable[[str], None],
    ) -> None:
        self.how = probing.how
        self.cluster = probing.cluster
        self.clock = probing.clock
        self.plan = plan
        self.gatherer = gatherer
        self.keeper = keeper
        self.tell = tell
        self.begun = self.clock.now()
        self.stopped: str | None = None
        self._longer = AFTER_TROUBLE if self.how.after_s is None else self.how.after_s
        self._ended_at: float | None = None
        self._after = 0
        self._stages: SimpleQueue[tuple[Stage, tuple[Attempt, ...]]] = SimpleQueue()
        self._probed: list[Observation[Any]] = []
        self._started = gatherer.start()
        prober = Prober(
            clock=self.clock, dial=hosts.dial, hang_after=self.how.hang_after, expect=self.how.expect,
            model=self.how.model, started=self._started,
        )  # fmt: skip
        self.trials = Trials(prober, plan, lambda stage, made: self._stages.put((stage, made)))

    def run(self) -> Probed:
        asked = plan_of(self.cluster, Look(self.how.interval_s, timeout_s=self.how.timeout_s))
        until = self.begun - self._started + self.how.deadline_s
        sampled = replace(asked, seconds=None, last={}, last_asks=(), deadline_s=until)
        sampling = sample(self.gatherer, sampled, clock=self.clock, stop=self._look)
        interrupted = False
        try:
            for _ in sampling:
                self.tell(_said(self.trials.progress, self.plan))
        except KeyboardInterrupt:
            interrupted = True
        interrupted = interrupted or sampling.interrupted
        if not interrupted and not self.trials.is_over:
            self.stopped = self.stopped or f"the deadline of {self.how.deadline_s:g} s"
        self.trials.call_off()
        if self.trials.error is not None:
            raise self.trials.error
        self._take()
        window = sampling.window.extended(sorted(self._probed, key=lambda o: o.t), self.clock.wall())
        made, cut = self.trials.made, self.trials.progress.cut
        skipped = tuple(self.trials.skipped)
        return Probed(window, made, self.stopped, interrupted, cut, skipped, self.keeper.path, self.keeper.notes)

    def _look(self, window: Window) -> bool:
        """After each round of asking: begins (with the second, so that there is a before), watches how the cluster
        bears it, and tells when enough was seen."""
        self._take()
        if not self.trials.has_begun:
            self.trials.start()
            return False
        if self.trials.error is not None:
            return True
        if not self.trials.is_over:
            return self._suffers(window)
        self._ended_at = self._ended_at or self.clock.now()
        self._after += 1
        sampled = window.subjects(Fact.METRICS) or window.subjects(Fact.LOADS)
        trouble = sampled and any(map(leaves_something, self.trials.made))
        return self._after > AFTER and self.clock.now() - self._ended_at >= (self._longer if trouble else 0.0)

    def _suffers(self, window: Window) -> bool:
        """Whether it is stopped for the cluster's sake. The rounds go on a while: what it left is to be seen."""
        if self.stopped is None:
            self.stopped = suffering(window, self.cluster, self.trials.made, self.plan)
            if self.stopped is not None:
                self.trials.call_off()
        return False

    def _take(self) -> None:
        """What stages have brought since, as answers: kept, and read as those of a recording are."""
        while not self._stages.empty():
            for answer in self._answers(*self._stages.get()):
                self.keeper.add(answer)
                self._probed.append(read(answer, self.cluster.instance(answer.subject)))

    def _answers(self, stage: Stage, made: tuple[Attempt, ...]) -> Iterable[Answer]:
        if not made:
            return
        if stage.trial is Trial.HEALTH:
            yield from (self._health(stage, attempt) for attempt in made)
        rows = sorted(made, key=lambda a: a.begun_s or 0.0)
        body = json.dumps([row_of(attempt) for attempt in rows], separators=(",", ":")).encode()
        first = min(a.begun_s or 0.0 for a in rows)
        last = max(_end_of(a) for a in rows)
        ask = f"pdctl probe {stage.way.name} --kind {stage.trial.value}"
        yield self._answer(stage, Fact.PROBE, ask, last, last - first, body=body, content_type="application/json")

    def _health(self, stage: Stage, attempt: Attempt) -> Answer:
        """A health check is an answer of its own: other rules judge by it."""
        ask = f"GET {shown((stage.way.instance.url or '').rstrip('/'))}{attempt.endpoint or ''}"
        why = Why(attempt.error) if attempt.error else None
        return self._answer(
            stage, Fact.HEALTH, ask, _end_of(attempt), attempt.took or 0.0, status=attempt.status, error=why,
            detail=attempt.detail, body=b"" if attempt.status is not None else None,
        )  # fmt: skip

    def _answer(self, stage: Stage, fact: Fact, ask: str, t: float, took: float, **more: Any) -> Answer:
        at = self.gatherer.started_at + timedelta(seconds=t)
        return Answer(stage.way.name, fact, ask, t, at, took, **more)


def leaves_something(attempt: Attempt) -> bool:
    """Whether the cluster is to be looked at a while longer: for what a request left behind, or failed of. That an idle
    connection is closed is no news of the cluster."""
    failed = attempt.error is not None or (attempt.status or 0) >= 500
    return attempt.kind == "abort" or (failed and attempt.closed_after_s is None)


def _end_of(attempt: Attempt) -> float:
    return (attempt.begun_s or 0.0) + (attempt.took or 0.0)


def _said(progress: Progress, plan: ProbePlan) -> str:
    return f"{progress.stage or 'one look before'}: {progress.made} of at most {plan.load.requests} requests made"
