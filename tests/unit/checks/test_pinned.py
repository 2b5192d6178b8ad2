"""request-pinned: what each release's numbers prove, and everything that only looks like it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.checks.pinned import judge
from pdctl.model.answer import Fact
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow
from pdctl.model.finding import Confidence, Finding, RuledOut, Unchecked
from pdctl.model.host import Frame, ProcessStack, Stacks, ThreadStack
from pdctl.model.rank import WHOLE
from tests.unit.checks.scene import D, P, Scene, batch, pair, times


def pins(scene: Scene, **cluster: object) -> list[Finding]:
    verdicts = judge(scene.window(), pair(**cluster))  # type: ignore[arg-type]
    return [v for v in verdicts if isinstance(v, Finding)]


def verdict_kinds(scene: Scene, **cluster: object) -> set[type]:
    return {type(v) for v in judge(scene.window(), pair(**cluster))}  # type: ignore[arg-type]


def flat_pair(scene: Scene, seconds: float, *, prefill_live: dict[str, int], decode_live: dict[str, int]) -> None:
    """Engines whose counters do not move, with the live counts given."""
    for t in times(seconds):
        scene.page(t, P, requests=100, prompt_tokens=5000, transfers_done=100, transfer_ms=700)
        scene.page(t, D, requests=100, generation_tokens=9000)
        scene.loads(t, P, **prefill_live)
        scene.loads(t, D, **decode_live)


EMPTY_P = {"running": 0, "waiting": 0, "bootstrap": 0, "inflight": 0}
EMPTY_D = {"running": 0, "waiting": 0, "prealloc": 0, "transfer": 0}


@pytest.mark.parametrize("version", ["0.5.19", "0.5.23", "0.5.10.post1", "0.5.9"])
def test_live_counts_that_stand_while_nothing_finishes_are_pinned(version: str) -> None:
    scene = Scene(version)
    flat_pair(scene, 40, prefill_live=EMPTY_P | {"inflight": 2}, decode_live=EMPTY_D | {"transfer": 2})
    (found,) = pins(scene)
    assert (found.subject, found.confidence) == (P, Confidence.CERTAIN)
    assert found.summary.startswith("2 request(s)")
    assert found.since is not None and found.since == scene.window().start


def test_twelve_seconds_are_enough_where_counts_are_live_and_transfers_are_quick() -> None:
    scene = Scene("0.5.23")
    flat_pair(scene, 12, prefill_live=EMPTY_P | {"inflight": 1}, decode_live=EMPTY_D | {"transfer": 1})
    (found,) = pins(scene)
    assert found.confidence == Confidence.CERTAIN


def test_a_transfer_is_not_pinned_before_twenty_times_its_usual_time() -> None:
    scene = Scene("0.5.23")
    for t in times(30):  # 2 s a transfer on this engine: 40 s would be out of the ordinary
        scene.page(t, P, requests=100, prompt_tokens=5000, transfers_done=100, transfer_ms=200_000)
        scene.page(t, D, requests=100, generation_tokens=9000)
        scene.loads(t, P, **(EMPTY_P | {"inflight": 1}))
        scene.loads(t, D, **(EMPTY_D | {"transfer": 1}))
    assert pins(scene) == []


def test_one_signal_alone_is_likely_and_says_what_is_missing() -> None:
    scene = Scene("0.5.23")
    for t in times(40):
        scene.page(t, P, requests=100, prompt_tokens=5000, transfers_done=100, transfer_ms=700)
        scene.loads(t, P, **(EMPTY_P | {"inflight": 1}))
    (found,) = pins(scene)
    assert found.confidence == Confidence.LIKELY
    assert any("one signal only" in limit for limit in found.limits)


def test_turnover_that_touches_zero_is_ruled_out_with_the_readings() -> None:
    scene = Scene("0.5.23")
    for i, t in enumerate(times(40)):
        scene.page(
            t, P, requests=100 + 10 * i, prompt_tokens=5000 + 100 * i, transfers_done=100 + 10 * i, transfer_ms=700
        )
        scene.loads(t, P, **(EMPTY_P | {"inflight": (3, 0, 1)[i % 3]}))
    verdicts = list(judge(scene.window(), pair()))
    assert [type(v) for v in verdicts] == [RuledOut]
    assert "3 0 1" in verdicts[0].by  # type: ignore[union-attr]


def test_saturated_turnover_that_never_touches_zero_is_not_pinned() -> None:
    scene = Scene("0.5.23")
    for i, t in enumerate(times(60)):  # 10 transfers a second of 300 ms: three under way on average
        scene.page(
            t,
            P,
            requests=100 + 20 * i,
            prompt_tokens=5000 + 100 * i,
            transfers_done=100 + 20 * i,
            transfer_ms=30_000 + 6000 * i,
        )
        scene.loads(t, P, **(EMPTY_P | {"running": 1, "inflight": 3}))
    assert pins(scene) == []
    assert verdict_kinds(scene) == {Unchecked}


def test_a_floor_that_light_traffic_cannot_hold_is_pinned() -> None:
    scene = Scene("0.5.23")
    for i, t in enumerate(times(60)):  # a transfer of 7 ms every 10 s holds a queue for less than 1 % of the time
        done = 100 + i // 5
        scene.page(t, P, requests=done, prompt_tokens=50 * done, transfers_done=done, transfer_ms=7.0 * done, http=1)
        scene.page(t, D, requests=done, generation_tokens=90 * done)
        scene.loads(t, P, **(EMPTY_P | {"inflight": 1}))
        scene.loads(t, D, **(EMPTY_D | {"transfer": 1}))
    (found,) = pins(scene)
    assert found.subject == P


def test_a_queue_on_its_way_down_is_no_pin() -> None:
    scene = Scene("0.5.23")
    left = [229, 180, 140, 100, 70, 40, 20, 12, 8, 5, 3, 2, 1]
    for t, n in zip(times(24), left, strict=True):
        scene.page(t, P, requests=100, prompt_tokens=5000, transfers_done=100, transfer_ms=700)
        scene.loads(t, P, **(EMPTY_P | {"inflight": n}))
    assert pins(scene) == []


def test_bootstrap_that_waits_for_a_starved_decode_is_not_pinned() -> None:
    scene = Scene("0.5.23")
    for i, t in enumerate(times(40)):
        scene.page(t, P, requests=100, prompt_tokens=5000, transfers_done=100, transfer_ms=700)
        scene.page(t, D, requests=100, generation_tokens=9000, realtime_tokens=50_000 + 900 * i)
        scene.loads(t, P, **(EMPTY_P | {"bootstrap": 40}))
        scene.loads(t, D, running=14, waiting=40, prealloc=40, transfer=0)
    assert pins(scene) == []
    (told,) = judge(scene.window(), pair())
    assert isinstance(told, Unchecked) and "short of KV memory" in told.why


def test_orphans_in_bootstrap_with_an_empty_decode_are_pinned() -> None:
    scene = Scene("0.5.23")
    flat_pair(scene, 30, prefill_live=EMPTY_P | {"bootstrap": 2, "waiting": 2}, decode_live=EMPTY_D)
    (found,) = pins(scene)
    assert "bootstrap" in found.summary


def test_orphans_that_a_router_holds_are_the_routers() -> None:
    scene = Scene("0.5.23")
    flat_pair(scene, 30, prefill_live=EMPTY_P | {"bootstrap": 2, "waiting": 2}, decode_live=EMPTY_D)
    for t in times(30):
        scene.router(t, active=2, old=2)
    assert pins(scene, router=True) == []


def test_a_decode_that_waits_for_a_prefill_that_has_nothing_is_named() -> None:
    scene = Scene("0.5.23")
    flat_pair(scene, 30, prefill_live=EMPTY_P, decode_live=EMPTY_D | {"transfer": 1})
    (found,) = pins(scene)
    assert found.subject == D


def test_only_the_stuck_rank_is_named() -> None:
    scene = Scene("0.5.23")
    for t in times(40):
        stamp = scene.window().start.timestamp() + t
        rows = [LoadRow(dp, stamp, running=0, waiting=0, bootstrap=0, inflight=3 if dp == 2 else 0) for dp in range(4)]
        scene.page(t, P, requests=100, prompt_tokens=5000, transfers_done=100, transfer_ms=700)
        scene.loads(t, P, *rows)
    (found,) = pins(scene)
    assert found.rank.as_dict() == {"dp": 2}


# --- releases whose live counts are frozen while something is stuck -------------------------------------------------


def frozen_0515(scene: Scene, seconds: float, *, http: float = 1.0, probes: bool = False) -> None:
    for i, t in enumerate(times(seconds, 5.0)):
        seen = {"/health": float(i if probes else 0), "/v1/completions": 3.0}
        scene.page(t, P, requests=100, prompt_tokens=5000, inflight=2 if probes else 1, http=http, seen=seen)
        scene.page(t, D, requests=100, generation_tokens=9000, http=http, seen=seen)
        row = LoadRow(0, None, running=0, waiting=0, bootstrap=0, inflight=0, used_tokens=500)
        scene.loads(t, P, row)
        scene.loads(t, D, LoadRow(0, None, running=0, waiting=0, prealloc=0, transfer=0, used_tokens=0))


@pytest.mark.parametrize("probes", [False, True])
def test_0515_is_judged_by_what_it_owes_over_http_not_by_its_frozen_counts(probes: bool) -> None:
    scene = Scene("0.5.15")
    frozen_0515(scene, 60, probes=probes)
    (found,) = pins(scene)
    assert found.summary.startswith("1 request(s)")
    assert any("snapshot from before" in text for text in found.against)


def test_0515_parked_at_one_by_probes_is_healthy() -> None:
    scene = Scene("0.5.15")
    frozen_0515(scene, 60, http=0.0, probes=True)
    assert verdict_kinds(scene) == {RuledOut}


def test_requests_owed_while_decode_generates_are_not_pinned() -> None:
    scene = Scene("0.5.15")
    for i, t in enumerate(times(60, 5.0)):
        scene.page(t, P, requests=100, prompt_tokens=5000, inflight=1, http=1, seen={"/v1/completions": 3})
        scene.page(
            t, D, requests=100, generation_tokens=9000, realtime_tokens=100 * i, http=1, seen={"/v1/completions": 3}
        )
    assert pins(scene) == []


# --- releases with gauges alone ----------------------------------------------------------------------------------


def gauges_only(scene: Scene, seconds: float, **values: float) -> None:
    for t in times(seconds, 5.0):
        scene.page(t, P, requests=100, prompt_tokens=5000, **values)
        scene.page(t, D, requests=100, generation_tokens=9000, running=0)


def test_0516_gauge_that_outlives_its_idle_report_is_pinned() -> None:
    scene = Scene("0.5.16")
    gauges_only(scene, 60, inflight=1)
    scene.log(P, batch(-20, new_seq=1, new_token=400))
    (found,) = pins(scene)
    assert found.confidence == Confidence.LIKELY


def test_0515_gauge_proves_nothing_when_probes_may_have_come() -> None:
    scene = Scene("0.5.15")
    gauges_only(scene, 60, inflight=1)
    assert pins(scene) == []


@pytest.mark.parametrize("version", ["0.4.9", "0.5.1", "0.5.2", "0.5.9"])
def test_a_gauge_that_the_release_does_not_write_proves_nothing(version: str) -> None:
    scene = Scene(version)
    gauges_only(scene, 90, inflight=7)
    assert pins(scene) == []


def test_thirty_seconds_of_a_constant_gauge_are_no_proof() -> None:
    scene = Scene("0.5.16")
    gauges_only(scene, 30, inflight=1)
    scene.log(P, batch(-20, new_seq=1, new_token=400))
    assert pins(scene) == []


def overdue_056(scene: Scene, *, handed_over: float | None) -> None:
    """A 0.5.6 whose decode should have reported idle, behind a router that counts a request. ``handed_over`` stand in
    the transfer queue by the stage counters; None: a page without them."""
    for t in times(60, 5.0):
        scene.page(t, P, requests=100, prompt_tokens=5000, inflight=0)
        values = {Gauge.REQUESTS: {WHOLE: 100.0}, Gauge.GENERATION_TOKENS: {WHOLE: 9000.0}}
        values |= {Gauge.RUNNING: {WHOLE: 2.0}, Gauge.GEN_THROUGHPUT: {WHOLE: 673.0}}
        page = EngineMetrics(values, families=20)
        if handed_over is not None:
            stages = {"decode_bootstrap": {WHOLE: 100.0 + handed_over}, "decode_transferred": {WHOLE: 100.0}}
            page = replace(page, stage_counts=stages)
        scene.add(t, D, Fact.METRICS, page)
        scene.router(t, active=1)


def test_056_router_count_and_an_overdue_idle_report_of_decode_are_two_signals() -> None:
    scene = Scene("0.5.6")
    overdue_056(scene, handed_over=1.0)
    (found,) = pins(scene, router=True)
    assert found.confidence in (Confidence.LIKELY, Confidence.CERTAIN)


@pytest.mark.parametrize("handed_over", [None, 0.0], ids=["nothing counts it", "the counters leave nothing there"])
def test_056_a_late_report_alone_may_be_a_hung_batch(handed_over: float | None) -> None:
    scene = Scene("0.5.6")
    overdue_056(scene, handed_over=handed_over)
    assert pins(scene, router=True) == []


def test_056_with_a_zeroed_decode_and_nothing_routed_is_ruled_out() -> None:
    scene = Scene("0.5.6")
    for t in times(60, 5.0):
        scene.page(t, P, requests=100, prompt_tokens=5000, inflight=0)
        scene.page(t, D, requests=100, generation_tokens=9000, running=0)
        scene.router(t, active=0)
    assert verdict_kinds(scene, router=True) == {RuledOut}


def worker(function: str) -> Stacks:
    frames = (Frame(function, "conn.py", 1), Frame("MooncakeKVManager.transfer_worker", "conn.py", 2))
    return Stacks((ProcessStack(7, "sglang::scheduler", WHOLE, (ThreadStack("9", "Thread-4", "idle", frames),)),))


@pytest.mark.parametrize(
    ("function", "certain"), [("MooncakeKVManager._transfer_data", True), ("FastQueue.get", False)]
)
def test_a_transfer_worker_in_its_call_is_a_signal_and_one_in_a_queue_is_not(function: str, certain: bool) -> None:
    scene = Scene("0.5.6")
    for t in times(60, 5.0):
        scene.page(t, P, requests=100, prompt_tokens=5000, inflight=0)
        scene.page(t, D, requests=100, generation_tokens=9000, running=0)
        scene.router(t, active=1)
    for t in (20.0, 30.0):
        scene.add(t, P, Fact.STACKS, worker(function))
    assert [f.confidence for f in pins(scene, router=True)] == ([Confidence.CERTAIN] if certain else [])


def test_live_counts_that_were_empty_and_then_were_not_renewed_rule_nothing_out() -> None:
    """0.5.18: the snapshot of the batch's own start says 0, and stands while its request is stuck."""
    scene = Scene("0.5.18")
    for t in times(60):
        scene.page(t, P, requests=100, http=1)
        scene.page(t, D, requests=100, generation_tokens=9000, http=1)
        scene.loads(t, P, frozen_at=min(t, 10.0), **EMPTY_P)
        scene.loads(t, D, frozen_at=min(t, 10.0), **EMPTY_D)
    verdicts = judge(scene.window(), pair())
    assert not [v for v in verdicts if isinstance(v, RuledOut)]
    assert [v.subject for v in verdicts] == [P]
