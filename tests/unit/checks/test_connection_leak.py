"""connection-leak: growth without bound, told from a lazy pool, a burst and a churn."""

from __future__ import annotations

from pdctl.checks.connection_leak import judge
from pdctl.model.answer import Fact
from pdctl.model.finding import Confidence
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import R

LIMITS = "Max open files            1024                 1024                 files\nfd_count {}\n"


def waiting(count: int, first: int = 40000, pid: int | None = 3310, recv: int = 1) -> list[str]:
    owner = f' users:(("sglang::router",pid={pid},fd=9))' if pid is not None else ""
    return [f"CLOSE-WAIT {recv} 0 192.0.2.31:{first + i} 192.0.2.21:30000{owner}" for i in range(count)]


def growing(*counts: int, step: float = 20.0, **how: int | None) -> HostScene:
    scene = HostScene()
    for index, count in enumerate(counts):
        scene.ss(index * step, R, *waiting(count, **how))  # type: ignore[arg-type]
    return scene


def test_growth_of_sockets_that_stay_is_certain_and_names_owner_and_peer() -> None:
    finding = growing(60, 95, 130).one(judge)
    assert (finding.subject, finding.confidence) == (R, Confidence.CERTAIN)
    assert "pid 3310" in finding.summary
    assert "60 95 130" in finding.summary
    assert "192.0.2.21:30000 (decode-0)" in finding.summary


def test_two_looks_are_enough_if_none_of_the_old_went_away() -> None:
    assert growing(40, 70).one(judge).confidence == Confidence.CERTAIN


def test_a_lazy_pool_is_none_whether_steady_or_filling() -> None:
    assert growing(9, 9, 9).found(judge) == []
    assert growing(3, 9).found(judge) == []
    assert growing(90, 91, 90).found(judge) == []
    assert [r.what for r in growing(9, 9).ruled_out(judge)] == ["connection-leak"]


def test_a_burst_of_clients_that_left_and_other_sockets_each_time_is_none() -> None:
    scene = growing(0, 120, 4)
    assert scene.found(judge) == []
    churn = HostScene()
    churn.ss(0, R, *waiting(40, 40000))
    churn.ss(20, R, *waiting(60, 50000))
    assert churn.found(judge) == []


def test_very_many_at_one_look_are_possible_and_at_two_they_must_be_more() -> None:
    single = growing(300).one(judge)
    assert single.confidence == Confidence.POSSIBLE
    assert single.limits
    assert growing(120).found(judge) == []
    assert growing(300, 300).found(judge) == []
    assert growing(1500, 1500).one(judge).confidence == Confidence.POSSIBLE


def test_bytes_nobody_read_speak_for_a_process_that_hangs() -> None:
    finding = growing(40, 70, recv=400).one(judge)
    assert "may hang" in finding.against[0]


def test_two_processes_are_not_added_up_and_listings_without_owners_are_one_group() -> None:
    scene = HostScene()
    for t, each in ((0, 8), (20, 14)):
        scene.ss(t, R, *waiting(each, 40000, 1), *waiting(each, 50000, 2), *waiting(each, 60000, 3))
    assert scene.found(judge) == []
    nameless = growing(40, 70, pid=None).one(judge)
    assert "not listed" in nameless.summary


def test_a_look_without_any_socket_counts_as_none() -> None:
    scene = HostScene()
    scene.ss(0, R, 'ESTAB 0 0 192.0.2.31:1 192.0.2.21:30000 users:(("sglang::router",pid=3310,fd=8))')
    scene.ss(20, R, *waiting(60))
    scene.ss(40, R, *waiting(90))
    assert scene.one(judge).confidence == Confidence.LIKELY  # nothing of the first look to be kept


def test_the_limit_is_told_where_it_was_read() -> None:
    scene = growing(60, 95)
    scene.raw(20, R, Fact.LIMITS, LIMITS.format(900), pid=3310)
    assert "900 open files of 1024" in seen_in(scene.one(judge))


def test_time_wait_in_thousands_and_listings_of_listeners_are_nothing() -> None:
    scene = HostScene()
    rows = [f"TIME-WAIT 0 0 192.0.2.31:{i + 1024} 192.0.2.21:30000" for i in range(2000)]
    scene.ss(0, R, *rows[:10])
    scene.ss(20, R, *rows)
    scene.ss(30, R, ask="ss -tlnp")
    assert scene.verdicts(judge) == []
