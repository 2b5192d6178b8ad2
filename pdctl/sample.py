"""Rounds of asking on a steady beat, and the window they make so far."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pdctl.facts import read
from pdctl.facts.asks import asks_for
from pdctl.gather import Gatherer
from pdctl.model.answer import Answer, Fact, Observation
from pdctl.model.ask import Ask, HttpAsk
from pdctl.model.cluster import Cluster, Role
from pdctl.model.window import Window
from pdctl.reach.clock import Clock
from pdctl.recent import Recent

Snapshot = tuple[Observation[Any], ...]
FactsOf = Mapping[Role, tuple[Fact, ...]]
NOTHING: FactsOf = {}
ON_TIME = 0.1  # of an interval: a beat no later than this is still taken, a later one is left out
PATIENCE = 60.0  # seconds: the last answers end by their own timeouts; this bounds a carrier that keeps none


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """What to ask and when. A round each ``interval_s`` seconds, for ``seconds`` from the first to the last, or
    ``count`` rounds, whichever ends first; neither: until stopped. ``facts`` are asked each round, ``first`` in the
    first round as well, ``last`` once the rounds are over; ``*_asks`` are asks of any other kind for the same moments.
    ``via`` says for an instance which host carries its HTTP. ``timeout_s`` is for one HTTP answer (health keeps its
    own: an engine may take 20 s for it); ``deadline_s`` ends everything, answers under way too."""

    interval_s: float
    seconds: float | None = None
    count: int | None = None
    facts: FactsOf = field(default_factory=dict)
    first: FactsOf = field(default_factory=dict)
    last: FactsOf = field(default_factory=dict)
    each_asks: tuple[Ask, ...] = ()
    first_asks: tuple[Ask, ...] = ()
    last_asks: tuple[Ask, ...] = ()
    via: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    deadline_s: float | None = None

    def round_asks(self, cluster: Cluster, beat: int) -> tuple[Ask, ...]:
        """The asks of a round, counted from 0."""
        first = beat == 0
        asks = self._of(cluster, self.facts, self.first if first else NOTHING)
        return (*asks, *self.each_asks, *(self.first_asks if first else ()))

    def closing_asks(self, cluster: Cluster) -> tuple[Ask, ...]:
        """The asks once the rounds are over."""
        return (*self._of(cluster, self.last), *self.last_asks)

    def has_beat(self, beat: int) -> bool:
        """Whether the round with that number is still part of the plan."""
        within = self.seconds is None or beat * self.interval_s <= self.seconds + 1e-9
        return beat == 0 or within

    def _of(self, cluster: Cluster, *wanted: FactsOf) -> Iterator[Ask]:
        for instance in cluster.instances:
            facts = {fact for facts in wanted for fact in facts.get(instance.role, ())}
            yield from map(self._timed, asks_for(instance, facts, via=self.via.get(instance.name)))

    def _timed(self, ask: HttpAsk) -> HttpAsk:
        if self.timeout_s is None or ask.fact is Fact.HEALTH:
            return ask
        return replace(ask, timeout=self.timeout_s)


def next_beat(elapsed: float, interval: float, last: int) -> int:
    """The number of the next round when ``elapsed`` seconds have passed since round 0 and ``last`` was the latest one.
    Round k is due at k * interval, whatever the rounds before took, so nothing drifts; rounds whose time has passed are
    left out, never made up for in a bunch.

    >>> next_beat(0.2, 1.0, 0), next_beat(3.05, 1.0, 0), next_beat(3.4, 1.0, 0)
    (1, 3, 4)
    """
    due = math.floor(elapsed / interval)
    if due > last and elapsed - due * interval <= ON_TIME * interval:
        return due
    return max(last, due) + 1


def sample(
    gatherer: Gatherer,
    plan: SamplePlan,
    *,
    clock: Clock,
    stop: Callable[[Window], bool] | None = None,
    on_round: Callable[[Snapshot], None] | None = None,
) -> Sampling:
    """The window so far, after each round: iterate it. ``stop`` is asked with each and ends the rounds; ``on_round``
    gets what each round brought. Answers that take longer than a beat come with a later round, and their endpoint is
    not asked again before. KeyboardInterrupt ends it too, and the window so far is yielded once more
    (``Sampling.interrupted``)."""
    return Sampling(gatherer, plan, clock, stop, on_round)


class Sampling:
    """One sampling. ``window`` is the window so far, ``interrupted`` whether Ctrl-C ended it, ``rounds`` how many
    rounds there were."""

    def __init__(
        self,
        gatherer: Gatherer,
        plan: SamplePlan,
        clock: Clock,
        stop: Callable[[Window], bool] | None,
        on_round: Callable[[Snapshot], None] | None,
    ) -> None:
        self.interrupted = False
        self.rounds = 0
        self._gatherer = gatherer
        self._plan = plan
        self._clock = clock
        self._stop = stop
        self._on_round = on_round
        self._recent: Recent | None = None
        self._unread: deque[Answer] = deque()
        self._started = 0.0

    @property
    def window(self) -> Window:
        """The window so far; empty before the first round."""
        deque(self._read(), maxlen=0)
        recent = self._recent or Recent(self._clock.wall(), live=True)
        return recent.window(self._clock.wall())

    def __iter__(self) -> Iterator[Window]:
        self._started = self._gatherer.start(self._plan.round_asks(self._gatherer.cluster, 0))
        self._recent = Recent(self._gatherer.started_at, live=True)
        try:
            yield from self._rounds()
            if self._close():
                yield self._told()
        except KeyboardInterrupt:
            self.interrupted = True
            self._gatherer.drop()
            yield self._told()

    def _rounds(self) -> Iterator[Window]:
        beat = 0
        while self._goes_on(beat):
            self._wait_until(self._due(beat))
            self._gatherer.begin(self._plan.round_asks(self._gatherer.cluster, self.rounds), self._end())
            self.rounds += 1
            following = self._next(beat)
            self._take(self._gatherer.collect(self._patience(following)))
            window = self._told()
            yield window
            if self._stop is not None and self._stop(window):
                return
            beat = next_beat(self._elapsed(), self._plan.interval_s, beat)

    def _next(self, beat: int) -> int | None:
        """The round after this one, None when this is the last."""
        return beat + 1 if self._goes_on(beat + 1) else None

    def _goes_on(self, beat: int) -> bool:
        plan = self._plan
        counted = plan.count is None or self.rounds < plan.count
        in_time = plan.deadline_s is None or beat == 0 or beat * plan.interval_s < plan.deadline_s
        return counted and in_time and plan.has_beat(beat)

    def _patience(self, following: int | None) -> float:
        """Until when answers of this round are waited for: until the next is due, and the last a while longer."""
        if following is not None:
            return min(self._due(following), self._end())
        return min(self._clock.now() + PATIENCE, self._end())

    def _close(self) -> bool:
        """Asks what is asked last, and gives up on what is still awaited. Returns whether there was any."""
        asks = self._plan.closing_asks(self._gatherer.cluster)
        if asks:
            self._take(self._gatherer.held(self._gatherer.begin(asks, self._end())))
            self._take(self._gatherer.collect(min(self._clock.now() + PATIENCE, self._end())))
        self._take(self._gatherer.cut())
        return bool(asks) or bool(self._unread)

    def _take(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self._unread.append(answer)

    def _told(self) -> Window:
        """Answers are read when a round is in, not as they arrive: reading would take its turns from requests that are
        yet to be sent."""
        snapshot = tuple(self._read())
        if self._on_round is not None:
            self._on_round(snapshot)
        return self.window

    def _read(self) -> Iterator[Observation[Any]]:
        cluster = self._gatherer.cluster
        while self._unread:
            answer = self._unread.popleft()
            seen = read(answer, cluster.instance(answer.subject))
            if self._recent is not None:
                self._recent.add((seen,))
            yield seen

    def _wait_until(self, due: float) -> None:
        """Takes late answers meanwhile; sleeps when there are none to take."""
        self._take(self._gatherer.collect(due))
        self._clock.sleep(due - self._clock.now())

    def _due(self, beat: int) -> float:
        return self._started + beat * self._plan.interval_s

    def _elapsed(self) -> float:
        return self._clock.now() - self._started

    def _end(self) -> float:
        return math.inf if self._plan.deadline_s is None else self._started + self._plan.deadline_s
