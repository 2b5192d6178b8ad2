"""What held requests of a probe while they hung: judged by what was seen while they waited, not after they were given
up, when the router has aborted them and every queue is empty."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pdctl.checks import connection_hang, keepalive, probe_fail, probe_lost, probe_waits
from pdctl.checks.only_probe import judge_only_probe
from pdctl.checks.probe_parts import part_of, waits_of
from pdctl.checks.probe_paths import paths_of
from pdctl.model.answer import Fact, Why
from pdctl.model.finding import Confidence
from pdctl.model.probe import Attempt, row_of
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import D, P, R, times
from tests.unit.checks.test_handoff import FORWARD, SENT, page
from tests.unit.checks.test_probe import CLUSTER, GOOD, HUNG, quiet, scene_of, used

FIRST = replace(HUNG, begun_s=1.0)
AGAIN = replace(HUNG, begun_s=21.0, control=True)


def held(*attempts: Attempt, prefill: dict[str, float], decode: dict[str, float], until: float = 60.0) -> HostScene:
    """Engines that hold something while the requests wait and nothing before and after."""
    scene = scene_of(*attempts)
    hung = [((a.begun_s or 0.0), (a.begun_s or 0.0) + (a.took or 0.0)) for a in attempts if a.error]
    for t in times(until, 1.0):
        now = any(begun < t <= end for begun, end in hung)
        for name, counts in ((P, prefill), (D, decode)):
            zero = dict.fromkeys(("running", "inflight", "transfer", "prealloc", "bootstrap", "waiting"), 0.0)
            scene.loads(t, name, **zero | (counts if now else {}))
            scene.page(t, name, http=float(now), requests=100, transfers_done=100, transfer_ms=2000)
        scene.router(t, active=float(now))
    return scene


def stuck(*attempts: Attempt) -> HostScene:
    return held(*attempts, prefill={"inflight": 1}, decode={"transfer": 1})


# --- which part of the window -----------------------------------------------------------------------------------------


def test_a_wait_is_from_two_seconds_after_the_first_request_until_the_first_is_given_up() -> None:
    together = [used(HUNG, begun_s=5.0), used(HUNG, begun_s=7.0), replace(HUNG, begun_s=40.0, took=10.0)]
    (path,) = paths_of(quiet(scene_of(GOOD, *together), until=60.0).window())
    assert [(w.start, w.end, w.waited, w.count) for w in waits_of(path)] == [
        (7.0, 25.0, 20.0, 2),
        (42.0, 50.0, 10.0, 1),
    ]


def test_counts_of_before_a_wait_are_none_of_it() -> None:
    scene = scene_of(FIRST)
    scene.loads(0.0, P, running=0)
    scene.loads(1.5, D, running=0)
    scene.loads(9.0, D, running=4)
    scene.loads(30.0, D, running=0)
    window = scene.window()
    (path,) = paths_of(window)
    part = part_of(window, waits_of(path)[0])
    assert [(o.subject, o.t) for o in part.observations if o.fact is Fact.LOADS] == [(D, 6.0)]
    assert {o.subject for o in part.observations if o.fact is Fact.SERVER_INFO} == {P, D}, "settings hold"


# --- a request that hangs between prefill and decode ------------------------------------------------------------------


def test_what_held_the_request_is_named_and_not_the_router_that_waits_for_it() -> None:
    scene = stuck(FIRST, AGAIN)
    finding = scene.one(probe_waits.judge)
    assert (finding.name, finding.subject, finding.confidence) == ("request-pinned", P, Confidence.CERTAIN)
    assert "while a request of the probe to router-0 got no answer, for 20 s" in seen_in(finding)
    assert finding.limits[-1] == probe_waits.LEFT
    assert scene.found(probe_fail.judge) == []
    report = judge_only_probe(scene.window(), CLUSTER)
    assert [(f.name, f.subject) for f in report.findings] == [("request-pinned", P)]
    assert not [r for r in report.ruled_out if (r.what, r.subject) == ("request-pinned", P)]


def test_one_of_several_conversations_that_is_held_is_no_fault_of_its_connection() -> None:
    scene = stuck(GOOD, used(HUNG, begun_s=5.0, nth=3), used(HUNG, begun_s=5.0, nth=3), replace(GOOD, begun_s=26.0))
    assert scene.found(connection_hang.judge) == []
    assert [f.name for f in judge_only_probe(scene.window(), CLUSTER).findings] == ["request-pinned"]


def test_a_reused_connection_whose_request_is_held_was_not_forgotten() -> None:
    scene = stuck(GOOD, used(GOOD, idle_s=1.0), used(HUNG, idle_s=6.0, begun_s=5.0))
    assert scene.verdicts(keepalive.judge) == []
    forgotten = quiet(scene_of(GOOD, used(GOOD, idle_s=1.0), used(HUNG, idle_s=6.0, begun_s=5.0)))
    assert forgotten.one(keepalive.judge).name == "keepalive-stale"


def test_what_the_whole_window_shows_is_not_told_twice() -> None:
    scene = scene_of(FIRST, AGAIN)
    for t in times(60.0, 2.0):
        scene.loads(t, D, frozen_at=0.0, running=3)
        scene.page(t, D, http=3.0, running=3, generation_tokens=900, idle_seconds=5, scheduler_cpu_seconds=7)
        scene.loads(t, P, inflight=0)
    assert scene.found(probe_waits.judge) == []
    names = [f.name for f in judge_only_probe(scene.window(), CLUSTER).findings]
    assert names == ["scheduler-stopped"], "what an engine that stands still counted last does not make it idle"


def test_a_wait_too_short_for_the_rules_says_what_was_counted() -> None:
    scene = stuck(replace(FIRST, took=5.0), replace(AGAIN, begun_s=6.0, took=3.0))
    assert scene.found(probe_waits.judge) == []
    (finding,) = scene.found(probe_fail.judge)
    assert finding.name == "endpoint-unreadable"
    assert "prefill-0 inflight 1 to 1" in seen_in(finding) and "decode-0 transfer 1 to 1" in seen_in(finding)


def of_an_old_release(until: float, *, begun: float = 3.0, floor: float = 0.0) -> HostScene:
    """Two requests of several conversations hang on 0.5.15, whose live counts stand still while something is pinned and
    whose stage counters say how many are between the two halves; others end all the while before them."""
    hung = used(HUNG, begun_s=begun, took=until - begun)
    scene = HostScene("0.5.15", CLUSTER)
    rows = [GOOD, hung, replace(hung, line=2), replace(GOOD, begun_s=until + 0.1)]
    scene.raw(until + 0.5, R, Fact.PROBE, json.dumps([row_of(a) for a in rows]))
    for t in times(until + 10.0, 1.0):
        inside = 2.0 if begun < t <= until else 0.0
        done = 40.0 + min(t, begun)
        page(scene, t, P, {FORWARD: done + inside + floor, SENT: done}, http=inside + floor)
        scene.page(t, D, http=inside, requests=done)
        scene.router(t, active=inside)
    return scene


def test_requests_whose_age_is_known_are_told_from_turnover_by_their_number() -> None:
    finding = of_an_old_release(18.0).one(probe_waits.judge)
    assert (finding.name, finding.subject, finding.confidence) == ("request-pinned", P, Confidence.LIKELY)
    assert "2 request(s) of the probe" in finding.summary
    assert of_an_old_release(18.0).found(connection_hang.judge) == []


def test_what_stood_there_before_is_not_the_probes() -> None:
    assert of_an_old_release(18.0, floor=2.0).one(probe_waits.judge).evidence[0].saw.endswith("2 at least")
    assert of_an_old_release(7.0).found(probe_waits.judge) == [], "too short to tell"


def test_a_router_that_has_the_requests_acquits_the_connection() -> None:
    scene = scene_of(GOOD, used(HUNG, begun_s=5.0, nth=3), used(HUNG, begun_s=5.0, nth=3))
    busy = scene_of(GOOD, used(HUNG, begun_s=5.0, nth=3), used(HUNG, begun_s=5.0, nth=3))
    for t in times(40.0, 1.0):
        for which, active in ((scene, 2.0), (busy, 1.0)):
            which.loads(t, D, running=9)
            which.page(t, D, running=9, generation_tokens=10 * t)
            which.loads(t, P, running=0, inflight=0)
            which.router(t, active=active)
    assert scene.found(connection_hang.judge) == []
    assert busy.one(connection_hang.judge).confidence is Confidence.LIKELY


def test_an_engine_whose_scheduler_was_asked_in_vain_is_evidence() -> None:
    scene = scene_of(FIRST, AGAIN)
    scene.miss(6.0, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    scene.page(8.0, D, http=0.0)
    (finding,) = scene.found(probe_fail.judge)
    assert "decode-0: /server_info, which asks the scheduler, did not answer in 5 s" in seen_in(finding)


# --- a request that no engine holds -----------------------------------------------------------------------------------


def test_engines_that_were_idle_while_it_waited_leave_it_to_the_router() -> None:
    scene = held(FIRST, AGAIN, prefill={}, decode={})
    for row in list(scene.rows):
        if row.fact is Fact.METRICS and row.subject in (P, D):
            scene.rows.remove(row)
    report = judge_only_probe(scene.window(), CLUSTER)
    assert [(f.name, f.subject) for f in report.findings] == [("router-holds-requests", R)]


@pytest.mark.parametrize("seen_at", [0.0, 45.0])
def test_engines_seen_idle_before_or_after_alone_say_nothing(seen_at: float) -> None:
    scene = scene_of(FIRST, AGAIN)
    for name in (P, D):
        scene.loads(seen_at, name, running=0, inflight=0, transfer=0)
    assert [f.name for f in scene.found(probe_fail.judge)] == ["endpoint-unreadable"]


def test_a_stream_that_went_silent_although_decode_finished_it_was_lost() -> None:
    silent = used(HUNG, begun_s=5.0, first_byte_s=0.1, first_token_s=0.2, tokens=28, status=200)
    finding = quiet(scene_of(GOOD, silent, silent), finished={2.0: 1, 7.0: 2}).one(probe_lost.judge)
    assert (finding.name, finding.subject) == ("responses-lost", R)


def test_an_engine_that_answers_nothing_leads_and_stands_beside_the_requests_that_wait_for_it() -> None:
    scene = held(FIRST, AGAIN, prefill={"bootstrap": 1}, decode={})
    scene.rows = [row for row in scene.rows if row.subject != D]
    for t in times(60.0, 1.0):
        scene.miss(t, D, Fact.METRICS, Why.CONNECT_REFUSED, took=0.01)
    findings = judge_only_probe(scene.window(), CLUSTER).findings
    assert [(f.name, f.subject) for f in findings] == [("endpoint-unreadable", D), ("endpoint-unreadable", R)]
    assert "decode-0 answers nothing: connect-refused" in seen_in(findings[1])
    assert "prefill-0 bootstrap 1 to 1" in seen_in(findings[1])
