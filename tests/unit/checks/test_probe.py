"""What a probe's attempts tell: the matrix, what no other rule names, answers that were lost, and when to stop."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pdctl.checks import connection_hang, keepalive, probe_fail, probe_lost
from pdctl.checks.only_probe import judge_only_probe
from pdctl.checks.probe_guard import suffering
from pdctl.checks.probe_matrix import attempts_of, matrix_of, spread
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.events import Event, Kind
from pdctl.model.finding import Confidence, Finding, Severity, Status
from pdctl.model.probe import Attempt, Fate, Trial, row_of
from pdctl.model.probe_plan import ProbePlan, Stage, Way
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import D, P, R, pair, times

X = "proxy-0"
CLUSTER = replace(
    pair(router=True), instances=(*pair(router=True).instances, Instance(X, Role.PROXY, "https://x.example"))
)
GOOD = Attempt(R, trial="one", status=200, took=0.3, first_byte_s=0.3, begun_s=1.0, told="echoed", concurrency=1)
HUNG = replace(GOOD, status=None, error="read-timeout", took=20.0, first_byte_s=None, told=None)


def used(attempt: Attempt, **more: object) -> Attempt:
    return replace(attempt, connection="reused", trial="rounds", **more)  # type: ignore[arg-type]


def scene_of(*attempts: Attempt, cluster: Cluster = CLUSTER, at: float | None = None) -> HostScene:
    """A window with one answer a path, complete when its last attempt had ended unless ``at`` says otherwise."""
    scene = HostScene("0.5.23", cluster)
    at = max((a.begun_s or 0.0) + (a.took or 0.0) for a in attempts) if at is None else at
    for to in dict.fromkeys(a.to for a in attempts):
        rows = [row_of(a) for a in attempts if a.to == to]
        scene.raw(at, to, Fact.PROBE, json.dumps(rows), f"pdctl probe {to}")
    return scene


def quiet(scene: HostScene, until: float = 40.0, finished: dict[float, float] | None = None) -> HostScene:
    """Engines whose live queues are empty, and decode's count of finished requests from given moments on."""
    for t in times(until, 1.0):
        count = sum(step for moment, step in (finished or {}).items() if moment <= t)
        for name in (P, D):
            scene.loads(t, name, running=0, inflight=0, transfer=0, prealloc=0)
            scene.page(t, name, http=0.0, running=0, requests=100 + (count if name == D else 0))
        scene.router(t)
    return scene


def found(scene: HostScene) -> list[Finding]:
    return scene.found(probe_fail.judge)


# --- the matrix -------------------------------------------------------------------------------------------------------


def cells(*attempts: Attempt) -> dict[Trial, Fate]:
    window = scene_of(*attempts).window()
    (row,) = matrix_of(window, CLUSTER).rows
    return {trial: cell.fate for trial, cell in row.cells.items()}


@pytest.mark.parametrize(
    ("attempt", "trial", "fate"),
    [
        (GOOD, Trial.ONE, Fate.GOOD),
        (replace(GOOD, status=503), Trial.ONE, Fate.FAILED),
        (replace(GOOD, status=None, error="connect-refused"), Trial.ONE, Fate.FAILED),
        (HUNG, Trial.ONE, Fate.HUNG),
        (replace(GOOD, error="truncated"), Trial.ONE, Fate.CUT),
        (replace(GOOD, told="empty"), Trial.ONE, Fate.WRONG),
        (replace(GOOD, told="crossed"), Trial.ONE, Fate.WRONG),
        (replace(GOOD, told="unexpected"), Trial.ONE, Fate.WRONG),
        (replace(GOOD, told="other"), Trial.ONE, Fate.GOOD),
        (replace(GOOD, kind="health", trial="health"), Trial.HEALTH, Fate.GOOD),
        (replace(GOOD, kind="abort", trial="aborts", status=None), Trial.ABORTS, Fate.GOOD),
        (replace(GOOD, kind="abort", trial="aborts", status=None, error="reset", first_byte_s=None), Trial.ABORTS,
         Fate.FAILED),
        (replace(used(GOOD), trial="idle", idle_s=4.0), Trial.IDLE, Fate.GOOD),
        (replace(used(HUNG), trial="idle", idle_s=4.0), Trial.IDLE, Fate.HUNG),
        (replace(used(GOOD), trial="idle", idle_s=6.0, status=None, error="reset", first_byte_s=None), Trial.IDLE,
         Fate.CLOSED),
    ],
)  # fmt: skip
def test_what_becomes_of_an_attempt(attempt: Attempt, trial: Trial, fate: Fate) -> None:
    fates = cells(attempt)
    assert fates.pop(trial) is fate
    assert set(fates.values()) == {Fate.NOT_RUN}


def test_the_worst_of_a_cell_shows_and_its_times_are_those_of_good_answers() -> None:
    rows = [replace(GOOD, trial="many", took=t, first_byte_s=t) for t in (0.1, 0.2, 0.3)]
    bad = replace(HUNG, trial="many", nth=1)
    matrix = matrix_of(scene_of(*rows, bad, replace(GOOD, status=503, trial="many")).window(), CLUSTER)
    cell = matrix.rows[0].cells[Trial.MANY]
    assert (cell.fate, cell.tried, cell.good) == (Fate.HUNG, 5, 3)
    assert cell.errors == {"read-timeout": 1, "HTTP 503": 1}
    assert cell.took is not None and (cell.took.count, cell.took.median, cell.took.most) == (3, 0.2, 0.3)


def test_an_idle_cell_names_the_gap_that_works_and_the_one_that_does_not() -> None:
    opener = replace(GOOD, trial="idle")
    kept = [replace(GOOD, trial="idle", connection="reused", idle_s=g) for g in (1.0, 4.0)]
    shut = [
        replace(k, idle_s=g, status=None, error="reset", first_byte_s=None, closed_after_s=5.0)
        for k in kept[:1]
        for g in (6.0, 10.0)
    ]
    cell = matrix_of(scene_of(opener, *kept, *shut).window(), CLUSTER).rows[0].cells[Trial.IDLE]
    assert (cell.fate, cell.tried, cell.good) == (Fate.CLOSED, 4, 2)
    assert (cell.idle_ok_s, cell.idle_fails_s, cell.closed_after_s) == (4.0, 6.0, 5.0)


def test_openers_alone_mean_that_no_connection_is_kept() -> None:
    matrix = matrix_of(scene_of(replace(GOOD, trial="idle")).window(), CLUSTER)
    assert matrix.rows[0].cells[Trial.IDLE].fate is Fate.NOT_RUN
    assert "keeps no connection open" in matrix.remarks[0]


def test_paths_stand_from_the_inside_out_and_what_was_left_out_says_why() -> None:
    window = scene_of(replace(GOOD, to=X, via="proxy"), GOOD, replace(GOOD, to=D)).window()
    matrix = matrix_of(window, CLUSTER, [(P, Trial.ONE, "no release"), (R, Trial.MANY, "needs --load")])
    assert [row.to for row in matrix.rows] == [P, D, R, X]
    assert matrix.rows[0].cells[Trial.ONE].why == "no release"
    assert matrix.rows[2].cells[Trial.MANY].why == "needs --load"
    assert matrix.trials == (Trial.ONE,)


def test_connections_are_counted_by_their_numbers() -> None:
    rows = [replace(GOOD, line=1), used(GOOD, line=1), used(GOOD, line=1), replace(GOOD, line=2)]
    row = matrix_of(scene_of(*rows).window(), CLUSTER).rows[0]
    assert (row.opened, row.reused) == (2, 2)


def test_recordings_that_name_no_kind_are_sorted_by_what_they_hold() -> None:
    plain = replace(GOOD, trial=None)
    rows = [
        replace(plain, kind="health"), plain, replace(plain, concurrency=8), replace(plain, round=2),
        replace(plain, connection="reused", idle_s=1.0),
    ]  # fmt: skip
    assert {t for t, fate in cells(*rows).items() if fate is Fate.GOOD} == set(Trial) - {Trial.ABORTS}


def test_a_spread() -> None:
    assert spread([]) is None
    told = spread([None, *(float(n) for n in range(1, 101))])
    assert told is not None
    assert (told.count, told.median, told.p95, told.most) == (100, 50.5, 95.0, 100.0)
    few = spread([3.0, 1.0, 2.0])
    assert few is not None and few.p95 == 3.0


def streams(to: str, first: float, whole: float) -> list[Attempt]:
    via = "proxy" if to == X else "direct"
    row = replace(
        GOOD, to=to, via=via, trial="many", stream=True, took=whole, first_token_s=first, between_s=0.01, tokens=9
    )
    return [row] * 4


def test_a_proxy_that_holds_streams_back_is_seen_by_difference() -> None:
    held = matrix_of(scene_of(*streams(R, 0.1, 1.0), *streams(X, 0.95, 1.0)).window(), CLUSTER)
    assert [r for r in held.remarks if "holds streams back" in r]
    assert [r for r in held.remarks if "adds 0.85 s" in r]
    alike = matrix_of(scene_of(*streams(R, 0.1, 1.0), *streams(X, 0.12, 1.0)).window(), CLUSTER)
    assert alike.remarks == ()
    short = matrix_of(scene_of(*streams(R, 0.9, 1.0), *streams(X, 0.95, 1.0)).window(), CLUSTER)
    assert short.remarks == ()
    slow_to_begin = matrix_of(scene_of(*streams(R, 0.63, 1.0), *streams(X, 0.999, 1.0)).window(), CLUSTER)
    assert [r for r in slow_to_begin.remarks if "holds streams back" in r], "as nginx does, seen with real engines"


def test_a_breaker_that_the_probe_closed_is_told() -> None:
    scene = scene_of(GOOD)
    scene.router(0.0, breaker={D: 1.0})
    scene.router(20.0, breaker={D: 0.0})
    assert "breaker of decode-0 was open" in matrix_of(scene.window(), CLUSTER).remarks[0]


def test_a_breaker_that_the_probe_may_have_opened_is_told() -> None:
    scene = scene_of(replace(GOOD, status=500))
    scene.router(0.0, breaker={D: 0.0})
    scene.router(20.0, breaker={D: 1.0})
    (remark,) = matrix_of(scene.window(), CLUSTER).remarks
    assert "breaker of decode-0 was not open when the probe began and is now" in remark
    same = scene_of(GOOD)
    for t in (0.0, 20.0):
        same.router(t, breaker={D: 1.0})
    assert matrix_of(same.window(), CLUSTER).remarks == ()


def test_what_engines_and_routers_counted_meanwhile() -> None:
    scene = scene_of(GOOD)
    for t, running in ((0.0, 0), (2.0, 7), (4.0, 1)):
        scene.loads(t, D, running=running)
        scene.router(t, active=running)
    courses = {(c.instance, c.name): c for c in matrix_of(scene.window(), CLUSTER).courses}
    running = courses[(D, "running")]
    assert (running.readings, running.least, running.most, running.last, running.live) == (3, 0, 7, 1, True)
    assert courses[(R, "active")].most == 7
    assert (P, "inflight") not in courses


# --- what no other rule names -----------------------------------------------------------------------------------------


def test_nothing_is_found_where_all_is_well() -> None:
    scene = quiet(scene_of(GOOD, used(GOOD)))
    assert found(scene) == []
    assert [r.what for r in scene.ruled_out(probe_fail.judge)] == ["router-circuit-open"]


def test_that_answers_are_the_right_ones_is_not_checked_where_nothing_comes_back() -> None:
    other = replace(GOOD, told="other")
    assert [u.what for u in scene_of(other).unchecked(probe_fail.judge)] == [probe_fail.ECHO]
    assert scene_of(GOOD).unchecked(probe_fail.judge) == []


def test_a_path_that_nothing_reaches() -> None:
    refused = replace(GOOD, status=None, error="connect-refused", detail="connection refused", first_byte_s=None)
    (finding,) = found(scene_of(refused, refused))
    assert (finding.name, finding.subject, finding.severity) == ("endpoint-unreadable", R, Severity.UNKNOWN)
    assert "no request reaches router-0: connect-refused" in finding.summary
    assert len(finding.next) == 1
    (tls,) = found(scene_of(replace(refused, error="tls", detail="certificate not accepted")))
    assert "ca_file" in tls.next[0]


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (replace(GOOD, trial="many", error="truncated"), "truncated"),
        (replace(GOOD, trial="many", status=500, detail="decode_error: x"), "HTTP 500"),
        (replace(GOOD, trial="many", told="crossed"), "another's answer"),
        (replace(GOOD, trial="many", told="empty", tokens=0), "empty"),
        (replace(GOOD, status=401), "HTTP 401"),
    ],
)
def test_whatever_else_fails_is_told_with_what_works(bad: Attempt, word: str) -> None:
    (finding,) = found(quiet(scene_of(GOOD, bad, replace(GOOD, kind="health", trial="health"))))
    assert finding.name == "endpoint-unreadable"
    assert "1 of 3 requests to router-0" in finding.summary and word in finding.summary
    assert "health: 1 of 1 work" in seen_in(finding)
    assert any("api_key_env" in step for step in finding.next) is (word == "HTTP 401")


def test_a_missing_nonce_counts_only_where_requests_asked_alone_had_theirs() -> None:
    other = replace(GOOD, trial="many", concurrency=16, told="other")
    assert found(scene_of(GOOD, GOOD, other))[0].summary.endswith("not those asked for: wrong answer")
    assert found(scene_of(GOOD, replace(GOOD, told="other"), other)) == []
    assert found(scene_of(GOOD, GOOD, replace(other, trial="rounds", round=3))) == []


def test_an_answer_without_text_counts_where_text_would_have_come() -> None:
    other, empty = replace(GOOD, told="other"), replace(GOOD, trial="many", told="empty")
    assert found(scene_of(other, other, empty)) == [], "a model may have no more to say"
    assert found(scene_of(other, other, replace(empty, tokens=0)))[0].summary.endswith("empty")
    assert found(scene_of(GOOD, GOOD, empty))[0].summary.endswith("empty")
    assert found(scene_of(replace(empty, trial="one"), empty))[0].summary.endswith("empty")
    (open_,) = scene_of(other, other, empty).unchecked(probe_fail.judge)
    assert open_.what == probe_fail.ECHO and "1 of 3 answers hold no text" in open_.why


def test_what_a_proxy_passes_on_from_its_router_is_told_once() -> None:
    bad = replace(GOOD, status=500)
    through = replace(bad, to=X, via="proxy")
    assert [f.subject for f in found(scene_of(bad, through))] == [R]
    own = replace(GOOD, to=X, via="proxy", status=502)
    assert [f.subject for f in found(scene_of(GOOD, own))] == [X]


def test_what_breaks_off_on_its_way_through_a_proxy_has_a_rule_of_its_own() -> None:
    scene = scene_of(GOOD, replace(GOOD, to=X, via="proxy", error="truncated"))
    assert found(scene) == []
    assert scene.one(connection_hang.judge).subject == X


def test_a_router_that_refuses_by_its_own_words() -> None:
    refused = replace(
        GOOD, status=503, detail="server_selection_failed: No available prefill workers (all circuits open)"
    )
    scene = scene_of(refused)
    for t in times(10.0):
        for name in (P, D):
            scene.loads(t, name, running=0, inflight=0)
    (finding,) = found(scene)
    assert (finding.name, finding.confidence) == ("router-circuit-open", Confidence.LIKELY)
    assert "every engine is well" in finding.summary


def test_an_engine_that_holds_requests_and_makes_no_token_is_not_called_well() -> None:
    scene = scene_of(replace(GOOD, status=503, detail="server_selection_failed: (all circuits open)"))
    for t in times(10.0):
        scene.loads(t, P, running=0, inflight=0, transfer=0)
        scene.loads(t, D, running=12, transfer=0)
        scene.page(t, D, running=12, generation_tokens=900)
    (finding,) = found(scene)
    assert finding.name == "endpoint-unreadable"


def test_a_breaker_that_the_metrics_show_is_not_told_again() -> None:
    scene = quiet(scene_of(replace(GOOD, status=503, detail="all circuits open")))
    scene.router(41.0, breaker={D: 1.0})
    assert found(scene) == []
    assert [f.name for f in judge_only_probe(scene.window(), CLUSTER).findings] == ["router-circuit-open"]


def test_a_router_that_holds_fresh_requests_while_engines_are_idle() -> None:
    (finding,) = found(quiet(scene_of(HUNG, HUNG)))
    assert (finding.name, finding.subject, finding.confidence) == ("router-holds-requests", R, Confidence.LIKELY)
    (busy,) = found(scene_of(HUNG, HUNG))
    assert busy.name == "endpoint-unreadable"


def test_a_hang_of_one_connection_has_a_rule_of_its_own() -> None:
    scene = quiet(scene_of(GOOD, used(HUNG, round=3, nth=3), used(HUNG, round=3, nth=3)))
    assert found(scene) == []
    hang = scene.one(connection_hang.judge)
    assert "number 3 on its connection" in seen_in(hang)
    assert "on a connection that was used before" in hang.summary


def test_a_single_hang_in_a_cluster_not_seen_idle_is_not_left_without_a_finding() -> None:
    scene = scene_of(GOOD, used(HUNG))
    assert [f.name for f in found(scene)] == ["endpoint-unreadable"]


def test_a_hang_at_the_router_is_not_the_proxys_in_front_of_it() -> None:
    at_router = [GOOD, used(HUNG, nth=3), used(HUNG, nth=3)]
    through = [replace(a, to=X, via="proxy") for a in at_router]
    scene = quiet(scene_of(*at_router, *through))
    assert [f.subject for f in scene.found(connection_hang.judge)] == [R]
    assert found(scene) == []
    alone = quiet(scene_of(GOOD, used(GOOD), *through))
    assert [f.subject for f in alone.found(connection_hang.judge)] == [X]


def test_a_proxy_alone_with_no_engine_in_sight() -> None:
    lonely = Cluster("c", (Instance(X, Role.PROXY, "https://x.example"),))
    rows = [
        replace(a, to=X, via="proxy") for a in (GOOD, replace(GOOD, control=True), used(HUNG, nth=2), used(HUNG, nth=2))
    ]
    scene = scene_of(*rows, cluster=lonely)
    scene.version = None
    finding = next(f for f in scene.found(connection_hang.judge) if f.subject == X)
    assert finding.confidence is Confidence.LIKELY
    assert "no engine was seen" in finding.limits[0]


# --- idle connections -------------------------------------------------------------------------------------------------


def test_a_closing_that_was_seen_names_its_moment_and_makes_it_sure() -> None:
    shut = used(GOOD, idle_s=6.0, status=None, error="reset", first_byte_s=None, closed_after_s=5.02, told=None)
    finding = scene_of(GOOD, replace(shut, idle_s=1.0, status=200, error=None), shut).one(keepalive.judge)
    assert finding.confidence is Confidence.CERTAIN
    assert "closes them after 5.0 s (5 s is uvicorn" in finding.summary
    other = scene_of(GOOD, replace(shut, idle_s=1.0, status=200, error=None), replace(shut, closed_after_s=3.0))
    assert "uvicorn" not in other.one(keepalive.judge).summary


def test_failures_under_load_and_clients_that_leave_are_no_reason_to_doubt_fresh_ones() -> None:
    shut = used(GOOD, idle_s=6.0, status=None, error="reset", first_byte_s=None)
    left = replace(GOOD, kind="abort", status=None, trial="aborts")
    crowded = replace(GOOD, status=503, trial="many", concurrency=16)
    finding = scene_of(GOOD, used(GOOD, idle_s=1.0), shut, left, crowded).one(keepalive.judge)
    assert "1 fresh connections answered" in seen_in(finding)


def at_engine(fails_at: float, closed_after: float | None, longest_through_router: float | None) -> HostScene:
    """An engine that closes its idle connections, and a router in front of it."""
    engine = used(GOOD, to=D, idle_s=1.0)
    shut = replace(
        engine, idle_s=fails_at, status=None, error="reset", first_byte_s=None, closed_after_s=closed_after, told=None
    )
    rows = [replace(GOOD, to=D), engine, shut]
    if longest_through_router is not None:
        rows += [GOOD, used(GOOD, idle_s=longest_through_router)]
    return scene_of(*rows)


def test_an_engine_that_closes_idle_connections_is_no_fault_where_its_router_bears_it() -> None:
    scene = at_engine(6.0, 5.0, 30.0)
    assert scene.found(keepalive.judge) == []
    told = {r.subject: r.by for r in scene.ruled_out(keepalive.judge)}
    assert told[D].startswith("it closes connections after 5.0 s without a request (uvicorn's --timeout-keep-alive")
    assert "after up to 30 s was answered all the same" in told[D]


@pytest.mark.parametrize(("closed_after", "longest"), [(5.0, None), (5.0, 4.0), (None, 30.0)])
def test_it_is_one_where_that_was_not_seen(closed_after: float | None, longest: float | None) -> None:
    assert at_engine(6.0, closed_after, longest).one(keepalive.judge).subject == D


def test_it_is_one_where_the_routers_requests_were_seen_to_fail() -> None:
    scene = at_engine(6.0, 5.0, 30.0)
    scene.log(R, Event(Kind.ROUTER_WORKER_ERROR, "error sending request for url"))
    assert scene.one(keepalive.judge).subject == D


# --- answers that were lost -------------------------------------------------------------------------------------------


def test_answers_that_decode_finished_while_they_were_waited_for() -> None:
    rows = [GOOD, used(HUNG, begun_s=5.0), used(HUNG, begun_s=5.0)]
    finding = quiet(scene_of(*rows), finished={2.0: 1, 7.0: 2}).one(probe_lost.judge)
    assert (finding.name, finding.subject, finding.confidence) == ("responses-lost", R, Confidence.CERTAIN)
    assert "finished 3 requests, and 1 were answered" in seen_in(finding)


@pytest.mark.parametrize("finished", [{2.0: 1.0}, {2.0: 1.0, 7.0: 9.0}, {2.0: 1.0, 26.0: 2.0}])
def test_none_are_where_decode_did_not_finish_them_or_others_ask_too(finished: dict[float, float]) -> None:
    rows = [GOOD, used(HUNG, begun_s=5.0), used(HUNG, begun_s=5.0)]
    scene = quiet(scene_of(*rows), finished=finished)
    assert scene.found(probe_lost.judge) == []
    assert scene.one(connection_hang.judge).name == "connection-scoped-hang"


def test_lost_answers_that_are_given_up_one_after_the_other_are_all_lost() -> None:
    rows = [GOOD, used(HUNG, begun_s=5.0), used(HUNG, begun_s=11.0)]
    scene = quiet(scene_of(*rows), finished={2.0: 1, 7.0: 1, 12.0: 1})
    assert "2 request(s) through router-0" in scene.one(probe_lost.judge).summary
    assert scene.found(connection_hang.judge) == []


def test_a_probe_that_is_a_part_of_a_longer_window_counts_its_seconds_from_its_own_beginning() -> None:
    rows = [GOOD, used(HUNG, begun_s=5.0), used(HUNG, begun_s=5.0)]
    later = quiet(scene_of(*rows, at=125.0), until=140.0, finished={102.0: 1, 107.0: 2})
    assert later.one(probe_lost.judge).name == "responses-lost"
    other = quiet(scene_of(*rows, at=125.0), until=140.0, finished={2.0: 1, 7.0: 2})
    assert other.found(probe_lost.judge) == []


def test_lost_answers_are_no_hang_of_a_connection() -> None:
    rows = [GOOD, used(HUNG, begun_s=5.0), used(HUNG, begun_s=5.0)]
    scene = quiet(scene_of(*rows), finished={2.0: 1, 7.0: 2})
    assert scene.found(connection_hang.judge) == []
    assert scene.ruled_out(connection_hang.judge) == []
    report = judge_only_probe(scene.window(), CLUSTER)
    assert [f.name for f in report.findings] == ["responses-lost"]


def test_what_is_asked_of_prefill_alone_is_not_in_decodes_count() -> None:
    rows = [GOOD, replace(GOOD, to=P), used(HUNG, begun_s=5.0), used(HUNG, begun_s=5.0)]
    assert quiet(scene_of(*rows), finished={2.0: 1, 7.0: 2}).one(probe_lost.judge).name == "responses-lost"


# --- the report -------------------------------------------------------------------------------------------------------


def test_a_probe_without_a_request_is_unknown() -> None:
    report = judge_only_probe(quiet(HostScene("0.5.23", CLUSTER)).window(), CLUSTER)
    assert report.status is Status.UNKNOWN
    assert "no request was made" in report.findings[0].summary


def test_a_probe_that_ended_early_is_not_ok() -> None:
    window = quiet(scene_of(GOOD)).window()
    assert judge_only_probe(window, CLUSTER).status is Status.OK
    ended = judge_only_probe(window, CLUSTER, stopped="the deadline of 60 s")
    assert ended.status is Status.UNKNOWN
    assert "the deadline of 60 s" in ended.findings[0].summary
    assert [u.what for u in ended.unchecked] == ["the rest of the plan"]


def test_who_answered_the_probe_answered() -> None:
    refused = replace(GOOD, to=X, via="proxy", status=None, error="connect-refused", detail="connection refused")
    report = judge_only_probe(scene_of(GOOD, refused).window(), CLUSTER)
    seen = {i.name: i.reachable for i in report.instances}
    assert seen[R] is True
    assert seen[X] is False


def test_failing_requests_are_not_told_beside_their_cause() -> None:
    scene = scene_of(replace(GOOD, status=500), replace(HUNG, to=D), at=50.0)
    for t in times(60.0, 2.0):
        scene.loads(t, D, frozen_at=0.0, running=3)
        scene.page(t, D, http=3.0, running=3, generation_tokens=900, idle_seconds=5, scheduler_cpu_seconds=7)
    report = judge_only_probe(scene.window(), CLUSTER)
    assert "scheduler-stopped" in {f.name for f in report.findings}
    assert "endpoint-unreadable" not in {f.name for f in report.findings}


# --- when to stop -----------------------------------------------------------------------------------------------------

PLAN = ProbePlan(((Stage(Way(Instance(R, Role.ROUTER, "http://x")), Trial.MANY, 16, 8),),))
EMPTY = quiet(HostScene("0.5.23", CLUSTER)).window()


def stops(*made: Attempt) -> str | None:
    return suffering(EMPTY, CLUSTER, made, PLAN)


def test_it_goes_on_while_requests_are_answered() -> None:
    assert stops(GOOD, *[replace(GOOD, trial="many", took=0.5)] * 8) is None


def test_it_stops_at_errors_of_servers_but_not_at_one() -> None:
    bad = replace(GOOD, trial="many", status=503)
    assert stops(GOOD, bad, bad) is None
    assert "answered 503" in (stops(GOOD, bad, bad, bad) or "")
    assert stops(bad, bad, bad, *[GOOD] * 8) is None


def test_it_stops_when_the_first_token_takes_many_times_as_long() -> None:
    slow = replace(GOOD, trial="many", first_byte_s=6.0)
    assert "20 times as long as alone" in (stops(GOOD, *[slow] * 6) or "")
    assert stops(replace(GOOD, first_byte_s=3.0), *[slow] * 6) is None
    assert stops(GOOD, *[replace(slow, first_byte_s=2.9)] * 6) is None


def test_it_stops_after_a_wave_of_hangs() -> None:
    hung = replace(HUNG, trial="many")
    assert stops(GOOD, *[hung] * 7) is None
    assert "8 requests got no answer" in (stops(GOOD, *[hung] * 8) or "")


def test_it_stops_when_queues_rise_beyond_what_it_sent() -> None:
    def rising(step: float) -> HostScene:
        scene = HostScene("0.5.23", CLUSTER)
        for t in times(10.0):
            scene.loads(t, D, waiting=t * step)
        return scene

    assert "decode-0 queues: queue rose from 0 to 30" in (suffering(rising(3).window(), CLUSTER, (), PLAN) or "")
    assert suffering(rising(1).window(), CLUSTER, (), PLAN) is None
    gentle = ProbePlan(((replace(PLAN.stages[0], trial=Trial.ONE, at_once=1),),))
    assert suffering(rising(3).window(), CLUSTER, (), gentle) is None, "a few requests are not what makes it rise"


def test_attempts_of_several_answers_are_put_in_the_order_they_were_made() -> None:
    scene = scene_of(replace(GOOD, begun_s=9.0))
    scene.raw(31.0, R, Fact.PROBE, json.dumps([row_of(replace(GOOD, begun_s=2.0))]))
    (rows,) = attempts_of(scene.window()).values()
    assert [a.begun_s for a in rows] == [2.0, 9.0]
