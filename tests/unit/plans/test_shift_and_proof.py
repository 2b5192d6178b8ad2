"""Ground that has shifted under a plan, and the proof at its end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from ground import NOW, cluster, footing, ground, with_script

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.finding import Confidence, Finding, RuledOut, Severity, Unchecked
from pdctl.model.plan import Footing, Hold, Identity, Lock, Plan, Proven, State, StepResult, Wish
from pdctl.model.probe import Attempt
from pdctl.model.router import RouterMetrics, Worker, Workers
from pdctl.plans import proof
from pdctl.plans.restart import plan_restart
from pdctl.plans.shift import shifts_of

WHOLE = cluster()
ROUTER = WHOLE.routers[0]


def plan(**changed: Footing) -> Plan:
    return plan_restart(WHOLE, Wish(), ground(WHOLE, **changed), "run-1")


def changed(name: str, **about: object) -> Footing:
    instance = WHOLE.instance(name)
    assert instance is not None
    return replace(footing(instance), **about)  # type: ignore[arg-type]


OTHER = Identity(99, NOW)


def test_ground_that_is_as_it_was_has_not_shifted() -> None:
    assert shifts_of(WHOLE, plan(), ground(WHOLE), {}) == ()


def test_another_main_process_is_a_shift() -> None:
    (shift,) = shifts_of(WHOLE, plan(), ground(WHOLE, decode_0=changed("decode-0", process=OTHER)), {})
    assert shift.startswith("decode-0 was pid ") and "is now pid 99" in shift
    gone = changed("decode-0", process=None, state="failed (failed)")
    (shift,) = shifts_of(WHOLE, plan(), ground(WHOLE, decode_0=gone), {})
    assert shift.endswith("is now failed (failed)")
    (shift,) = shifts_of(WHOLE, plan(decode_0=gone), ground(WHOLE), {})
    assert shift.startswith("decode-0 was not running and is now pid ")


def test_a_unit_that_systemd_kept_restarting_when_the_plan_was_made_may_go_on_with_it() -> None:
    flapping = changed("decode-0", restarts=4)
    between = changed("decode-0", process=None, state="activating (auto-restart)", restarts=5)
    other = changed("decode-0", process=OTHER, restarts=5)
    for before, now in (
        (flapping, other),
        (flapping, between),
        (between, other),
        (between, replace(other, restarts=6)),
    ):
        assert shifts_of(WHOLE, plan(decode_0=before), ground(WHOLE, decode_0=now), {}) == ()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"restarts": 0}, {"restarts": 1}),  # it was well when the plan was made
        ({"restarts": 4}, {"restarts": 4}),  # another process, and not by systemd's restarting
        ({"restarts": 4}, {"restarts": 0}),  # somebody restarted it
        ({"restarts": 4}, {"restarts": None}),
    ],
)
def test_another_process_for_any_other_reason_is_a_shift(before: dict[str, int], now: dict[str, int | None]) -> None:
    made = plan(decode_0=changed("decode-0", **before))
    (shift,) = shifts_of(WHOLE, made, ground(WHOLE, decode_0=changed("decode-0", process=OTHER, **now)), {})
    assert shift.startswith("decode-0 was pid ")


def test_what_the_run_itself_changed_is_no_shift() -> None:
    now = ground(WHOLE, prefill_0=changed("prefill-0", process=OTHER), decode_0=changed("decode-0", process=OTHER))
    results = {
        "restart:prefill-0": StepResult("restart:prefill-0", State.DONE, after=OTHER),
        "restart:decode-0": StepResult("restart:decode-0", State.BEGUN),
    }
    assert shifts_of(WHOLE, plan(), now, results) == ()


def test_a_restarted_instance_that_is_another_process_since_is_a_shift() -> None:
    result = {"restart:prefill-0": StepResult("restart:prefill-0", State.DONE, after=Identity(50, NOW))}
    now = ground(WHOLE, prefill_0=changed("prefill-0", process=OTHER))
    (shift,) = shifts_of(WHOLE, plan(), now, result)
    assert "prefill-0, which was restarted and ready as pid 50" in shift


def test_a_script_that_was_changed_or_cannot_be_read_is_a_shift() -> None:
    before = plan(decode_0=with_script(changed("decode-0")))
    for about, says in (({"sha256": "bb"}, "has been changed"), ({"sha256": None, "why": "gone"}, "any more (gone)")):
        now = ground(WHOLE, decode_0=with_script(changed("decode-0"), **about))
        assert any(says in shift for shift in shifts_of(WHOLE, before, now, {}))


def test_an_inventory_that_was_changed_is_the_only_shift_told() -> None:
    now = replace(ground(WHOLE), inventory="other", footings=())
    assert shifts_of(WHOLE, plan(), now, {}) == ("the inventory has been changed",)


def test_rules_that_are_broken_since_are_shifts_and_those_forced_before_are_not() -> None:
    now = ground(WHOLE)
    full = replace(now, sites=(replace(now.sites[0], lock=Lock(Hold.UNKNOWN, why="no answer")), *now.sites[1:]))
    (shift,) = shifts_of(WHOLE, plan(), full, {})
    assert shift.startswith("other-restart: h-prefill-0:")
    forced = plan_restart(WHOLE, Wish(force=("other-restart",)), full, "run-1")
    assert shifts_of(WHOLE, forced, full, {}) == ()


def test_steps_this_pdctl_would_not_take_are_a_shift() -> None:
    made = plan()
    assert shifts_of(WHOLE, replace(made, steps=made.steps[1:]), ground(WHOLE), {}) == (
        "this pdctl would take other steps for the same wish",
    )


def test_a_start_that_differs_by_less_than_a_clock_shows_is_the_same() -> None:
    row = changed("decode-0")
    assert row.process is not None and row.process.started is not None
    near = replace(row, process=replace(row.process, started=row.process.started + timedelta(seconds=1)))
    assert shifts_of(WHOLE, plan(), ground(WHOLE, decode_0=near), {}) == ()


# --- the proof --------------------------------------------------------------------------------------------------------

BEFORE = Footing(ROUTER.name, answered=("metrics", "workers"), workers=("http://a:1", "http://b:1"))
NEVER = Footing(ROUTER.name, refused=("workers",))


def seen(fact: Fact, value: object) -> Observation[object]:
    got = value if isinstance(value, Missed) else Seen(value)
    return Observation(ROUTER.name, fact, 0.0, NOW, 0.1, "GET", got, 200)


@pytest.mark.parametrize(
    ("value", "before", "proven"),
    [
        (Workers((Worker("http://a:1", None, True), Worker("http://b:1", None, None))), BEFORE, Proven.YES),
        (Workers((Worker("http://a:1", None, True),)), BEFORE, Proven.NO),
        (Workers((Worker("http://a:1", None, True), Worker("http://b:1", None, False))), BEFORE, Proven.NO),
        (Workers(()), BEFORE, Proven.NO),
        (Workers(()), None, Proven.NO),
        (Missed(Why.READ_TIMEOUT), BEFORE, Proven.NO),
        (Missed(Why.NOT_FOUND), BEFORE, Proven.NO),
        (Missed(Why.NOT_FOUND), NEVER, Proven.NOT_CHECKED),
        (Missed(Why.READ_TIMEOUT), NEVER, Proven.NO),
    ],
)
def test_workers_must_be_seen_registered(value: object, before: Footing | None, proven: Proven) -> None:
    assert proof.registered(ROUTER, before, seen(Fact.WORKERS, value), WHOLE).proven is proven


def test_engines_that_the_router_never_had_are_said() -> None:
    two = Workers((Worker("http://a:1", None, True), Worker("http://b:1", None, True)))
    point = proof.registered(ROUTER, BEFORE, seen(Fact.WORKERS, two), cluster(2, 2, 1))
    assert point.proven is Proven.YES and point.says.endswith("; the inventory names 4 engines")
    assert "inventory" not in proof.registered(ROUTER, BEFORE, seen(Fact.WORKERS, two), WHOLE).says


@pytest.mark.parametrize(
    ("value", "proven", "says"),
    [
        (RouterMetrics("smg", breaker={"http://a:1": 0.0, "http://b:1": 0.0}), Proven.YES, "2 closed"),
        (RouterMetrics("smg", breaker={"http://a:1": 0.0, "http://b:1": 1.0}), Proven.NO, "http://b:1 open"),
        (RouterMetrics("smg", breaker={"http://a:1": 2.0}), Proven.NO, "http://a:1 half-open"),
        (RouterMetrics("smg"), Proven.NOT_CHECKED, "its metrics name no breaker"),
        (Missed(Why.CONNECT_REFUSED), Proven.NO, "metrics could not be read (connect-refused)"),
    ],
)
def test_breakers_must_be_seen_closed(value: object, proven: Proven, says: str) -> None:
    point = proof.breakers(ROUTER, BEFORE, seen(Fact.METRICS, value))
    assert (point.proven, point.says) == (proven, says)


def test_an_answer_that_was_not_asked_for_proves_nothing() -> None:
    assert proof.breakers(ROUTER, BEFORE, None).proven is Proven.NO
    assert proof.breakers(ROUTER, None, None).proven is Proven.NOT_CHECKED


GOOD, BAD = Attempt("r", status=200, took=0.2), Attempt("r", error="reset", detail="closed")


@pytest.mark.parametrize(
    ("attempts", "proven"),
    [
        ((GOOD, GOOD), [Proven.YES, Proven.YES]),
        ((GOOD, BAD), [Proven.YES, Proven.NO]),
        ((GOOD,), [Proven.YES, Proven.NOT_CHECKED]),
        ((BAD,), [Proven.NO, Proven.NO]),
        ((), [Proven.NO, Proven.NO]),
    ],
)
def test_both_generations_count(attempts: tuple[Attempt, ...], proven: list[Proven]) -> None:
    assert [p.proven for p in proof.generations(ROUTER, attempts)] == proven


def finding(name: str, subject: str) -> Finding:
    return Finding(name, Severity.CRITICAL, Confidence.LIKELY, subject, "2 stand there")


@pytest.mark.parametrize(
    ("verdicts", "proven"),
    [
        ([RuledOut("request-pinned", "prefill-0", "live counts")], Proven.YES),
        ([finding("request-pinned", "prefill-0")], Proven.NO),
        ([finding("request-pinned", "prefill-0->decode-0"), RuledOut("request-pinned", "prefill-0", "x")], Proven.NO),
        ([RuledOut("request-pinned", "prefill-0", "x"), finding("request-pinned", "prefill-0")], Proven.NO),
        ([Unchecked("request-pinned", "prefill-0", "this release cannot tell")], Proven.NOT_CHECKED),
        ([], Proven.NOT_CHECKED),
        ([finding("slow-responses", "prefill-0")], Proven.NOT_CHECKED),
    ],
)
def test_a_pinned_request_is_looked_for_at_each_prefill(verdicts: list[object], proven: Proven) -> None:
    (point,) = proof.pinned(WHOLE, verdicts)  # type: ignore[arg-type]
    assert (point.subject, point.proven) == ("prefill-0", proven)


def test_a_request_pinned_at_a_decode_is_told_as_well() -> None:
    points = list(proof.pinned(WHOLE, [finding("request-pinned", "decode-0")]))
    assert [(p.subject, p.proven) for p in points] == [("prefill-0", Proven.NOT_CHECKED), ("decode-0", Proven.NO)]


def test_without_a_router_what_it_would_prove_is_said_to_be_unchecked() -> None:
    assert list(proof.no_router(WHOLE)) == []
    points = list(proof.no_router(cluster(1, 1, 0)))
    assert len(points) == 4 and {p.proven for p in points} == {Proven.NOT_CHECKED}


def test_what_is_not_proven_is_told_in_words() -> None:
    points = [*proof.generations(ROUTER, (GOOD, BAD))]
    assert proof.failures(points) == ("a kept-alive generation at router-0: reset: closed",)
