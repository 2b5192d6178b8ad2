"""keepalive-stale and connection-scoped-hang: what probes tell by difference."""

from __future__ import annotations

import json

import pytest

from pdctl.checks import connection_hang
from pdctl.checks.keepalive import judge
from pdctl.model.answer import Fact
from pdctl.model.events import Event, Kind
from pdctl.model.finding import Confidence
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import D, P, R, times

FRESH = {"to": D, "connection": "fresh", "status": 200, "took": 0.04}


def reused(idle: float | None, error: str | None = None, **more: object) -> dict[str, object]:
    took = 30.0 if error == "read-timeout" else 0.01
    status = None if error else 200
    return {"to": D, "connection": "reused", "idle_s": idle, "status": status, "error": error, "took": took, **more}


def probed(*attempts: dict[str, object]) -> HostScene:
    scene = HostScene("0.5.23")
    scene.raw(5, R, Fact.PROBE, json.dumps(attempts))
    return scene


def test_the_gap_is_named_with_the_default_that_lies_in_it() -> None:
    scene = probed(FRESH, reused(1), reused(4), reused(6, "reset"), reused(10, "reset"))
    finding = scene.one(judge)
    assert (finding.subject, finding.confidence) == (D, Confidence.LIKELY)
    assert "up to 4 s" in finding.summary
    assert "from 6 s" in finding.summary
    assert "5 s is uvicorn" in finding.summary


@pytest.mark.parametrize(
    ("works", "fails", "named"),
    [(70, 80, "nginx"), (30, 60, "load balancer"), (299, 301, "Caddy"), (6, 8, None), (1, 10, "uvicorn")],
)
def test_other_timeouts(works: float, fails: float, named: str | None) -> None:
    summary = probed(FRESH, reused(works), reused(fails, "reset"), reused(fails * 2, "reset")).one(judge).summary
    assert f"between {works:g} and {fails:g} s" in summary
    assert ("(" in summary) == (named is not None)
    assert named is None or named in summary


def test_sockets_or_the_routers_log_make_it_certain() -> None:
    scene = probed(FRESH, reused(1), reused(6, "reset"), reused(10, "reset"))
    scene.ss(5, R, "CLOSE-WAIT 1 0 192.0.2.31:51200 192.0.2.21:30000")
    assert scene.one(judge).confidence == Confidence.CERTAIN
    logged = probed(FRESH, reused(1), reused(6, "reset"), reused(10, "reset"))
    logged.log(R, Event(Kind.ROUTER_WORKER_ERROR, "error sending request for url (http://192.0.2.21:30000/v1)"))
    assert logged.one(judge).confidence == Confidence.CERTAIN


def test_failures_and_successes_in_no_order_are_only_possible() -> None:
    finding = probed(FRESH, reused(1), reused(6, "reset"), reused(10), reused(30, "reset")).one(judge)
    assert finding.confidence == Confidence.POSSIBLE
    assert "10 s" in finding.against[0]


def test_none_where_reuse_works_or_fresh_fails_or_was_not_tried() -> None:
    assert probed(FRESH, reused(1), reused(60)).found(judge) == []
    assert "60 s" in probed(FRESH, reused(1), reused(60)).ruled_out(judge)[0].by
    dead = {**FRESH, "status": None, "error": "connect-refused"}
    assert probed(dead, reused(1, "reset")).found(judge) == []
    assert probed(reused(1), reused(6, "reset")).found(judge) == []
    assert probed(FRESH, reused(6, status=503, error=None)).found(judge) == []


def test_an_answer_that_breaks_off_is_something_else() -> None:
    assert probed(FRESH, reused(1), reused(6, "truncated", first_byte_s=0.2, tokens=9)).found(judge) == []


def test_paths_are_judged_each_for_itself() -> None:
    proxy = [{**reused(1), "via": "proxy"}, {**reused(70, "reset"), "via": "proxy"}, {**FRESH, "via": "proxy"}]
    finding = probed(FRESH, reused(1), reused(70), *proxy).one(judge)
    assert "through its proxy" in finding.summary


# --- connection-scoped-hang -------------------------------------------------------------------------------------------


def quiet(scene: HostScene, running: int = 0, active: float = 0.0) -> HostScene:
    """Engines and router as their live counts show them."""
    for t in times(40.0, 4.0):
        for name in (P, D):
            scene.loads(t, name, running=running, inflight=0, transfer=0, prealloc=0)
            scene.page(t, name, http=0.0, running=0, generation_tokens=900)
        scene.router(t, active=active)
    return scene


def test_a_reused_connection_hangs_while_all_is_idle() -> None:
    scene = quiet(
        probed(FRESH, reused(None, round=1), reused(None, "read-timeout", round=2), reused(30, "read-timeout"))
    )
    finding = scene.one(connection_hang.judge)
    assert (finding.subject, finding.confidence) == (D, Confidence.CERTAIN)
    assert "every engine is idle" in finding.summary
    assert "round 2" in seen_in(finding)


def test_a_hang_through_a_proxy_while_the_direct_way_works() -> None:
    direct = {**FRESH, "to": R}
    hung = {**FRESH, "to": R, "via": "proxy", "status": None, "error": "read-timeout", "took": 60.0}
    finding = quiet(probed(direct, hung, hung)).one(connection_hang.judge)
    assert finding.subject == R
    assert "through its proxy" in finding.summary


def test_a_busy_cluster_speaks_against_it() -> None:
    attempts = (FRESH, reused(1, "read-timeout"), reused(4, "read-timeout"))
    busy = quiet(probed(*attempts), running=3).one(connection_hang.judge)
    assert busy.confidence == Confidence.LIKELY
    assert "not seen idle" in busy.against[0]
    single = quiet(probed(FRESH, reused(1, "read-timeout")), running=3)
    assert single.found(connection_hang.judge) == []
    assert len(single.unchecked(connection_hang.judge)) == 1


def test_a_reset_is_no_hang_and_a_dead_server_is_not_one_connections() -> None:
    assert quiet(probed(FRESH, reused(1), reused(6, "reset"))).found(connection_hang.judge) == []
    dead = {**FRESH, "status": None, "error": "read-timeout"}
    assert quiet(probed(dead, reused(1, "read-timeout"))).found(connection_hang.judge) == []


def unread(scene: HostScene, *rows: str) -> HostScene:
    for t in (0.0, 30.0):
        scene.ss(t, R, "LISTEN 0 4096 0.0.0.0:30001 0.0.0.0:*", *rows)
    return quiet(scene)


def test_requests_that_nobody_reads() -> None:
    row = "ESTAB 812 0 192.0.2.31:30001 203.0.113.5:40000"
    finding = unread(HostScene("0.5.23"), row).one(connection_hang.judge)
    assert (finding.subject, finding.confidence) == (R, Confidence.LIKELY)
    assert "203.0.113.5:40000" in seen_in(finding)


@pytest.mark.parametrize(
    "row",
    [
        "ESTAB 0 0 192.0.2.31:30001 203.0.113.5:40000",  # idle keep-alive
        "ESTAB 24 0 192.0.2.31:51200 192.0.2.21:30000",  # what a server left in an idle pool of ours
        "CLOSE-WAIT 1 0 192.0.2.31:30001 203.0.113.5:40000",
        "ESTAB 812 0 192.0.2.31:30001 203.0.113.5:40000 lastrcv:300",  # just came
    ],
)
def test_idle_connections_raise_no_alarm(row: str) -> None:
    assert unread(HostScene("0.5.23"), row).found(connection_hang.judge) == []


def test_unread_bytes_under_a_full_accept_queue_are_that_findings() -> None:
    scene = HostScene("0.5.23")
    for t in (0.0, 30.0):
        scene.ss(t, R, "LISTEN 129 128 0.0.0.0:30001 0.0.0.0:*", "ESTAB 812 0 192.0.2.31:30001 203.0.113.5:40000")
    assert quiet(scene).found(connection_hang.judge) == []
