"""What is said of looks that can't answer whether a request is pinned."""

from __future__ import annotations

import pytest

from pdctl.checks import judge
from pdctl.checks.only_pinned import not_from_a_glance
from pdctl.model.finding import Report, Status
from tests.unit.checks.scene import D, P, Scene, pair, times


def looked(seconds: float, inflight: int) -> Report:
    """A triage of engines of which prefill's hand-off queue stood at ``inflight``."""
    scene = Scene("0.5.23")
    for t in times(seconds):
        scene.page(t, P, running=0, inflight=inflight, http=inflight)
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=inflight)
        scene.page(t, D, running=0, transfer=0, http=0)
        scene.loads(t, D, running=0, waiting=0, prealloc=0, transfer=0)
    return not_from_a_glance(judge(scene.window(), pair()), scene.window())


@pytest.mark.parametrize("seconds", [2.0, 4.0, 12.0])
def test_a_look_cut_short_while_a_queue_stood_is_unknown_and_not_ok(seconds: float) -> None:
    report = looked(seconds, inflight=2)
    assert report.status == Status.UNKNOWN
    assert [(f.name, f.subject) for f in report.findings] == [("gauge-unavailable", P)]


def test_a_look_cut_short_that_saw_the_queue_empty_stays_ok() -> None:
    assert looked(4.0, inflight=0).status == Status.OK


def test_a_look_of_full_length_is_left_as_it_was_judged() -> None:
    report = looked(30.0, inflight=2)
    assert "gauge-unavailable" not in {f.name for f in report.findings}
