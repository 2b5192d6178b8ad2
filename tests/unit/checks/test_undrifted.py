"""Stage counters stand in for live counts only where the front end bears them out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.checks.memory import queue_readings
from pdctl.checks.view import view_of
from pdctl.model.answer import Fact
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.rank import WHOLE
from tests.unit.checks.scene import D, Scene, pair, times


def staged(version: str, *, inside: float, owed: float | None) -> tuple[float, bool]:
    """The newest transfer reading and whether it is of its instant: ``inside`` entered and did not leave."""
    scene = Scene(version)
    for t in times(20, 5.0):
        page = EngineMetrics({Gauge.TRANSFER: {WHOLE: 0.0}, Gauge.RUNNING: {WHOLE: 0.0}}, families=9, http_active=owed)
        stages = {"decode_bootstrap": {WHOLE: 50.0 + inside}, "decode_transferred": {WHOLE: 50.0}}
        scene.add(t, D, Fact.METRICS, replace(page, stage_counts=stages))
    (decode,) = view_of(scene.window(), pair()).decodes
    readings, live = queue_readings(decode, Gauge.TRANSFER, None)
    return readings[-1].value, live


@pytest.mark.parametrize("version", ["0.5.10.post1", "0.5.15", "0.5.18"])
def test_counts_that_the_front_end_owes_are_of_now(version: str) -> None:
    assert staged(version, inside=4.0, owed=4.0) == (4.0, True)


@pytest.mark.parametrize(
    ("version", "inside", "owed"),
    [("0.5.15", 4.0, 0.0), ("0.5.15", 4.0, None), ("0.5.6", 4.0, None)],
    ids=["drifted", "nobody counts what is owed", "release without that count"],
)
def test_without_it_the_gauge_is_all_there_is(version: str, inside: float, owed: float | None) -> None:
    assert staged(version, inside=inside, owed=owed) == (0.0, False)
