"""Sampling: a beat without drift, a window that grows, Ctrl-C that keeps what there is. The clock is turned by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from pdctl.gather import Gatherer
from pdctl.model.answer import Answer, Fact, Missed, Seen, Why
from pdctl.model.ask import CommandAsk, HttpAsk
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics
from pdctl.reach.clock import EPOCH, Clock, FakeClock, SystemClock
from pdctl.sample import SamplePlan, Sampling, Snapshot, next_beat, sample

CLUSTER = Cluster(
    "test",
    (
        Instance("prefill-0", Role.PREFILL, "http://127.0.0.1:1000"),
        Instance("decode-0", Role.DECODE, "http://127.0.0.1:2000"),
        Instance("router-0", Role.ROUTER, "http://127.0.0.1:3000", "http://127.0.0.1:3001/metrics"),
    ),
)
PAGE = b'# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs{engine_type="prefill",model_name="m"} 3.0\n'
METRICS = {Role.PREFILL: (Fact.METRICS,), Role.DECODE: (Fact.METRICS,)}


@dataclass
class Door:
    """Answers every HTTP ask with a page, after what ``script`` does; notes when each was asked."""

    clock: Clock
    script: Callable[[HttpAsk | CommandAsk], object] = lambda ask: None
    asked: list[tuple[float, str, Fact]] = field(default_factory=list)

    def answer(self, ask: HttpAsk | CommandAsk, *, started: float, deadline: float) -> Answer:
        begun = self.clock.now()
        self.asked.append((begun - started, ask.subject, ask.fact))
        self.script(ask)
        now = self.clock.now()
        return Answer(ask.subject, ask.fact, str(ask), now - started, self.clock.wall(), now - begun, 200, body=PAGE)

    run = answer

    def times(self, subject: str, fact: Fact = Fact.METRICS) -> list[float]:
        return [round(at, 6) for at, name, what in self.asked if (name, what) == (subject, fact)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=500.0)


def sampling(door: Door, plan: SamplePlan, **more: object) -> Iterator[Sampling]:
    with Gatherer(CLUSTER, clock=door.clock, http=door, commands=door) as gatherer:
        yield sample(gatherer, plan, clock=door.clock, **more)  # type: ignore[arg-type]


# --- the beat ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elapsed", "last", "expected"),
    [
        (0.0, 0, 1),  # just begun
        (0.9, 0, 1),  # in good time
        (1.0, 0, 1),  # on the beat
        (1.09, 0, 1),  # a little late: still taken
        (1.2, 0, 2),  # too late for 1
        (5.05, 0, 5),  # 1 to 4 are gone, 5 is on time
        (5.5, 0, 6),  # 1 to 5 are gone
        (5.05, 5, 6),  # 5 was taken already
        (2.0, 7, 8),  # a clock that stood still never repeats a round
    ],
)
def test_next_beat(elapsed: float, last: int, expected: int) -> None:
    assert next_beat(elapsed, 1.0, last) == expected


def test_rounds_are_due_at_multiples_whatever_each_took(clock: FakeClock) -> None:
    took = iter([0.3, 0.9, 0.05, 0.6, 0.0, 0.31, 0.31, 0.31])
    door = Door(clock, lambda ask: clock.advance(next(took)) if ask.subject == "prefill-0" else None)
    plan = SamplePlan(2.0, count=8, facts={Role.PREFILL: (Fact.METRICS,)})
    for made in sampling(door, plan):
        assert len(list(made)) == 8
    assert door.times("prefill-0") == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]


def test_missed_beats_are_left_out_and_not_made_up_for(clock: FakeClock) -> None:
    took = iter([0.0, 3.7, 0.0, 0.0])
    door = Door(clock, lambda ask: clock.advance(next(took)))
    for made in sampling(door, SamplePlan(1.0, count=4, facts={Role.PREFILL: (Fact.METRICS,)})):
        list(made)
    #                              asked at 1, done at 4.7: beats 2, 3 and 4 are gone; slow, so beat 5 is let pass, too
    assert door.times("prefill-0") == [0.0, 1.0, 6.0]


@pytest.mark.parametrize(
    ("plan", "rounds"),
    [
        (SamplePlan(2.0, seconds=10.0), 6),
        (SamplePlan(2.0, seconds=9.9), 5),
        (SamplePlan(2.0, seconds=10.0, count=3), 3),
        (SamplePlan(2.0, seconds=1.0), 1),
        (SamplePlan(2.0, count=1), 1),
        (SamplePlan(0.1, seconds=0.3), 4),
        (SamplePlan(2.0, seconds=10.0, deadline_s=5.0), 3),
    ],
)
def test_how_many_rounds_a_plan_has(clock: FakeClock, plan: SamplePlan, rounds: int) -> None:
    for made in sampling(Door(clock), plan):
        windows = list(made)
        assert (len(windows), made.rounds) == (rounds, rounds)


def test_without_an_end_it_goes_on_until_stopped(clock: FakeClock) -> None:
    plan = SamplePlan(1.0, facts=METRICS)
    for made in sampling(Door(clock), plan, stop=lambda window: window.samples() >= 5):
        assert [window.samples() for window in made] == [1, 2, 3, 4, 5]


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_what_is_asked_first_each_time_and_last(clock: FakeClock) -> None:
    door = Door(clock)
    log = CommandAsk("prefill-0", Fact.LOG, "host", ("journalctl",))
    sockets = CommandAsk("host:host", Fact.SOCKETS, "host", ("ss", "-tan"))
    plan = SamplePlan(
        1.0,
        count=3,
        facts={**METRICS, Role.ROUTER: (Fact.METRICS,)},
        first={Role.PREFILL: (Fact.SERVER_INFO,), Role.ROUTER: (Fact.WORKERS,)},
        last={Role.PREFILL: (Fact.HEALTH,)},
        each_asks=(sockets,),
        first_asks=(log,),
        last_asks=(log,),
    )
    for made in sampling(door, plan):
        list(made)
    for name in ("prefill-0", "decode-0", "router-0"):
        assert door.times(name) == [0.0, 1.0, 2.0]
    assert door.times("prefill-0", Fact.SERVER_INFO) == [0.0]
    assert door.times("router-0", Fact.WORKERS) == [0.0]
    assert door.times("prefill-0", Fact.HEALTH) == [2.0]
    assert door.times("prefill-0", Fact.LOG) == [0.0, 2.0]
    assert door.times("host:host", Fact.SOCKETS) == [0.0, 1.0, 2.0]


def test_metrics_are_asked_before_what_disturbs_them(clock: FakeClock) -> None:
    door = Door(clock)
    plan = SamplePlan(
        1.0,
        count=1,
        facts={Role.PREFILL: (Fact.HEALTH, Fact.LOADS, Fact.METRICS)},
        first={Role.PREFILL: (Fact.SERVER_INFO,)},
    )
    for made in sampling(door, plan):
        list(made)
    assert [fact for _, _, fact in door.asked] == [Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO, Fact.HEALTH]


def test_how_long_one_answer_may_take(clock: FakeClock) -> None:
    asks: list[HttpAsk] = []

    def note(ask: HttpAsk | CommandAsk) -> None:
        assert isinstance(ask, HttpAsk)
        asks.append(ask)

    facts = {Role.PREFILL: (Fact.METRICS, Fact.HEALTH)}
    for made in sampling(Door(clock, note), SamplePlan(1.0, count=1, facts=facts, timeout_s=1.5)):
        list(made)
    assert [(ask.fact, ask.timeout) for ask in asks] == [(Fact.METRICS, 1.5), (Fact.HEALTH, 25.0)]


def test_the_host_that_carries_an_instance(clock: FakeClock) -> None:
    ways: dict[str, str | None] = {}

    def note(ask: HttpAsk | CommandAsk) -> None:
        assert isinstance(ask, HttpAsk)
        ways[ask.subject] = ask.via

    for made in sampling(Door(clock, note), SamplePlan(1.0, count=1, facts=METRICS, via={"decode-0": "node-1"})):
        list(made)
    assert ways == {"prefill-0": None, "decode-0": "node-1"}


# --- the window -------------------------------------------------------------------------------------------------------


def test_the_window_grows_and_holds_what_was_read(clock: FakeClock) -> None:
    snapshots: list[Snapshot] = []
    for made in sampling(Door(clock), SamplePlan(2.0, count=3, facts=METRICS), on_round=snapshots.append):
        windows = list(made)
    last = windows[-1]
    assert [len(window.observations) for window in windows] == [2, 4, 6]
    assert [len(snapshot) for snapshot in snapshots] == [2, 2, 2]
    assert (last.start, last.end, last.live, last.note) == (EPOCH, EPOCH + timedelta(seconds=4), True, None)
    assert [at.t for at in last.seen("prefill-0", Fact.METRICS, EngineMetrics)] == [0.0, 2.0, 4.0]
    assert all(isinstance(seen.got, Seen) for seen in last.observations)
    assert len(made.window.observations) == 6


def test_an_answer_that_takes_longer_than_a_beat_comes_later_and_delays_nobody() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if ask.subject == "prefill-0":
            over.wait(20)

    door = Door(SystemClock(), script)
    for made in sampling(door, SamplePlan(0.1, count=6, facts=METRICS)):
        for window in made:
            assert window.missed("prefill-0", Fact.METRICS) == ()
            if made.rounds == 4:
                over.set()
    assert len(made.window.timeline("decode-0", Fact.METRICS)) == 6
    assert 1 <= len(made.window.timeline("prefill-0", Fact.METRICS)) <= 3


def test_what_never_comes_is_missed_in_the_end() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if ask.subject == "prefill-0":
            over.wait(20)

    plan = SamplePlan(0.1, count=3, facts=METRICS, deadline_s=0.5)
    for made in sampling(Door(SystemClock(), script), plan):
        window = list(made)[-1]
        over.set()
    (missed,) = window.missed("prefill-0", Fact.METRICS)
    assert isinstance(missed.got, Missed)
    assert missed.got.why is Why.READ_TIMEOUT
    assert len(window.timeline("decode-0", Fact.METRICS)) == 3


def test_what_is_asked_last_of_one_that_hangs_has_an_answer_too_and_all_of_it_is_recorded() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if ask.subject == "prefill-0":
            over.wait(20)

    heard: list[Answer] = []
    door = Door(SystemClock(), script)
    plan = SamplePlan(0.1, facts=METRICS, last={Role.PREFILL: (Fact.SERVER_INFO,)}, deadline_s=2.0)
    with Gatherer(CLUSTER, clock=door.clock, http=door, on_answer=heard.append) as gatherer:
        made = sample(gatherer, plan, clock=door.clock, stop=lambda window: made.rounds == 2)
        window = list(made)[-1]
        over.set()
    assert len(window.missed("prefill-0", Fact.METRICS)) == 1
    (last,) = window.missed("prefill-0", Fact.SERVER_INFO)
    assert isinstance(last.got, Missed)
    assert "still under way" in last.got.detail
    assert len(heard) == len(window.observations)


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_waiting_ends_it_and_keeps_the_window(clock: FakeClock) -> None:
    class Pressed(FakeClock):
        def sleep(self, seconds: float) -> None:
            if self.now() > 503:
                raise KeyboardInterrupt
            super().sleep(seconds)

    for made in sampling(Door(Pressed(500.0)), SamplePlan(2.0, facts=METRICS)):
        windows = list(made)
    assert made.interrupted
    assert windows[-1].samples() == 3
    assert made.window.samples() == 3


def test_ctrl_c_while_answers_arrive(clock: FakeClock) -> None:
    def press(snapshot: Snapshot) -> None:
        if made.rounds == 2 and not made.interrupted:
            raise KeyboardInterrupt

    for made in sampling(Door(clock), SamplePlan(2.0, facts=METRICS), on_round=press):
        windows = list(made)
    assert made.interrupted
    assert len(windows[-1].observations) == 4


def test_ctrl_c_in_the_one_who_iterates_leaves_a_usable_window(clock: FakeClock) -> None:
    for made in sampling(Door(clock), SamplePlan(2.0, facts=METRICS)):
        with pytest.raises(KeyboardInterrupt):
            for window in made:
                if window.samples() == 2:
                    raise KeyboardInterrupt
        assert made.window.samples() == 2


def test_before_the_first_round_the_window_is_empty(clock: FakeClock) -> None:
    for made in sampling(Door(clock), SamplePlan(2.0, facts=METRICS)):
        assert made.window.observations == ()
