"""Those that stay in a queue, told by how many came since; and stays that a timeout ended."""

from __future__ import annotations

import pytest

from pdctl.checks.handoff import since_outlier, stayers
from pdctl.model.engine import Gauge
from tests.unit.checks.scene import D, P, Scene, times
from tests.unit.checks.test_handoff import FORWARD, SENT, page, pins, view


def timing_out(*, stuck: int) -> Scene:
    """Forty requests that got stuck 270 s before the window; a timeout ends all but ``stuck`` of them half a minute
    into it, after 300 s each. One request a quarter of a minute comes and passes."""
    scene = Scene("0.5.9")
    for t in times(60, 5.0):
        passed = 200 + int(t / 15)
        ended = 0 if t <= 30 else min(40 - stuck, 3 * int(t - 30))
        page(
            scene, t, P, {FORWARD: passed + 40, SENT: passed + ended},
            sums={SENT: passed * 0.05 + 300.0 * ended, FORWARD: passed * 0.01},
            http=float(40 - ended), requests=passed, prompt_tokens=50 * passed, transfer_failed=ended,
        )  # fmt: skip
        page(scene, t, D, {}, requests=passed, generation_tokens=90 * passed)
    return scene


def test_what_is_left_of_many_that_time_out_is_pinned_though_the_last_of_these_has_just_gone() -> None:
    (found,) = pins(timing_out(stuck=9))
    assert found.summary.startswith("9 request(s)") and "fewer came in since than are there" in found.summary


def test_none_is_left_when_all_have_timed_out() -> None:
    assert pins(timing_out(stuck=0)) == []


def test_who_stays_is_told_by_the_counters_of_who_came() -> None:
    old = stayers(view(timing_out(stuck=9)), Gauge.INFLIGHT, None)
    assert old is not None
    assert (old.count, old.since) == (5.0, 0.0)  # 9 are there, 4 came since: at t = 15, 30, 45, 60


def test_the_next_that_a_timeout_ends_is_seen_though_those_before_lifted_the_mean() -> None:
    """Five that ended after 300 s make the mean of ten 150 s: the sixth is out of the ordinary all the same."""
    scene = Scene("0.5.9")
    for t in times(40):
        passed = 5 + int(t)
        sixth = t > 20
        page(
            scene,
            t,
            P,
            {FORWARD: passed + 6, SENT: passed + 5 + sixth},
            sums={SENT: passed * 0.05 + 300.0 * (5 + sixth)},
        )
    assert since_outlier(view(scene), Gauge.INFLIGHT, None, 20.0, 20.0) == 22.0


@pytest.mark.parametrize("version", ["0.5.9", "0.5.10.post1"])
def test_a_backlog_that_works_itself_off_is_on_its_way_however_long_that_takes(version: str) -> None:
    """Sixty requests behind one slow worker, none comes: a dozen are left after half a minute, and will go too."""
    scene = Scene(version)
    for t in times(30):
        left = 200 + int(1.6 * t)
        spent = 200 * 0.7 + sum(n / 1.6 for n in range(int(1.6 * t)))
        page(scene, t, P, {FORWARD: 260, SENT: left}, sums={SENT: spent}, http=float(260 - left), requests=left)
        page(scene, t, D, {}, requests=left, generation_tokens=90.0 * left)
    assert stayers(view(scene), Gauge.INFLIGHT, None) is None
    assert pins(scene) == []
