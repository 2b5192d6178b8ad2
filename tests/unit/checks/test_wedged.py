"""Engines that stand still on releases whose live counts stand with them: 0.5.13 to 0.5.18."""

from __future__ import annotations

import pytest

from pdctl.checks import judge
from pdctl.model.answer import Fact, Why
from pdctl.model.engine import LoadRow
from pdctl.model.finding import Confidence, Finding
from tests.unit.checks.scene import D, P, Scene, pair, times
from tests.unit.checks.test_handoff import page

UNDATED = "0.5.15"


def found(scene: Scene) -> list[Finding]:
    report = judge(scene.window(), pair())
    return [f for f in report.findings if f.name in ("prealloc-wedged", "engine-wedged", "gauge-stale")]


def decode(
    scene: Scene, *, prealloc: float = 0.0, transfer: float = 0.0, owed: float, running: float, seconds: float = 32.0,
    tokens: float = 0.0,
) -> Scene:  # fmt: skip
    """A decode whose live counts, of before it stood still, say what its running gauge says."""
    for t in times(seconds):
        stages = {
            "decode_prepare": 100 + prealloc + transfer,
            "decode_bootstrap": 100 + transfer,
            "decode_transferred": 100,
        }
        page(scene, t, D, stages, http=owed, requests=80, generation_tokens=9000, realtime_tokens=9000 + tokens * t,
             running=running, token_usage=0.1)  # fmt: skip
        scene.loads(t, D, LoadRow(None, running=int(running), waiting=0, prealloc=0, transfer=0, token_usage=0.1))
        page(scene, t, P, {"prefill_forward": 100, "prefill_transfer_kv_cache": 100}, http=prealloc, requests=80)
    return scene


def test_all_that_is_owed_stands_in_prealloc_by_the_stage_counters_health_checks_beside_it() -> None:
    (only,) = found(decode(Scene(UNDATED), prealloc=14, owed=12, running=0))
    assert (only.name, only.subject, only.confidence) == ("prealloc-wedged", D, Confidence.CERTAIN)
    assert only.summary.startswith("12 request(s) stand in decode-0's prealloc queue")


def test_where_some_that_is_owed_may_be_elsewhere_prealloc_is_not_blamed() -> None:
    assert "prealloc-wedged" not in {f.name for f in found(decode(Scene(UNDATED), prealloc=3, owed=12, running=9))}


def test_requests_past_their_transfer_of_which_no_token_comes_are_wedged() -> None:
    (only,) = found(decode(Scene(UNDATED), owed=12, running=12))
    assert (only.name, only.subject, only.confidence) == ("engine-wedged", D, Confidence.CERTAIN)
    assert "12 answers owed" in only.evidence[0].saw


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": 40.0},  # it works
        {"owed": 0.0},  # a gauge left over
        {"running": 0.0},  # the idle report came: its clients do not read on
        {"transfer": 2.0},  # they wait for their KV
        {"seconds": 24.0},  # the idle report is not due yet
    ],
)
def test_what_only_looks_like_it_is_not(changed: dict[str, float]) -> None:
    scene = decode(Scene(UNDATED), **{"owed": 12.0, "running": 12.0, **changed})  # type: ignore[arg-type]
    assert "engine-wedged" not in {f.name for f in found(scene)}


def test_a_scheduler_that_may_not_turn_is_not_called_wedged() -> None:
    scene = Scene(None)
    scene.version = UNDATED  # as its live counts say
    scene.miss(0.0, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    assert "engine-wedged" not in {f.name for f in found(decode(scene, owed=12, running=12))}
