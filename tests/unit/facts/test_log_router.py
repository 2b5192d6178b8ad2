"""Router logs. The recordings are of real routers in front of two dummy workers: requests that succeed, take 3 s, are
left by the client, are refused with 400, fail with 500 on decode until the breaker opens; then decode is killed.
Request ids, statuses and latencies below were read off the recordings by eye."""

from __future__ import annotations

import pytest

from pdctl.model.cluster import Role
from pdctl.model.digest import unfinished
from pdctl.model.events import Event, Kind, Log
from tests.unit.facts.log_answers import DATA, event_of, log_of

RECORDED = {
    path.stem: path.read_bytes() for path in DATA.glob("*.log") if path.stem.startswith(("sglang-router", "smg"))
}


def read(name: str, role: Role | None = Role.ROUTER) -> Log:
    return log_of(RECORDED[name], role)


def end_of(log: Log, request: str) -> Event:
    (event,) = [e for e in log.of(Kind.ROUTER_FINISHED) if e.words["request_id"] == request]
    return event


@pytest.mark.parametrize(
    ("name", "request_id", "status", "seconds", "outcome"),
    [
        # 0.1.9 writes Rust durations with their unit, and the request id without quotes in an inner span
        ("sglang-router-0.1.9", "gnt-4kbGCFQHbRlv0HN0T78d3qN5", "200", 0.003189688, "finished"),
        ("sglang-router-0.1.9", "req-S4Y8UlHe1xN4U8YeJwnNT6iJ", "200", 0.000020881, "finished"),
        ("sglang-router-0.1.9", "gnt-tyvdfLx8qFJg4b66U5ENhbgd", "200", 3.045284045, "finished"),
        ("sglang-router-0.1.9", "gnt-UkxPenprLM0sHa1ryWUqvYQN", "400", 0.002857733, "client-error"),
        ("sglang-router-0.1.9", "gnt-WNkxqeCrwjRLAbrEzDuyntET", "500", 0.000905333, "server-error"),
        # 0.3.2 writes microseconds
        ("sglang-router-0.3.2", "gnt-8NPPkPL1q5VqBiAEUK3AhAfR", "200", 0.001356, "finished"),
        ("sglang-router-0.3.2", "gnt-kgjnlY14hPAelt7UnnsEvilA", "200", 3.041667, "finished"),
        ("sglang-router-0.3.2", "gnt-djKPdS9qst4vU3iC1vuQMMLU", "400", 0.001747, "client-error"),
        ("sglang-router-0.3.2", "gnt-qOjxnhgmVqztO5wgc8P7R2MO", "503", 0.422999, "server-error"),
        # smg writes microseconds, path= for uri=, a further field after the latency, and 499
        ("smg-1.13.0", "gnt-wCWPeMFaFem5PuoSLVfwv7y4", "200", 6.005793, "finished"),
        ("smg-1.13.0", "gnt-g8hzcqvNUGgM4sOsVcEIfi5H", "499", 1.002755, "client-closed"),
        ("smg-1.13.0", "gnt-6mkF0j9Ssvg6gQeZhTB20WVC", "500", 0.529392, "server-error"),
        # --log-json
        ("smg-1.13.0-json", "gnt-lX326RTPc1k1MAZWV9A2MKaH", "499", 1.00212, "client-closed"),
        ("smg-1.13.0-json", "gnt-SidloWBiKVccR9wGGnE4tm7T", "400", 0.001084, "client-error"),
    ],
)
def test_ends_of_requests(name: str, request_id: str, status: str, seconds: float, outcome: str) -> None:
    event = end_of(read(name), request_id)
    path = "/readiness" if request_id.startswith("req-") else "/generate"
    method = "GET" if path == "/readiness" else "POST"
    assert event.words == {
        "request_id": request_id, "method": method, "path": path, "status": status, "outcome": outcome,
    }  # fmt: skip
    assert event.numbers == {"status": float(status), "latency_s": pytest.approx(seconds, rel=1e-12)}


@pytest.mark.parametrize(
    ("name", "unended", "endless"),
    [
        # requests whose client left have no end up to 0.3.2; in 0.1.9's recording there are two of them
        ("sglang-router-0.1.9", 2, 2),
        ("sglang-router-0.3.2", 1, 1),
        # smg logs those (499), and no end of the three it refused for want of a worker: they are no open requests
        ("smg-1.13.0", 3, 0),
        ("smg-1.13.0-json", 3, 0),
    ],
)
def test_starts_without_an_end(name: str, unended: int, endless: int) -> None:
    log = read(name)
    started, ended = len(log.of(Kind.ROUTER_STARTED)), len(log.of(Kind.ROUTER_FINISHED))
    assert (started - ended, len(unfinished(log.events)), log.dropped) == (unended, endless, 0)
    assert started >= 11


@pytest.mark.parametrize("name", RECORDED)
def test_the_shape_tells_a_router_without_its_role(name: str) -> None:
    assert read(name, None).events == read(name).events


@pytest.mark.parametrize("name", RECORDED)
def test_an_error_of_the_decode_worker(name: str) -> None:
    errors = [e for e in read(name).of(Kind.ROUTER_WORKER_ERROR) if e.words["status"] == "500"]
    assert {e.words["leg"] for e in errors} == {"decode"}
    assert all(e.words["worker"].startswith("http://127.0.0.1:") for e in errors)


@pytest.mark.parametrize(
    ("name", "leg", "error"),
    [
        ("sglang-router-0.1.9", "decode", "Failed to select decode worker"),
        ("sglang-router-0.3.2", "prefill", "No available prefill workers (all circuits open or unhealthy)"),
        ("smg-1.13.0", "decode", "No available decode workers (all circuits open or unhealthy)"),
        ("smg-1.13.0-json", "decode", "No available decode workers (all circuits open or unhealthy)"),
    ],
)
def test_a_request_without_a_worker(name: str, leg: str, error: str) -> None:
    refused = read(name).of(Kind.ROUTER_NO_WORKER)
    assert {(e.words["leg"], e.words["error"]) for e in refused} == {(leg, error)}


@pytest.mark.parametrize(
    ("name", "worker"),
    [
        ("sglang-router-0.3.2", None),
        ("smg-1.13.0", "http://127.0.0.1:33195"),
        ("smg-1.13.0-json", "http://127.0.0.1:38835"),
    ],
)
def test_a_breaker_opens(name: str, worker: str | None) -> None:
    changes = read(name).of(Kind.ROUTER_BREAKER)
    assert {(e.words["from"], e.words["to"], e.words.get("worker")) for e in changes} == {("closed", "open", worker)}


@pytest.mark.parametrize("name", RECORDED)
def test_a_worker_that_died_fails_its_health_checks(name: str) -> None:
    log = read(name)
    (decode,) = {e.words["worker"] for e in log.of(Kind.ROUTER_WORKER_ERROR) if e.words["status"] == "500"}
    failed = [e.words["worker"] for e in log.of(Kind.ROUTER_WORKER_UNHEALTHY)]
    assert failed[0] == decode
    assert not {url for url in failed if not url.startswith("http://127.0.0.1:") or url.endswith(("/health", ":"))}


def test_smg_tells_of_a_worker_taken_out_of_service() -> None:
    gone = [e for e in read("smg-1.13.0").of(Kind.ROUTER_WORKER_UNHEALTHY) if "to" in e.words]
    assert {(e.words["from"], e.words["to"]) for e in gone} == {("Ready", "NotReady")}


@pytest.mark.parametrize("name", RECORDED)
def test_a_router_starts_and_ends(name: str) -> None:
    log = read(name)
    assert (len(log.of(Kind.READY)), len(log.of(Kind.SHUTDOWN))) == (1, 1)


# --- shapes that were not recorded -------------------------------------------------------------------------------

HEAD = '2026-11-29 20:37:31 {} http_request{{method=POST uri=/v1/completions version=HTTP/1.1 request_id="cmpl-1"{}}}: '


@pytest.mark.parametrize(
    ("latency", "seconds"),
    [("303246", 0.303246), ("5007108", 5.007108), ("12ns", 1.2e-8), ("960µs", 9.6e-4), ("305.606877ms", 0.305606877),
     ("301.5s", 301.5), ("0", 0.0)],
)  # fmt: skip
def test_latency_units(latency: str, seconds: float) -> None:
    line = (
        HEAD.format("INFO", f" status_code=200 latency={latency}")
        + "smg::response: x.rs:359: finished processing request"
    )
    assert event_of(line).numbers["latency_s"] == pytest.approx(seconds, rel=1e-12)


def test_a_latency_in_the_path_is_not_the_requests() -> None:
    line = (
        "2026-11-29 20:37:31  INFO http_request{method=GET uri=/x?latency=1&status_code=500 version=HTTP/1.1 "
        'request_id="r1" status_code=204 latency=2000000}: smg::response: x.rs:1: finished processing request'
    )
    event = event_of(line)
    assert event.numbers == {"status": 204, "latency_s": 2.0}
    assert event.words["query"] == "latency=1&status_code=500"


@pytest.mark.parametrize(
    ("rest", "kind", "words"),
    [
        ("smg::routers::http::pd_router: x.rs:868: Decode request failed decode_url=http://192.0.2.21:30000 "
         "error=error sending request for url (http://192.0.2.21:30000/v1/completions)", Kind.ROUTER_WORKER_ERROR,
         {"leg": "decode", "worker": "http://192.0.2.21:30000",
          "error": "error sending request for url (http://192.0.2.21:30000/v1/completions)"}),
        ('smg::routers::http::router: x.rs:412: error_code="call_upstream_request_error" error sending request for url '
         "(http://192.0.2.21:30000/v1/completions)", Kind.ROUTER_WORKER_ERROR,
         {"worker": "http://192.0.2.21:30000/v1/completions", "error_code": "call_upstream_request_error"}),
        ("smg::routers::http::pd_router: x.rs:9: Prefill server returned error status "
         "prefill_url=http://192.0.2.11:30000 status=503 Service Unavailable body=Prefill transfer failed for request",
         Kind.ROUTER_WORKER_ERROR, {"leg": "prefill", "worker": "http://192.0.2.11:30000", "status": "503"}),
        ("smg::other: x.rs:9: something else broke error=why", Kind.ROUTER_ERROR, {"error": "why"}),
    ],
)  # fmt: skip
def test_errors(rest: str, kind: Kind, words: dict[str, str]) -> None:
    event = event_of(HEAD.format("ERROR", "") + rest, Role.ROUTER)
    request = {"request_id": "cmpl-1", "method": "POST", "path": "/v1/completions"}
    assert (event.kind, dict(event.words)) == (kind, request | words)


def test_the_rest_of_a_routers_log_is_plain_text() -> None:
    event = event_of(
        "2026-11-29 20:37:31  INFO smg::workflow::event: x.rs:1: Workflow started instance_id=1", Role.ROUTER
    )
    assert event.kind is Kind.OTHER


def test_glued_records_of_a_router() -> None:
    one = HEAD.format(" INFO", "") + "smg::request: x.rs:310: started processing request"
    log = log_of(f"{one}{one.replace('cmpl-1', 'cmpl-2')}\n", Role.ROUTER)
    assert [e.words["request_id"] for e in log.of(Kind.ROUTER_STARTED)] == ["cmpl-1", "cmpl-2"]


def test_a_start_whose_beginning_was_cut_off_is_dropped() -> None:
    assert log_of("ware.rs:310: started processing request\n", Role.ROUTER).dropped == 1
