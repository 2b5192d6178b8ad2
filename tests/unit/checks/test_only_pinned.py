"""What is said of looks that can't answer whether a request is pinned."""

from __future__ import annotations

import pytest

from pdctl.checks.only_pinned import judge_only_pinned
from pdctl.checks.over_time import judge_over_time
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
    return judge_over_time(scene.window(), pair())


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


def under_way(version: str | None) -> Scene:
    """Engines that neither count nor write what is between them, and a router that has a request under way;
    requests come and go."""
    scene = Scene(version)
    for t in times(60.0):
        scene.page(t, P, running=0, requests=5 + t)
        scene.page(t, D, running=0, requests=5 + t)
        scene.router(t, active=1.0)
    return scene


@pytest.mark.parametrize(("version", "longer"), [("0.4.9", False), ("0.5.1.post3", False), ("0.5.6", True)])
def test_a_longer_look_is_offered_where_it_can_tell(version: str, longer: bool) -> None:
    report = judge_only_pinned(under_way(version).window(), pair(router=True))
    assert report.status == Status.UNKNOWN
    (found,) = report.findings
    assert any("--for" in step for step in found.next) == longer


@pytest.mark.parametrize("version", ["0.5.6", None])
def test_a_release_that_is_not_known_is_said_to_be_that(version: str | None) -> None:
    report = judge_only_pinned(under_way(version).window(), pair(router=True))
    said = " ".join(f"{f.summary} {f.limits}" for f in report.findings) + str(report.unchecked)
    assert "None" not in said
    assert ("which is not known" in said) == (version is None)
