"""Taking samples of a live cluster or of a recording, and what ends it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdctl.commands.common import Target
from pdctl.errors import INTERRUPTED
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster

if TYPE_CHECKING:
    from pdctl.model.answer import Observation
    from pdctl.model.finding import Finding
    from pdctl.model.window import Window
    from pdctl.recent import Recent
    from pdctl.render.series import Sample
    from pdctl.sample import SamplePlan

Round = list["Observation[Any]"]
SAMPLED = (Fact.METRICS, Fact.LOADS)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to sample, how often and until when; ``until`` names a finding."""

    cluster: Cluster
    interval: float
    seconds: float | None
    count: int | None
    until: str | None
    ranks: bool
    record: Path | None


@dataclass(slots=True)
class Sampler:
    """Takes samples of a cluster or of a recording, and says how it ended: ``found`` is what ``until`` waited for,
    ``taken`` and ``read`` how many samples there were and how many held a number."""

    what: Target
    plan: Plan
    found: Finding | None = None
    taken: int = 0
    read: int = 0
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    _sure: Until | None = field(default=None, init=False)

    def samples(self) -> Generator[Sample]:
        """Each sample as it is complete. Ctrl-C ends them; a capture that is recorded is whole afterwards."""
        from pdctl.render.series import Tally, step

        self._sure = Until(self.plan.until, self.plan.cluster) if self.plan.until else None
        tally = Tally()
        rounds = self._recorded() if self.what.capture is not None else self._live()
        with closing(rounds):
            for seen in rounds:
                tally, sample = step(tally, seen, self.plan.cluster, self.plan.ranks)
                self.taken += 1
                self.read += any(c.best is not None for row in sample.rows for c in row.cells.values())
                yield sample
                if self.found is not None:
                    return

    def status(self) -> int:
        """The exit status: 0 when it ended as asked, 3 when what was waited for did not come or nothing was read."""
        if self.interrupted:
            return INTERRUPTED
        if self.plan.until is not None:
            return 0 if self.found is not None else 3
        return 0 if self.read else 3

    def _live(self) -> Generator[Round]:
        """The rounds of a live cluster."""
        from pdctl.gather import Gatherer
        from pdctl.keep import keeping
        from pdctl.reach.clock import SystemClock
        from pdctl.reach.hosts import Hosts
        from pdctl.sample import sample as sampling

        cluster, clock = self.plan.cluster, SystemClock()
        fresh: Round = []
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(cluster.with_local(), clock=clock))
            keeper = stack.enter_context(keeping(self.plan.record, cluster))
            self.notes = keeper.notes
            asked = Gatherer(cluster, clock=clock, commands=hosts, via=hosts.dial, on_answer=keeper.add)
            gatherer = stack.enter_context(asked)
            run = sampling(gatherer, self._asked(), clock=clock, stop=self._judged, on_round=fresh.extend)
            for _ in run:
                seen, fresh[:] = [o for o in fresh if o.fact in SAMPLED], []
                if seen:
                    yield seen
            self.interrupted = run.interrupted
            if self.found is None:
                self._judged(run.window)  # with what was asked last: logs

    def _asked(self) -> SamplePlan:
        """Pages and live counts each round. What a judgement needs besides is asked once, and only if there is to be
        one, now or of the recording: settings make the scheduler work."""
        from pdctl.watch import Look, plan_of

        plan = self.plan
        judged = plan.until is not None or plan.record is not None
        asks = plan_of(plan.cluster, Look(plan.interval))
        if not judged:
            asks = replace(asks, first={}, last={}, last_asks=())
        return replace(asks, seconds=plan.seconds, count=plan.count)

    def _judged(self, window: Window) -> bool:
        if self._sure is not None:
            self.found = self._sure.found(window)
        return self.found is not None

    def _recorded(self) -> Generator[Round]:
        """The rounds of a recording, one held at a time. With ``until`` every fact is read, and the window so far is
        judged as a live one would be."""
        from pdctl.recent import Recent
        from pdctl.render.series import rounds

        assert self.what.capture is not None
        recent = Recent(self.what.capture.started, live=False)
        for number, seen in enumerate(rounds(self._observed(recent)), start=1):
            if self.plan.count is not None and number > self.plan.count:
                return
            self._judged_at(seen[-1], recent)
            yield seen

    def _judged_at(self, last: Observation[Any], recent: Recent) -> None:
        if self._sure is not None and self._sure.is_due(last.t):
            self._judged(recent.window(last.at))

    def _observed(self, recent: Recent) -> Iterator[Observation[Any]]:
        from pdctl.facts import read

        capture = self.what.capture
        assert capture is not None
        for placed in capture.rows():
            if self.plan.seconds is not None and placed.t > self.plan.seconds:
                return
            if self._sure is None and placed.row.fact not in SAMPLED:
                continue
            answer = capture.answer_of(placed)
            seen = read(answer, capture.cluster.instance(answer.subject))
            if self._sure is not None:
                recent.add((seen,))
            yield seen


class Until:
    """Whether a finding is there yet. A long window is judged less often: no more than a fiftieth of it apart."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self._cluster = cluster
        self._next = 0.0

    def is_due(self, t: float) -> bool:
        """Whether the window that ends at ``t`` seconds is worth judging."""
        if t < self._next:
            return False
        self._next = t + t / 50.0
        return True

    def found(self, window: Window) -> Finding | None:
        """The finding in the report on this window, None where it is not in it."""
        from pdctl.checks import judge

        return next((f for f in judge(window, self._cluster).findings if f.name == self.name), None)
