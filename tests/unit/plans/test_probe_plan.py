"""Plans of probes: what is sent, in which order, and that nothing loads a cluster that nobody allowed to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.probe import Trial
from pdctl.plans.probe import CONTROLS, INSIDE_OUT, Wish, loads, plan_probe

RELEASES = {"prefill-0": "0.5.19", "decode-0": "0.5.19"}
CLUSTER = Cluster(
    "c",
    (
        Instance("proxy-0", Role.PROXY, "https://llm.example"),
        Instance("router-0", Role.ROUTER, "http://192.0.2.3:30000"),
        Instance("decode-0", Role.DECODE, "http://192.0.2.2:30000"),
        Instance("prefill-0", Role.PREFILL, "http://192.0.2.1:30000"),
        Instance("dark", Role.ROUTER),
    ),
)


def planned(wish: Wish, cluster: Cluster = CLUSTER, versions: dict[str, str | None] | None = None) -> list[str]:
    plan = plan_probe(cluster, wish, versions=RELEASES if versions is None else versions)
    return [" + ".join(stage.title for stage in step) for step in plan.steps]


def test_as_it_is_only_what_clients_talk_to_is_asked_and_little() -> None:
    plan = plan_probe(CLUSTER, Wish(), versions=RELEASES)
    assert planned(Wish()) == [
        "health at router-0", "one at router-0", "one at proxy-0", "idle at router-0 + idle at proxy-0",
    ]  # fmt: skip
    assert not loads(plan)
    # a health check; at both one generation and a pair, each with room for one more after a failure
    assert plan.load.requests == 1 + 2 * (2 + 3)
    assert plan.stages[-1].gaps == (1.0,)


def test_without_routers_and_proxies_the_engines_are_asked() -> None:
    engines = Cluster("c", tuple(i for i in CLUSTER.instances if i.is_engine))
    assert planned(Wish(trials=(Trial.HEALTH,)), engines) == ["health at prefill-0", "health at decode-0"]


def test_with_load_everything_but_aborts_from_the_inside_out() -> None:
    assert planned(Wish(load=True)) == [
        "health at prefill-0", "one at prefill-0", "health at decode-0", "one at decode-0",
        "health at router-0", "one at router-0", "one at proxy-0",
        "idle at prefill-0 + idle at decode-0 + idle at router-0 + idle at proxy-0",
        "rounds at prefill-0", "rounds at decode-0", "rounds at router-0", "rounds at proxy-0",
        "many at prefill-0", "many at decode-0", "many at router-0", "many at proxy-0",
    ]  # fmt: skip


def test_aborts_only_when_named_and_last() -> None:
    named = plan_probe(CLUSTER, Wish(trials=tuple(Trial), load=True, names=("router-0",)))
    assert [stage.trial for stage in named.stages][-1] is Trial.ABORTS
    other = plan_probe(CLUSTER, Wish(load=True, names=("router-0",)))
    assert [row.why[:15] for row in other.left_out if row.trial is Trial.ABORTS] == ["only when named"]


def test_the_load_counts_every_request_and_those_at_once() -> None:
    wish = Wish(
        trials=(Trial.MANY, Trial.ROUNDS), names=("router-0",), load=True, at_once=9, agents=3, rounds=5, tokens=20
    )
    load = plan_probe(CLUSTER, wish).load
    assert load.requests == 2 + (9 + CONTROLS) + (3 * 5 + CONTROLS)
    assert load.at_once == 9
    assert load.tokens == 2 * 16 + (9 + CONTROLS) * 20 + (15 + CONTROLS) * 20


@pytest.mark.parametrize(
    ("wish", "heavy"),
    [
        (Wish(), False),
        (Wish(gaps=(1.0, 2.0)), False),
        (Wish(gaps=(1.0, 2.0, 3.0, 4.0)), True),
        (Wish(repeat=20), True),
        (Wish(trials=(Trial.MANY,), at_once=2), True),
        (Wish(trials=(Trial.ROUNDS,), agents=2, rounds=1), True),
        (Wish(trials=(Trial.ABORTS,)), True),
    ],
)
def test_what_counts_as_load(wish: Wish, heavy: bool) -> None:
    assert loads(plan_probe(CLUSTER, wish)) is heavy


@pytest.mark.parametrize(
    ("version", "generates"), [("0.4.9", True), ("0.5.23", True), ("0.4.6.post5", False), (None, False)]
)
def test_an_engine_generates_directly_only_where_its_release_is_known_to(version: str | None, generates: bool) -> None:
    plan = plan_probe(CLUSTER, Wish(names=("decode-0",)), versions={"decode-0": version})
    assert (Trial.ONE in {stage.trial for stage in plan.stages}) is generates
    assert Trial.HEALTH in {stage.trial for stage in plan.stages}
    said = [row.why for row in plan.left_out if row.trial is Trial.ONE]
    assert bool(said) is not generates
    assert all("bootstrap host" in why for why in said)


def test_what_a_direct_generation_means_is_said_of_each_half() -> None:
    plan = plan_probe(CLUSTER, Wish(load=True), versions=RELEASES)
    notes = {way.name: way.note for way in plan.ways if way.note}
    assert set(notes) == {"prefill-0", "decode-0"}
    assert "one token" in (notes["prefill-0"] or "")
    assert "no transfer" in (notes["decode-0"] or "")


def test_another_engine_than_sglang_is_asked_plainly() -> None:
    vllm = Cluster("c", (Instance("decode-0", Role.DECODE, "http://192.0.2.2:8000", engine="vllm"),))
    (way,) = plan_probe(vllm, Wish()).ways
    assert (way.half, way.generates) == (False, True)


def test_what_listens_on_its_host_is_reached_through_it_but_not_a_proxy_from_outside() -> None:
    hosts = (Host("gpu-1", "ops@gpu-1"), Host("here"))
    rows = (
        Instance("decode-0", Role.DECODE, "http://127.0.0.1:30000", host="gpu-1"),
        Instance("router-0", Role.ROUTER, "http://127.0.0.1:30001", host="here"),
        Instance("proxy-0", Role.PROXY, "https://llm.example", host="gpu-1"),
        Instance("proxy-1", Role.PROXY, "http://127.0.0.1:8080", host="gpu-1"),
    )
    plan = plan_probe(Cluster("c", rows, hosts), Wish(load=True), versions=RELEASES, remote={"gpu-1"})
    assert {way.name: way.host for way in plan.ways} == {
        "decode-0": "gpu-1", "router-0": None, "proxy-0": None, "proxy-1": "gpu-1",
    }  # fmt: skip


wishes = st.builds(
    Wish,
    names=st.sampled_from([(), ("router-0",), ("proxy-0", "decode-0")]),
    trials=st.none() | st.lists(st.sampled_from(list(Trial)), max_size=4).map(tuple),
    load=st.booleans(),
    at_once=st.integers(1, 64),
    agents=st.integers(1, 8),
    rounds=st.integers(1, 8),
    gaps=st.none() | st.lists(st.floats(0.1, 60), max_size=5).map(tuple),
    repeat=st.integers(1, 9),
)


@given(wishes)
def test_every_plan_keeps_its_promises(wish: Wish) -> None:
    plan = plan_probe(CLUSTER, wish, versions=RELEASES)
    titles = [stage.title for stage in plan.stages]
    assert len(titles) == len(set(titles))
    for stage in plan.stages:
        if stage.trial not in (Trial.HEALTH, Trial.ONE):
            assert titles.index(f"one at {stage.way.name}") < titles.index(stage.title)
    depths = [INSIDE_OUT.index(s.way.instance.role) for s in plan.stages if s.trial in (Trial.HEALTH, Trial.ONE)]
    assert depths == sorted(depths)
    assert all(len(step) == 1 or {s.trial for s in step} == {Trial.IDLE} for step in plan.steps)
    after = [s.trial for s in plan.stages]
    assert Trial.ABORTS not in after or set(after[after.index(Trial.ABORTS) :]) == {Trial.ABORTS}
    told = {(row.to, row.trial) for row in plan.left_out} | {(s.way.name, s.trial) for s in plan.stages}
    chosen = {row.to for row in plan.left_out} | {way.name for way in plan.ways}
    assert told == {(name, trial) for name in chosen for trial in Trial}
    assert "dark" not in chosen
