"""What is asked of whom, in which order."""

from __future__ import annotations

from dataclasses import replace

from http_answers import DECODE, PREFILL, PROXY, ROUTER

from pdctl.facts.asks import asks_for, older_name, server_info_fallback
from pdctl.model.answer import Fact
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import Instance, KeySource, Role

ALL = tuple(reversed(Fact))


def urls(instance: Instance) -> list[tuple[Fact, str]]:
    return [(ask.fact, ask.url) for ask in asks_for(instance, ALL)]


def test_an_engine_is_asked_politely() -> None:
    assert urls(PREFILL) == [
        (Fact.METRICS, "http://192.0.2.11:30000/metrics"),
        (Fact.LOADS, "http://192.0.2.11:30000/v1/loads?include=core,disagg,queues"),
        (Fact.SERVER_INFO, "http://192.0.2.11:30000/server_info"),
        (Fact.HEALTH, "http://192.0.2.11:30000/health"),
    ]


def test_a_router() -> None:
    assert urls(ROUTER) == [
        (Fact.METRICS, "http://192.0.2.1:29000/metrics"),
        (Fact.WORKERS, "http://192.0.2.1:30000/workers"),
        (Fact.HEALTH, "http://192.0.2.1:30000/health"),
    ]


def test_a_router_whose_metrics_are_nowhere_is_not_asked_for_them() -> None:
    assert [fact for fact, _ in urls(replace(ROUTER, metrics_url=None))] == [Fact.WORKERS, Fact.HEALTH]


def test_a_proxy_is_asked_for_nothing_but_health() -> None:
    assert urls(replace(PROXY, metrics_url="http://192.0.2.2:9/metrics")) == [
        (Fact.HEALTH, "http://192.0.2.2:80/health")
    ]


def test_vllm_has_no_live_counts() -> None:
    assert [fact for fact, _ in urls(replace(DECODE, engine="vllm"))] == [Fact.METRICS, Fact.HEALTH]


def test_only_the_wanted_facts() -> None:
    assert [ask.fact for ask in asks_for(PREFILL, {Fact.LOADS})] == [Fact.LOADS]
    assert asks_for(PREFILL, {Fact.SOCKETS, Fact.LOG}) == ()


def test_an_instance_without_url_is_asked_nothing_but_its_page() -> None:
    bare = Instance("x", Role.DECODE)
    assert asks_for(bare, ALL) == ()
    assert urls(replace(bare, metrics_url="http://h:1/m")) == [(Fact.METRICS, "http://h:1/m")]


def test_a_slash_at_the_end_of_the_url_is_not_doubled() -> None:
    assert urls(replace(DECODE, url="https://h/prefix/"))[1][1].startswith("https://h/prefix/v1/loads?")


def test_the_asks_carry_the_instances_key_ca_and_way() -> None:
    key = KeySource(env="PD_KEY")
    for ask in asks_for(replace(PREFILL, api_key=key, ca_file="/ca.pem"), ALL, via="host-a"):
        assert (ask.subject, ask.api_key, ask.ca_file, ask.via, ask.method) == (
            "prefill-0", key, "/ca.pem", "host-a", "GET",
        )  # fmt: skip


def test_health_is_given_the_time_an_engine_takes_to_say_no() -> None:
    (engine,) = asks_for(PREFILL, {Fact.HEALTH})
    (router,) = asks_for(ROUTER, {Fact.HEALTH})
    assert engine.timeout > 20.0 > router.timeout


def test_server_info_has_an_older_name() -> None:
    (ask,) = asks_for(PREFILL, {Fact.SERVER_INFO}, via="host-a")
    older = server_info_fallback(ask)
    assert isinstance(older, HttpAsk)
    assert older.url == "http://192.0.2.11:30000/get_server_info"
    assert (older.fact, older.via) == (Fact.SERVER_INFO, "host-a")
    assert server_info_fallback(older) is None
    (loads,) = asks_for(PREFILL, {Fact.LOADS})
    assert server_info_fallback(loads) is None


def test_live_counts_have_an_older_name_as_well() -> None:
    (ask,) = asks_for(PREFILL, {Fact.LOADS}, via="host-a")
    older = older_name(ask)
    assert older is not None and older.url == "http://192.0.2.11:30000/get_load"
    assert (older.fact, older.via) == (Fact.LOADS, "host-a")
    assert older_name(older) is None
    (page,) = asks_for(PREFILL, {Fact.METRICS})
    assert older_name(page) is None
