"""The report of a look of any length: what its end shows, and what neither part could tell."""

from __future__ import annotations

import pytest

from pdctl.checks import judge
from pdctl.checks.over_time import judge_over_time
from pdctl.model.finding import Report, Status
from tests.unit.checks.scene import D, P, Scene, batch, pair, times


def names(of: Report) -> set[tuple[str, str]]:
    return {(f.name, f.subject) for f in of.findings}


def half_an_hour(wedged_at: float) -> Scene:
    """A decode that runs three requests all along; from ``wedged_at`` on no token comes out."""
    scene = Scene("0.5.23")
    for t in times(1800.0, 20.0):
        tokens = 50.0 * min(t, wedged_at)
        scene.page(t, P, running=0, inflight=0, http=0)
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=0)
        scene.page(t, D, running=3, generation_tokens=tokens, realtime_tokens=tokens, http=3)
        scene.loads(t, D, running=3, waiting=0, prealloc=0, transfer=0, used_tokens=int(min(t, wedged_at)) * 7 % 9000)
    return scene


def test_a_healthy_past_does_not_hide_a_fault_at_the_end_of_a_recording() -> None:
    window = half_an_hour(wedged_at=1640.0).window()
    assert ("engine-wedged", D) not in names(judge(window, pair()))
    report = judge_over_time(window, pair())
    assert ("engine-wedged", D) in names(report) and report.status == Status.CRITICAL
    assert (report.start, report.end) == (window.start, window.end)


def test_half_an_hour_of_work_is_ok() -> None:
    report = judge_over_time(half_an_hour(wedged_at=1800.0).window(), pair())
    assert (report.status, names(report)) == (Status.OK, set())


def busy(version: str | None, *, moves: bool) -> Scene:
    """Engines with requests under way by their gauges and nothing else to tell by, for a whole look."""
    scene = Scene(version)
    for t in times(34.0):
        done = 100.0 + (4 * t if moves else 0.0)
        scene.page(t, P, running=2, queue=1, inflight=4, requests=done, prompt_tokens=50 * done)
        scene.page(t, D, running=8, queue=0, transfer=4, requests=done, generation_tokens=90 * done)
    if moves:
        scene.log(P, *(batch(t, new_seq=2, inflight=3) for t in times(34.0, 1.0)))
    return scene


@pytest.mark.parametrize("version", ["0.5.6", "0.5.19", None])
def test_a_whole_look_at_what_stands_and_was_not_seen_to_move_is_unknown(version: str | None) -> None:
    scene = busy(version, moves=False)
    assert judge(scene.window(), pair()).status in (Status.OK, Status.UNKNOWN)
    assert judge_over_time(scene.window(), pair()).status == Status.UNKNOWN


def test_where_requests_go_through_one_that_may_stick_behind_them_is_listed_and_no_verdict() -> None:
    report = judge_over_time(busy("0.5.19", moves=True).window(), pair())
    assert (report.status, names(report)) == (Status.OK, set())
    assert ("request-pinned", P) in {(u.what, u.subject) for u in report.unchecked}


@pytest.mark.parametrize(
    ("only", "skip", "status"),
    [
        ((), (), Status.UNKNOWN),
        (("request-pinned",), (), Status.UNKNOWN),
        (("router",), (), Status.OK),
        ((), ("request-pinned",), Status.OK),
    ],
)
def test_what_was_not_asked_for_leaves_nothing_open(
    only: tuple[str, ...], skip: tuple[str, ...], status: Status
) -> None:
    """Live counts that stand at 2, for too short a while to tell."""
    scene = Scene("0.5.23")
    for t in times(4.0):
        scene.page(t, P, running=0, inflight=2, http=2)
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=2)
        scene.page(t, D, running=0, transfer=0, http=0)
        scene.loads(t, D, running=0, waiting=0, prealloc=0, transfer=0)
    assert judge_over_time(scene.window(), pair(), only=only, skip=skip).status == status
