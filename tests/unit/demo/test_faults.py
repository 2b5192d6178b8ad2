"""The table of faults: each brings about what it says, on releases old and new."""

from __future__ import annotations

import pytest

from pdctl.checks import judge
from pdctl.demo.core.cluster import ClusterSpec
from pdctl.demo.core.release import RELEASES, is_release, release_of
from pdctl.demo.core.truth import Truth
from pdctl.demo.faults import FAULTS, simulate
from pdctl.demo.scenes import Plan
from pdctl.demo.virtual import recording
from pdctl.facts import read
from pdctl.model.registry import REGISTRY
from pdctl.model.window import Window

HARMLESS = ("healthy", "load", "burst-then-idle", "storm", "drain", "decode-full", "probed", "stale")


def truth_of(name: str, release: str = "0.5.23", seconds: float = 20.0, **plan: float) -> Truth:
    fault = FAULTS[name]
    merged = Plan(fault.plan.start, plan.get("age", fault.plan.age), int(plan.get("count", fault.plan.count)))
    cluster, used = simulate(fault, ClusterSpec(release=release), merged)
    return cluster.truth(used.start + seconds)


def test_every_fault_leads_to_findings_there_are() -> None:
    assert {name for fault in FAULTS.values() for name in fault.leads_to} <= set(REGISTRY)
    assert all(name == fault.name and fault.line for name, fault in FAULTS.items())


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_can_be_simulated(name: str) -> None:
    truth = truth_of(name, seconds=5.0)
    assert truth.fault == name
    assert truth.t == pytest.approx(5.0)


@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.parametrize("release", ["0.5.9", "0.5.23"])
def test_nothing_is_stuck_where_nothing_is_wrong(name: str, release: str) -> None:
    assert truth_of(name, release, 45.0).stuck == ()


@pytest.mark.parametrize("release", RELEASES)
def test_pinned_requests_are_pinned_on_both_sides(release: str) -> None:
    truth = truth_of("pinned", release, count=3)
    assert [(s.instance, s.queue, s.count, s.cause) for s in truth.pinned] == [
        ("prefill-0", "inflight", 3, "pinned"),
        ("decode-0", "transfer", 3, "pinned"),
    ]
    assert all(s.since == pytest.approx(-180, abs=2) for s in truth.pinned)


def test_pinned_under_load_pins_no_others() -> None:
    truth = truth_of("pinned-under-load", seconds=60.0)
    assert [(s.queue, s.count) for s in truth.pinned] == [("inflight", 2), ("transfer", 2)]
    assert truth.lengths["decode-0"].get("running", 0) > 0


def test_lone_requests() -> None:
    assert [(s.instance, s.queue) for s in truth_of("pinned-bootstrap").pinned] == [("prefill-0", "bootstrap")]
    assert [(s.instance, s.queue) for s in truth_of("pinned-transfer").pinned] == [("decode-0", "transfer")]


def test_one_rank_of_four() -> None:
    truth = truth_of("one-rank", seconds=60.0)
    assert [(s.dp, s.count) for s in truth.pinned if s.instance == "prefill-0"] == [(2, 3)]


def test_a_leak_holds_dozens() -> None:
    truth = truth_of("transfer-leak")
    assert sum(s.count for s in truth.pinned if s.queue == "transfer") == 40


@pytest.mark.parametrize(
    ("name", "instance", "queue"),
    [
        ("prealloc-wedged", "decode-0", "prealloc"),
        ("queue-head-blocked", "prefill-0", "queue"),
        ("engine-wedged", "decode-0", "running"),
    ],
)
def test_queues_that_do_not_move(name: str, instance: str, queue: str) -> None:
    truth = truth_of(name)
    assert (instance, queue, name) in {(s.instance, s.queue, s.cause) for s in truth.stuck}
    assert truth.stopped == ()


def test_stopped_schedulers() -> None:
    assert truth_of("hung-scheduler").stopped == (("decode-0", 0),)
    assert truth_of("hung-prefill").stopped == (("prefill-0", 0),)


def test_full_memory_is_capacity_and_moves() -> None:
    first, later = truth_of("decode-full"), truth_of("decode-full", seconds=60.0)
    for truth in (first, later):
        assert truth.lengths["decode-0"]["prealloc"] > 20
        assert truth.lengths["decode-0"]["running"] > 2


def test_a_drain_ends_by_itself() -> None:
    lengths = [truth_of("drain", seconds=t).lengths["decode-0"].get("prealloc", 0) for t in (0.0, 15.0, 90.0)]
    assert lengths[0] > lengths[1] > lengths[2] == 0


def test_a_decode_restarts_inside_the_window() -> None:
    cluster, plan = simulate(FAULTS["restart"], ClusterSpec())
    born = cluster.decodes[0].born
    cluster.advance_to(plan.start + 12.0)
    assert cluster.decodes[0].down
    cluster.advance_to(plan.start + 20.0)
    assert not cluster.decodes[0].down
    assert cluster.decodes[0].born > born


# Faults that the table promises a finding for, those aside that only spoil an answer.
PROMISING = [name for name, fault in FAULTS.items() if fault.leads_to not in ((), ("endpoint-unreadable",))]


def said_of(name: str, release: str | None = None) -> set[str]:
    """What a triage of half a minute finds, without sockets or waiting."""
    fault = FAULTS[name]
    made = recording(name, ClusterSpec(release=release or fault.release or "0.5.23", router="0.3.2"), seconds=30.0)
    seen = tuple(read(a, made.cluster.instance(a.subject)) for a in made.answers)
    return {f.name for f in judge(Window(made.answers[0].at, made.answers[-1].at, seen), made.cluster).findings}


@pytest.mark.parametrize("name", PROMISING)
def test_what_the_list_promises_is_found(name: str) -> None:
    assert set(FAULTS[name].leads_to) <= said_of(name)


@pytest.mark.parametrize("release", ["0.5.6", "0.5.23"])
def test_where_better_is_at_hand_a_leftover_gauge_hides_nothing_and_nothing_is_promised(release: str) -> None:
    assert said_of("stale", release) == set()
    assert FAULTS["stale"].expected(release) == ()


@pytest.mark.parametrize("text", ["0.4.6.post5", "0.5.8.post1", "0.5.22", "0.5.23"])
def test_releases_that_can_be_simulated(text: str) -> None:
    assert is_release(text)


@pytest.mark.parametrize("text", ["9.9.9", "0.5.24", "0.4.6", "0.5", "banana", "", "v0.5.23", "0.5.23rc1", "0.6.0"])
def test_releases_of_which_nothing_is_known(text: str) -> None:
    assert not is_release(text)


def test_releases_are_in_order() -> None:
    assert sorted(RELEASES, key=release_of) == list(RELEASES)
