"""responses-lost: somebody waits, no queue holds it, new requests work."""

from __future__ import annotations

import json

from pdctl.checks.responses_lost import judge
from pdctl.model.answer import Fact, Why
from pdctl.model.engine import LoadRow
from pdctl.model.finding import Confidence
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import D, P, R, times

OWED = 'ESTAB 0 0 192.0.2.21:30000 192.0.2.31:5{} users:(("python",pid=9,fd=3)) lastsnd:{} lastrcv:{}'


def scene(
    version: str = "0.5.23",
    http: float = 2.0,
    inflight: int = 0,
    tokens: float = 40.0,
    active: float = 0.0,
    old: float = 0.0,
) -> HostScene:
    out = HostScene(version)
    for i, t in enumerate(times(40.0, 4.0)):
        for name in (P, D):
            out.loads(t, name, running=0, waiting=0, bootstrap=0, inflight=inflight, prealloc=0, transfer=0)
        out.page(t, P, http=0.0, inflight=inflight, running=0)
        out.page(t, D, http=http, running=0, generation_tokens=900 + i * tokens)
        out.router(t, active=active, old=old)
    return out


def test_counted_http_requests_that_no_live_queue_holds() -> None:
    finding = scene().one(judge)
    assert (finding.subject, finding.confidence) == (D, Confidence.LIKELY)
    assert "2 request(s)" in finding.summary
    assert "every live queue of prefill-0 is 0" in seen_in(finding)


def test_the_sockets_that_wait_make_it_certain() -> None:
    out = scene()
    out.ss(40, D, OWED.format("0001", 700_000, 300_000), OWED.format("0002", 900_000, 299_000))
    finding = out.one(judge)
    assert finding.confidence == Confidence.CERTAIN
    assert "unanswered for up to 300 s" in seen_in(finding)


def test_idle_keep_alive_sockets_and_young_requests_owe_nothing() -> None:
    out = scene(http=0.0)
    out.ss(40, D, OWED.format("0001", 300_000, 300_900), OWED.format("0002", 9_000, 5_000))
    assert out.found(judge) == []
    assert {r.subject for r in out.ruled_out(judge)} == {P, D}


def test_a_request_that_a_queue_holds_is_not_lost() -> None:
    assert scene(inflight=1).found(judge) == []


def test_without_new_work_nothing_is_said() -> None:
    assert scene(tokens=0.0).found(judge) == []
    answered = scene(tokens=0.0)
    answered.raw(30, R, Fact.PROBE, json.dumps([{"to": D, "connection": "fresh", "status": 200, "took": 0.1}]))
    assert len(answered.found(judge)) == 1


def test_undated_snapshots_prove_no_empty_queue() -> None:
    """0.5.13.post1 to 0.5.15: a pinned request reads 0 in them."""
    out = HostScene("0.5.15")
    for i, t in enumerate(times(40.0, 4.0)):
        for name in (P, D):
            out.loads(t, name, LoadRow(0, running=0, inflight=0, transfer=0))
        out.page(t, P, http=0.0, inflight=0, running=0)
        out.page(t, D, http=2.0, running=0, generation_tokens=900 + 40 * i)
    assert out.found(judge) == []


def test_gauges_prove_it_only_after_a_batch_of_the_window() -> None:
    def gauges(running: float, tokens: float) -> HostScene:
        out = HostScene("0.5.19")
        for i, t in enumerate(times(40.0, 4.0)):
            out.page(t, P, http=0.0, inflight=0, running=0, prompt_tokens=10 * i, transfers_done=tokens * i)
            out.page(t, D, http=2.0, running=running, transfer=0, generation_tokens=900 + tokens * i)
        return out

    assert gauges(0, 40).one(judge).subject == D
    assert gauges(0, 0).found(judge) == []
    assert gauges(1, 40).found(judge) == []


def test_a_hanging_server_info_counts_as_the_one_request_it_is() -> None:
    out = scene(http=1.0)
    out.miss(20, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    assert out.found(judge) == []


def test_the_sockets_alone_say_it_where_http_is_not_counted() -> None:
    out = scene(http=None)
    out.ss(40, D, OWED.format("0001", 700_000, 300_000))
    finding = out.one(judge)
    assert finding.confidence == Confidence.LIKELY
    assert any("does not count" in limit for limit in finding.limits)


def test_a_router_that_waits_for_what_no_engine_owes() -> None:
    out = scene(http=0.0, active=3.0, old=3.0)
    assert out.found(judge) == []  # nothing ended in the router: new ones are not seen to work there
