"""The router's view, pairs, timeouts, restarts, and answers that did not come."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pdctl.checks import judge as judge_all
from pdctl.checks.gauges import judge as judge_gauges
from pdctl.checks.pairs import judge as judge_pairs
from pdctl.checks.restarts import judge as judge_restarts
from pdctl.checks.router import judge as judge_router
from pdctl.checks.seeing import judge as judge_seeing
from pdctl.checks.watchdog import judge as judge_watchdog
from pdctl.model.answer import Fact, Why
from pdctl.model.cluster import Cluster
from pdctl.model.events import Event, Kind
from pdctl.model.finding import Confidence, Finding, Status, Unchecked
from pdctl.model.host import Environ
from pdctl.model.window import Window
from tests.unit.checks.scene import START, D, P, R, Scene, pair, times


def only(verdicts: object) -> list[Finding]:
    return [v for v in verdicts if isinstance(v, Finding)]  # type: ignore[attr-defined]


def idle(scene: Scene, seconds: float, **live: int) -> None:
    for t in times(seconds):
        scene.page(t, P, requests=100, prompt_tokens=5000, running=0, inflight=0, http=live.get("bootstrap", 0))
        scene.page(t, D, requests=100, generation_tokens=9000, running=0, transfer=0, http=0)
        scene.loads(t, P, running=0, waiting=0, bootstrap=live.get("bootstrap", 0), inflight=live.get("inflight", 0))
        scene.loads(t, D, running=live.get("running", 0), waiting=0, prealloc=0, transfer=0)


def test_requests_that_age_in_the_router_while_engines_are_idle() -> None:
    scene = Scene()
    idle(scene, 40)
    for t in times(40):
        scene.router(t, active=6, old=6)
    (found,) = only(judge_router(scene.window(), pair(router=True)))
    assert (found.name, found.subject, found.confidence) == ("router-holds-requests", R, Confidence.CERTAIN)
    assert found.summary.startswith("6 request(s)")


@pytest.mark.parametrize("busy", [{"running": 3}, {"inflight": 1}])
def test_old_requests_that_an_engine_works_on_are_not_held_by_the_router(busy: dict[str, int]) -> None:
    scene = Scene()
    idle(scene, 40, **busy)
    for t in times(40):
        scene.router(t, active=3, old=3)
    assert only(judge_router(scene.window(), pair(router=True))) == []


def test_zero_gauges_of_a_release_that_hides_a_pinned_request_do_not_make_an_engine_idle() -> None:
    scene = Scene("0.5.6")
    for t in times(60, 5.0):
        scene.page(t, P, requests=100, inflight=0, running=0)
        scene.page(t, D, requests=100, running=0, transfer=0)
        scene.router(t, active=1, old=1)
    assert only(judge_router(scene.window(), pair(router=True))) == []


def test_an_open_breaker_of_a_worker_that_answers_is_the_routers_fault() -> None:
    scene = Scene()
    idle(scene, 20)
    for t in times(20):
        scene.router(t, breaker={P: 1.0, D: 0.0})
    (found,) = only(judge_router(scene.window(), pair(router=True)))
    assert found.name == "router-circuit-open"
    assert P in found.summary


@pytest.mark.parametrize("restarts", [False, True])
def test_a_breaker_that_a_restart_in_the_window_opened_may_soon_close(restarts: bool) -> None:
    scene = Scene()
    for t in times(20):
        scene.page(t, P, requests=100)
        scene.page(t, D, generation_tokens=0.0 if restarts and t > 10 else 9000.0)
        scene.router(t, breaker={P: float(t > 12)})
    (found,) = only(judge_router(scene.window(), pair(router=True)))
    assert found.name == "router-circuit-open"
    assert bool(found.against) == restarts and all(D in line for line in found.against)


def test_an_open_breaker_of_a_dead_worker_is_right() -> None:
    scene = Scene()
    for t in times(20):
        scene.miss(t, D, Fact.METRICS, Why.CONNECT_REFUSED)
        scene.router(t, breaker={D: 1.0})
    assert only(judge_router(scene.window(), pair(router=True))) == []


# --- pairs ---------------------------------------------------------------------------------------------------------


def failure(t: float, room: str, peer: str, reason: str = "transfer error") -> Event:
    words = {"room": room, "peer": peer, "reason": reason}
    return Event(Kind.TRANSFER_FAILED, f"failed to {peer}", START + timedelta(seconds=t), words=words)


def test_the_pair_whose_transfers_fail_is_named_and_the_one_that_works_is_not() -> None:
    scene = Scene()
    for i, t in enumerate(times(30)):
        scene.page(t, P, requests=100 + i)
        scene.page(t, D, requests=100, generation_tokens=9000)
        scene.page(t, "decode-1", requests=100 + i, generation_tokens=9000 + 90 * i)
    scene.log(P, *(failure(2.0 * i, str(i), "192.0.2.21:16917") for i in range(10)))
    (found,) = only(judge_pairs(scene.window(), pair(decodes=2)))
    assert (found.name, found.subject) == ("transfer-pair-broken", "prefill-0->decode-0")


def test_one_room_logged_by_eight_ranks_is_one_failure() -> None:
    scene = Scene()
    for t in times(30):
        scene.page(t, P, requests=100)
        scene.page(t, D, requests=100, generation_tokens=9000)
    scene.log(P, *(failure(3.0, "77", "192.0.2.21:16917") for _ in range(8)))
    assert only(judge_pairs(scene.window(), pair())) == []


def test_aborts_are_no_broken_transfers() -> None:
    scene = Scene()
    for i, t in enumerate(times(30)):
        scene.page(t, P, requests=100, transfer_failed=10 * i, aborted=10 * i)
        scene.page(t, D, requests=100, generation_tokens=9000)
    scene.log(P, *(failure(2.0 * i, str(i), "192.0.2.21:16917", "Aborted by AbortReq.") for i in range(10)))
    assert only(judge_pairs(scene.window(), pair())) == []


def test_a_failure_counter_that_appears_counts_from_zero() -> None:
    scene = Scene()
    for i, t in enumerate(times(30)):
        more = {"transfer_failed": 4.0 * i} if i > 3 else {}
        scene.page(t, P, requests=100, **more)
        scene.page(t, D, requests=100, generation_tokens=9000)
    (found,) = only(judge_pairs(scene.window(), pair()))
    assert any("60 failed transfers" in e.saw for e in found.evidence)


def test_a_prefill_lost_while_it_answered_slowly_was_starved() -> None:
    scene = Scene()
    for t in times(30):
        scene.add(t, P, Fact.METRICS, _page(), took=3.1)
        scene.page(t, D, requests=100)
    scene.log(
        D, Event(Kind.LOST_PREFILL, "Lost connection", START + timedelta(seconds=9), words={"peer": "192.0.2.11:8998"})
    )
    (found,) = only(judge_pairs(scene.window(), pair()))
    assert found.name == "heartbeat-starved"


def _page() -> object:
    from pdctl.model.engine import EngineMetrics, Gauge
    from pdctl.model.rank import WHOLE

    return EngineMetrics({Gauge.REQUESTS: {WHOLE: 100.0}}, families=3)


# --- timeouts ------------------------------------------------------------------------------------------------------


def pinned_scene(seconds: float, *, timeout: str | None) -> Scene:
    scene = Scene()
    for t in times(seconds, 5.0):
        scene.page(t, P, requests=100, prompt_tokens=5000, transfers_done=100, transfer_ms=700)
        scene.page(t, D, requests=100, generation_tokens=9000)
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=1)
        scene.loads(t, D, running=0, waiting=0, prealloc=0, transfer=1)
    if timeout:
        scene.add(0.0, D, Fact.ENVIRON, Environ({"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": timeout}))
    return scene


def test_a_timeout_of_60_s_that_did_not_fire_in_120_s_is_silent() -> None:
    (found,) = only(judge_watchdog(pinned_scene(120, timeout="60").window(), pair()))
    assert (found.name, found.subject) == ("watchdog-silent", D)
    assert "60 s (its environment)" in found.summary


def test_a_default_of_300_s_need_not_have_fired_in_120_s() -> None:
    verdicts = list(judge_watchdog(pinned_scene(120, timeout=None).window(), pair()))
    assert [type(v) for v in verdicts] == [Unchecked]
    assert "300 s, default of release 0.5.23" in verdicts[0].why  # type: ignore[union-attr]


def test_a_timeout_that_fired_is_not_silent() -> None:
    scene = pinned_scene(120, timeout="60")
    reason = "Request 5 timed out after 60.0s in KVPoll.WaitingForInput"
    scene.log(D, Event(Kind.DECODE_TRANSFER_FAILED, reason, START + timedelta(seconds=61), words={"room": "5"}))
    assert only(judge_watchdog(scene.window(), pair())) == []


# --- restarts, gauges, seeing ----------------------------------------------------------------------------------------


def test_counters_that_fall_are_a_restart_and_no_drain_and_no_negative_rate() -> None:
    scene = Scene("0.5.19")
    for t, n in ((0, 220_000), (5, 220_149), (15, 0), (20, 40), (25, 90)):
        scene.page(float(t), D, generation_tokens=float(n), running=2)
    scene.miss(10.0, D, Fact.METRICS, Why.CONNECT_REFUSED)
    report = judge_all(scene.window(), Cluster("c", pair().decodes))
    assert [f.name for f in report.findings] == ["engine-restarted"]
    assert report.status == Status.OK


def test_a_series_that_vanishes_is_a_restart_too() -> None:
    scene = Scene()
    scene.page(0.0, D, generation_tokens=500.0, running=1)
    scene.page(5.0, D, generation_tokens=510.0, running=1)
    scene.page(10.0, D, running=0)
    assert [f.name for f in only(judge_restarts(scene.window(), pair()))] == ["engine-restarted"]


def test_a_counter_that_only_grows_is_no_restart() -> None:
    scene = Scene()
    for i, t in enumerate(times(20)):
        scene.page(t, D, generation_tokens=500.0 + i, running=1)
    assert only(judge_restarts(scene.window(), pair())) == []


def test_0515_leftover_gauge_without_other_sources_is_stale() -> None:
    scene = Scene("0.5.15")
    for t in times(60, 5.0):
        scene.page(t, P, requests=100, prompt_tokens=5000, inflight=2)
        scene.page(t, D, requests=100, generation_tokens=9000, running=0)
    (found,) = only(judge_gauges(scene.window(), pair()))
    assert (found.name, found.subject) == ("gauge-stale", P)


def test_059_without_live_counts_cannot_report_its_inflight_queue() -> None:
    scene = Scene("0.5.9")
    for t in times(60, 5.0):
        scene.page(t, P, requests=100, prompt_tokens=5000, inflight=0)
        scene.page(t, D, requests=100, generation_tokens=9000, running=0)
    (found,) = only(judge_gauges(scene.window(), pair()))
    assert found.name == "gauge-unavailable"
    assert "/v1/loads" in found.summary


def test_nothing_is_stale_where_live_counts_tell() -> None:
    scene = Scene("0.5.23")
    idle(scene, 40)
    assert only(judge_gauges(scene.window(), pair())) == []


@pytest.mark.parametrize(
    ("why", "word"),
    [
        (Why.METRICS_DISABLED, "metrics-disabled"),
        (Why.AUTH, "unauthorized"),
        (Why.READ_TIMEOUT, "timeout"),
        (Why.TRUNCATED, "truncated"),
        (Why.EMPTY, "empty"),
        (Why.REDIRECT, "redirect"),
        (Why.NOT_METRICS, "not-metrics"),
        (Why.TOO_LARGE, "too-large"),
        (Why.CONNECT_REFUSED, "refused"),
    ],
)
def test_an_answer_that_did_not_come_makes_the_report_unknown_and_names_the_reason(why: Why, word: str) -> None:
    scene = Scene(None)
    for t in times(10, 5.0):
        scene.miss(t, P, Fact.METRICS, why)
        scene.page(t, D, requests=1, running=0)
    report = judge_all(scene.window(), pair())
    (found,) = [f for f in report.findings if f.name == "endpoint-unreadable"]
    assert (found.subject, report.status) == (P, Status.UNKNOWN)
    assert word in found.summary


@pytest.mark.parametrize(
    ("why", "detail", "said", "advice"),
    [
        (Why.TLS, "wrong version number (does this port speak TLS?)", "tls: wrong version", "Write http:// in its URL"),
        (Why.TLS, "self-signed certificate", "tls: self-signed", "Give the private CA"),
        (Why.OTHER, "name not resolved: no such host", "could not be read: name not resolved", "pdctl explain"),
        (Why.OTHER, "", "could not be read: other", "pdctl explain"),
    ],
)
def test_what_to_do_is_what_the_answer_calls_for(why: Why, detail: str, said: str, advice: str) -> None:
    scene = Scene(None)
    scene.miss(0.0, P, Fact.METRICS, why, detail)
    (found,) = only(judge_seeing(scene.window(), Cluster("c", pair().prefills)))
    assert said in found.summary and found.next[0].startswith(advice)


def test_one_missed_answer_among_many_is_no_blindness() -> None:
    scene = Scene()
    for t in times(20, 5.0):
        scene.page(t, P, requests=1)
    scene.miss(7.0, P, Fact.METRICS, Why.READ_TIMEOUT)
    assert only(judge_seeing(scene.window(), Cluster("c", pair().prefills))) == []


def test_an_engine_of_which_a_cut_off_recording_holds_nothing_is_not_taken_for_well() -> None:
    scene = Scene(version=None)
    scene.page(0.0, D, running=0, transfer=0, http=0)
    scene.router(0.0)
    report = judge_all(scene.window(), pair(router=True))
    assert [(f.name, f.subject) for f in report.findings] == [("endpoint-unreadable", P)]
    assert report.status == Status.UNKNOWN


def test_a_recording_without_an_answer_is_not_taken_for_well() -> None:
    for cluster in (pair(), Cluster("empty", ())):
        report = judge_all(Window(START, START, ()), cluster)
        assert [(f.name, f.subject) for f in report.findings] == [("endpoint-unreadable", cluster.name)]
        assert report.status == Status.UNKNOWN


def test_engines_whose_metrics_nobody_asked_for_are_not_blamed() -> None:
    scene = Scene(version=None)
    scene.log(P)
    assert only(judge_seeing(scene.window(), pair())) == []


def test_a_check_that_breaks_is_listed_and_the_report_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> object:
        raise ValueError("boom")

    from pdctl.checks import restarts
    from pdctl.checks.base import Check

    monkeypatch.setattr(restarts, "CHECKS", (Check("restarts", "restarts", ("engine-restarted",), (), breaks),))  # type: ignore[arg-type]
    scene = Scene()
    idle(scene, 20)
    report = judge_all(scene.window(), pair())
    assert report.status == Status.UNKNOWN
    assert any("boom" in u.why for u in report.unchecked)
