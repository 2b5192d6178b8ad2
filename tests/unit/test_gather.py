"""Gathering: every ask answered, one request a place, slow places asked less often. No network: doors are scripted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from pdctl.facts.asks import LOADS_PATH
from pdctl.gather import Gatherer
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import CommandAsk, HttpAsk
from pdctl.model.cluster import Cluster
from pdctl.reach.clock import EPOCH, Clock, FakeClock, SystemClock

NOBODY = Cluster("test", ())
LONG = 30.0  # seconds: a deadline no test reaches unless something is broken


@dataclass
class Door:
    """Answers HTTP asks and commands as ``script`` says, and notes what was under way at once."""

    clock: Clock
    script: Callable[[HttpAsk | CommandAsk], Answer | None] = lambda ask: None
    asked: list[HttpAsk | CommandAsk] = field(default_factory=list)
    under_way: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, ask: HttpAsk | CommandAsk, *, started: float, deadline: float) -> Answer:
        place = ask.url.split("/")[2] if isinstance(ask, HttpAsk) else ask.host
        with self.lock:
            self.asked.append(ask)
            self.under_way[place] = self.under_way.get(place, 0) + 1
            self.most[place] = max(self.most.get(place, 0), self.under_way[place])
        begun = self.clock.now()
        try:
            return self.script(ask) or self.good(ask, started, begun)
        finally:
            with self.lock:
                self.under_way[place] -= 1

    run = answer

    def good(self, ask: HttpAsk | CommandAsk, started: float, begun: float) -> Answer:
        now = self.clock.now()
        return Answer(
            ask.subject, ask.fact, str(ask), now - started, self.clock.wall(), now - begun, 200, body=b"x 1\n"
        )


def http(number: int, fact: Fact = Fact.METRICS, path: str = "/metrics") -> HttpAsk:
    return HttpAsk(f"engine-{number}", fact, f"http://127.0.0.1:{3000 + number}{path}")


@contextmanager
def gathering(door: Door, **more: object) -> Iterator[Gatherer]:
    with Gatherer(NOBODY, clock=door.clock, http=door, commands=door, **more) as made:  # type: ignore[arg-type]
        yield made


# --- every ask has an answer ------------------------------------------------------------------------------------------


def test_every_ask_of_every_kind_is_answered() -> None:
    asks = [http(n, fact) for n in range(40) for fact in (Fact.METRICS, Fact.LOADS)]
    commands = [CommandAsk(f"host:{n}", Fact.SOCKETS, str(n), ("ss", "-tan")) for n in range(5)]
    with gathering(Door(SystemClock())) as gatherer:
        answers = gatherer.gather([*asks, *commands], LONG)
    assert sorted((a.subject, a.fact) for a in answers) == sorted((a.subject, a.fact) for a in [*asks, *commands])
    assert all(answer.error is None for answer in answers)


def test_answers_come_in_the_order_of_their_completion_and_reach_the_listener_as_they_come() -> None:
    first_done = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if ask.subject == "engine-0":
            assert first_done.wait(LONG)

    heard: list[str] = []

    def on_answer(answer: Answer) -> None:
        heard.append(answer.subject)
        first_done.set()

    with gathering(Door(SystemClock(), script), on_answer=on_answer) as gatherer:
        answers = gatherer.gather([http(0), http(1)], LONG)
    assert [a.subject for a in answers] == heard == ["engine-1", "engine-0"]


def test_a_door_that_fails_is_an_answer_too() -> None:
    def script(ask: HttpAsk | CommandAsk) -> None:
        raise RuntimeError("the door fell off")

    with gathering(Door(SystemClock(), script)) as gatherer:
        (answer,) = gatherer.gather([http(0)], LONG)
    assert (answer.status, answer.error, answer.detail) == (None, Why.OTHER, "RuntimeError: the door fell off")


def test_a_command_with_nothing_to_carry_it_says_so() -> None:
    with Gatherer(NOBODY, clock=SystemClock()) as gatherer:
        (answer,) = gatherer.gather([CommandAsk("host:a", Fact.SOCKETS, "a", ("ss",))], LONG)
    assert answer.error is Why.OTHER
    assert "no way to run commands on a" in (answer.detail or "")


def test_nothing_to_ask() -> None:
    with gathering(Door(SystemClock())) as gatherer:
        assert gatherer.gather([], LONG) == ()


def test_times_count_from_the_start_of_the_window() -> None:
    clock = FakeClock(start=1000.0)

    def script(ask: HttpAsk | CommandAsk) -> None:
        clock.advance(2.5)

    with gathering(Door(clock, script)) as gatherer:
        (first,) = gatherer.gather([http(0)], LONG)
        clock.advance(7.5)
        (second,) = gatherer.gather([http(1)], LONG)
    assert (first.t, first.took) == (2.5, 2.5)
    assert (second.t, second.took) == (12.5, 2.5)
    assert gatherer.started_at == EPOCH
    assert second.at == EPOCH + timedelta(seconds=12.5)


# --- one request a place ----------------------------------------------------------------------------------------------


def test_one_place_is_asked_one_thing_at_a_time_in_the_order_given() -> None:
    facts = [Fact.METRICS, Fact.LOADS, Fact.WORKERS, Fact.SERVER_INFO, Fact.HEALTH]
    asks = [http(n, fact) for fact in facts for n in range(3)]
    door = Door(SystemClock())
    with gathering(door) as gatherer:
        gatherer.gather(asks, LONG)
    assert set(door.most.values()) == {1}
    for n in range(3):
        assert [ask.fact for ask in door.asked if ask.subject == f"engine-{n}"] == facts


def test_all_places_are_asked_at_once() -> None:
    everyone = threading.Barrier(100)
    with gathering(Door(SystemClock(), lambda ask: everyone.wait(LONG) and None)) as gatherer:
        answers = gatherer.gather([http(n) for n in range(100)], LONG)
    assert [answer.error for answer in answers] == [None] * 100


def test_places_that_hang_do_not_hold_back_the_others() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if int(ask.subject.removeprefix("engine-")) < 20:
            over.wait(LONG)

    with gathering(Door(SystemClock(), script), parallel=4) as gatherer:
        gatherer.begin([http(n) for n in range(30)], gatherer.clock.now() + LONG)
        came = gatherer.collect(gatherer.clock.now() + LONG)
        names = {next(came).subject for _ in range(10)}
        over.set()
        assert names == {f"engine-{n}" for n in range(20, 30)}
        assert len(list(came)) == 20


def test_commands_of_one_host_run_a_few_at_once() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if isinstance(ask, CommandAsk) and ask.argv == ("hangs",):
            over.wait(LONG)

    door = Door(SystemClock(), script)
    asks = [CommandAsk("host:a", Fact.FILE, "a", ("hangs",) if n == 0 else (f"cat{n}",)) for n in range(9)]
    with gathering(door) as gatherer:
        gatherer.begin(asks, gatherer.clock.now() + LONG)
        came = gatherer.collect(gatherer.clock.now() + LONG)
        six = [next(came).ask for _ in range(6)]
        over.set()
        assert len(list(came)) == 3
    assert "hangs" not in six
    assert door.most["a"] <= 4


# --- deadlines --------------------------------------------------------------------------------------------------------


def test_what_is_late_is_cut_and_what_came_is_kept() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if ask.subject == "engine-0":
            over.wait(LONG)

    with gathering(Door(SystemClock(), script)) as gatherer:
        answers = {(a.subject, a.fact): a for a in gatherer.gather([http(0), http(0, Fact.LOADS), http(1)], 0.3)}
        over.set()
    hung, never, good = (
        answers[("engine-0", Fact.METRICS)],
        answers[("engine-0", Fact.LOADS)],
        answers[("engine-1", Fact.METRICS)],
    )
    assert good.error is None
    assert (hung.status, hung.error, hung.body) == (None, Why.READ_TIMEOUT, None)
    assert "deadline of the whole run" in (hung.detail or "")
    assert hung.took >= 0.3
    assert (never.error, never.detail) == (Why.READ_TIMEOUT, "not asked: deadline of the whole run")


def test_nothing_is_asked_after_the_deadline() -> None:
    clock = FakeClock()
    door = Door(clock, lambda ask: clock.advance(10.0))
    with gathering(door) as gatherer:
        answers = gatherer.gather([http(0), http(0, Fact.LOADS)], 5.0)
    assert len(door.asked) == 1
    assert [a.error for a in answers if a.fact is Fact.LOADS] == [Why.READ_TIMEOUT]


def test_a_request_that_still_hangs_is_not_doubled_and_is_reported() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if ask.subject == "engine-0":
            over.wait(LONG)

    door = Door(SystemClock(), script)
    with gathering(door) as gatherer:
        gatherer.gather([http(0), http(1)], 0.05)
        second = {a.subject: a for a in gatherer.gather([http(0), http(1)], 1.0)}
        assert set(gatherer.backing_off()) == {"engine-0 metrics"}
        over.set()
    assert door.most["127.0.0.1:3000"] == 1
    assert second["engine-1"].error is None
    assert second["engine-0"].error is Why.READ_TIMEOUT
    assert "still under way" in (second["engine-0"].detail or "")


def test_a_place_that_came_free_is_asked_again() -> None:
    over = threading.Event()
    turns: list[int] = []

    def script(ask: HttpAsk | CommandAsk) -> None:
        turns.append(1)
        if len(turns) == 1:
            over.wait(LONG)

    door = Door(SystemClock(), script)
    with gathering(door) as gatherer:
        assert gatherer.gather([http(0)], 0.05)[0].error is Why.READ_TIMEOUT
        over.set()
        while door.under_way["127.0.0.1:3000"]:
            gatherer.clock.sleep(0.01)
        gatherer.clock.sleep(0.05)
        assert gatherer.gather([http(0)], LONG)[0].error is None


def test_a_late_answer_is_not_given_twice() -> None:
    over = threading.Event()
    heard: list[Answer] = []
    door = Door(SystemClock(), lambda ask: over.wait(LONG) and None)
    with gathering(door, on_answer=heard.append) as gatherer:
        gatherer.gather([http(0)], 0.05)
        over.set()
        gatherer.clock.sleep(0.1)
        gatherer.gather([], 0.2)
    assert [a.error for a in heard] == [Why.READ_TIMEOUT]


def test_an_answer_that_misses_its_round_comes_in_a_later_one() -> None:
    over = threading.Event()

    def script(ask: HttpAsk | CommandAsk) -> None:
        if ask.subject == "engine-0":
            over.wait(LONG)

    with gathering(Door(SystemClock(), script)) as gatherer:
        now = gatherer.clock.now()
        assert gatherer.begin([http(0), http(1)], now + LONG) == ()
        assert [a.subject for a in gatherer.collect(now + 0.2)] == ["engine-1"]
        assert gatherer.begin([http(0), http(1)], now + LONG) == (http(0),)
        over.set()
        assert sorted(a.subject for a in gatherer.collect(now + LONG)) == ["engine-0", "engine-1"]


# --- back-off ---------------------------------------------------------------------------------------------------------


def test_an_endpoint_that_slows_is_left_out_ever_longer_and_comes_back() -> None:
    clock = FakeClock()
    slow = {"engine-0": 3.0}
    door = Door(clock, lambda ask: clock.advance(slow.get(ask.subject, 0.001)))
    rounds: list[bool] = []
    with gathering(door) as gatherer:
        for number in range(12):
            if number == 8:
                slow.clear()
            before = len(door.asked)
            answers = gatherer.gather([http(0)], LONG)
            assert len(answers) == len(door.asked) - before
            rounds.append(bool(answers))
            assert ("engine-0 metrics" in gatherer.backing_off()) is (number < 10)
            clock.advance(1.0)
    asked, left_out = True, False
    #      slow   1 out     slow   2 out               slow   4 out                                 quick  quick
    assert rounds[:10] == [asked, left_out, asked, left_out, left_out, asked, left_out, left_out, left_out, left_out]
    assert rounds[10:] == [asked, asked]


def test_health_takes_its_second_without_being_called_slow() -> None:
    clock = FakeClock()
    with gathering(Door(clock, lambda ask: clock.advance(1.2))) as gatherer:
        for _ in range(3):
            assert len(gatherer.gather([http(0, Fact.HEALTH)], LONG)) == 1
        assert gatherer.backing_off() == {}


# --- older names, Ctrl-C ----------------------------------------------------------------------------------------------


def test_server_info_is_asked_under_its_older_name_after_a_404() -> None:
    def script(ask: HttpAsk | CommandAsk) -> Answer | None:
        if isinstance(ask, HttpAsk) and ask.url.endswith("/server_info"):
            return Answer(ask.subject, ask.fact, str(ask), 0.0, SystemClock().wall(), 0.0, 404, body=b"")
        return None

    with gathering(Door(SystemClock(), script)) as gatherer:
        (answer,) = gatherer.gather([http(0, Fact.SERVER_INFO, "/server_info")], LONG)
    assert answer.status == 200
    assert answer.ask.endswith("/get_server_info")


@pytest.mark.parametrize(
    ("known", "paths"),
    [
        ("/get_load", ["/v1/loads?include=core,disagg,queues", "/get_load", "/get_load", "/get_load"]),
        ("", ["/v1/loads?include=core,disagg,queues", "/get_load", *["/v1/loads?include=core,disagg,queues"] * 2]),
    ],
)
def test_the_name_that_an_engine_knows_is_found_out_once(known: str, paths: list[str]) -> None:
    """Releases before 0.5.8 know live counts as /get_load, those before 0.4.9 not at all."""

    def script(ask: HttpAsk | CommandAsk) -> Answer | None:
        if isinstance(ask, HttpAsk) and not (known and ask.url.endswith(known)):
            return Answer(ask.subject, ask.fact, str(ask), 0.0, SystemClock().wall(), 0.0, 404, body=b"")
        return None

    door = Door(SystemClock(), script)
    with gathering(door) as gatherer:
        statuses = [gatherer.gather([http(0, Fact.LOADS, LOADS_PATH)], LONG)[0].status for _ in range(3)]
    assert [a.url.partition("3000")[2] for a in door.asked if isinstance(a, HttpAsk)] == paths
    assert statuses == ([200] * 3 if known else [404] * 3)


def test_ctrl_c_leaves_and_keeps_what_came() -> None:
    over = threading.Event()
    heard: list[str] = []

    def on_answer(answer: Answer) -> None:
        heard.append(answer.subject)
        raise KeyboardInterrupt

    door = Door(SystemClock(), lambda ask: over.wait(LONG) and None if ask.subject == "engine-0" else None)
    with gathering(door, on_answer=on_answer) as gatherer, pytest.raises(KeyboardInterrupt):
        gatherer.gather([http(0), http(1)], LONG)
    over.set()
    assert heard == ["engine-1"]
    assert gatherer.awaited() == 0
