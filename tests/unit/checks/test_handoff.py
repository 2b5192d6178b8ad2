"""Queue lengths by the counters of request stages, and what is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pdctl.checks.handoff import counted, drift_of, turnover
from pdctl.checks.pinned import judge
from pdctl.checks.view import EngineView, engine_view
from pdctl.model.answer import Fact, Why
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow
from pdctl.model.finding import Confidence, Finding, RuledOut, Unchecked
from pdctl.model.rank import Rank
from tests.unit.checks.scene import D, P, Scene, batch, pair, times

R0 = Rank(tp=0)
FORWARD, SENT = "prefill_forward", "prefill_transfer_kv_cache"


def page(
    scene: Scene,
    t: float,
    subject: str,
    stages: Mapping[str, float],
    *,
    sums: Mapping[str, float] | None = None,
    http: float | None = None,
    rank: Rank = R0,
    **values: float,
) -> None:
    """A page with stage counters of one rank, and other values by name. Nothing waits for its forward pass unless
    said so."""
    if FORWARD in stages:
        stages = {"prefill_bootstrap": stages[FORWARD], **stages}
    rows = {Gauge(k.replace("_", "-")): {rank: v} for k, v in values.items()}
    scene.add(
        t,
        subject,
        Fact.METRICS,
        EngineMetrics(
            rows,
            families=20,
            http_active=http,
            stage_counts={k: {rank: v} for k, v in stages.items()},
            stage_sums={k: {rank: v} for k, v in (sums or {}).items()},
        ),
    )


def view(scene: Scene, name: str = P) -> EngineView:
    instance = pair().instance(name)
    assert instance is not None
    return engine_view(scene.window(), instance)


def values(scene: Scene, queue: Gauge, name: str = P) -> list[float]:
    return [c.value for c in counted(view(scene, name), queue, None)]


def pins(scene: Scene, **cluster: object) -> list[Finding]:
    return [v for v in judge(scene.window(), pair(**cluster)) if isinstance(v, Finding)]  # type: ignore[arg-type]


# --- the counts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "inflight"), [("0.5.6", 3.0), ("0.5.10.post1", 1.0), ("0.5.23", 1.0)])
def test_failed_transfers_are_taken_off_where_their_stage_leaves_them_out(version: str, inflight: float) -> None:
    scene = Scene(version)
    page(scene, 0, P, {FORWARD: 10, SENT: 7}, transfer_failed=2)
    assert values(scene, Gauge.INFLIGHT) == [inflight]


def test_a_stage_nobody_has_left_yet_counts_none() -> None:
    scene = Scene("0.5.15")
    page(scene, 0, P, {FORWARD: 1})
    assert values(scene, Gauge.INFLIGHT) == [1.0]


def test_no_counter_is_no_count_and_not_zero() -> None:
    scene = Scene("0.5.15")
    page(scene, 0, P, {})
    assert values(scene, Gauge.INFLIGHT) == []


@pytest.mark.parametrize("version", ["0.5.2", None])
def test_a_release_without_the_histogram_or_of_no_name_is_not_counted(version: str | None) -> None:
    scene = Scene(version)
    page(scene, 0, P, {FORWARD: 4, SENT: 1})
    assert values(scene, Gauge.INFLIGHT) == []


def test_decode_counts_prealloc_and_transfer() -> None:
    scene = Scene("0.5.18")
    stages = {"decode_prepare": 40, "decode_bootstrap": 20, "decode_transferred": 11}
    page(scene, 0, D, stages, bootstrap_failed=5, transfer_failed=2)
    assert values(scene, Gauge.PREALLOC, D) == [15.0]
    assert values(scene, Gauge.TRANSFER, D) == [7.0]


def test_tensor_ranks_that_repeat_one_another_are_not_added_and_data_ranks_are() -> None:
    scene = Scene("0.5.15")
    counts = {Rank(dp=0, tp=0): 5.0, Rank(dp=0, tp=1): 5.0, Rank(dp=1, tp=2): 9.0}
    done = {Rank(dp=0, tp=0): 3.0, Rank(dp=0, tp=1): 3.0, Rank(dp=1, tp=2): 8.0}
    scene.add(0, P, Fact.METRICS, EngineMetrics({}, families=9, stage_counts={FORWARD: counts, SENT: done}))
    assert values(scene, Gauge.INFLIGHT) == [3.0]


def test_what_the_front_end_does_not_owe_is_drift() -> None:
    scene = Scene("0.5.15")
    for i, t in enumerate(times(20)):
        page(scene, t, P, {FORWARD: 100 + i, SENT: 97 + i}, http=float(i % 3))
    assert drift_of(view(scene)) == 3.0
    assert values(scene, Gauge.INFLIGHT) == [0.0] * 11


def test_turnover_is_seconds_spent_by_seconds_passed() -> None:
    scene = Scene("0.5.15")
    page(scene, 0, P, {FORWARD: 10, SENT: 10}, sums={SENT: 2.0})
    page(scene, 50, P, {FORWARD: 20, SENT: 20}, sums={SENT: 7.0})
    flow = turnover(view(scene), (SENT,), None)
    assert flow is not None
    assert (flow.held, flow.done, flow.stay) == (0.1, 10.0, 0.5)


# --- while nothing moves ------------------------------------------------------------------------------------------


def standing(scene: Scene, seconds: float, *, inflight: int = 1, http: float | None = None, stay: float = 0.01) -> None:
    for t in times(seconds):
        page(scene, t, P, {FORWARD: 100 + inflight, SENT: 100}, sums={SENT: 100 * stay}, http=http)
        page(scene, t, D, {"decode_prepare": 100, "decode_bootstrap": 100, "decode_transferred": 100})


def test_a_standing_difference_and_an_answer_owed_are_two_signals() -> None:
    scene = Scene("0.5.15")
    standing(scene, 12, http=1)
    (found,) = pins(scene)
    assert (found.subject, found.confidence) == (P, Confidence.CERTAIN)
    assert "1 1 1" in found.evidence[0].saw


def test_a_standing_difference_alone_may_be_drift() -> None:
    scene = Scene("0.5.6")
    standing(scene, 60, inflight=3)
    verdicts = list(judge(scene.window(), pair()))
    assert [type(v) for v in verdicts] == [Unchecked]
    assert "aborts and retries" in verdicts[0].why  # type: ignore[union-attr]


def test_a_drifted_difference_with_nothing_owed_is_ruled_out() -> None:
    scene = Scene("0.5.18")
    standing(scene, 60, inflight=3, http=0)
    assert [type(v) for v in judge(scene.window(), pair())] == [RuledOut]


def test_a_drifted_difference_with_nothing_routed_is_not_pinned() -> None:
    scene = Scene("0.5.6")
    standing(scene, 60, inflight=3)
    for t in times(60):
        scene.router(t, active=0)
    assert pins(scene, router=True) == []


def test_slow_transfers_are_given_twenty_times_their_usual_time() -> None:
    scene = Scene("0.5.15")
    standing(scene, 28, http=1, stay=2.0)
    assert pins(scene) == []


def test_behind_a_decode_that_is_short_of_memory_nothing_is_pinned() -> None:
    scene = Scene("0.5.15")
    for i, t in enumerate(times(60)):
        page(scene, t, P, {FORWARD: 101, SENT: 100}, sums={SENT: 1.0}, http=1)
        page(scene, t, D, {"decode_prepare": 150}, prealloc=40, realtime_tokens=900 * i)
    assert pins(scene) == []


# --- behind traffic -----------------------------------------------------------------------------------------------


def flowing(scene: Scene, *, pinned: int, http_floor: float, stay: float = 0.02, seconds: float = 60) -> None:
    """Some three requests a second, unevenly, on a release whose live counts are frozen."""
    done = 100
    for i, t in enumerate(times(seconds)):
        done += (5, 9, 2, 7, 8, 3)[i % 6]
        page(
            scene,
            t,
            P,
            {FORWARD: done + pinned, SENT: done},
            sums={SENT: done * stay, FORWARD: done * 0.01},
            http=http_floor + (0, 0, 1)[i % 3],
            requests=done,
            prompt_tokens=50 * done,
        )
        page(
            scene,
            t,
            D,
            {"decode_prepare": done + pinned, "decode_bootstrap": done + pinned, "decode_transferred": done},
            sums={"decode_transferred": done * 0.05},
            requests=done,
            generation_tokens=90 * done,
        )


def test_a_floor_that_turnover_cannot_hold_is_pinned_where_the_decode_agrees() -> None:
    scene = Scene("0.5.15")
    flowing(scene, pinned=1, http_floor=1)
    (found,) = pins(scene)
    assert found.subject == P
    assert "1 request(s)" in found.summary


def test_a_floor_of_drift_behind_traffic_is_not_pinned() -> None:
    scene = Scene("0.5.15")  # the same on prefill alone: decode's queue is seen empty, nothing is owed at times
    done = 100
    for i, t in enumerate(times(60)):
        done += (5, 9, 2, 7, 8, 3)[i % 6]
        page(
            scene, t, P, {FORWARD: done + 1, SENT: done}, sums={SENT: done * 0.02, FORWARD: done * 0.01}, requests=done
        )
        stages = {"decode_prepare": done, "decode_bootstrap": done, "decode_transferred": done}
        page(scene, t, D, stages, sums={"decode_transferred": done * 0.05}, generation_tokens=90 * done)
    assert pins(scene) == []


def test_turnover_of_slow_transfers_is_not_pinned() -> None:
    scene = Scene("0.5.15")
    flowing(scene, pinned=1, http_floor=1, stay=0.4)
    assert pins(scene) == []


def test_requests_at_a_fixed_pace_can_meet_every_reading() -> None:
    scene = Scene("0.5.15")  # one each second, each for 0.1 s: a reading each 2 s may see one every time
    for i, t in enumerate(times(60)):
        done = 100 + 2 * i
        page(scene, t, P, {FORWARD: done + 1, SENT: done}, sums={SENT: done * 0.1, FORWARD: done * 0.01}, http=1)
        stages = {"decode_prepare": done + 1, "decode_bootstrap": done + 1, "decode_transferred": done}
        page(scene, t, D, stages, sums={"decode_transferred": done * 0.12}, generation_tokens=90 * done)
    assert pins(scene) == []


def test_batch_lines_that_count_more_than_their_own_batch_are_a_witness() -> None:
    scene = Scene("0.5.12.post1")
    done = 100
    lines = []
    for i, t in enumerate(times(60)):
        done += (5, 9, 2, 7, 8, 3)[i % 6]
        page(scene, t, P, {FORWARD: done + 1, SENT: done}, sums={SENT: done * 0.02, FORWARD: done * 0.01})
        lines.append(batch(t + 0.5, new_seq=2, new_token=400, inflight=3))
    scene.log(P, *lines)
    (found,) = pins(scene)
    assert any("batch line" in e.saw for e in found.evidence)


# --- other queues -------------------------------------------------------------------------------------------------


def test_orphans_in_bootstrap_of_an_old_release_show_in_counters_and_gauge() -> None:
    scene = Scene("0.5.6")
    for t in times(60, 5.0):
        stages = {"prefill_prepare": 102, "prefill_bootstrap": 100, FORWARD: 100, SENT: 100}
        page(scene, t, P, stages, sums={"prefill_bootstrap": 1.0}, bootstrap=2)
        page(scene, t, D, {"decode_prepare": 100, "decode_bootstrap": 100, "decode_transferred": 100})
    (found,) = pins(scene)
    assert (found.subject, "bootstrap" in found.summary) == (P, True)


def test_requests_that_decode_holds_in_prealloc_are_not_pinned_in_bootstrap() -> None:
    scene = Scene("0.5.6")
    for t in times(60, 5.0):
        stages = {"prefill_prepare": 102, "prefill_bootstrap": 100, FORWARD: 100, SENT: 100}
        page(scene, t, P, stages, sums={"prefill_bootstrap": 1.0}, bootstrap=2)
        page(scene, t, D, {"decode_prepare": 102, "decode_bootstrap": 100, "decode_transferred": 100})
    assert pins(scene) == []


def test_0515_requests_that_wait_for_their_batch_are_not_pinned() -> None:
    scene = Scene("0.5.15")
    for t in times(60):
        page(scene, t, P, {"prefill_bootstrap": 105, FORWARD: 100, SENT: 100}, http=5, requests=100, realtime_tokens=9)
        page(scene, t, D, {"decode_prepare": 105, "decode_bootstrap": 105, "decode_transferred": 100}, http=5)
    assert pins(scene) == []


def test_a_decode_that_holds_the_half_no_prefill_has_is_named() -> None:
    scene = Scene("0.5.15")
    for t in times(20):
        page(scene, t, P, {FORWARD: 100, SENT: 100}, http=0)
        stages = {"decode_prepare": 102, "decode_bootstrap": 102, "decode_transferred": 100}
        page(scene, t, D, stages, sums={"decode_transferred": 3.0}, http=2, realtime_tokens=500)
    (found,) = pins(scene)
    assert (found.subject, "2 request(s)" in found.summary) == (D, True)


def test_one_rank_that_stands_is_named_while_its_siblings_flow() -> None:
    scene = Scene("0.5.16")
    start = scene.window().start.timestamp()
    for i, t in enumerate(times(60)):
        ranks = {Rank(dp=0, tp=0): 100.0 + 7 * i, Rank(dp=1, tp=1): 53.0}
        done = {Rank(dp=0, tp=0): 100.0 + 7 * i, Rank(dp=1, tp=1): 50.0}
        spent = {rank: n * 0.01 for rank, n in done.items()}
        running = {Gauge.RUNNING: dict.fromkeys(ranks, 0.0), Gauge.INFLIGHT: dict(zip(ranks, (0.0, 3.0), strict=True))}
        scene.add(
            t,
            P,
            Fact.METRICS,
            EngineMetrics(
                running,
                families=9,
                http_active=3.0 + i % 2,
                stage_counts={"prefill_bootstrap": ranks, FORWARD: ranks, SENT: done},
                stage_sums={SENT: spent},
            ),
        )
        scene.loads(t, P, LoadRow(0, start + t, bootstrap=0, inflight=0), LoadRow(1, start - 90, inflight=0))
    (found,) = pins(scene)
    assert found.rank == Rank(dp=1)


def busy(scene: Scene, inflight: tuple[float, ...], *, pinned: int) -> None:
    """Forty requests a second in batches of two, each transfer 15 ms long: six tenths of one in flight on average."""
    done, lines = 100, []
    for i, t in enumerate(times(60, 5.0)):
        done = 100 + 200 * i + i % 3
        spent = {SENT: done * 0.015, FORWARD: done * 0.05}
        page(scene, t, P, {FORWARD: done + pinned, SENT: done}, sums=spent, http=5)
        lines += [batch(t + 0.2 * n, new_seq=2, inflight=inflight[n % len(inflight)]) for n in range(20)]
    scene.log(P, *lines)


def test_request_seconds_that_no_finished_transfer_accounts_for_are_a_pin() -> None:
    scene = Scene("0.5.15")
    busy(scene, (3.0, 4.0), pinned=1)
    (found,) = pins(scene)
    assert any("request-seconds" in e.saw for e in found.evidence)


def test_a_batch_line_that_counts_its_own_alone_leaves_nothing_to_account_for() -> None:
    scene = Scene("0.5.15")
    busy(scene, (3.0, 2.0), pinned=1)
    assert pins(scene) == []


@pytest.mark.parametrize("version", ["0.5.6", "0.5.15", "0.5.18"])
def test_a_long_prompt_in_its_chunks_beside_a_drifted_difference_is_not_pinned(version: str) -> None:
    scene = Scene(version)
    for i, t in enumerate(times(60)):
        stages = {"prefill_prepare": 102, "prefill_bootstrap": 102, FORWARD: 101, SENT: 100}
        page(scene, t, P, stages, sums={SENT: 1.0, FORWARD: 5.0}, http=1, realtime_tokens=100 + 2048 * i)
        stages = {"decode_prepare": 102, "decode_bootstrap": 102, "decode_transferred": 101}
        page(scene, t, D, stages, sums={"decode_transferred": 5.0}, http=1)
        scene.router(t, active=1)
    assert pins(scene, router=True) == []


def test_a_stay_that_a_timeout_ended_says_nothing_of_turnover() -> None:
    scene = Scene("0.5.6")  # failed transfers are observed up to 0.5.9: 300 s of them in one step
    for t in times(60):
        late = 1 if t > 20 else 0
        sums = {SENT: 1.0 + 300.0 * late, FORWARD: 1.0}
        page(scene, t, P, {FORWARD: 101 + late, SENT: 100 + late}, sums=sums)
        stages = {"decode_prepare": 101 + late, "decode_bootstrap": 101 + late, "decode_transferred": 100 + late}
        page(scene, t, D, stages)
        scene.router(t, active=1)
    (found,) = pins(scene, router=True)
    assert found.since is not None
    assert (found.since - scene.window().start).total_seconds() >= 20


def test_0515_requests_owed_behind_a_decode_that_does_not_turn_are_not_called_pinned() -> None:
    scene = Scene("0.5.15")
    for t in times(60):
        page(scene, t, P, {FORWARD: 100, SENT: 100}, http=2, requests=100, realtime_tokens=9)
        page(scene, t, D, {"decode_prepare": 100, "decode_bootstrap": 100, "decode_transferred": 100}, http=2)
    scene.miss(40.0, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    scene.miss(50.0, D, Fact.HEALTH, Why.READ_TIMEOUT)
    assert pins(scene) == []
