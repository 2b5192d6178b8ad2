"""Waiting for an instance to be back: what counts, what does not, and how each wait ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.engine import EngineMetrics, Health, ServerInfo
from pdctl.model.host import Unit
from pdctl.model.plan import Identity
from pdctl.model.probe import Attempt
from pdctl.model.router import Worker, Workers
from pdctl.plans.unit_words import state_of
from pdctl.plans.waiting import ENGINE, LOST, ROUTER, Expected, Phase, Sight, Waiting
from pdctl.plans.workers import missing_workers

AT = datetime(2026, 11, 30, tzinfo=UTC)
OLD, NEW, NEWER = (Identity(n, AT + timedelta(minutes=n), f"run{n}") for n in (1, 2, 3))
GOOD = Attempt("x", status=200)


def unit(active: str = "active", sub: str = "running", **properties: str) -> Unit:
    restarts = int(properties.get("NRestarts", "0"))
    return Unit(properties, restarts, None, active, sub, None, properties.get("Result", "success"))


def said(fact: Fact, value: object) -> dict[Fact, Observation[object]]:
    got = value if isinstance(value, Missed) else Seen(value)
    return {fact: Observation("x", fact, 0.0, AT, 0.1, "GET", got, 200)}


HEALTHY = said(Fact.HEALTH, Health(200, 1.0))
PAGE = said(Fact.METRICS, EngineMetrics({}))
INFO = said(Fact.SERVER_INFO, ServerInfo("0.5.19"))


def engine(**about: object) -> Waiting:
    expected = replace(Expected("x", ENGINE, OLD, 100.0, 60.0), **about)  # type: ignore[arg-type]
    return Waiting(expected, 0.0)


def see(waiting: Waiting, *sights: Sight) -> Waiting:
    for sight in sights:
        waiting = waiting.after(sight)
    return waiting


def there(at: float, who: Identity = NEW, http: dict[Fact, Observation[object]] | None = None, **more: object) -> Sight:
    return Sight(at, (who,), unit=unit(), http=http or {}, **more)  # type: ignore[arg-type]


def test_from_the_old_process_to_ready() -> None:
    waiting = engine()
    assert waiting.wants is None
    waiting = see(waiting, there(1, OLD), Sight(5, (), unit=unit("activating", "start", Job="7")), there(6))
    assert waiting.phase is Phase.HEALTH and waiting.wants is Fact.HEALTH and waiting.born == NEW
    waiting = see(waiting, there(7, http=HEALTHY))
    assert waiting.wants is Fact.METRICS
    waiting = see(waiting, there(8, http=PAGE), there(9, http=INFO))
    assert waiting.phase is Phase.GENERATION and waiting.wants is None and waiting.version == "0.5.19"
    waiting = waiting.generated(GOOD, 12)
    assert waiting.phase is Phase.READY and waiting.is_over and waiting.failed is None
    assert dict(waiting.passed) == {
        "the old process to end": 5, "a new process": 1, "health": 1, "metrics": 1, "version": 1, "a generation": 3
    }  # fmt: skip


def test_what_the_old_process_answers_counts_for_nothing() -> None:
    waiting = see(engine(), there(1, OLD, HEALTHY), there(2, OLD, PAGE))
    assert waiting.phase is Phase.STOP and waiting.passed == ()
    assert waiting.generated(GOOD, 3) == waiting


def test_no_point_is_passed_by_an_answer_to_another() -> None:
    waiting = see(engine(), there(1))
    assert see(waiting, there(2, http=PAGE), there(3, http=INFO)).phase is Phase.HEALTH
    assert waiting.generated(GOOD, 4).phase is Phase.HEALTH


@pytest.mark.parametrize(
    "answer",
    [
        Health(503, 0.1),
        Missed(Why.CONNECT_REFUSED),
        Missed(Why.READ_TIMEOUT, "no answer in 5 s"),
        Missed(Why.NOT_FOUND),
    ],
)
def test_health_that_is_none_is_waited_for_until_the_time_is_over(answer: object) -> None:
    waiting = see(engine(), there(1), *(there(t, http=said(Fact.HEALTH, answer)) for t in range(2, 61)))
    assert waiting.phase is Phase.HEALTH and not waiting.is_over
    waiting = see(waiting, there(63, http=said(Fact.HEALTH, answer)))
    assert waiting.failed is not None and "still waiting for health" in waiting.failed


# --- the process ------------------------------------------------------------------------------------------------------


def test_the_time_to_be_ready_begins_when_the_old_process_is_gone() -> None:
    stopping = unit("deactivating", "stop-sigterm", Job="7")
    waiting = see(engine(), *(Sight(t, (OLD,), unit=stopping) for t in range(1, 90)), there(90))
    assert waiting.failed is None
    assert see(waiting, there(149)).failed is None
    assert see(waiting, there(151)).failed is not None


def test_an_old_process_that_stays_is_a_failure_in_time() -> None:
    stopping = unit("deactivating", "stop-sigterm", Job="7")
    waiting = see(engine(), *(Sight(t, (OLD,), unit=stopping) for t in (1, 50, 99)))
    assert waiting.failed is None
    waiting = waiting.after(Sight(101, (OLD,), unit=stopping))
    assert waiting.failed == "the old process is still there after 101 s (deactivating (stop-sigterm))"


def test_a_process_that_systemd_is_about_to_end_is_not_the_new_one() -> None:
    """Of a unit that fails and is started again and again: nobody knows which process the restart found."""
    pending, stopping = unit("active", "running", Job="7"), unit("deactivating", "stop-sigterm", Job="7")
    for old in (None, OLD):
        waiting = see(engine(old=old), Sight(0.1, (NEW,), unit=pending), Sight(1, (NEW,), unit=stopping))
        assert waiting.phase is Phase.STOP and waiting.born is None
        waiting = see(waiting, there(2, NEWER))
        assert waiting.born == NEWER and waiting.failed is None
    by_command = see(engine(old=None, told_systemd=False), Sight(1, (NEW,), unit=stopping))
    assert by_command.born == NEW, "a command of the inventory's own is none of systemd's jobs"


def test_systemd_that_gave_the_restart_up_is_noticed() -> None:
    waiting = see(engine(), *(there(t, OLD) for t in (1, 5, 11)))
    assert waiting.failed is not None and "given up" in waiting.failed
    assert see(engine(told_systemd=False), *(there(t, OLD) for t in (1, 5, 11, 20))).failed is None


def test_one_look_between_two_jobs_is_no_giving_up() -> None:
    stopping = unit("deactivating", "stop-sigterm", Job="7")
    waiting = see(
        engine(), Sight(11, (OLD,), unit=stopping), there(12, OLD), Sight(13, (OLD,), unit=stopping), there(14)
    )
    assert waiting.failed is None and waiting.born == NEW


EXITED = unit("failed", "failed", Result="exit-code", ExecMainStatus="1", ExecMainCode="1")
KILLED = unit("activating", "auto-restart", Result="signal", ExecMainStatus="9", ExecMainCode="2", NRestarts="3")


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (EXITED, "it did not start: failed (failed), result exit-code, exit status 1"),
        (unit("inactive", "dead"), "it did not start: inactive (dead)"),
        (KILLED, "activating (auto-restart), result signal, signal 9, started again by systemd 3 times"),
    ],
)
def test_a_unit_that_does_not_start_fails_at_once(state: Unit, says: str) -> None:
    waiting = see(engine(), there(1, OLD), Sight(2, (), unit=state))
    assert waiting.failed is None, "one look may be between two states"
    waiting = waiting.after(Sight(3, (), unit=state))
    assert waiting.failed is not None and waiting.failed.endswith(says), waiting.failed


def test_a_unit_systemd_is_still_at_is_waited_for() -> None:
    state = unit("failed", "failed", Job="9")
    assert see(engine(), *(Sight(t, (), unit=state) for t in (1, 2, 3, 4))).failed is None


def test_a_new_process_that_dies_has_failed_however_ready_it_was() -> None:
    waiting = see(engine(), there(1), there(2, http=HEALTHY), there(3, http=PAGE), there(4, http=INFO))
    assert waiting.phase is Phase.GENERATION
    dead = see(waiting, *(Sight(t, (), unit=unit("failed", "failed", Result="signal")) for t in (21, 22)))
    assert dead.failed == "the new process died 21 s after it had started: failed (failed), result signal"
    other = waiting.after(there(25, NEWER))
    assert other.failed is not None and "died 24 s after it had started, and another came" in other.failed


def test_a_program_without_a_unit_may_put_another_in_its_place_at_first() -> None:
    waiting = see(engine(has_unit=False, told_systemd=False), Sight(1, (NEW,)), Sight(3, (NEWER,)))
    assert waiting.failed is None and waiting.born == NEWER
    waiting = see(engine(has_unit=False, told_systemd=False), Sight(1, (NEW,)), Sight(30, (NEWER,)))
    assert waiting.failed is not None


def test_a_program_without_a_unit_that_dies_has_failed() -> None:
    waiting = see(engine(has_unit=False), Sight(1, (NEW,)), Sight(2, ()), Sight(3, ()))
    assert waiting.failed == "the new process died 2 s after it had started"
    slow = see(engine(has_unit=False), *(Sight(t, ()) for t in range(1, 60)))
    assert slow.failed is None, "one that was never there may yet come"


def test_a_restart_command_that_fails_ends_the_wait() -> None:
    for present in ((OLD,), ()):
        sights = [Sight(t, present, job_status=4, job_said="a\ndisk quota exceeded\n") for t in (1, 2)]
        waiting = see(engine(told_systemd=False), *sights)
        assert waiting.failed == "the restart command ended with status 4: disk quota exceeded"


def test_while_its_command_runs_a_stopped_unit_is_no_failure() -> None:
    down = unit("inactive", "dead")
    waiting = see(engine(told_systemd=False), *(Sight(t, (), unit=down, job_runs=True) for t in range(1, 30)))
    assert waiting.failed is None
    waiting = see(waiting, *(Sight(t, (), unit=down, job_status=0) for t in (30, 31)))
    assert waiting.failed is not None


def test_a_host_that_is_silent_is_given_up_in_time_and_a_gap_is_not() -> None:
    waiting = see(engine(), there(1, OLD), *(Sight(t, None, "no route") for t in (2, 30, 61)))
    assert waiting.failed is None
    assert see(waiting, there(62), Sight(63, None, "no route")).failed is None, "seen again: counted anew"
    waiting = waiting.after(Sight(2 + LOST, None, "no route"))
    assert waiting.failed == "could not be seen for 60 s (no route): how it stands is not known"


# --- what it answers --------------------------------------------------------------------------------------------------


def test_what_it_never_served_is_left_out_and_said() -> None:
    waiting = engine(left_out={Phase.METRICS: "it serves none"})
    waiting = see(waiting, there(1), there(2, http=HEALTHY))
    assert waiting.phase is Phase.VERSION and waiting.told == ("metrics not checked: it serves none",)


def test_an_instance_that_says_nothing_over_http_is_ready_with_its_process_and_that_is_said() -> None:
    silent = dict.fromkeys((Phase.HEALTH, Phase.METRICS, Phase.VERSION, Phase.GENERATION), "the inventory names no url")
    waiting = see(engine(left_out=silent), there(1))
    assert waiting.phase is Phase.READY and len(waiting.notes) == 4


def test_what_is_refused_and_was_not_known_before_is_left_out() -> None:
    refused = said(Fact.METRICS, Missed(Why.METRICS_DISABLED, "HTTP 404"))
    waiting = see(engine(), there(1), there(2, http=HEALTHY), there(3, http=refused))
    assert waiting.phase is Phase.VERSION and "metrics not checked: metrics-disabled: HTTP 404" in waiting.told


def test_what_was_answered_before_and_is_refused_now_is_a_failure() -> None:
    refused = said(Fact.METRICS, Missed(Why.METRICS_DISABLED, "HTTP 404"))
    waiting = see(engine(answered=frozenset({"metrics"})), there(1), there(2, http=HEALTHY), there(3, http=refused))
    assert waiting.phase is Phase.METRICS and waiting.failed is None
    waiting = see(waiting, there(40, http=refused))
    assert waiting.failed is not None and "answered metrics before the restart and refuses it now" in waiting.failed


def test_a_generation_that_fails_is_tried_again_until_the_time_is_over() -> None:
    waiting = see(engine(), there(1), there(2, http=HEALTHY), there(3, http=PAGE), there(4, http=INFO))
    bad = waiting.generated(Attempt("x", status=500, detail="no worker"), 5)
    assert bad.phase is Phase.GENERATION and bad.matter == "status 500: no worker"
    late = bad.generated(Attempt("x", error="read-timeout"), 70)
    assert late.failed == "not ready after 69 s: still waiting for a generation (read-timeout)"
    assert bad.generated(GOOD, 6).phase is Phase.READY


def test_a_router_must_list_its_workers() -> None:
    urls = ("http://10.0.0.1:30000", "http://10.0.0.2:30000")
    waiting = Waiting(Expected("r", ROUTER, OLD, 100.0, 60.0, workers=urls, exact=True), 0.0)
    waiting = see(waiting, there(1), there(2, http=HEALTHY), there(3, http=PAGE))
    one = said(Fact.WORKERS, Workers((Worker(urls[0], "prefill", True),)))
    waiting = see(waiting, there(4, http=one))
    assert waiting.phase is Phase.WORKERS and waiting.matter == f"not registered: {urls[1]}"
    both = said(Fact.WORKERS, Workers(tuple(Worker(u, None, True) for u in urls)))
    assert see(waiting, there(5, http=both)).phase is Phase.GENERATION


@pytest.mark.parametrize(
    ("listed", "wanted", "exact", "missing"),
    [
        (["http://A:1/"], ["http://a:1"], True, ""),
        (["http://a"], ["http://a:80/"], True, ""),
        (["https://a"], ["http://a:443"], True, "not registered: http://a:443"),
        (["http://x:1", "http://y:1"], ["http://127.0.0.1:1", "http://127.0.0.1:2"], False, ""),
        (["http://x:1"], ["http://127.0.0.1:1", "http://127.0.0.1:2"], False, "not registered: 1 of 2"),
        (["http://a:1"], ["http://a:1", "http://b:1"], False, "not registered: http://b:1"),
        ([], ["http://a:1"], True, "not registered: http://a:1"),
        ([], [], True, ""),
    ],
)
def test_workers_are_compared_by_address(listed: list[str], wanted: list[str], exact: bool, missing: str) -> None:
    workers = Workers(tuple(Worker(url, None, True) for url in listed))
    assert missing_workers(workers, tuple(wanted), exact) == missing


def test_a_worker_called_sick_is_not_enough() -> None:
    workers = Workers((Worker("http://a:1", None, False), Worker("http://b:1", None, None)))
    assert missing_workers(workers, ("http://a:1", "http://b:1"), True) == "not healthy: http://a:1"


def test_nothing_moves_once_it_is_over() -> None:
    failed = see(engine(), *(there(t, OLD) for t in (1, 5, 11)))
    assert failed.after(there(12)) == failed and failed.generated(GOOD, 13) == failed


# --- which process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Identity(1, AT, "a"), Identity(1, AT + timedelta(hours=1), "a"), True),
        (Identity(1, AT, "a"), Identity(1, AT, "b"), False),
        (Identity(1, AT), Identity(1, AT + timedelta(seconds=1)), True),
        (Identity(1, AT), Identity(1, AT + timedelta(seconds=5)), False),
        (Identity(1), Identity(1, AT), True),
        (Identity(1, AT), Identity(2, AT), False),
        (Identity(0, AT, "a"), Identity(0, AT, "b"), False),
        (Identity(1), None, False),
    ],
)
def test_a_number_that_came_again_is_another_process(one: Identity, other: Identity | None, same: bool) -> None:
    assert one.is_same(other) is same


def test_a_state_is_told_in_systemds_words() -> None:
    assert state_of(unit("active", "running")) == "active (running)"
