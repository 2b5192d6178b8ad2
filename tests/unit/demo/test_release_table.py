"""What running engines of six releases showed (idle and probed, after a burst, pinned, pinned and probed, under load),
asked of the simulated ones. The expected values are those of the running engines."""

from __future__ import annotations

import pytest
from world import SHAPE, clients, cluster, loads, page, pin, series, steady

from pdctl.demo.core.answers import answer
from pdctl.demo.core.cluster import SimCluster
from pdctl.demo.core.traffic import Probes, burst_of

INFLIGHT = "num_prefill_inflight_queue_reqs"
TRANSFER = "num_decode_transfer_queue_reqs"
MINUTE = [100.0 + 5.0 * n for n in range(13)]


def probe_both(world: SimCluster, start: float) -> None:
    for n, engine in enumerate(world.engines):
        Probes(world.tl, engine, 10.0, start + 0.3 * n)


@pytest.mark.parametrize(
    ("release", "value"), [("0.5.6", 0), ("0.5.9", 0), ("0.5.10.post1", 1), ("0.5.15", 1), ("0.5.19", 0)]
)
def test_idle_and_probed_each_ten_seconds(release: str, value: float) -> None:
    world = cluster(release)
    steady(world, 2.0, 1.0, 30.0)
    probe_both(world, 40.0)
    assert series(world, world.prefills[0], INFLIGHT, MINUTE) == [value] * len(MINUTE)


@pytest.mark.parametrize(
    ("release", "prefill_lingers", "decode_lingers"),
    [
        ("0.5.9", False, True),
        ("0.5.10.post1", True, True),
        ("0.5.15", True, True),
        ("0.5.19", False, False),
        ("0.5.23", False, False),
    ],
)
def test_after_a_burst(release: str, prefill_lingers: bool, decode_lingers: bool) -> None:
    """The burst is over by 60: at 80 older releases still show it, by 100 none does."""
    world = cluster(release)
    burst_of(world.tl, world.rng, world.submit, SHAPE, 64, 50.0, 4.0)
    world.advance_to(80.0)
    assert world.truth().lengths == {"prefill-0": {}, "decode-0": {}}
    assert (page(world.prefills[0])[INFLIGHT] > 0) is prefill_lingers
    assert (page(world.decodes[0])["num_running_reqs"] > 0) is decode_lingers
    world.advance_to(100.0)
    assert page(world.prefills[0])[INFLIGHT] == 0
    assert page(world.decodes[0])["num_running_reqs"] == 0


PINNED = [("0.5.6", 0), ("0.5.9", 0), ("0.5.10.post1", 1), ("0.5.12.post1", 1), ("0.5.15", 1), ("0.5.19", 1)]


@pytest.mark.parametrize(("release", "value"), PINNED)
def test_one_pinned_and_nothing_else(release: str, value: float) -> None:
    world = cluster(release)
    steady(world, 2.0, 1.0, 20.0)
    pin(world, 90.0)
    assert series(world, world.prefills[0], INFLIGHT, MINUTE) == [value] * len(MINUTE)
    assert page(world.decodes[0])[TRANSFER] == 0
    assert [(s.instance, s.queue, s.count) for s in world.truth().pinned] == [
        ("prefill-0", "inflight", 1),
        ("decode-0", "transfer", 1),
    ]


PROBED = [("0.5.6", 1), ("0.5.9", 0), ("0.5.10.post1", 2), ("0.5.12.post1", 2), ("0.5.15", 2), ("0.5.19", 2)]


@pytest.mark.parametrize(("release", "value"), PROBED)
def test_one_pinned_and_probed(release: str, value: float) -> None:
    world = cluster(release)
    steady(world, 2.0, 1.0, 20.0)
    pin(world, 90.0)
    probe_both(world, 92.0)
    assert series(world, world.prefills[0], INFLIGHT, MINUTE) == [value] * len(MINUTE)
    assert page(world.decodes[0])[TRANSFER] == 0


@pytest.mark.parametrize(
    ("release", "never_zero"), [("0.5.9", None), ("0.5.10.post1", True), ("0.5.15", True), ("0.5.19", False)]
)
def test_a_load_of_four_clients(release: str, never_zero: bool | None) -> None:
    """None: always 0. The gauge never exceeds the clients."""
    world = cluster(release)
    clients(world, 4, 1.0, 400.0)
    seen = series(world, world.prefills[0], INFLIGHT, [100.0 + 0.83 * n for n in range(60)])
    values = {value for value in seen if value is not None}
    if never_zero is None:
        assert values == {0}
    else:
        assert (0 not in values) is never_zero
        assert 1 <= max(values) <= 4


def pinned_world(release: str, *, probed: bool = False) -> SimCluster:
    world = cluster(release)
    steady(world, 2.0, 1.0, 20.0)
    pin(world, 90.0)
    if probed:
        probe_both(world, 92.0)
    world.advance_to(150.0)
    return world


@pytest.mark.parametrize("release", ["0.5.9", "0.5.10.post1", "0.5.12.post1", "0.5.19", "0.5.23"])
def test_live_counts_are_right_when_pinned(release: str) -> None:
    world = pinned_world(release)
    prefill, decode = loads(world, "prefill-0"), loads(world, "decode-0")
    assert (prefill["prefill_inflight_queue_reqs"], decode["decode_transfer_queue_reqs"]) == (1, 1)
    assert prefill["num_used_tokens"] == decode["num_used_tokens"] != 0


@pytest.mark.parametrize("release", ["0.5.15", "0.5.16", "0.5.18"])
def test_the_snapshot_of_the_middle_releases_is_wrong_when_pinned(release: str) -> None:
    world = pinned_world(release)
    prefill, decode = loads(world, "prefill-0"), loads(world, "decode-0")
    assert (prefill["prefill_inflight_queue_reqs"], decode["decode_transfer_queue_reqs"]) == (0, 0)
    assert prefill["num_used_tokens"] != 0  # published after the batch took its memory
    assert decode["num_used_tokens"] == 0


def test_a_probe_publishes_the_snapshot_of_prefill_alone() -> None:
    world = pinned_world("0.5.15", probed=True)
    assert loads(world, "prefill-0")["prefill_inflight_queue_reqs"] == 1
    assert loads(world, "decode-0")["decode_transfer_queue_reqs"] == 0


def test_timestamps_of_the_snapshot() -> None:
    assert "timestamp" not in loads(pinned_world("0.5.15"), "prefill-0")
    old = pinned_world("0.5.18")
    assert old.spec.epoch + 85 < float(str(loads(old, "prefill-0")["timestamp"])) < old.spec.epoch + 95
    new = pinned_world("0.5.19")
    first = float(str(loads(new, "prefill-0")["timestamp"]))
    new.advance_to(152.0)
    assert float(str(loads(new, "prefill-0")["timestamp"])) == pytest.approx(first + 2.0, abs=0.06)


def test_no_live_counts_before_their_release() -> None:
    assert answer(pinned_world("0.5.6"), "prefill-0", "/v1/loads").status == 404


def test_the_gauge_of_the_oldest_releases_is_misspelt_and_never_set() -> None:
    for release in ("0.4.6.post5", "0.4.9"):
        world = pinned_world(release)
        seen = page(world.prefills[0])
        assert INFLIGHT not in seen
        assert seen["num_prefill_infight_queue_reqs"] == 0


def test_the_idle_report_that_repeats_old_numbers() -> None:
    """0.5.1.post3: a batch that saw one in flight leaves it there for ever."""
    world = cluster("0.5.1.post3")
    pin(world, 50.0)
    burst_of(world.tl, world.rng, world.submit, SHAPE, 3, 52.0, 1.0)
    world.advance_to(60.0)
    for room in list(world.fabric.rooms):
        world.fabric.hold(room, None)
    world.advance_to(200.0)
    assert world.truth().lengths["prefill-0"] == {}
    assert page(world.prefills[0])[INFLIGHT] == 1


def test_a_stopped_scheduler_hangs_the_releases_that_ask_it() -> None:
    for release, never in (("0.5.9", True), ("0.5.12.post1", True), ("0.5.15", False), ("0.5.23", False)):
        world = cluster(release)
        world.advance_to(50.0)
        world.decodes[0].ranks[0].stop("hung")
        world.advance_to(60.0)
        assert answer(world, "decode-0", "/v1/loads").never is never
        assert answer(world, "decode-0", "/server_info").never is True
        assert answer(world, "decode-0", "/metrics").status == 200


def test_another_queue_freezes_the_gauge_from_0_5_11_on() -> None:
    """The transfer ended, but a lone request in bootstrap keeps the engine from being fully idle."""
    for release, value in (("0.5.10.post1", 0), ("0.5.12.post1", 1), ("0.5.23", 1)):
        world = cluster(release)
        world.tl.at(49.0, world.orphan, world.prefills[0], 400)
        burst_of(world.tl, world.rng, world.submit, SHAPE, 1, 50.0, 0.1)
        world.advance_to(120.0)
        assert world.truth().lengths["prefill-0"] == {"bootstrap": 1}
        assert page(world.prefills[0])[INFLIGHT] == value
