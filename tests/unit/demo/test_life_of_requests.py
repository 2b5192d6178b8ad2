"""Requests through the queues: lock-step, timeouts, aborts, memory, stopped loops, restarts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import SHAPE, cluster, lengths, loads, page, pin, stage, steady

from pdctl.demo.core.cluster import SimCluster
from pdctl.demo.core.leg import Leg
from pdctl.demo.core.routerstate import Job
from pdctl.demo.core.traffic import Clients, Shape, storm_of


def queues(world: SimCluster) -> tuple[dict[str, int], dict[str, int]]:
    truth = world.truth()
    return truth.lengths["prefill-0"], truth.lengths["decode-0"]


def test_every_request_of_a_load_ends_with_200() -> None:
    world = cluster()
    answers: list[int] = []

    def submit(job: Job) -> None:
        job.done = lambda status, tokens: answers.append(status)
        world.submit(job)

    for n in range(200):
        world.tl.at(1.0 + 0.1 * n, submit, SHAPE.job(world.rng))
    world.advance_to(120.0)
    assert answers == [200] * 200
    assert queues(world) == ({}, {})
    assert world.fabric.rooms == {}
    assert all(rank.used == 0 for engine in world.engines for rank in engine.ranks)  # type: ignore[attr-defined]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    at=st.floats(5.0, 80.0),
    pinned=st.integers(0, 3),
    release=st.sampled_from(["0.5.3", "0.5.9", "0.5.12.post1", "0.5.18", "0.5.23"]),
)
def test_stage_counters_tell_the_live_queues(seed: int, at: float, pinned: int, release: str) -> None:
    """What running engines show at every sample: forwards minus transfers are in flight, and so on."""
    world = cluster(release, seed=seed)
    steady(world, 8.0, 1.0, 70.0)
    pin(world, 3.0, pinned)
    world.advance_to(at)
    prefill, decode = world.prefills[0], world.decodes[0]
    truth = world.truth()
    assert stage(prefill, "prefill_forward") - stage(prefill, "prefill_transfer_kv_cache") == lengths(
        truth, "prefill-0", "inflight"
    )
    assert stage(decode, "decode_bootstrap") - stage(decode, "decode_transferred") == lengths(
        truth, "decode-0", "transfer"
    )
    assert stage(decode, "decode_prepare") - stage(decode, "decode_bootstrap") == lengths(truth, "decode-0", "prealloc")


def test_failures_are_counted_so_that_the_stages_still_add_up() -> None:
    world = cluster("0.5.23")
    storm_of(world.tl, world.rng, world.router, Shape((1_200, 2_400), (300, 700), 0.0), 120, 5.0, 4.0)
    world.advance_to(60.0)
    assert queues(world) == ({}, {})
    for engine, done, over in (
        (world.prefills[0], "prefill_forward", "prefill_transfer_kv_cache"),
        (world.decodes[0], "decode_bootstrap", "decode_transferred"),
    ):
        failed = page(engine).get("num_transfer_failed_reqs_total", 0.0)
        assert stage(engine, done) - stage(engine, over) - failed == 0


def test_a_pinned_request_fails_after_300_seconds_and_the_router_tries_again() -> None:
    world = cluster("0.5.23")
    pin(world, 10.0)
    world.advance_to(305.0)
    first = next(iter(world.fabric.rooms))
    world.advance_to(320.0)
    assert list(world.fabric.rooms) != [first]
    assert queues(world) == ({"inflight": 1}, {"transfer": 1})
    lines = [line for _, line in world.logs["decode-0"] if "Decode transfer failed" in line]
    assert len(lines) == 1
    assert f"Request {first} timed out after 300.0s in KVPoll.WaitingForInput" in lines[0]


def test_a_prefill_that_is_not_told_keeps_the_first_try() -> None:
    """Before 0.5.13 decode does not say that it gave up, and 0.5.9 does not see that the router left."""
    world = cluster("0.5.9")
    pin(world, 10.0)
    world.advance_to(320.0)
    assert queues(world) == ({"inflight": 2}, {"transfer": 1})


def test_the_oldest_releases_have_no_timeout() -> None:
    world = cluster("0.4.6.post5")
    pin(world, 10.0)
    world.tl.at(10.0, world.orphan, world.prefills[0], 400)
    world.advance_to(1_000.0)
    assert queues(world) == ({"bootstrap": 1, "inflight": 1}, {"transfer": 1})


@pytest.mark.parametrize(("release", "limit"), [("0.4.9", 120), ("0.5.3", 300), ("0.5.23", 300)])
def test_a_lone_prefill_request_times_out_in_bootstrap(release: str, limit: int) -> None:
    world = cluster(release)
    world.tl.at(10.0, world.orphan, world.prefills[0], 400)
    world.advance_to(10.0 + limit - 1)
    assert queues(world)[0] == {"bootstrap": 1}
    assert [(s.queue, s.cause) for s in world.truth().stuck] == [("bootstrap", "orphan")]
    world.advance_to(10.0 + limit + 1)
    assert queues(world)[0] == {}
    assert any(f"timed out after {limit}.0s in KVPoll.Bootstrapping" in line for _, line in world.logs["prefill-0"])


def test_a_lone_decode_request_waits_for_its_kv() -> None:
    world = cluster()
    world.tl.at(10.0, world.orphan, world.decodes[0], 400)
    world.advance_to(50.0)
    assert [(s.instance, s.queue, s.cause) for s in world.truth().stuck] == [("decode-0", "transfer", "orphan")]


def test_clients_that_leave_are_noticed_on_both_sides() -> None:
    world = cluster()
    job = SHAPE.job(world.rng)
    job.held = "pinned"
    world.tl.at(10.0, world.submit, job)
    world.tl.at(12.0, world.router.leave, job)
    world.advance_to(20.0)
    assert queues(world) == ({}, {})
    assert page(world.prefills[0])["num_aborted_requests_total"] == 1
    assert any("Aborted by AbortReq." in line for _, line in world.logs["prefill-0"])


def test_0_5_9_does_not_notice_that_a_client_left() -> None:
    world = cluster("0.5.9")
    job = SHAPE.job(world.rng)
    job.held, job.stream = "pinned", False
    world.tl.at(10.0, world.submit, job)
    world.tl.at(12.0, world.router.leave, job)
    world.advance_to(60.0)
    assert queues(world) == ({"inflight": 1}, {"transfer": 1})


def test_0_5_9_counts_a_stream_until_its_headers() -> None:
    for release, active in (("0.5.9", 0), ("0.5.10.post1", 1), ("0.5.23", 1)):
        world = cluster(release)
        job = SHAPE.job(world.rng)
        job.held, job.stream = "pinned", True
        world.tl.at(10.0, world.submit, job)
        world.advance_to(20.0)
        assert page(world.prefills[0])["http_requests_active"] == active


def test_decode_admits_only_what_leaves_room_for_output() -> None:
    """20000 tokens, 900 each and 512 reserved for each request's output: 14 run, the rest wait."""
    world = cluster(decode_kv=20_000)
    Clients(world.tl, world.rng, world.submit, Shape((900, 900), (400, 400), 0.0), 60, 1.0)
    world.advance_to(8.0)
    live = loads(world, "decode-0")
    assert live["num_running_reqs"] == 14
    assert int(str(live["decode_prealloc_queue_reqs"])) > 30
    assert 0.6 < float(str(live["token_usage"])) < 0.95
    assert world.truth().stuck == ()


def test_a_stopped_loop_freezes_what_is_told_and_its_clock() -> None:
    world = cluster("0.5.23")
    steady(world, 4.0, 1.0, 50.0)
    world.tl.at(30.0, world.decodes[0].ranks[0].stop, "hung")
    world.advance_to(40.0)
    before, told = page(world.decodes[0]), loads(world, "decode-0")
    world.advance_to(50.0)
    after = page(world.decodes[0])
    clocks = [name for name in before if name.startswith("scheduler_")]
    assert len(clocks) == 3
    assert all(after[name] == before[name] for name in clocks)
    assert loads(world, "decode-0") == told
    assert after["http_requests_active"] > before["http_requests_active"]
    assert world.truth().stopped == (("decode-0", 0),)
    world.decodes[0].ranks[0].go_on()
    world.advance_to(120.0)
    assert queues(world) == ({}, {})


def test_an_idle_loop_spins() -> None:
    world = cluster("0.5.23")
    world.advance_to(50.0)
    before = page(world.prefills[0])
    world.advance_to(80.0)
    after = page(world.prefills[0])
    assert after["scheduler_idle_seconds_total"] - before["scheduler_idle_seconds_total"] == pytest.approx(30, abs=1)
    cpu = after["scheduler_process_cpu_seconds_total"] - before["scheduler_process_cpu_seconds_total"]
    assert cpu == pytest.approx(30, abs=1.5)


def test_a_pinned_loop_turns_and_is_never_idle() -> None:
    world = cluster("0.5.23")
    pin(world, 20.0)
    world.advance_to(50.0)
    before = page(world.prefills[0])
    world.advance_to(80.0)
    after = page(world.prefills[0])
    assert after["scheduler_idle_seconds_total"] == before["scheduler_idle_seconds_total"]
    cpu = after["scheduler_process_cpu_seconds_total"] - before["scheduler_process_cpu_seconds_total"]
    assert cpu == pytest.approx(30, abs=1.5)


def test_a_failed_transfer_nobody_acknowledges_holds_memory_for_30_seconds() -> None:
    for release, held in (("0.5.18", 0), ("0.5.19", 500), ("0.5.23", 500)):
        world = cluster(release)
        leg: Leg = world.orphan(world.decodes[0], 500)
        world.advance_to(10.0)
        world.decodes[0].leave(leg)
        world.advance_to(20.0)
        assert queues(world)[1] == {}
        assert loads(world, "decode-0")["num_used_tokens"] == held
        world.advance_to(60.0)
        assert loads(world, "decode-0")["num_used_tokens"] == 0


def test_a_restarted_engine_starts_from_nothing() -> None:
    world = cluster("0.5.23")
    steady(world, 4.0, 1.0, 60.0)
    world.tl.at(40.0, world.decodes[0].crash)
    world.tl.at(50.0, world.decodes[0].boot)
    world.advance_to(39.0)
    before = page(world.decodes[0])
    world.advance_to(51.0)
    after = page(world.decodes[0])
    assert before["num_requests_total"] > after.get("num_requests_total", 0.0)
    assert "num_running_reqs" not in after or after["num_running_reqs"] <= before["num_running_reqs"]
    assert any("fired up and ready to roll" in line for _, line in world.logs["decode-0"])


def test_health_fails_when_the_loop_stands_still() -> None:
    world = cluster("0.5.23")
    world.tl.at(10.0, world.prefills[0].ranks[0].stop, "hung")
    said: list[tuple[float, int]] = []
    world.tl.at(20.0, world.prefills[0].probe, lambda status: said.append((world.tl.now, status)))
    world.advance_to(60.0)
    assert said == [(40.0, 503)]
    assert any("Health check failed" in line for _, line in world.logs["prefill-0"])


def test_health_is_a_request_that_takes_a_second() -> None:
    world = cluster("0.5.23")
    said: list[tuple[float, int]] = []
    world.tl.at(20.0, world.prefills[0].probe, lambda status: said.append((world.tl.now, status)))
    world.advance_to(60.0)
    assert said == [(21.0, 200)]
    assert [line for _, line in world.logs["prefill-0"] if "#new-token: 1," in line]


def test_the_same_seed_gives_the_same_course() -> None:
    def course() -> list[str]:
        world = cluster(seed=7)
        steady(world, 6.0, 1.0, 40.0)
        world.advance_to(60.0)
        return [line for _, line in world.logs["decode-0"]]

    first = course()
    assert len(first) > 100
    assert first == course()


def test_sums_over_ranks_hide_the_rank_that_is_stuck() -> None:
    world = cluster("0.5.23", dp=4, tp=4)
    job = SHAPE.job(world.rng)
    job.held, job.dp = "one", 2
    world.tl.at(5.0, world.submit, job)
    steady(world, 6.0, 1.0)
    world.advance_to(60.0)
    assert [(s.queue, s.dp) for s in world.truth().pinned if s.instance == "prefill-0"] == [("inflight", 2)]


def test_an_idle_rank_of_a_lockstep_engine_does_not_report_while_its_siblings_run() -> None:
    """Attention data parallelism: the idle branch is not reached, so what a rank last wrote stays."""
    values = {}
    for lockstep in (False, True):
        world = cluster("0.5.15", dp=2, tp=2, lockstep=lockstep)
        world.decodes[0].avoided = frozenset({1})
        Clients(world.tl, world.rng, world.submit, Shape((400, 400), (1_500, 2_500), 0.0), 4, 30.0)
        world.advance_to(10.0)
        world.decodes[0].ranks[1].log_stats(num_running_reqs=7.0)
        world.advance_to(120.0)
        values[lockstep] = (world.decodes[0].ranks[1].gauges or {})["num_running_reqs"]
    assert values == {False: 0.0, True: 7.0}
