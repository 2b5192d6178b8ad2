"""What Prometheus remembers, put together again: answers in the form of its HTTP API's documentation."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from pdctl.facts import prometheus, read
from pdctl.facts.base import Unreadable
from pdctl.facts.prometheus import Series, Server, Target, pages_of, places_of, targets_of
from pdctl.model.answer import Answer, Fact, Seen, Why
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge

AT = datetime(2026, 3, 1, tzinfo=UTC)


def answer(body: object, status: int = 200) -> Answer:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer("prometheus", Fact.METRICS, "GET", 0.0, AT, 0.1, status, body=text)


def matrix(*rows: object) -> Answer:
    return answer({"status": "success", "data": {"resultType": "matrix", "result": list(rows)}})


def test_samples_of_one_moment_are_one_page_again() -> None:
    here = {"job": "pd", "instance": "gpu1:30000"}
    running = {"__name__": "sglang:num_running_reqs", **here, "tp_rank": "0", "model_name": 'a "b"\\\n'}
    series = prometheus.read_series(
        matrix(
            {"metric": running, "values": [[1000.5, "3"], [1015.5, "4"]]},
            {"metric": {**running, "tp_rank": "1"}, "values": [[1000.5, "3"]]},
        )
    )
    up = prometheus.read_series(
        matrix({"metric": {"__name__": "up", **here}, "values": [[1000.5, "1"], [1030.5, "0"]]})
    )
    took = Series(here, [(1000.5, "0.25")])
    rows = [*(("sglang:num_running_reqs", one) for one in series), ("up", up[0]), ("scrape_duration_seconds", took)]
    pages = pages_of(rows, {Target("pd", "gpu1:30000"): "prefill-0"})["prefill-0"]
    assert sorted(pages) == [1000.5, 1015.5, 1030.5]
    assert (pages[1000.5].up, pages[1000.5].took) == (True, 0.25)
    assert (pages[1030.5].up, pages[1030.5].lines) == (False, [])
    page = "".join(pages[1000.5].lines).encode()
    seen = read(Answer("prefill-0", Fact.METRICS, "", 0.0, AT, 0.0, 200, body=page), None)
    assert isinstance(seen.got, Seen)
    value = seen.got.value
    assert isinstance(value, EngineMetrics)
    assert value.model == 'a "b"\\\n'
    assert sorted(value.values[Gauge.RUNNING].values()) == [3.0, 3.0]


def test_targets_of_others_are_left_out() -> None:
    series = Series({"job": "pd", "instance": "other:1"}, [(1.0, "1")])
    assert pages_of([("up", series)], {Target("pd", "gpu1:30000"): "prefill-0"}) == {}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"status": "error", "errorType": "timeout", "error": "query timed out"}, Why.HTTP_ERROR),
        ({"status": "success", "data": {"resultType": "vector", "result": []}}, Why.NOT_JSON),
        ({"status": "success"}, Why.NOT_JSON),
        ({"message": "not found"}, Why.NOT_JSON),
        (b"", Why.EMPTY),
        (b"<html>", Why.NOT_JSON),
        (b'{"status":"succ', Why.TRUNCATED),
    ],
)
def test_what_is_no_answer_of_prometheus(body: object, why: Why) -> None:
    with pytest.raises(Unreadable) as error:
        prometheus.read_series(answer(body))
    assert error.value.why is why


def test_odd_rows_are_left_out_and_the_others_stay() -> None:
    rows = prometheus.read_series(
        matrix({"metric": {"job": 7, "instance": "a:1"}, "values": [[1, "2"], ["x", "3"], [4], [5, 6], None]}, 3)
    )
    assert [(dict(one.labels), list(one.points)) for one in rows] == [({"instance": "a:1"}, [(1.0, "2")]), ({}, [])]


def query_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["query"][0]


def test_a_selector_names_the_metric_the_labels_and_the_targets() -> None:
    server = Server("http://p:9090/prom/", match=(("cluster", 'a"b'),))
    ask = server.samples_ask("up", 100.0, 160.0, ["gpu1.lan:30000", "[::1]:30002"])
    assert ask.url.startswith("http://p:9090/prom/api/v1/query?")
    assert query_of(ask.url) == (
        '{__name__="up",cluster="a\\"b",instance=~"gpu1\\\\.lan:30000|\\\\[::1\\\\]:30002"}[60000ms]'
    )
    many = [f"gpu{n}:1" for n in range(prometheus.MOST_NAMED + 1)]
    assert query_of(server.samples_ask("up", 0.0, 1.0, many).url) == '{__name__="up",cluster="a\\"b"}[1000ms]'


ENGINE = Instance("prefill-0", Role.PREFILL, "http://127.0.0.1:30000", host="h1")
ROUTER = Instance("router-0", Role.ROUTER, "http://gpu1:30001", "http://gpu1:29001/metrics")
CLUSTER = Cluster("c", (ENGINE, ROUTER), (Host("h1", "root@gpu1.lan:2222"),))


def test_an_engine_on_loopback_is_scraped_by_its_hosts_name() -> None:
    assert places_of(CLUSTER, ENGINE) == (
        "127.0.0.1:30000", "h1:30000", "gpu1.lan:30000", "localhost:30000", "[::1]:30000",
    )  # fmt: skip
    assert places_of(CLUSTER, ROUTER) == ("gpu1:29001",)
    targets = [Target("pd", "GPU1.lan:30000"), Target("b", "gpu1:29001"), Target("a", "gpu1:29001"), Target("x", "y:1")]
    assert targets_of(CLUSTER, targets) == {targets[0]: "prefill-0", targets[2]: "router-0"}


def test_the_labels_tell_who_is_who() -> None:
    def labels(place: str, kind: str = "", name: str = "sglang:num_running_reqs", job: str = "pd") -> dict[str, str]:
        return {"__name__": name, "job": job, "instance": place, "engine_type": kind}

    made = prometheus.cluster_in(
        [
            labels("b:1", "prefill"),
            labels("a:1", "prefill"),
            labels("c:1", "decode"),
            labels("u:1", "unified"),
            labels("r:2", name="smg_worker_health", job="routers"),
        ]
    )
    assert made.name == "pd+routers"
    assert [(i.name, i.url, i.metrics) for i in made.instances] == [
        ("prefill-0", "http://a:1", "http://a:1/metrics"),
        ("prefill-1", "http://b:1", "http://b:1/metrics"),
        ("decode-0", "http://c:1", "http://c:1/metrics"),
        ("router-0", None, "http://r:2/metrics"),
    ]
