"""The simulated router: its page and log in the real shape, ages with their lag, breakers, retries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from world import SHAPE, cluster, pin, steady

from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.core.routerpage import render_router_page
from pdctl.demo.core.routerstate import Job
from pdctl.model.answer import Fact
from pdctl.reach.capture import open_capture

CAPTURES = Path(__file__).parents[2] / "captures"


def rows(world: SimCluster) -> dict[str, float]:
    out = {}
    for line in render_router_page(world.router, "demo-model").splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            out[name] = float(value)
    return out


def ages(world: SimCluster) -> dict[str, float]:
    found = {key: value for key, value in rows(world).items() if key.startswith("smg_http_inflight_request_age_count")}
    return {key.split('le="')[1].split('"')[0]: value for key, value in found.items() if value}


def test_families_of_0_3_2_are_those_of_a_recorded_page() -> None:
    with open_capture(CAPTURES / "real-load.tar.zst") as capture:
        pages = [a.body for a in capture.answers() if a.subject == "router-0" and a.fact is Fact.METRICS]
    assert pages[-1] is not None
    real = set(re.findall(r"^# TYPE (\S+) (\S+)$", pages[-1].decode(), re.M))
    world = SimCluster(ClusterSpec(health_interval=10.0))
    steady(world, 4.0, 1.0)
    world.advance_to(60.0)
    mine = set(re.findall(r"^# TYPE (\S+) (\S+)$", render_router_page(world.router, "tiny"), re.M))
    of_its_past = {  # a router that was asked before its workers were there retried
        ("smg_worker_retries_exhausted_total", "counter"), ("smg_worker_retries_total", "counter"),
        ("smg_worker_retry_backoff_seconds", "summary"),
    }  # fmt: skip
    assert real - mine == of_its_past
    assert mine <= real


@pytest.mark.parametrize("shape", ["0.3.2", "smg"])
def test_pages_parse(shape: str) -> None:
    world = SimCluster(ClusterSpec(router=shape))
    steady(world, 4.0, 1.0)
    pin(world, 5.0)
    world.advance_to(120.0)
    text = render_router_page(world.router, "demo-model")
    assert ("# HELP" in text) is (shape == "smg")
    assert len(list(text_string_to_metric_families(text))) > 10


def test_ages_climb_with_a_lag_of_up_to_twenty_seconds() -> None:
    world = cluster()
    pin(world, 25.0)
    world.advance_to(39.0)
    assert ages(world) == {}
    assert rows(world)['smg_worker_requests_active{worker="http://127.0.0.1:30000"}'] == 1
    world.advance_to(41.0)
    assert ages(world) == {"30": 1}
    world.advance_to(61.0)
    assert ages(world) == {"60": 1}
    world.advance_to(220.0)
    assert ages(world) == {"300": 1}


def test_smg_lowers_the_prefill_when_its_leg_is_answered() -> None:
    for shape, prefill in (("0.3.2", 1.0), ("smg", 0.0)):
        world = SimCluster(ClusterSpec(router=shape, health_interval=None))
        job = Job(400, 2_000)
        world.tl.at(1.0, world.submit, job)
        world.advance_to(10.0)
        assert rows(world)['smg_worker_requests_active{worker="http://127.0.0.1:30000"}'] == prefill
        assert rows(world)['smg_worker_requests_active{worker="http://127.0.0.1:30002"}'] == 1


def test_two_requests_that_fail_open_both_breakers() -> None:
    """Five tries each, on both legs, although one side alone failed; health stays green."""
    world = cluster()
    world.fabric.fail("prefill-0", "decode-0", "Failed to send kv chunk")
    answers: list[int] = []
    for n in range(3):
        job = SHAPE.job(world.rng)
        job.done = lambda status, tokens: answers.append(status)
        world.tl.at(5.0 + 3.0 * n, world.submit, job)
    world.advance_to(20.0)
    assert answers == [500, 500, 503]
    found = rows(world)
    for port in (30000, 30002):
        assert found[f'smg_worker_cb_state{{worker="http://127.0.0.1:{port}"}}'] == 1
        assert found[f'smg_worker_health{{worker="http://127.0.0.1:{port}"}}'] == 1
    assert found['smg_worker_retries_exhausted_total{worker_type="decode",endpoint="completions"}'] == 2
    text = "".join(line for _, line in world.logs["router-0"])
    assert "Circuit breaker state transition: closed -> open" in text
    assert "No available prefill workers (all circuits open or unhealthy)" in text


def test_a_breaker_closes_again_after_good_answers() -> None:
    world = cluster()
    world.fabric.fail("prefill-0", "decode-0", "Failed to send kv chunk")
    for n in range(2):
        world.tl.at(5.0 + 3.0 * n, world.submit, SHAPE.job(world.rng))
    world.advance_to(20.0)
    world.fabric.fail("prefill-0", "decode-0", None)
    for n in range(6):
        world.tl.at(80.0 + 3.0 * n, world.submit, SHAPE.job(world.rng))
    world.advance_to(120.0)
    assert rows(world)['smg_worker_cb_state{worker="http://127.0.0.1:30002"}'] == 0


def test_log_lines_are_coloured_and_latencies_are_microseconds() -> None:
    world = cluster()
    world.tl.at(5.0, world.submit, Job(400, 50))
    world.advance_to(20.0)
    started, finished = [line for _, line in world.logs["router-0"]]
    assert started.startswith("\x1b[2m2025-11-24 16:00:05\x1b[0m \x1b[32m INFO\x1b[0m ")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", finished)
    match = re.fullmatch(
        r'2025-11-24 16:00:0\d  INFO http_request\{method=POST uri=/v1/completions version=HTTP/1\.1 module="smg" '
        r'request_id="cmpl-\w{24}" status_code=200 latency=(\d+)\}: smg::response: '
        r"/home/runner/work/sglang/sglang/src/middleware\.rs:359: finished processing request",
        plain,
    )
    assert match is not None
    assert 500_000 < int(match[1]) < 2_000_000


def test_lines_have_the_shape_of_recorded_ones() -> None:
    with open_capture(CAPTURES / "real-load.tar.zst") as capture:
        logs = [a.body or b"" for a in capture.answers() if a.subject == "router-0" and a.fact is Fact.LOG]

    def shapes(lines: list[str]) -> set[str]:
        kept = [line for line in lines if "/v1/completions" in line]
        return {
            re.sub(r"cmpl-\w+|latency=\d+|(?<==)\d{4,}|(?<=m)\d{5,}|\d{4}-\d\d-\d\d \S+", "N", line) for line in kept
        }

    world = cluster()
    steady(world, 2.0, 1.0, 20.0)
    world.advance_to(40.0)
    real = shapes(b"".join(logs).decode().splitlines())
    mine = shapes([line for _, line in world.logs["router-0"]])
    assert mine
    assert mine <= real


def test_a_job_the_router_lost_is_under_way_on_both_workers_and_on_no_engine() -> None:
    world = cluster()
    job = SHAPE.job(world.rng)
    job.lost = True
    world.tl.at(5.0, world.submit, job)
    world.advance_to(100.0)
    found = rows(world)
    assert [found[f'smg_worker_requests_active{{worker="http://127.0.0.1:{p}"}}'] for p in (30000, 30002)] == [1, 1]
    assert world.truth().lengths == {"prefill-0": {}, "decode-0": {}}
