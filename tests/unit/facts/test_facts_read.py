"""The one door: statuses, errors, empty and foreign bodies, and that nothing escapes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from http_answers import DECODE, PREFILL, PROXY, ROUTER, answer, recorded
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdctl import facts
from pdctl.model.answer import Fact, Missed, Seen, Why
from pdctl.model.cluster import Instance
from pdctl.model.engine import EngineMetrics, Gauge, Health
from pdctl.model.router import RouterMetrics, Workers

HTTP = [Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO, Fact.WORKERS]


def missed(*args: object, instance: Instance | None = PREFILL, **more: object) -> Missed:
    got = facts.read(answer(*args, **more), instance).got  # type: ignore[arg-type]
    assert isinstance(got, Missed), got
    return got


def seen(*args: object, instance: Instance | None = PREFILL, **more: object) -> object:
    got = facts.read(answer(*args, **more), instance).got  # type: ignore[arg-type]
    assert isinstance(got, Seen), got
    return got.value


def test_every_fact_has_a_reader() -> None:
    assert set(facts.FACTS) == set(Fact)


def test_an_observation_keeps_what_the_answer_says_of_itself() -> None:
    given_ = answer(Fact.HEALTH, b"")
    o = facts.read(given_, PREFILL)
    assert (o.subject, o.fact, o.t, o.at, o.took, o.ask, o.status) == (
        given_.subject, given_.fact, given_.t, given_.at, given_.took, given_.ask, 200,
    )  # fmt: skip


@pytest.mark.parametrize("fact", HTTP)
@pytest.mark.parametrize("error", [Why.CONNECT_REFUSED, Why.READ_TIMEOUT, Why.TRUNCATED, Why.TOO_LARGE, Why.TLS])
def test_an_error_of_the_ask_is_the_reason(fact: Fact, error: Why) -> None:
    assert missed(fact, b"whatever\n", error=error, detail="because", status=None) == Missed(error, "because")
    assert missed(fact, None, error=error, status=None) == Missed(error, error.value)


@pytest.mark.parametrize("fact", [*HTTP, Fact.HEALTH])
@pytest.mark.parametrize("status", [401, 403])
def test_unauthorized(fact: Fact, status: int) -> None:
    got = missed(fact, '{"error":"Unauthorized"}', status=status)
    assert got.why is Why.AUTH
    assert "unauthorized" in got.detail


def test_unauthorized_without_a_status() -> None:
    assert missed(Fact.LOADS, None, status=None, error=Why.AUTH).detail == "unauthorized"


def test_an_engine_without_metrics_says_how_to_get_them() -> None:
    got = missed(Fact.METRICS, '{"detail":"Not Found"}', status=404)
    assert got.why is Why.METRICS_DISABLED
    assert "--enable-metrics" in got.detail
    assert missed(Fact.METRICS, None, status=404, error=Why.NOT_FOUND).why is Why.METRICS_DISABLED


def test_no_vllm_is_told_of_an_option_it_does_not_have() -> None:
    got = missed(Fact.METRICS, b"", status=404, instance=replace(PREFILL, engine="vllm"))
    assert got.why is Why.NOT_FOUND
    assert "--enable-metrics" not in got.detail


def test_a_router_without_metrics_on_this_port() -> None:
    got = missed(Fact.METRICS, b"", status=404, instance=ROUTER)
    assert got.why is Why.NOT_FOUND
    assert "--prometheus-port" in got.detail


@pytest.mark.parametrize("fact", [Fact.LOADS, Fact.SERVER_INFO, Fact.WORKERS, Fact.HEALTH])
def test_no_such_endpoint(fact: Fact) -> None:
    assert missed(fact, '{"detail":"Not Found"}', status=404).why is Why.NOT_FOUND


@pytest.mark.parametrize("fact", [*HTTP, Fact.HEALTH])
def test_a_redirect_names_where_it_leads(fact: Fact) -> None:
    got = missed(fact, b"", status=302, detail="redirects to https://sso.example/login")
    assert got.why is Why.REDIRECT
    assert got.detail == "HTTP 302 redirects to https://sso.example/login"


def test_a_redirect_loop_keeps_its_own_reason() -> None:
    assert missed(Fact.METRICS, b"", status=302, error=Why.REDIRECT_LOOP, detail="a -> b -> a").why is Why.REDIRECT_LOOP


@pytest.mark.parametrize("status", [400, 429, 500, 502, 503])
@pytest.mark.parametrize("fact", HTTP)
def test_other_statuses(fact: Fact, status: int) -> None:
    got = missed(fact, b"sglang:num_running_reqs 1\n", status=status)
    assert got.why is Why.HTTP_ERROR
    assert str(status) in got.detail


def test_loads_that_clash_with_fastapi_are_unreadable_and_no_sign_of_sickness() -> None:
    body = "Internal Server Error: '_IncludedRouter' object has no attribute 'path'"
    got = missed(Fact.LOADS, body, status=500)
    assert got.why is Why.HTTP_ERROR
    assert "unreadable" in got.detail
    assert "no sign of sickness" in got.detail


@pytest.mark.parametrize("fact", HTTP)
@pytest.mark.parametrize("body", [None, b"", b" \n"])
def test_an_empty_body(fact: Fact, body: bytes | None) -> None:
    assert missed(fact, body).why is Why.EMPTY


def test_an_idle_routers_empty_page_is_a_page() -> None:
    """sglang-router 0.1.9 has no byte to say before its first request."""
    page = seen(Fact.METRICS, b"", instance=ROUTER)
    assert isinstance(page, RouterMetrics)
    assert (page.family, page.families, page.requests, page.active_total) == ("unknown", 0, None, None)
    assert missed(Fact.METRICS, None, instance=ROUTER).why is Why.EMPTY  # no answer's body at all


@pytest.mark.parametrize("fact", [Fact.LOADS, Fact.SERVER_INFO, Fact.WORKERS])
@pytest.mark.parametrize(
    "body", [b"<html></html>", b"sglang:a 1\n", b"OK", b"\x00\xff", pytest.param(b"[" * 100_000, id="deep")]
)
def test_a_body_that_is_no_json(fact: Fact, body: bytes) -> None:
    assert missed(fact, body).why in (Why.NOT_JSON, Why.TRUNCATED)


@pytest.mark.parametrize("fact", [Fact.LOADS, Fact.SERVER_INFO, Fact.WORKERS])
@pytest.mark.parametrize("body", [b"1", b"null", b"{}", b'{"a": 1}', b'["a", 1]', b'"text"', b"true"])
def test_json_of_something_else_is_not_read_as_nothing_wrong(fact: Fact, body: bytes) -> None:
    if fact is Fact.SERVER_INFO and body == b'{"a": 1}':
        return
    assert missed(fact, body).why is Why.NOT_JSON


def test_a_web_page_for_metrics() -> None:
    assert missed(Fact.METRICS, b"<!DOCTYPE html><p>Sign in</p>").why is Why.NOT_METRICS


def test_a_status_that_was_not_recorded_does_not_hide_the_body() -> None:
    page = seen(Fact.METRICS, "sglang:num_running_reqs 2\n", status=None)
    assert isinstance(page, EngineMetrics)
    assert page.total(Gauge.RUNNING) == 2.0


def test_the_page_must_be_of_the_instances_kind() -> None:
    engine, router = recorded("decode-0.5.6-pinned.prom"), recorded("router-0.3.2-pinned.prom")
    assert isinstance(seen(Fact.METRICS, engine, instance=DECODE), EngineMetrics)
    assert isinstance(seen(Fact.METRICS, router, instance=ROUTER), RouterMetrics)
    assert missed(Fact.METRICS, router, instance=DECODE).why is Why.NOT_METRICS
    assert missed(Fact.METRICS, engine, instance=ROUTER).why is Why.NOT_METRICS


@pytest.mark.parametrize("instance", [None, PROXY])
def test_where_no_kind_is_known_the_content_tells(instance: Instance | None) -> None:
    assert isinstance(seen(Fact.METRICS, recorded("decode-0.5.6-pinned.prom"), instance=instance), EngineMetrics)
    assert isinstance(seen(Fact.METRICS, recorded("smg-1.13.0-stuck.prom"), instance=instance), RouterMetrics)
    assert missed(Fact.METRICS, b"a 1\n", instance=instance).why is Why.NOT_METRICS


def test_health_is_status_and_time() -> None:
    assert seen(Fact.HEALTH, b"") == Health(200, 0.25)
    assert seen(Fact.HEALTH, None, status=503) == Health(503, 0.25)
    assert missed(Fact.HEALTH, b"", status=None).why is Why.OTHER


def test_workers_of_four_routers() -> None:
    kinds = {}
    for name in ("0.2.4", "0.3.2", "smg-1.13.0"):
        workers = seen(Fact.WORKERS, recorded(f"workers-{name}.json"), instance=ROUTER)
        assert isinstance(workers, Workers)
        kinds[name] = {(w.kind, w.healthy, w.load, w.bootstrap_port) for w in workers.rows}
    assert set(map(frozenset, kinds.values())) == {
        frozenset({("prefill", True, 0.0, 9001), ("decode", True, 0.0, None)})
    }
    old = seen(Fact.WORKERS, recorded("list-workers-0.1.9.json"), instance=ROUTER)
    assert isinstance(old, Workers)
    assert [w.url for w in old.rows] == ["http://127.0.0.1:37697", "http://127.0.0.1:41671"]
    assert {(w.kind, w.healthy, w.load) for w in old.rows} == {(None, None, None)}


def test_a_router_without_workers_is_an_answer() -> None:
    assert seen(Fact.WORKERS, b'{"workers": [], "total": 0}', instance=ROUTER) == Workers(())


def test_a_worker_without_url_is_no_worker() -> None:
    assert missed(Fact.WORKERS, b'{"workers": [{"load": 1}]}', instance=ROUTER).why is Why.NOT_JSON


def test_a_reader_that_fails_is_a_missed_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fact: Fact) -> facts.Reader:
        raise KeyError("x" * 1000)

    monkeypatch.setattr(facts, "reader", broken)
    got = missed(Fact.METRICS, b"a 1\n")
    assert got.why is Why.OTHER
    assert "KeyError" in got.detail
    assert len(got.detail) < 300


@settings(max_examples=150, deadline=None)
@example(Fact.LOADS, b"\xef\xbb\xbf", PREFILL)  # a byte order mark and nothing more
@given(st.sampled_from([*HTTP, Fact.HEALTH]), st.binary(max_size=80), st.sampled_from([PREFILL, ROUTER, PROXY, None]))
def test_no_bytes_raise(fact: Fact, body: bytes, instance: Instance | None) -> None:
    for raw in (body, b"sglang:a" + body + b"\n", b'{"loads": [' + body + b"]}"):
        got = facts.read(answer(fact, raw), instance).got
        assert isinstance(got, Seen | Missed)
        assert not (isinstance(got, Missed) and got.why is Why.OTHER)
