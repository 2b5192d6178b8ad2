"""Green is what was idle or seen to move; what stands and was not seen to move is unknown."""

from __future__ import annotations

import pytest

from pdctl.checks import judge
from pdctl.checks.glance import NAME, standing, with_standing
from pdctl.checks.staged import judged
from pdctl.checks.stages import choose
from pdctl.model.answer import Fact, Why
from pdctl.model.finding import Confidence, Finding, Report, Severity, Status
from pdctl.model.router import RouterMetrics
from tests.unit.checks.scene import D, P, R, Scene, pair


def calm(scene: Scene, t: float) -> None:
    """Both engines without a request."""
    for name, queues in ((P, {"bootstrap": 0, "inflight": 0}), (D, {"prealloc": 0, "transfer": 0})):
        scene.page(t, name, running=0, http=0)
        scene.loads(t, name, running=0, waiting=0, **queues)


def told(scene: Scene) -> dict[str, str]:
    return {seen.subject: seen.what for seen in standing(scene.window(), pair(router=True))}


def test_idle_engines_are_well_at_once() -> None:
    scene = Scene("0.5.23")
    calm(scene, 0.0)
    assert told(scene) == {}


@pytest.mark.parametrize(
    "queue, what", [("inflight", "inflight 2"), ("bootstrap", "bootstrap 2"), ("waiting", "queue 2")]
)
def test_requests_in_one_look_are_not_seen_to_move(queue: str, what: str) -> None:
    scene = Scene("0.5.23")
    calm(scene, 0.0)
    scene.loads(1.0, P, **{"running": 0, "waiting": 0, "bootstrap": 0, "inflight": 0, queue: 2})
    assert told(scene) == {P: what}


@pytest.mark.parametrize("counter", ["requests", "prompt_tokens", "transfers_done"])
def test_a_request_that_ended_meanwhile_shows_that_they_move(counter: str) -> None:
    scene = Scene("0.5.23")
    for t, count in ((0.0, 10), (2.0, 11)):
        scene.page(t, P, running=0, http=2, **{counter: count})
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=2)
    assert told(scene) == {}


def test_what_runs_moves_when_the_use_of_memory_changes() -> None:
    """A long generation of an old release: no counter moves before it ends."""
    for second, standing_still in ((0.31, True), (0.32, False)):
        scene = Scene("0.5.6")
        scene.page(0.0, D, running=1, token_usage=0.31)
        scene.page(10.0, D, running=1, token_usage=second)
        assert (D in told(scene)) is standing_still


def test_a_leftover_gauge_is_nothing_under_way_where_the_front_end_owes_no_answer() -> None:
    for owed, here in ((0, set()), (1, {P})):
        scene = Scene("0.5.15")
        scene.page(0.0, P, running=3, inflight=2, http=owed)
        assert set(told(scene)) == here


def test_a_scheduler_that_did_not_answer_in_time_is_not_well_until_it_was_heard_since() -> None:
    scene = Scene("0.5.23")
    calm(scene, 0.0)
    scene.miss(5.0, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    assert told(scene) == {D: "/server_info did not answer in 5 s"}
    calm(scene, 7.0)
    assert told(scene) == {}


def test_live_counts_that_are_not_those_of_now_show_no_idle_engine() -> None:
    scene = Scene("0.5.23")
    calm(scene, 0.0)
    scene.loads(20.0, D, frozen_at=8.0, running=0, waiting=0, prealloc=0, transfer=0)
    assert told(scene) == {D: "its live counts are not renewed"}


def test_a_router_that_holds_requests_while_no_engine_moves_stands_until_it_answers_one() -> None:
    scene = Scene("0.5.23")
    for t, answers in ((0.0, 5.0), (2.0, 5.0)):
        calm(scene, t)
        scene.add(t, R, Fact.METRICS, RouterMetrics("sgl_router", active={"x": 2.0}, responses={"200": answers}))
    assert told(scene) == {R: "2 request(s) under way"}
    scene.add(4.0, R, Fact.METRICS, RouterMetrics("sgl_router", active={"x": 2.0}, responses={"200": 6.0}))
    assert told(scene) == {}


# --- the report --------------------------------------------------------------------------------------------------


def report(scene: Scene, *more: Finding) -> Report:
    judged = judge(scene.window(), pair())
    return with_standing(judged.with_findings((*judged.findings, *more)), scene.window(), pair())


def stuck() -> Scene:
    scene = Scene("0.5.23")
    calm(scene, 0.0)
    scene.loads(1.0, P, running=0, waiting=0, bootstrap=0, inflight=2)
    return scene


def finding(name: str, severity: Severity, subject: str) -> Finding:
    return Finding(name, severity, Confidence.CERTAIN, subject, "said")


def test_it_is_unknown_with_what_stands() -> None:
    told = report(stuck())
    assert told.status is Status.UNKNOWN
    assert [(f.name, f.subject) for f in told.findings] == [(NAME, P)]
    assert "inflight 2, and nothing was seen to move" in told.findings[0].summary


def test_nothing_is_said_twice_and_a_fault_that_is_known_holds_up_the_rest() -> None:
    for known in (
        finding("gauge-stale", Severity.UNKNOWN, P),
        finding("transfer-pair-broken", Severity.CRITICAL, f"{P}->{D}"),
        finding("scheduler-stopped", Severity.CRITICAL, D),
    ):
        assert NAME not in {f.name for f in report(stuck(), known).findings}
    assert NAME in {f.name for f in report(stuck(), finding("draining", Severity.INFO, P)).findings}


def test_what_is_idle_stays_well() -> None:
    scene = Scene("0.5.23")
    calm(scene, 0.0)
    assert report(scene).status is Status.OK


def test_a_look_that_went_on_as_long_as_it_took_is_not_cut_short() -> None:
    """Requests flow past a queue that was never seen empty: a recording of 4 s leaves open what a run need not."""
    scene = Scene("0.5.23")
    for t in (0.0, 2.0, 4.0):
        scene.page(t, P, running=0, http=3, requests=10 + 5 * t, transfers_done=10 + 5 * t)
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=2)
        scene.page(t, D, running=0, http=0)
        scene.loads(t, D, running=0, waiting=0, prealloc=0, transfer=0)
    window, chosen = scene.window(), choose(hosts=False)
    assert judged([window], pair(), chosen).status is Status.UNKNOWN
    assert judged([window], pair(), chosen, short_s=0.0).status is Status.OK
