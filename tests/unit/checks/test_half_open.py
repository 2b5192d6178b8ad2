"""half-open: both ends' listings, with care for time, translation and namespaces."""

from __future__ import annotations

from pdctl.checks.half_open import judge
from pdctl.model.finding import Confidence
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import D, R

SERVICE = "LISTEN 0 2048 0.0.0.0:30000 0.0.0.0:*"


def out(port: int, state: str = "ESTAB", ages: str = "", peer: str = "192.0.2.21") -> str:
    return f"{state} 0 0 192.0.2.31:{port} {peer}:30000 {ages}"


def inward(port: int, state: str = "ESTAB", peer: str = "192.0.2.31") -> str:
    return f"{state} 0 0 192.0.2.21:30000 {peer}:{port}"


def test_held_here_before_and_after_the_other_ends_listing_is_certain() -> None:
    scene = HostScene()
    scene.ss(0, R, out(50001), out(50002))
    scene.ss(10, D, SERVICE, inward(50001))
    scene.ss(20, R, out(50001), out(50002))
    finding = scene.one(judge)
    assert (finding.subject, finding.confidence) == (f"{R}->{D}", Confidence.CERTAIN)
    assert "1 connection(s)" in finding.summary
    assert "192.0.2.31:50002" in seen_in(finding)


def test_silence_longer_than_the_listings_are_apart_is_likely() -> None:
    scene = HostScene()
    scene.ss(0, R, out(50001), out(50002, ages="lastsnd:900000 lastrcv:905000"))
    scene.ss(5, D, SERVICE, inward(50001))
    finding = scene.one(judge)
    assert finding.confidence == Confidence.LIKELY
    assert "900 s" in seen_in(finding)


def test_one_look_at_each_end_is_possible_if_only_one_side_lacks_any() -> None:
    scene = HostScene()
    scene.ss(0, R, out(50001), out(50002))
    scene.ss(0.5, D, SERVICE, inward(50001))
    assert scene.one(judge).confidence == Confidence.POSSIBLE
    turning = HostScene()
    turning.ss(0, R, out(50001), out(50002))
    turning.ss(0.5, D, SERVICE, inward(50001), inward(50003))  # traffic: one closed, one opened in between
    assert turning.found(judge) == []


def test_looks_too_far_apart_prove_nothing() -> None:
    scene = HostScene()
    scene.ss(0, R, out(50001), out(50002))
    scene.ss(30, D, SERVICE, inward(50001))
    assert scene.found(judge) == []


def test_a_connection_opened_or_closed_between_the_looks_is_none() -> None:
    scene = HostScene()
    scene.ss(0, R, out(50001), out(50002))
    scene.ss(10, D, SERVICE, inward(50001))
    scene.ss(20, R, out(50001), out(50003))
    assert scene.found(judge) == []


def test_the_other_end_holds_it_in_any_state() -> None:
    scene = HostScene()
    for t in (0, 20):
        scene.ss(t, R, out(50001, "CLOSE-WAIT"), out(50002))
    scene.ss(10, D, SERVICE, inward(50001, "FIN-WAIT-2"), inward(50002, "FIN-WAIT-1"))
    assert scene.found(judge) == []
    assert len(scene.ruled_out(judge)) == 1


def test_translated_addresses_are_said_and_not_judged() -> None:
    scene = HostScene()
    for t in (0, 20):
        scene.ss(t, R, out(50001), out(50002))
    scene.ss(10, D, SERVICE, inward(61001, peer="198.51.100.1"), inward(61002, peer="198.51.100.1"))
    assert scene.found(judge) == []
    assert "nothing can be paired" in scene.unchecked(judge)[0].why


def test_a_listing_of_another_namespace_or_of_listeners_alone_is_no_other_end() -> None:
    scene = HostScene()
    for t in (0, 20):
        scene.ss(t, R, out(50001))
    scene.ss(10, D, "ESTAB 0 0 192.0.2.21:22 198.51.100.7:4000")  # the host, while the engine is in a container
    assert scene.found(judge) == []
    only = HostScene()
    only.ss(0, R, out(50001))
    only.ss(0, D, SERVICE, ask="ss -tlnp")
    assert only.verdicts(judge) == []


def test_all_lost_while_the_service_still_listens() -> None:
    scene = HostScene()
    for t in (0, 20):
        scene.ss(t, R, out(50001), out(50002))
    scene.ss(10, D, SERVICE, "ESTAB 0 0 192.0.2.21:22 192.0.2.31:4000")
    finding = scene.one(judge)
    assert "2 with 192.0.2.21:30000" in finding.summary


def test_loopback_has_both_ends_in_one_listing() -> None:
    scene = HostScene()
    scene.ss(0, "host:rig", "ESTAB 0 0 127.0.0.1:50001 127.0.0.1:30000", "ESTAB 0 0 [::1]:50001 [::1]:30000")
    scene.ss(0, D, "ESTAB 0 0 127.0.0.1:30000 127.0.0.1:50009")
    assert scene.verdicts(judge) == []


def test_ipv6() -> None:
    scene = HostScene()
    for t in (0, 20):
        scene.ss(
            t,
            R,
            "ESTAB 0 0 [2001:db8::31]:50001 [2001:db8::21]:30000",
            "ESTAB 0 0 [2001:db8::31]:50002 [2001:db8::21]:30000",
        )
    scene.ss(10, D, "LISTEN 0 9 *:30000 *:*", "ESTAB 0 0 [2001:db8::21]:30000 [2001:db8::31]:50001")
    assert "[2001:db8::31]:50002" in seen_in(scene.one(judge))


def test_a_restarted_end_that_lists_nothing_but_its_listener() -> None:
    scene = HostScene()
    for t in (0, 20):
        scene.ss(t, R, out(50001), out(50002))
    scene.ss(10, D, SERVICE)
    assert scene.one(judge).confidence == Confidence.CERTAIN


def test_a_published_container_port_changes_only_the_servers_own_address() -> None:
    scene = HostScene()
    for t in (0, 20):
        scene.ss(t, R, out(50001), out(50002))
    inside = [f"ESTAB 0 0 172.17.0.5:30000 192.0.2.31:{port}" for port in (50001, 50002)]
    scene.ss(10, D, SERVICE, *inside)
    assert scene.found(judge) == []
    lost = HostScene()
    for t in (0, 20):
        lost.ss(t, R, out(50001), out(50002))
    lost.ss(10, D, SERVICE, inside[0])
    assert "50002" in seen_in(lost.one(judge))


def test_absent_in_two_looks_taken_at_the_same_moments() -> None:
    scene = HostScene()
    for t in (0, 30):
        scene.ss(t, R, out(50001), out(50002))
        scene.ss(t, D, SERVICE, inward(50001))
    assert scene.one(judge).confidence == Confidence.CERTAIN
