"""Starvation, a wedged prealloc, held transfer slots, a blocked head: and what looks like each of them."""

from __future__ import annotations

import pytest

from pdctl.checks.draining import judge as judge_draining
from pdctl.checks.queues import judge
from pdctl.model.events import Kind
from pdctl.model.finding import Confidence, Finding
from pdctl.model.rank import Rank
from tests.unit.checks.scene import D, P, Scene, batch, pair, times


def names(scene: Scene) -> list[str]:
    return [v.name for v in judge(scene.window(), pair()) if isinstance(v, Finding)]


def findings(scene: Scene) -> list[Finding]:
    return [v for v in judge(scene.window(), pair()) if isinstance(v, Finding)]


def decode(scene: Scene, seconds: float, *, tokens: float = 0.0, usage: float = 0.1, **counts: int) -> None:
    """A decode with live counts; ``tokens`` scheduled a second."""
    for t in times(seconds):
        scene.page(t, D, requests=100, generation_tokens=9000, realtime_tokens=1000 + tokens * t, token_usage=usage)
        scene.loads(t, D, token_usage=usage, **counts)


def test_prealloc_that_stands_while_tokens_come_out_is_starvation_even_at_a_usage_of_061() -> None:
    scene = Scene()
    decode(scene, 40, tokens=800, usage=0.61, running=13, waiting=0, prealloc=137, transfer=0)
    (found,) = findings(scene)
    assert (found.name, found.confidence) == ("decode-starved", Confidence.CERTAIN)
    assert any("0.61" in text for text in found.against)


def test_prealloc_that_stands_with_free_memory_and_nothing_running_is_wedged() -> None:
    scene = Scene()
    decode(scene, 40, usage=0.04, running=0, waiting=0, prealloc=5, transfer=0)
    assert names(scene) == ["prealloc-wedged"]


def test_prealloc_with_full_memory_and_no_token_is_neither() -> None:
    scene = Scene()
    decode(scene, 40, usage=0.95, running=0, waiting=0, prealloc=5, transfer=0)
    assert names(scene) == []


def test_one_passing_request_in_prealloc_is_no_starvation() -> None:
    scene = Scene()
    decode(scene, 40, tokens=800, usage=0.3, running=3, waiting=0, prealloc=1, transfer=0)
    assert names(scene) == []


def test_a_stale_prealloc_gauge_is_not_wedged() -> None:
    scene = Scene("0.5.6")
    for t in times(60, 5.0):
        scene.page(t, D, requests=100, generation_tokens=9000, prealloc=4, running=0, token_usage=0.02)
    assert names(scene) == []


def slots(scene: Scene, per_rank: dict[int, int], *, usage: float, lines: bool = True, step: int = 0) -> None:
    for i, t in enumerate(times(120, 30.0)):
        ranks = {
            Rank(dp=dp): {"transfer": n + step * (i % 2), "running": 1, "token_usage": usage, "prealloc": 30 + i}
            for dp, n in per_rank.items()
        }
        scene.ranked_page(t, D, ranks)
    if lines:
        scene.log(D, *(batch(t, Kind.DECODE_BATCH, Rank(dp=0), running=1, throughput=21.0) for t in times(110, 8.0)))


def test_many_transfer_slots_that_stand_on_all_ranks_with_memory_free_are_stuck() -> None:
    scene = Scene("0.5.15")
    slots(scene, {0: 61, 1: 58, 2: 60, 3: 59}, usage=0.04)
    (found,) = findings(scene)
    assert (found.name, found.subject) == ("transfer-stuck", D)
    assert found.summary.startswith("238 transfer slots")


@pytest.mark.parametrize(
    ("usage", "lines", "step"),
    [(0.92, True, 0), (0.04, False, 0), (0.04, True, -3)],
    ids=["memory full", "gauge may be stale", "slots turn over"],
)
def test_slots_are_not_called_stuck_when(usage: float, lines: bool, step: int) -> None:
    scene = Scene("0.5.15")
    slots(scene, {0: 61, 1: 58}, usage=usage, lines=lines, step=step)
    assert "transfer-stuck" not in names(scene)


def test_a_waiting_queue_that_grows_in_an_empty_engine_has_a_blocked_head() -> None:
    scene = Scene()
    for i, t in enumerate(times(40)):
        scene.page(t, P, requests=100, prompt_tokens=5000)
        scene.loads(t, P, running=0, waiting=2 + i, bootstrap=0, inflight=0)
    (found,) = findings(scene)
    assert (found.name, found.subject) == ("queue-head-blocked", P)


def test_a_waiting_queue_behind_running_requests_is_load() -> None:
    scene = Scene()
    for i, t in enumerate(times(40)):
        scene.page(t, P, requests=100 + i, prompt_tokens=5000 + 100 * i)
        scene.loads(t, P, running=4, waiting=2 + i, bootstrap=0, inflight=1)
    assert names(scene) == []


def test_requests_in_bootstrap_are_not_a_blocked_head() -> None:
    scene = Scene()
    for t in times(40):
        scene.page(t, P, requests=100, prompt_tokens=5000)
        scene.loads(t, P, running=0, waiting=0, bootstrap=3, inflight=0)
    assert names(scene) == []


def drains(scene: Scene) -> list[Finding]:
    return [v for v in judge_draining(scene.window(), pair()) if isinstance(v, Finding)]


def test_a_queue_that_halves_is_draining_with_its_end_in_sight() -> None:
    scene = Scene()
    for t, n in zip(times(20), [200, 190, 170, 150, 130, 110, 90, 70, 50, 30, 20], strict=True):
        scene.loads(t, P, running=0, waiting=n, bootstrap=n, inflight=0)
    (found,) = drains(scene)
    # 180 gone in 20 s: 9 a second, so the last 20 take 2.2 s
    assert "200 to 20 in 20 s, empty in about 2 s" in found.summary
    assert "300 s by default" in found.summary


@pytest.mark.parametrize("counts", [[5, 5, 5, 5], [3, 0, 1, 0, 2, 0], [8, 3, 8, 3, 8, 7], [4, 2, 0, 0]])
def test_what_stands_rotates_or_has_ended_is_not_draining(counts: list[int]) -> None:
    scene = Scene()
    for i, n in enumerate(counts):
        scene.loads(2.0 * i, P, running=0, waiting=0, bootstrap=0, inflight=n)
    assert drains(scene) == []


def test_slots_that_wait_for_a_blocked_prefill_are_not_leaked() -> None:
    scene = Scene("0.5.23")
    for t in times(60):
        scene.page(t, P, requests=100, prompt_tokens=5000, scheduler_cpu_seconds=t, idle_seconds=0.0)
        scene.loads(t, P, running=0, waiting=60, bootstrap=0, inflight=0)
        scene.page(t, D, requests=100, generation_tokens=9000, token_usage=0.04)
        scene.loads(t, D, token_usage=0.04, running=0, waiting=0, prealloc=0, transfer=60)
    assert names(scene) == ["queue-head-blocked"]


def test_slots_that_a_working_prefill_has_nothing_to_do_with_are_stuck() -> None:
    scene = Scene("0.5.23")
    for t in times(60):
        scene.page(t, P, requests=100, prompt_tokens=5000, scheduler_cpu_seconds=t, idle_seconds=0.0)
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=0)
        scene.page(t, D, requests=100, generation_tokens=9000, token_usage=0.04)
        scene.loads(t, D, token_usage=0.04, running=0, waiting=0, prealloc=0, transfer=60)
    assert names(scene) == ["transfer-stuck"]
