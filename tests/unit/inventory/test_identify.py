"""Who endpoints are, from their answers alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pdctl.inventory.identify import Identity, SeenOf, bootstrap_ports, free_name, identify, missing_workers, settled
from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics, ServerInfo
from pdctl.model.router import Worker, Workers

AT = datetime(2026, 1, 1, tzinfo=UTC)
PREFILL = Instance("prefill-0", Role.PREFILL, "http://10.0.0.1:30000")
DECODE = Instance("decode-0", Role.DECODE, "http://10.0.0.2:30000")
ROUTER = Instance("router-0", Role.ROUTER, "http://10.0.0.3:30000", "http://10.0.0.3:29000/metrics")


def seen(**answers: object) -> SeenOf:
    """Answers by ``subject__fact`` (dashes as underscores); a Missed stands for itself, anything else was seen."""
    out = {}
    for key, value in answers.items():
        subject, fact = (part.replace("_", "-") for part in key.split("__"))
        got = value if isinstance(value, Missed) else Seen(value)
        out[subject, Fact(fact)] = Observation(subject, Fact(fact), 0.0, AT, 0.1, "GET x", got)
    return out


def test_an_engine_tells_release_role_ranks_model_and_port() -> None:
    info = ServerInfo(
        "0.5.19",
        "prefill",
        {"tp_size": 8, "dp_size": 2, "served_model_name": "m", "disaggregation_bootstrap_port": 9000},
    )
    found = identify(PREFILL, seen(prefill_0__server_info=info, prefill_0__metrics=EngineMetrics({})))
    assert found.told and found.mismatch is None and found.todo == ()
    assert found.facts == ("SGLang 0.5.19", "prefill", "tp 8", "dp 2", "model m", "metrics on")
    assert found.instance.bootstrap_port == 9000


def test_a_role_that_contradicts_the_user_is_named_and_the_engine_believed() -> None:
    found = identify(DECODE, seen(decode_0__server_info=ServerInfo("0.5.19", "prefill")))
    assert found.mismatch == "named as decode, but says disaggregation_mode prefill"
    (row,) = settled([found], {})
    assert (row.instance.name, row.instance.role) == ("prefill-0", Role.PREFILL)


def test_an_engine_that_is_not_disaggregated_keeps_its_name_and_is_told() -> None:
    found = identify(DECODE, seen(decode_0__server_info=ServerInfo("0.5.19", "null")))
    assert found.mismatch is not None and "takes no part" in found.mismatch
    assert settled([found], {})[0].instance.name == "decode-0"


def test_a_release_that_does_not_tell_its_role_is_no_mismatch() -> None:
    assert identify(DECODE, seen(decode_0__server_info=ServerInfo("0.4.9"))).mismatch is None


@pytest.mark.parametrize(
    "missed, says",
    [
        (Missed(Why.CONNECT_REFUSED, "connection refused"), "connection refused"),
        (Missed(Why.AUTH, "HTTP 401"), "api_key_env"),
        (Missed(Why.READ_TIMEOUT), "read-timeout"),
    ],
)
def test_an_engine_that_does_not_answer_is_not_told(missed: Missed, says: str) -> None:
    found = identify(PREFILL, seen(prefill_0__server_info=missed))
    assert not found.told and any(says in line for line in found.todo)


def test_metrics_that_are_off_are_left_to_do() -> None:
    off = Missed(Why.METRICS_DISABLED)
    found = identify(PREFILL, seen(prefill_0__server_info=ServerInfo("0.5.19", "prefill"), prefill_0__metrics=off))
    assert "metrics off" in found.facts and "--enable-metrics" in found.todo[0]


def test_vllm_is_known_by_its_page() -> None:
    page = EngineMetrics({}, engine="vllm")
    found = identify(PREFILL, seen(prefill_0__metrics=page, prefill_0__server_info=Missed(Why.NOT_FOUND)))
    assert found.told and found.instance.engine == "vllm"


def test_a_router_tells_its_workers_and_where_its_metrics_are_is_never_guessed() -> None:
    workers = Workers((Worker("http://a", "prefill", True), Worker("http://b", "decode", False)))
    bare = Instance("router-0", Role.ROUTER, "http://10.0.0.3:30000")
    found = identify(bare, seen(router_0__workers=workers))
    assert found.told and found.facts == ("workers: 1 prefill, 1 decode (1 unhealthy by its account)",)
    assert found.instance.metrics_url is None and "--prometheus-port" in found.todo[0]


def test_workers_not_named_are_added_and_those_named_are_not_added_twice() -> None:
    cluster = Cluster("c", (PREFILL, Instance("decode-0", Role.DECODE, "http://localhost:30000/"), ROUTER))
    rows = Workers(
        (
            Worker("http://10.0.0.1:30000", "prefill", bootstrap_port=8998),
            Worker("http://127.0.0.1:30000", "decode"),
            Worker("http://10.0.0.7:30000@1", "prefill", load=2.0**62, bootstrap_port=9001),
            Worker("http://10.0.0.7:30000@0", "prefill"),
            Worker("10.0.0.8:30000", "decode"),
            Worker("http://10.0.0.9:30000", "regular"),
        )
    )
    added, remarks = missing_workers(cluster, seen(router_0__workers=rows))
    assert added == (
        Instance("prefill-1", Role.PREFILL, "http://10.0.0.7:30000", bootstrap_port=9001),
        Instance("decode-1", Role.DECODE, "http://10.0.0.8:30000"),
    )
    assert remarks == ("router-0 lists http://10.0.0.9:30000 as a regular: left out",)


def test_bootstrap_ports_of_a_router_fill_in_and_are_compared() -> None:
    rows = Workers((Worker("http://10.0.0.1:30000", "prefill", bootstrap_port=9001),))
    ports = bootstrap_ports(Cluster("c", (ROUTER,)), seen(router_0__workers=rows))
    assert settled([Identity(PREFILL, True)], ports)[0].instance.bootstrap_port == 9001
    own = Identity(Instance("prefill-0", Role.PREFILL, PREFILL.url, bootstrap_port=8998), True)
    assert settled([own], ports)[0].todo == ("its bootstrap port is 8998 by its own account, 9001 by a router's",)


def test_the_first_free_name() -> None:
    assert free_name(Role.DECODE, ["decode-0", "decode-2", "prefill-1"]) == "decode-1"
