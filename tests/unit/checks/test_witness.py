"""What traffic explains: the odds for readings of a queue, by its floor and by its mean."""

from __future__ import annotations

import math

import pytest

from pdctl.checks.handoff import Turnover
from pdctl.checks.pinned import judge
from pdctl.checks.view import Count, view_of
from pdctl.checks.witness import SURE, gain, odds, still_there
from pdctl.model.answer import Fact
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.finding import Finding
from pdctl.model.rank import WHOLE
from pdctl.model.window import At
from tests.unit.checks.scene import D, P, Scene, pair, times

FORWARD, SENT = "prefill_forward", "prefill_transfer_kv_cache"


def readings(*values: float, apart: float = 2.0) -> tuple[Count, ...]:
    scene = Scene()
    scene.page(0.0, P)
    at: At[object] = scene.window().last(P, Fact.METRICS, EngineMetrics)  # type: ignore[assignment]
    return tuple(Count(i * apart, value, at) for i, value in enumerate(values))


def test_a_floor_of_one_over_a_queue_that_is_mostly_empty() -> None:
    """Ten readings of 1 where turnover holds a tenth of a request: 0.1 to the tenth."""
    found = odds(readings(*[1.0] * 10), held=0.1, stay=0.1)
    assert found is not None and found.log == pytest.approx(10 * math.log(0.1))
    assert not found.by_mean and "10.0%" in found.words


def test_a_mean_that_turnover_does_not_make_where_its_queue_is_never_empty() -> None:
    """Turnover holds 1.0 on average, the readings are 2.0 on average: the floor says nothing, the mean does. By hand:
    at a stake of 0.9 a reading of 1 gains nothing, of 2 a factor of 1.9, of 3 of 2.8."""
    rows = readings(*[1.0, 2.0, 3.0, 2.0, 2.0] * 6)
    by_hand = 6 * (3 * math.log(1.9) + math.log(2.8))
    assert gain(rows, 1.0) >= by_hand - math.log(4) - 1e-9
    found = odds(rows, held=1.0, stay=0.5, there=1.0)
    assert found is not None and found.by_mean and found.log < SURE
    assert "makes 1 of the 2 that are there on average" in found.words
    blind = odds(rows, held=1.0, stay=0.5)
    assert blind is not None and blind.log == 0.0


def test_a_mean_that_turnover_makes_is_worth_nothing() -> None:
    found = odds(readings(*[1.0, 2.0, 3.0, 2.0, 2.0] * 6), held=2.0, stay=0.5, there=2.0)
    assert found is not None and found.log > -2.0


def test_readings_closer_together_than_a_request_stays_count_for_less() -> None:
    near = odds(readings(*[2.0] * 31, apart=1.0), held=1.0, stay=10.0, there=1.0)
    far = odds(readings(*[2.0] * 31, apart=10.0), held=1.0, stay=10.0, there=1.0)
    assert near is not None and far is not None
    assert far.log < SURE < near.log


def stages(scene: Scene, t: float, subject: str, counts: dict[str, float], sums: dict[str, float]) -> None:
    page = EngineMetrics(
        {Gauge.REQUESTS: {WHOLE: counts.get(SENT, 0.0)}, Gauge.GENERATION_TOKENS: {WHOLE: 90 * t}},
        families=20,
        stage_counts={name: {WHOLE: value} for name, value in counts.items()},
        stage_sums={name: {WHOLE: value} for name, value in sums.items()},
    )
    scene.add(t, subject, Fact.METRICS, page)


def growing(stuck: int = 0) -> Scene:
    """One request a second, and a transfer worker that ends one in two seconds, first come, first served: the queue
    grows by one in two seconds, and nothing is stuck in it."""
    scene = Scene("0.5.9")
    for t in times(60):
        left = int(t / 2)
        spent = sum(2.0 * (n + 1) - n for n in range(left))  # the n-th comes at n and leaves at 2(n+1)
        stages(scene, t, P, {FORWARD: t + 1 + stuck, SENT: left}, {FORWARD: 0.01 * t, SENT: spent})
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=int(t + 1 + stuck - left))
        stages(scene, t, D, {"decode_bootstrap": t + 1, "decode_transferred": left}, {"decode_transferred": spent})
        scene.loads(t, D, running=1, waiting=0, prealloc=0, transfer=int(t + 1 - left))
    return scene


def test_a_queue_that_grows_is_not_taken_for_one_that_something_stays_in() -> None:
    scene = growing()
    assert not [v for v in judge(scene.window(), pair()) if isinstance(v, Finding)]


def test_what_is_in_a_queue_at_the_end_counts_as_though_it_had_come_last() -> None:
    """31 of 61 have left after 60 s; the 31 that are there came, at the latest, in the last 31 s or so, on average
    some 16 s ago: 8 on average over 60 s, and no more than two more for the pages' two seconds."""
    engine = view_of(growing().window(), pair()).prefills[0]
    there = still_there(engine, Gauge.INFLIGHT, None, 0.0, Turnover(held=3.0, done=30.0, stay=6.0))
    assert there is not None and 11.0 <= there <= 12.5
