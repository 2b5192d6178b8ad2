"""ps, sockets and stacks as people read them: whole words, nothing hostile, nothing wider than the screen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pdctl.model.host import Frame, ProcessStack, Stacks, ThreadStack, Unit
from pdctl.model.host_view import (
    ListenerRow,
    PeerRow,
    PsInstance,
    PsRow,
    SocketView,
    StackGroup,
    StackView,
    ThreadGroup,
    UnreadStack,
)
from pdctl.model.rank import WHOLE, Rank
from pdctl.render.grid import cut, grid
from pdctl.render.look import Look
from pdctl.render.ps import ps_lines, ps_value
from pdctl.render.sockets import sockets_lines, sockets_value
from pdctl.render.stacks import folded_lines, raw_lines, stacks_lines, stacks_value
from pdctl.render.text import columns
from pdctl.render.wire import dumps

AT = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)
LOOK = Look(ascii=True, width=108)
EVIL = "evil\x1b[31m\nname"


def test_a_grid_leaves_out_what_nobody_has_and_cuts_the_last_column() -> None:
    rows = [("1", "", "a" * 200), ("22", "", "short")]
    assert list(grid(("N", "EMPTY", "TEXT"), rows, Look(width=30), right=(0,))) == [
        "   N  TEXT",
        "   1  " + "a" * 21 + "...",
        "  22  short",
    ]
    assert cut("日本語日本語", 8) == "日本..."


PS = PsInstance(
    "prefill-0", "prefill", "h1",
    (
        PsRow(10, 1, 0, "main", f"python -m sglang.launch_server {EVIL}", started=AT - timedelta(hours=3), state="S",
              cpu=0.5, cpu_ever=0.25, rss_bytes=1_500_000_000, open_files=980, soft_limit=1024),
        PsRow(12, 10, 1, "scheduler", "sglang::scheduler_TP1", Rank(tp=1), "T", gpu="5"),
    ),
    AT, Unit({}, 3, 10, "active", "running", AT - timedelta(hours=3), "success"), "pd.service",
)  # fmt: skip


def test_ps() -> None:
    assert list(ps_lines([PS], LOOK)) == [
        "prefill-0 (prefill on h1), unit pd.service: active (running), since 2026-11-12 00:14:00 UTC, RESTARTED 3",
        "times by systemd",
        "  PID  PART         RANK  GPU  STATE     UP    CPU  CPU EVER  MEMORY  FILES             TITLE",
        "   10  main                    sleeping  3 h  50 %      25 %  1.5 GB  NEAR 980 of 1024  python -m sglang....",
        "   12    scheduler  TP1   5    STOPPED                                                  sglang::scheduler...",
    ]


def test_ps_of_nothing_is_never_quiet() -> None:
    lines = list(ps_lines([PsInstance("p", "prefill", None, why=f"h1: {EVIL}")], LOOK))
    assert lines == ["p (prefill)", r"  ? no process: h1: evil\x1b[31m\nname"]


def test_ps_as_json() -> None:
    value = ps_value(PS)
    assert dumps({"x": value})
    assert value["unit"]["restarts"] == 3
    assert (value["processes"][1]["rank"], value["processes"][1]["gpu"]) == ({"tp": 1}, "5")
    assert value["processes"][1]["cpu_cores"] is None


SOCKETS = SocketView(
    "router-0", "router", "h3",
    (ListenerRow("0.0.0.0", 8000, 4096, 4096, "smg, pid 7"), ListenerRow("::", 9, 2, None, "x, pid 8")),
    (
        PeerRow(EVIL, False, "CLOSE-WAIT", 25, 20, None, 25, 0, ("smg, pid 7",)),
        PeerRow("decode-0 (192.0.2.21:30000)", True, "idle", 40, 0, (70_000, 300_000)),
    ),
    2, 20.0, ("the router counts 0 active",),
)  # fmt: skip


def test_sockets() -> None:
    assert list(sockets_lines([SOCKETS], LOOK)) == [
        "router-0 (router on h3), 2 listings over 20.0 s",
        "  listens on 0.0.0.0:8000: 4096 of 4096 waiting to be accepted FULL (smg, pid 7)",
        "  listens on [::]:9: 2 waiting to be accepted, of a backlog not listed (x, pid 8)",
        "        PEER                         CONDITION   COUNT  CHANGE  QUIET FOR            BYTES      HELD BY",
        r"  from  evil\x1b[31m\nname           CLOSE-WAIT     25     +20                       25 unread  smg, pid 7",
        "  to    decode-0 (192.0.2.21:30000)  idle           40       0  1 min 10 s to 5 min",
        "  the router counts 0 active",
    ]  # fmt: skip


def test_more_rows_than_a_screen_are_counted() -> None:
    many = tuple(PeerRow(f"203.0.113.{n}", False, "idle", 2) for n in range(40))
    lines = list(sockets_lines([SocketView("r", "router", None, (), many, 1)], LOOK))
    assert lines[-1] == "  and 50 connections in 25 more rows, in -o json"
    assert len(sockets_value(SocketView("r", "router", None, (), many, 1))["connections"]) == 40


def test_sockets_that_were_not_seen() -> None:
    lines = list(sockets_lines([SocketView("r", "router", "h", why="h: no way")], LOOK))
    assert lines == ["r (router on h)", "  ? not seen: h: no way"]


FRAMES = (
    Frame("all_reduce", "distributed_c10d.py", 2501),
    Frame(f"loop {EVIL}", "decode.py", 932),
    Frame("c", "lib.so"),
)
STACKS = StackView(
    "decode-0", "decode", "h2",
    (
        StackGroup(("TP0", "TP1", "TP3"), "broadcast < recv_requests", "collective", FRAMES[:1], unmoved=True),
        StackGroup(("TP2",), "all_reduce < forward", "collective", FRAMES, odd=True, unmoved=False),
    ),
    (("main (pid 9)", ThreadStack("9", "MainThread", "idle", (Frame("select", "selectors.py", 468),))),),
    (ThreadGroup("transfer_worker", "get < run", 4),), (UnreadStack("scheduler_TP4 (pid 5)", "permission denied"),),
    2, 3.0, ("a note",),
)  # fmt: skip


def test_stacks() -> None:
    assert list(stacks_lines([STACKS], LOOK)) == [
        "decode-0 (decode on h2), 2 dumps over 3.0 s",
        "    3 ranks (TP0, TP1 and TP3) at broadcast < recv_requests, waits in a collective, UNMOVED between the",
        "      dumps",
        "      all_reduce (distributed_c10d.py:2501)",
        "  ! THE ODD ONE: 1 rank (TP2) at all_reduce < forward, waits in a collective, moved between the dumps",
        "      all_reduce (distributed_c10d.py:2501)",
        r"      loop evil\x1b[31m\nname (decode.py:932)",
        "      c (lib.so)",
        "  main (pid 9): idle at select",
        "  Other threads of the schedulers",
        "    4 transfer_worker at get < run",
        "  ? no stack of scheduler_TP4 (pid 5): permission denied",
        "  a note",
    ]


def test_stacks_as_json() -> None:
    value = stacks_value(STACKS)
    assert dumps({"x": value})
    assert [(g["ranks"], g["odd"], g["unmoved"]) for g in value["groups"]] == [
        (["TP0", "TP1", "TP3"], False, True), (["TP2"], True, False),
    ]  # fmt: skip
    assert value["groups"][1]["frames"][2] == {"function": "c", "file": "lib.so", "line": None}


def test_folded_lines_are_outermost_first_and_counted() -> None:
    thread = ThreadStack("1", "MainThread", "idle", (Frame("inner", "a;b.py", 3), Frame("outer", "a.py", 9)))
    dump = Stacks((ProcessStack(5, "sglang::scheduler_TP0 x", WHOLE, (thread,)),))
    assert list(folded_lines([("p", dump), ("p", dump)], LOOK)) == [
        "p;sglang::scheduler_TP0;MainThread;outer (a.py);inner (a:b.py) 2"
    ]


def test_raw_lines_send_nothing_to_the_terminal() -> None:
    lines = list(raw_lines([("p: py-spy dump", b"Process 5: x\x1b]0;owned\x07\n\xff\n")], LOOK))
    assert lines[1] == r"Process 5: x\x1b]0;owned\x07"
    assert all("\x1b" not in line for line in lines)


def test_nothing_is_wider_than_the_screen() -> None:
    for width in (40, 60, 200):
        look = Look(ascii=True, width=width)
        lines = [*ps_lines([PS], look), *sockets_lines([SOCKETS], look), *stacks_lines([STACKS], look)]
        assert max(columns(line) for line in lines) <= max(width, 125)
