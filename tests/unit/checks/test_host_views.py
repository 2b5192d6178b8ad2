"""What ``sockets`` and ``stacks`` make of a window, and what they say of what they could not see."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from pdctl.checks.host_seeing import unseen
from pdctl.checks.socket_view import sockets_of
from pdctl.checks.stack_view import stacks_of
from pdctl.facts import read
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.host_view import PeerRow, SocketView
from pdctl.model.window import Window

START = datetime(2026, 11, 12, 3, 0, tzinfo=UTC)
PREFILL = Instance("prefill-0", Role.PREFILL, url="http://192.0.2.11:30000", host="a")
DECODE = Instance("decode-0", Role.DECODE, url="http://192.0.2.21:30000", host="b")
ROUTER = Instance("router-0", Role.ROUTER, url="http://192.0.2.31:8000", host="c")
CLUSTER = Cluster("c", (PREFILL, DECODE, ROUTER), (Host("a"), Host("b"), Host("c")))


def answer(
    subject: str, fact: Fact, t: float, body: str | None, ask: str = "ss -tanpieo", why: Why = Why.SSH, **more: object
) -> Answer:
    encoded = body.encode() if body is not None else None
    error, detail = (None, None) if body is not None else (why, "no way there")
    status = 200 if ask.startswith("GET") else 0
    return Answer(subject, fact, ask, t, START + timedelta(seconds=t), 0.1, status, error, detail, encoded, more=more)


def window(*answers: Answer) -> Window:
    rows = tuple(read(a, CLUSTER.instance(a.subject)) for a in answers)
    return Window(START, START + timedelta(seconds=60), rows, True)


def pids(subject: str, *numbers: int) -> Answer:
    rows = [{"pid": n, "ppid": 1, "title": "sglang::router"} for n in numbers]
    return answer(subject, Fact.PROCESSES, 0, json.dumps(rows), ask="/proc")


def row(state: str, local: str, peer: str, more: str = "", queues: str = "0 0", pid: int | None = None) -> str:
    users = f'users:(("sglang::router",pid={pid},fd=9)) ' if pid else ""
    return f"{state} {queues} {local} {peer} {users}ino:1 sk:1\n\t {more}\n"


def view(*answers: Answer, instance: Instance = ROUTER) -> SocketView:
    return sockets_of(window(*answers), CLUSTER, instance)


def found(rows: tuple[PeerRow, ...]) -> list[tuple[str, str, str, int]]:
    return [("to" if r.outward else "from", r.peer, r.condition, r.count) for r in rows]


LISTEN = row("LISTEN", "192.0.2.31:8000", "0.0.0.0:*", queues="3 4096", pid=7)


def test_connections_by_peer_and_condition() -> None:
    body = (
        LISTEN
        + row("ESTAB", "192.0.2.31:50001", "192.0.2.21:30000", "lastsnd:90000 lastrcv:80000", pid=7)
        + row("ESTAB", "192.0.2.31:50002", "192.0.2.21:30000", "lastsnd:70000 lastrcv:95000", pid=7)
        + row("ESTAB", "192.0.2.31:50003", "192.0.2.21:30000", "lastsnd:20 lastrcv:5000", pid=7)
        + row("ESTAB", "192.0.2.31:8000", "203.0.113.5:4000", "lastsnd:10 lastrcv:9", "512 0", pid=7)
        + row("ESTAB", "192.0.2.31:8000", "203.0.113.6:4000", "lastsnd:10 lastrcv:9", "0 77", pid=7)
        + row("CLOSE-WAIT", "192.0.2.31:8000", "203.0.113.6:4001", "", "1 0", pid=7)
        + row("ESTAB", "192.0.2.31:22", "203.0.113.9:1000", "lastsnd:1", pid=99)
    )
    seen = view(answer("host:c", Fact.SOCKETS, 0, body), pids("router-0", 7))
    (listener,) = seen.listeners
    assert (listener.port, listener.waiting, listener.backlog) == (8000, 3, 4096)
    assert found(seen.peers) == [
        ("from", "203.0.113.6", "CLOSE-WAIT", 1),
        ("from", "203.0.113.5", "unread bytes", 1),
        ("from", "203.0.113.6", "unacknowledged bytes", 1),
        ("to", "decode-0 (192.0.2.21:30000)", "active", 1),
        ("to", "decode-0 (192.0.2.21:30000)", "idle", 2),
    ]
    idle = seen.peers[-1]
    assert idle.quiet == (70_000, 80_000)
    assert idle.change is None
    assert (seen.peers[1].unread, seen.peers[2].unacked) == (512, 77)
    assert "not known" in seen.notes[0], "the router's own count was not read"


def test_growth_and_what_is_gone() -> None:
    def body(waiting: int, others: int) -> str:
        rows = [
            row("CLOSE-WAIT", f"192.0.2.31:{i}", "192.0.2.11:30000", pid=7) for i in range(50_000, 50_000 + waiting)
        ]
        rows += [row("ESTAB", f"192.0.2.31:{i}", "192.0.2.11:30000", pid=7) for i in range(40_000, 40_000 + others)]
        return LISTEN + "".join(rows)

    looks = [answer("host:c", Fact.SOCKETS, t, body(n, m)) for t, n, m in ((0, 5, 2), (10, 9, 2), (20, 25, 0))]
    seen = view(*looks, pids("router-0", 7))
    assert [(r.condition, r.count, r.change) for r in seen.peers] == [("CLOSE-WAIT", 25, 20), ("open", 0, -2)]
    assert (seen.looks, seen.seconds) == (3, 20.0)


def test_idle_connections_are_called_that_beside_the_router_s_own_count() -> None:
    page = 'smg_worker_requests_active{worker="http://192.0.2.21:30000"} 0\n'
    body = LISTEN + "".join(
        row("ESTAB", f"192.0.2.31:{i}", "192.0.2.21:30000", "lastsnd:90000 lastrcv:90000", pid=7)
        for i in range(50_000, 50_040)
    )
    metrics = answer("router-0", Fact.METRICS, 0, page, ask="GET http://192.0.2.31:29000/metrics")
    (note,) = view(answer("host:c", Fact.SOCKETS, 0, body), pids("router-0", 7), metrics).notes
    assert note.startswith("the router counts 0 active; it holds 40 connections to workers, 40 of them without bytes")
    assert note.endswith("kept-alive, no alarm")


def test_connections_that_requests_are_active_on_are_not_called_kept_alive() -> None:
    page = 'smg_worker_requests_active{worker="http://192.0.2.21:30000"} 6\n'
    metrics = answer("router-0", Fact.METRICS, 0, page, ask="GET http://192.0.2.31:29000/metrics")

    def noted(count: int) -> str:
        rows = [
            row("ESTAB", f"192.0.2.31:{i}", "192.0.2.21:30000", "lastsnd:9000", pid=7)
            for i in range(50_000, 50_000 + count)
        ]
        (note,) = view(answer("host:c", Fact.SOCKETS, 0, LISTEN + "".join(rows)), pids("router-0", 7), metrics).notes
        return note

    assert noted(6).endswith("6 of them without bytes on the way")
    assert noted(9).endswith("9 of them without bytes on the way: 3 more than are active, kept-alive")


def test_a_port_of_several_peers_is_served_even_if_no_listener_was_listed() -> None:
    body = "".join(row("ESTAB", "192.0.2.31:8443", f"203.0.113.{n}:4000", "lastsnd:5", pid=7) for n in (5, 6))
    body += row("ESTAB", "192.0.2.31:50000", "192.0.2.21:30000", "lastsnd:5", pid=7)
    seen = view(answer("host:c", Fact.SOCKETS, 0, body), pids("router-0", 7))
    assert [(r.outward, r.peer) for r in seen.peers] == [
        (False, "203.0.113.5"),
        (False, "203.0.113.6"),
        (True, "decode-0 (192.0.2.21:30000)"),
    ]


def test_listeners_and_connections_may_come_from_two_listings() -> None:
    listening = answer("host:c", Fact.SOCKETS, 0, LISTEN, ask="ss -tlnp")
    rows = row("ESTAB", "192.0.2.31:8000", "203.0.113.5:4000", "lastsnd:5", pid=7)
    seen = view(listening, answer("host:c", Fact.SOCKETS, 1, rows, ask="ss -tnpi"), pids("router-0", 7))
    assert [(listener.port, listener.named) for listener in seen.listeners] == [(8000, True)]
    assert [(r.count, r.change) for r in seen.peers] == [(1, None)], "a listing without connections is no baseline"


def test_listeners_on_which_something_waits_come_first() -> None:
    body = row("LISTEN", "127.0.0.1:40000", "0.0.0.0:*", queues="2 100", pid=7) + LISTEN.replace(" 3 ", " 0 ")
    body += row("LISTEN", "127.0.0.1:39999", "0.0.0.0:*", queues="0 100", pid=7)
    seen = view(answer("host:c", Fact.SOCKETS, 0, body), pids("router-0", 7))
    assert [(x.port, x.named) for x in seen.listeners] == [(40000, False), (8000, True), (39999, False)]


def test_an_instance_without_a_host_may_be_in_any_listing() -> None:
    free = Instance("router-0", Role.ROUTER, url="http://192.0.2.31:8000")
    cluster = Cluster("c", (free,))
    rows = tuple(read(a, free) for a in (answer("host:rig", Fact.SOCKETS, 0, LISTEN), pids("router-0", 7)))
    assert sockets_of(Window(START, START, rows, True), cluster, free).listeners


def test_a_client_on_the_same_host_is_named() -> None:
    body = (
        row("LISTEN", "192.0.2.11:30000", "0.0.0.0:*", queues="0 128", pid=5)
        + row("ESTAB", "192.0.2.11:30000", "192.0.2.11:40000", "lastsnd:5", pid=5)
        + row("ESTAB", "192.0.2.11:40000", "192.0.2.11:30000", "lastsnd:5", pid=44).replace("sglang::router", "nginx")
    )
    seen = view(answer("host:a", Fact.SOCKETS, 0, body), pids("prefill-0", 5), instance=PREFILL)
    assert found(seen.peers) == [("from", "192.0.2.11 (nginx, pid 44)", "active", 1)]


def test_a_listing_without_processes_is_told_by_ports_and_says_so() -> None:
    body = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0B0200C0:7530 00000000:0000 0A 00000000:00000002 00:00000000 00000000     0        0 1 1 0 100\n"
        "   1: 0B0200C0:7530 057100CB:0FA0 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100\n"
    )
    seen = view(answer("host:a", Fact.SOCKETS, 0, body), instance=PREFILL)
    (listener,) = seen.listeners
    assert (listener.port, listener.waiting, listener.backlog) == (30000, 2, None)
    assert found(seen.peers) == [("from", "203.0.113.5", "open", 1)]
    assert "names no processes" in seen.notes[0]


def test_no_listing_says_why() -> None:
    assert view(answer("host:c", Fact.SOCKETS, 0, None)).why == "no way there"
    assert view().why == "no listing of its sockets"


# --- stacks ------------------------------------------------------------------------------------------------------


def dump(pid: int, title: str, *frames: str, other: str = "") -> str:
    lines = [
        f"Process {pid}: {title}",
        "Python v3.12.3 (/usr/bin/python3.12)",
        "",
        f'Thread {pid} (idle): "MainThread"',
    ]
    return "\n".join([*lines, *(f"    {frame}" for frame in frames), other])


LOOP = ("recv_requests (scheduler.py:1293)", "event_loop_overlap_disagg_decode (decode.py:932)", "run (process.py:108)")
WAIT = ("broadcast (torch/distributed/distributed_c10d.py:2730)", *LOOP)
ELSEWHERE = ("all_reduce (torch/distributed/distributed_c10d.py:2501)", "forward (model.py:7)", *LOOP[1:])
WORKER = 'Thread 500 (idle): "Thread-3 (transfer_worker)"\n    get (queue.py:171)\n    run (threading.py:1010)\n'


def stack(pid: int, t: float, *frames: str, title: str = "", other: str = "") -> Answer:
    title = title or f"sglang::scheduler_TP{pid - 100}"
    body = dump(pid, title, *frames, other=other)
    return answer("decode-0", Fact.STACKS, t, body, ask=f"py-spy dump --pid {pid}", pid=pid, title=title)


def test_ranks_are_grouped_and_the_odd_one_is_told() -> None:
    answers = [stack(100 + n, t, *(ELSEWHERE if n == 2 else WAIT), other=WORKER) for t in (0, 5) for n in range(4)]
    main = stack(9, 5, "select (selectors.py:468)", title="python -m sglang.launch_server --tp 4")
    seen = stacks_of(window(*answers, main), DECODE)
    most, odd = seen.groups
    assert (most.names, most.odd, most.unmoved) == (("TP0", "TP1", "TP3"), False, True)
    assert most.place == "broadcast < recv_requests < event_loop_overlap_disagg_decode"
    assert (odd.names, odd.odd, odd.wait) == (("TP2",), True, "collective")
    assert odd.frames[0].function == "all_reduce"
    assert [(t.name, t.at, t.count) for t in seen.threads] == [("transfer_worker", "get < run", 4)]
    assert [name for name, _ in seen.others] == ["main (pid 9)"]
    assert (seen.dumps, seen.seconds, seen.unread) == (2, 5.0, ())


def test_what_moved_is_told_from_what_did_not() -> None:
    moved = stack(100, 5, "recv_requests (scheduler.py:1300)", *LOOP[1:])
    seen = stacks_of(window(stack(100, 0, *LOOP), moved), DECODE)
    assert [group.unmoved for group in seen.groups] == [False]


def test_one_dump_does_not_say_whether_it_moves() -> None:
    (group,) = stacks_of(window(stack(100, 0, *LOOP)), DECODE).groups
    assert group.unmoved is None


def test_ranks_that_gave_nothing_are_named() -> None:
    lost = answer("decode-0", Fact.STACKS, 0, None, why=Why.PERMISSION, pid=101, title="sglang::scheduler_TP1")
    seen = stacks_of(window(stack(100, 0, *LOOP), lost), DECODE)
    assert [(u.name, u.why) for u in seen.unread] == [("scheduler_TP1 (pid 101)", "permission no way there")]


# --- seeing ------------------------------------------------------------------------------------------------------


def names(window_: Window, *facts: Fact, why: dict[str, str] | None = None) -> list[tuple[str, str]]:
    return [(f.subject, f.summary) for f in unseen(window_, CLUSTER.instances, facts, why or {})]


def test_what_was_needed_and_missed_is_a_finding() -> None:
    seen = window(answer("host:a", Fact.SOCKETS, 0, LISTEN), answer("host:b", Fact.SOCKETS, 0, None))
    assert names(seen, Fact.SOCKETS, why={"router-0": "no host"}) == [
        ("decode-0", "the sockets of decode-0 could not be read: ssh: no way there"),
        ("router-0", "the sockets of router-0 could not be read: no host"),
    ]


def test_no_process_at_all_is_not_seeing_them() -> None:
    seen = window(answer("prefill-0", Fact.PROCESSES, 0, "[]", ask="/proc"), pids("decode-0", 5), pids("router-0", 7))
    assert names(seen, Fact.PROCESSES, why={"prefill-0": "no process on host a"}) == [
        ("prefill-0", "the processes of prefill-0 could not be read: no process on host a")
    ]


def test_what_was_not_asked_is_no_finding() -> None:
    assert names(window(), Fact.STACKS) == []
