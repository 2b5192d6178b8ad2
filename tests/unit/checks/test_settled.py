"""When a look may end: a sure answer, or nothing to wait for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pdctl.checks import judge
from pdctl.checks.settled import pinned_settled, sure, triage_settled
from pdctl.model.answer import Fact, Why
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Finding, Severity
from pdctl.model.window import Window
from tests.unit.checks.scene import START, D, P, R, Scene, pair, times


def finding(name: str, confidence: Confidence = Confidence.CERTAIN) -> Finding:
    return Finding(name, Severity.CRITICAL, confidence, D, "said")


@pytest.mark.parametrize(
    ("names", "seconds", "ended"),
    [
        (["scheduler-stopped"], 12.0, True),
        (["transfer-stuck"], 12.0, False),  # its cause may be on its way
        (["transfer-stuck", "queue-head-blocked"], 12.0, True),
        (["transfer-stuck"], 24.0, True),
        ([], 24.0, False),
    ],
)
def test_what_is_certain_ends_a_look_once_its_cause_could_have_shown(
    names: list[str], seconds: float, ended: bool
) -> None:
    window = Window(START, START + timedelta(seconds=seconds), ())
    assert sure([finding(name) for name in names], window) is ended
    assert not sure([finding(name, Confidence.LIKELY) for name in names], window)


def test_a_stopped_scheduler_answers_the_question_of_pinned_requests() -> None:
    scene = Scene("0.5.23")
    for t in times(12.0):
        scene.page(t, P, http=2, inflight=2)
        scene.loads(t, P, running=0, waiting=0, bootstrap=0, inflight=2)
        scene.page(t, D, running=16, generation_tokens=9000, idle_seconds=50.0, scheduler_cpu_seconds=80.0)
        scene.loads(t, D, frozen_at=-13.0, running=16, waiting=0, prealloc=0, transfer=0)
    (stopped,) = (f for f in judge(scene.window(), pair()).findings if f.name == "scheduler-stopped")
    assert stopped.confidence == Confidence.CERTAIN
    assert pinned_settled(scene.window(), pair())


def ends(window: Window, cluster: Cluster) -> tuple[bool, bool]:
    """Whether a triage ends here, and whether the question of pinned requests does."""
    return triage_settled(judge(window, cluster), window, cluster), pinned_settled(window, cluster)


def refusing(rounds: int, names: tuple[str, ...] = (P, D, R)) -> Scene:
    scene = Scene(version=None)
    for n in range(rounds):
        for name in names:
            scene.miss(n * 2.0, name, Fact.METRICS, Why.CONNECT_REFUSED, took=0.001)
    return scene


def test_a_cluster_that_refuses_everybody_is_given_up_after_three_rounds() -> None:
    cluster = pair(router=True)
    assert ends(refusing(2).window(), cluster) == (False, False)
    assert ends(refusing(3).window(), cluster) == (True, True)


def test_one_endpoint_that_answers_keeps_the_look_going() -> None:
    scene = refusing(3, (P, R))
    for t in (0.0, 2.0, 4.0):
        scene.page(t, D, inflight=0)
    assert ends(scene.window(), pair(router=True)) == (False, False)


def test_settings_that_could_be_read_count_as_an_answer() -> None:
    scene = refusing(3, (P, D))
    scene.rows += Scene("0.5.23").rows[:1]
    assert ends(scene.window(), pair()) == (False, False)


def test_nobody_is_given_up_before_each_was_asked_three_times() -> None:
    """An endpoint that hangs is asked again only when its answer is overdue."""
    scene = refusing(5, (P,))
    scene.miss(5.0, D, Fact.METRICS, Why.READ_TIMEOUT)
    scene.miss(8.0, D, Fact.METRICS, Why.READ_TIMEOUT)
    assert ends(scene.window(), pair()) == (False, False)
    scene.miss(13.0, D, Fact.METRICS, Why.READ_TIMEOUT)
    assert ends(scene.window(), pair()) == (True, True)


def test_a_look_that_has_not_begun_goes_on() -> None:
    scene = Scene(version=None)
    scene.miss(0.0, P, Fact.SERVER_INFO, Why.CONNECT_REFUSED)
    assert ends(scene.window(), pair()) == (False, False)
