"""request-pinned on what /get_load says: releases that have no other live count (0.4.9 to 0.5.7)."""

from __future__ import annotations

import pytest

from pdctl.checks import judge as judge_all
from pdctl.checks.pinned import judge
from pdctl.checks.view import view_of
from pdctl.model.answer import Fact
from pdctl.model.engine import Gauge, LoadRow, Loads
from pdctl.model.finding import Confidence, Finding, RuledOut, Unchecked
from tests.unit.checks.scene import START, D, P, Scene, pair, times


def sums(scene: Scene, t: float, subject: str, waiting: int, *, running: int = 0, tokens: int = 0) -> None:
    """An answer of /get_load: the tokens are known while nothing waits."""
    row = LoadRow(None, running=running, waiting=waiting, used_tokens=None if waiting else tokens, summed=True)
    scene.add(t, subject, Fact.LOADS, Loads((row,), None, START.timestamp() + t))


def looked(
    version: str = "0.4.9", *, prefill: tuple[int, int] = (0, 0), decode: int = 0, done: float = 0.0,
    seconds: float = 30.0, running: int = 0,
) -> Scene:  # fmt: skip
    """Engines of which ``prefill`` waits and holds tokens, ``decode`` waits; ``done`` requests finish a second."""
    scene = Scene(version)
    for t in times(seconds):
        scene.page(t, P, requests=100 + done * t, inflight=0)
        sums(scene, t, P, prefill[0], tokens=prefill[1])
        scene.page(t, D, requests=100 + done * t, generation_tokens=9000 + 90 * done * t)
        sums(scene, t, D, decode, running=running, tokens=500 * bool(running))
    return scene


def verdicts(scene: Scene, **cluster: object) -> list[tuple[type, str]]:
    return [(type(v), v.subject) for v in judge(scene.window(), pair(**cluster))]  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["0.4.9", "0.5.1.post3"])
def test_requests_that_wait_on_prefill_and_have_no_other_half_are_pinned(version: str) -> None:
    (found,) = (v for v in judge(looked(version, prefill=(2, 0)).window(), pair()) if isinstance(v, Finding))
    assert (found.subject, found.confidence) == (P, Confidence.LIKELY)
    assert found.summary.startswith("2 request(s) wait in prefill-0 for 30 s")
    assert "none waits on decode-0" in found.evidence[1].saw


def test_a_router_that_counts_one_makes_it_certain() -> None:
    scene = looked(prefill=(1, 0))
    for t in times(30.0):
        scene.router(t, active=1.0)
    (found,) = (v for v in judge(scene.window(), pair(router=True)) if isinstance(v, Finding))
    assert found.confidence == Confidence.CERTAIN


def test_requests_that_a_decode_may_make_wait_are_not() -> None:
    assert verdicts(looked(prefill=(2, 0), decode=2)) == [(Unchecked, P)]


def test_kv_in_use_without_a_request_is_one_in_flight_where_a_decode_waits_for_it() -> None:
    (found,) = (v for v in judge(looked(prefill=(0, 500), decode=1).window(), pair()) if isinstance(v, Finding))
    assert found.subject == P and "500 KV tokens stay in use" in found.summary
    assert verdicts(looked(prefill=(0, 500))) == [(Unchecked, P)]


def test_tokens_that_move_are_of_a_request_that_is_computed() -> None:
    scene = Scene("0.4.9")
    for i, t in enumerate(times(30.0)):
        scene.page(t, P, requests=100)
        sums(scene, t, P, 0, tokens=500 + 100 * i)
        scene.page(t, D, requests=100, generation_tokens=9000)
        sums(scene, t, D, 1)
    assert verdicts(scene) == [(Unchecked, P)]


def test_a_health_check_s_token_among_them_changes_nothing() -> None:
    scene = Scene("0.5.1.post3")
    for i, t in enumerate(times(60.0)):
        scene.page(t, P, requests=100)
        sums(scene, t, P, 0, tokens=392 + (i % 9 == 4))
        scene.page(t, D, requests=100, generation_tokens=9000)
        sums(scene, t, D, 1)
    (found,) = (v for v in judge(scene.window(), pair()) if isinstance(v, Finding))
    assert "392 KV tokens stay in use on prefill-0 for 60 s" in found.summary


def test_requests_that_wait_on_decode_alone_are_pinned_there() -> None:
    assert verdicts(looked(decode=3)) == [(Finding, D), (RuledOut, P)]


def test_a_decode_that_works_makes_its_requests_wait() -> None:
    scene = looked(decode=3, done=2.0, running=4)
    assert (Finding, D) not in verdicts(scene)


def test_engines_that_hold_nothing_are_well_and_need_no_gauge_for_it() -> None:
    scene = looked(seconds=8.0)
    assert verdicts(scene) == [(RuledOut, P)]
    assert not judge_all(scene.window(), pair()).findings


@pytest.mark.parametrize("seconds", [4.0, 18.0])
def test_a_short_look_does_not_tell_nor_does_a_router_that_knows_nothing_of_it(seconds: float) -> None:
    scene = looked(prefill=(2, 0), seconds=seconds)
    for t in times(seconds):
        scene.router(t, active=0.0)
    (open_,) = (v for v in judge(scene.window(), pair(router=True)))
    assert isinstance(open_, Unchecked) and "2 request(s) wait in it by /get_load" in open_.why


def test_sums_are_never_taken_for_one_queue() -> None:
    prefill = view_of(looked(prefill=(2, 0)).window(), pair()).prefills[0]
    assert not prefill.fresh_rows(None) and not prefill.live(Gauge.QUEUE, None)
    assert [count.value for count in prefill.sums(None)][:2] == [2.0, 2.0]
    assert prefill.alive() == "/get_load answered, which asks the scheduler"


@pytest.mark.parametrize(("version", "kind"), [("0.4.6.post5", Unchecked), ("0.5.6", RuledOut)])
def test_a_router_with_nothing_under_way_excludes_what_engines_let_go_with_their_clients(
    version: str, kind: type
) -> None:
    """Before 0.5.3 an abort reaches no queue between prefill and decode: what the router let go may still be there."""
    scene = Scene(version)
    for t in times(60.0):
        scene.page(t, P, requests=100)
        scene.page(t, D, requests=100, generation_tokens=9000)
        scene.router(t, active=0.0)
    assert [type(v) for v in judge(scene.window(), pair(router=True))] == [kind]
