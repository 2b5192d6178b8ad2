"""Schedulers that stop, engines that run without producing, single ranks that stand."""

from __future__ import annotations

import pytest

from pdctl.checks.ranks import judge as judge_ranks
from pdctl.checks.scheduler import judge
from pdctl.model.answer import Fact, Why
from pdctl.model.engine import LoadRow
from pdctl.model.events import Kind
from pdctl.model.finding import Confidence, Finding
from pdctl.model.host import Process, Processes
from pdctl.model.rank import Rank
from tests.unit.checks.scene import START, D, P, Scene, batch, pair, times


def findings(scene: Scene) -> list[Finding]:
    return [v for v in judge(scene.window(), pair()) if isinstance(v, Finding)]


def test_frozen_live_counts_and_still_counters_are_a_stopped_scheduler() -> None:
    scene = Scene("0.5.23")
    for t in times(20):
        scene.page(t, D, running=16, generation_tokens=9000, idle_seconds=50.0, scheduler_cpu_seconds=80.0)
        scene.loads(t, D, frozen_at=-3.0, running=16, waiting=0, prealloc=0, transfer=0)
    (found,) = findings(scene)
    assert (found.name, found.subject, found.confidence) == ("scheduler-stopped", D, Confidence.CERTAIN)


def test_a_long_forward_pass_of_ten_seconds_is_no_stopped_scheduler() -> None:
    scene = Scene("0.5.19")
    for t in times(10):
        scene.page(t, P, generation_tokens=9000, requests=5)
        scene.loads(t, P, frozen_at=0.0, running=1, waiting=0, bootstrap=0, inflight=0)
    assert findings(scene) == []


def test_counts_that_freeze_while_something_is_pinned_do_not_count_before_0519() -> None:
    scene = Scene("0.5.16")
    for t in times(60):
        scene.page(t, P, generation_tokens=9000, requests=5)
        scene.loads(t, P, frozen_at=-5.0, running=0, waiting=0, bootstrap=0, inflight=0)
    assert findings(scene) == []


def test_one_frozen_rank_of_several_is_named() -> None:
    scene = Scene("0.5.23")
    for t in times(30):
        rows = [
            LoadRow(dp, START.timestamp() + (0.0 if dp == 1 else t), running=1, waiting=0, prealloc=0, transfer=0)
            for dp in range(3)
        ]
        scene.ranked_page(t, D, {Rank(dp=dp): {"running": 1, "realtime_tokens": 100 + 50 * t} for dp in range(3)})
        scene.loads(t, D, *rows)
    (found,) = [f for f in findings(scene) if f.name == "scheduler-stopped"]
    assert found.rank.as_dict() == {"dp": 1}


def test_asked_counts_that_time_out_twice_with_a_silent_server_info_mean_stopped() -> None:
    scene = Scene(None)
    scene.add(0.0, D, Fact.LOADS, _loads("0.5.10.post1"))
    for t in times(20):
        scene.page(t, D, running=3, generation_tokens=9000)
    scene.miss(12.0, D, Fact.LOADS, Why.READ_TIMEOUT)
    scene.miss(18.0, D, Fact.LOADS, Why.READ_TIMEOUT)
    scene.miss(19.0, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    (found,) = findings(scene)
    assert found.name == "scheduler-stopped"


def _loads(version: str) -> object:
    from pdctl.model.engine import Loads

    return Loads((LoadRow(0, None, running=3, waiting=0, prealloc=0, transfer=0),), version)


def test_a_stopped_process_is_seen_in_its_state() -> None:
    scene = Scene("0.5.23")
    for t in times(8):
        scene.page(t, D, running=2, generation_tokens=9000)
        scene.loads(t, D, frozen_at=0.0, running=2, waiting=0, prealloc=0, transfer=0)
    rows = (Process(10, 1, "python -m sglang.launch_server"), Process(11, 10, "sglang::scheduler", state="T"))
    scene.add(8.0, D, Fact.PROCESSES, Processes(rows))
    (found,) = findings(scene)
    assert any("state T" in e.saw for e in found.evidence)


def test_live_running_requests_without_a_token_are_a_wedged_engine() -> None:
    scene = Scene("0.5.23")
    for t in times(40):
        scene.page(
            t, D, running=4, generation_tokens=9000, realtime_tokens=500, idle_seconds=1, scheduler_cpu_seconds=t
        )
        scene.loads(t, D, running=4, waiting=0, prealloc=0, transfer=0, used_tokens=4000)
    (found,) = findings(scene)
    assert (found.name, found.subject) == ("engine-wedged", D)


def test_a_long_generation_is_not_wedged_although_nothing_finishes() -> None:
    scene = Scene("0.5.23")
    for t in times(60):
        scene.page(t, D, running=1, generation_tokens=9000, realtime_tokens=500 + 40 * t)
        scene.loads(t, D, running=1, waiting=0, prealloc=0, transfer=0, used_tokens=int(4000 + 40 * t))
    assert findings(scene) == []


def test_a_gauge_left_at_14_running_and_1692_tokens_a_second_is_not_wedged() -> None:
    scene = Scene("0.5.23")
    for t in times(60):
        scene.page(t, D, running=14, gen_throughput=1692, generation_tokens=9000, realtime_tokens=500)
        scene.loads(t, D, running=0, waiting=1, prealloc=0, transfer=1)
    assert findings(scene) == []


def test_running_gauge_beside_zero_throughput_is_wedged_where_counts_are_missing() -> None:
    scene = Scene("0.5.6")
    for t in times(60, 10.0):
        scene.page(t, D, running=12, gen_throughput=0, generation_tokens=9000, requests=50, realtime_tokens=700)
    (found,) = findings(scene)
    assert (found.name, found.confidence) == ("engine-wedged", Confidence.LIKELY)


# --- ranks ---------------------------------------------------------------------------------------------------------


def rank_findings(scene: Scene) -> list[Finding]:
    return [v for v in judge_ranks(scene.window(), pair()) if isinstance(v, Finding)]


def ranks(
    scene: Scene, series: dict[int, list[int]], *, queue: str = "inflight", who: str = P, lines: tuple[int, ...] = ()
) -> None:
    length = len(next(iter(series.values())))
    for i in range(length):
        scene.ranked_page(10.0 * i, who, {Rank(dp=dp): {queue: s[i], "running": 0} for dp, s in series.items()})
    events = [
        batch(5.0 + 10.0 * i, Kind.PREFILL_BATCH, Rank(dp=dp), new_token=4000) for i in range(length) for dp in lines
    ]
    scene.log(who, *events)


@pytest.mark.parametrize("stuck", [0, 2])
def test_the_rank_that_stands_while_its_siblings_move_is_named(stuck: int) -> None:
    scene = Scene("0.5.15")
    series = {dp: [2 + (i + dp) % 3 for i in range(6)] for dp in range(4)}
    series[stuck] = [3] * 6
    ranks(scene, series, lines=tuple(dp for dp in range(4) if dp != stuck))
    (found,) = rank_findings(scene)
    assert (found.name, found.rank.as_dict(), found.confidence) == ("rank-stuck", {"dp": stuck}, Confidence.CERTAIN)


def test_a_rank_that_logs_batches_is_not_stuck_although_its_gauge_is_constant() -> None:
    scene = Scene("0.5.15")
    series = {dp: [2 + (i + dp) % 3 for i in range(6)] for dp in range(4)} | {1: [3] * 6}
    ranks(scene, series, lines=(0, 1, 2, 3))
    assert rank_findings(scene) == []


def test_leftovers_of_one_rank_with_no_traffic_are_leaked() -> None:
    scene = Scene("0.5.15")
    ranks(scene, {0: [0] * 6, 1: [2] * 6, 2: [0] * 6, 3: [0] * 6}, queue="prealloc", who=D)
    (found,) = rank_findings(scene)
    assert (found.name, found.subject, found.rank.as_dict()) == ("queue-leaked", D, {"dp": 1})


def test_all_ranks_constant_is_no_odd_rank() -> None:
    scene = Scene("0.5.15")
    ranks(scene, {dp: [1] * 6 for dp in range(4)})
    assert rank_findings(scene) == []


def test_a_tensor_rank_that_keeps_entries_its_siblings_do_not_have_is_leaked() -> None:
    scene = Scene("0.5.15")
    for i in range(6):
        scene.ranked_page(
            10.0 * i, P, {Rank(tp=tp): {"inflight": 2 if tp == 3 else 0, "requests": 7} for tp in range(4)}
        )
    (found,) = rank_findings(scene)
    assert (found.name, found.rank.as_dict()) == ("queue-leaked", {"tp": 3})
