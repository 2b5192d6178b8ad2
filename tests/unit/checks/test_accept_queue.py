"""accept-queue-full: by the listener, confirmed by what else the kernel and the stack show."""

from __future__ import annotations

import pytest

from pdctl.checks.accept_queue import judge
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.finding import Confidence
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import D, P

OWNER = 'users:(("python3",pid=40211,fd=41))'
STACK = """Process 40211: python3 -m sglang.launch_server --disaggregation-mode prefill

Thread 40211 ({state}): "MainThread"
    encode (transformers/tokenization_utils_base.py:2600)
    generate_request (tokenizer_manager.py:476)
"""


def listener(recv: int, send: int, port: int = 30000, owner: str = OWNER) -> str:
    return f"LISTEN {recv} {send} 0.0.0.0:{port} 0.0.0.0:* {owner}"


def test_one_look_is_likely_and_a_second_sign_makes_it_certain() -> None:
    scene = HostScene()
    scene.ss(0, P, listener(129, 128))
    alone = scene.one(judge)
    assert (alone.subject, alone.confidence) == (P, Confidence.LIKELY)
    assert "129 of 128" in alone.summary
    scene.ss(
        1,
        P,
        listener(129, 128),
        "ESTAB 900 0 192.0.2.11:30000 192.0.2.31:52000",
        "SYN-RECV 0 0 192.0.2.11:30000 192.0.2.31:5",
    )
    confirmed = scene.one(judge)
    assert confirmed.confidence == Confidence.CERTAIN
    assert "900 unread bytes" in seen_in(confirmed)
    assert "1 handshakes" in seen_in(confirmed)


def test_what_the_main_thread_does_is_named() -> None:
    scene = HostScene()
    scene.ss(0, P, listener(2049, 2048))
    scene.raw(1, P, Fact.STACKS, STACK.format(state="active+gil"))
    finding = scene.one(judge)
    assert finding.confidence == Confidence.CERTAIN
    assert "encode < generate_request" in finding.summary


def test_an_idle_main_thread_is_no_sign() -> None:
    scene = HostScene()
    scene.ss(0, P, listener(2049, 2048))
    scene.raw(1, P, Fact.STACKS, STACK.format(state="idle"))
    assert scene.one(judge).confidence == Confidence.LIKELY


def test_growing_overflows_confirm_and_a_lone_total_does_not() -> None:
    scene = HostScene()
    scene.ss(0, P, listener(128, 128))
    scene.raw(0, P, Fact.NSTAT, "TcpExtListenOverflows 88213 0.0\n")
    assert scene.one(judge).confidence == Confidence.LIKELY
    scene.raw(9, P, Fact.NSTAT, "TcpExtListenOverflows 88263 0.0\n")
    grown = scene.one(judge)
    assert grown.confidence == Confidence.CERTAIN
    assert "grew by 50" in seen_in(grown)


@pytest.mark.parametrize(
    ("recv", "send"),
    [(0, 2048), (2047, 2048), (5, 0)],  # the last: /proc/net/tcp does not tell the size
)
def test_a_queue_with_room_or_of_unknown_size_is_none(recv: int, send: int) -> None:
    scene = HostScene()
    scene.ss(0, P, listener(recv, send))
    assert scene.verdicts(judge) == []


def test_a_burst_that_is_over_is_ruled_out() -> None:
    scene = HostScene()
    scene.ss(0, P, listener(2049, 2048))
    scene.ss(20, P, listener(0, 2048))
    assert scene.found(judge) == []
    assert [r.what for r in scene.ruled_out(judge)] == ["accept-queue-full"]


def test_listeners_of_others_do_not_count_and_the_bootstrap_port_does() -> None:
    scene = HostScene()
    scene.ss(
        0, P, listener(6, 5, 22, 'users:(("sshd",pid=9,fd=3))'), listener(1, 1, 41000, 'users:(("python3",pid=8,fd=3))')
    )
    assert scene.found(judge) == []
    scene.ss(1, P, listener(129, 128, 8998))
    assert "port 8998" in scene.one(judge).summary


def test_a_hosts_listing_is_told_apart_by_port_and_by_process() -> None:
    cluster = Cluster(
        "c",
        (
            Instance(P, Role.PREFILL, "http://[::1]:30100", host="gpu1"),
            Instance(D, Role.DECODE, "http://[::1]:30200", host="gpu1"),
            Instance("decode-1", Role.DECODE, "http://192.0.2.9:30200", host="gpu2"),
        ),
    )
    scene = HostScene(cluster=cluster)
    scene.raw(0, D, Fact.PROCESSES, '[{"pid": 77, "title": "python -m sglang.launch_server"}]')
    scene.ss(
        0, "host:gpu1", "LISTEN 200 100 [::]:30200 [::]:*", 'LISTEN 90 64 *:9999 *:* users:(("python",pid=77,fd=1))'
    )
    assert sorted((f.subject, f.summary.split(" port ")[1][:5]) for f in scene.found(judge)) == [
        (D, "30200"),
        (D, "9999 "),
    ]


def test_a_listing_of_listeners_alone_and_one_without_owners() -> None:
    scene = HostScene()
    scene.ss(0, P, "LISTEN 129 128 0.0.0.0:30000 0.0.0.0:*", ask="ss -tln")
    assert "not listed" in seen_in(scene.one(judge))
