"""Router pages recorded from sglang-router 0.1.9, 0.2.4, 0.3.2 and smg 1.13.0 in front of two workers."""

from __future__ import annotations

import math

import pytest
from http_answers import recorded, router_page

from pdctl.facts.base import Unreadable
from pdctl.facts.router_metrics import read_router
from pdctl.model.answer import Why
from pdctl.model.router import AgeBucket, RouterMetrics


def read(body: bytes | str) -> RouterMetrics:
    return read_router(router_page(body))


def test_0_1_9_counts_and_no_more() -> None:
    m = read(recorded("router-0.1.9-load.prom"))
    assert m.family == "sgl_router"
    assert m.requests == 6.0
    assert m.errors == {"decode/server": 2.0}
    assert (m.duration_sum, m.duration_count) == (0.004194764, 6.0)
    assert (m.active, m.breaker, m.healthy, m.ages, m.responses, m.retries) == ({}, {}, {}, (), {}, {})
    assert m.connections is None
    assert m.active_total is None


def test_0_2_4_with_both_breakers_open() -> None:
    m = read(recorded("router-0.2.4-open.prom"))
    prefill, decode = "http://127.0.0.1:35667", "http://127.0.0.1:38015"
    assert m.family == "sgl_router"
    assert m.breaker == {prefill: 1.0, decode: 1.0}
    assert m.healthy == {prefill: 1.0, decode: 1.0}
    assert m.responses == {"200": 5.0, "503": 2.0, "500": 2.0}
    assert m.errors == {"pd/server_selection": 20.0, "decode/server": 10.0}
    assert m.retries == {"all": 16.0}
    assert m.requests == 14.0  # this release counts each try
    assert m.active == {}


def test_0_3_2_with_both_breakers_open() -> None:
    m = read(recorded("router-0.3.2-open.prom"))
    one, two = "http://127.0.0.1:33963", "http://127.0.0.1:45093"
    assert m.family == "smg"
    assert m.breaker == {one: 1.0, two: 1.0}
    assert m.healthy == {one: 1.0, two: 1.0}
    assert m.consecutive_failures == {one: 10.0, two: 10.0}
    assert m.active == {one: 0.0, two: 0.0}
    assert m.requests == 8.0
    assert m.responses == {"200": 5.0, "500": 2.0, "503": 2.0}
    assert m.errors == {"decode/backend_error": 10.0, "prefill/backend_error": 10.0}
    assert m.retries == {"prefill": 17.0, "decode": 17.0}
    assert (m.duration_sum, m.duration_count) == (0.17417671399999998, 4.0)
    assert m.connections == 0.0
    assert m.ages == ()  # no bucket before the sampler has run


def test_0_3_2_with_two_requests_pinned() -> None:
    m = read(recorded("router-0.3.2-pinned.prom"))
    assert m.active_total == 2.0  # each on both legs, counted once
    assert sum(bucket.count for bucket in m.ages) == 2.0
    assert [bucket.gt for bucket in m.ages] == sorted(bucket.gt for bucket in m.ages)
    assert m.ages[-1].le == math.inf
    assert set(m.breaker.values()) == {0.0}


def test_smg_with_two_requests_stuck() -> None:
    m = read(recorded("smg-1.13.0-stuck.prom"))
    assert m.family == "smg"
    assert m.active == {"http://127.0.0.1:38315": 2.0, "http://127.0.0.1:45667": 2.0}
    assert AgeBucket(0.0, 30.0, 2.0) in m.ages
    assert len(m.ages) == 12
    assert m.breaker == {"http://127.0.0.1:38315": 0.0, "http://127.0.0.1:45667": 0.0}


def test_codes_and_endpoints_of_one_key_are_added() -> None:
    m = read(
        'smg_http_responses_total{path="/a",status_code="200",error_code=""} 2\n'
        'smg_http_responses_total{path="/b",status_code="200",error_code=""} 3\n'
        'smg_http_responses_total{path="/b",status_code="499",error_code="client_closed_request"} 1\n'
        'smg_worker_retries_total{worker_type="decode",endpoint="chat"} 1\n'
        'smg_worker_retries_total{worker_type="decode",endpoint="generate"} 2\n'
    )
    assert m.responses == {"200": 5.0, "499": 1.0}
    assert m.retries == {"decode": 3.0}


def test_requests_that_are_not_disaggregated_are_left_out() -> None:
    m = read(
        'smg_router_requests_total{backend_type="pd",endpoint="chat"} 2\n'
        'smg_router_requests_total{backend_type="pd",endpoint="generate"} 3\n'
        'smg_router_requests_total{backend_type="regular",endpoint="generate"} 100\n'
        'smg_router_request_duration_seconds_sum{backend_type="regular"} 100\n'
        'smg_router_request_duration_seconds_count{backend_type="regular"} 100\n'
    )
    assert m.requests == 5.0
    assert m.duration_count is None


def test_hostile_worker_names_come_through_as_they_are() -> None:
    assert read('smg_worker_cb_state{worker="http://x/\\u001b[31m\\"}{\\\\"} 1\n').breaker == {
        'http://x/\\u001b[31m"}{\\': 1.0
    }


def test_nan_is_absent() -> None:
    m = read('smg_worker_requests_active{worker="w"} NaN\nsmg_http_connections_active NaN\n')
    assert m.active == {}
    assert m.connections is None


def test_a_bucket_without_bounds_is_no_bucket() -> None:
    with pytest.raises(Unreadable):
        read('smg_http_inflight_request_age_count{gt="0"} 1\n')


def test_an_engines_page_is_named_as_what_it_is() -> None:
    with pytest.raises(Unreadable) as caught:
        read(recorded("decode-0.5.6-pinned.prom"))
    assert caught.value.why is Why.NOT_METRICS
    assert "an engine's page" in caught.value.detail
