"""What ``pdctl ps`` shows of an instance."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from pdctl.facts import read
from pdctl.facts.ps_view import ps_of
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Instance, Role
from pdctl.model.window import Window

START = datetime(2026, 11, 12, 3, 0, tzinfo=UTC)
ENGINE = Instance("p", Role.PREFILL, url="http://127.0.0.1:30000", host="h", unit="p.service")


def answer(fact: Fact, t: float, body: str | None, **more: object) -> Answer:
    error = None if body is not None else Why.SSH
    encoded = body.encode() if body is not None else None
    detail = None if body is not None else "h: no way"
    return Answer("p", fact, "x", t, START + timedelta(seconds=t), 0.1, 0, error, detail, encoded, more=more)


def window(*answers: Answer) -> Window:
    return Window(START, START + timedelta(seconds=10), tuple(read(a, ENGINE) for a in answers), True)


def processes(t: float, cpu: float) -> Answer:
    started = (START - timedelta(seconds=90)).isoformat()
    main = ["python", "-m", "sglang.launch_server", "--tp", "2"]
    rows = [
        {"pid": 14, "ppid": 10, "title": "sglang::detokenizer", "state": "S"},
        {"pid": 13, "ppid": 10, "title": "sglang::scheduler_TP1", "state": "R", "started": started, "cpu_seconds": cpu},
        {"pid": 10, "ppid": 1, "title": " ".join(main), "cmdline": main, "state": "S", "rss_bytes": 1_000_000},
        {"pid": 12, "ppid": 10, "title": "sglang::scheduler_TP0", "state": "T", "started": started, "cpu_seconds": 1.0},
    ]
    return answer(Fact.PROCESSES, t, json.dumps(rows))


def test_the_tree_in_order_of_rank() -> None:
    limits = answer(
        Fact.LIMITS, 1, "Max open files            1024                 4096   files\nfd_count 900\n", pid=10
    )
    unit = answer(Fact.UNIT, 1, "ActiveState=active\nSubState=running\nNRestarts=2\nMainPID=10\n")
    seen = ps_of(window(processes(0, 10.0), limits, unit, processes(2, 13.0)), ENGINE)
    assert [(row.pid, row.depth, row.part) for row in seen.rows] == [
        (10, 0, "main"), (12, 1, "scheduler"), (13, 1, "scheduler"), (14, 1, "detokenizer"),
    ]  # fmt: skip
    main, tp0, tp1, detokenizer = seen.rows
    assert (main.open_files, main.soft_limit, main.gpu) == (900, 1024, None)
    assert (tp0.state, tp0.gpu, tp0.cpu) == ("T", "0", 0.0)
    assert (tp1.gpu, tp1.cpu) == ("1", 1.5)
    assert tp1.cpu_ever == 13.0 / 92
    assert detokenizer.cpu is None
    assert seen.unit is not None
    assert (seen.unit.restarts, seen.why) == (2, None)


def test_one_look_says_nothing_of_now() -> None:
    seen = ps_of(window(processes(0, 10.0)), ENGINE)
    assert [row.cpu for row in seen.rows] == [None] * 4


def test_a_number_taken_by_another_process_is_not_compared() -> None:
    later = processes(2, 0.5)
    assert later.body is not None
    moved = later.body.replace((START - timedelta(seconds=90)).isoformat().encode(), START.isoformat().encode())
    seen = ps_of(window(processes(0, 10.0), answer(Fact.PROCESSES, 2, moved.decode())), ENGINE)
    assert [row.cpu for row in seen.rows] == [None] * 4


def test_what_could_not_be_read_says_why() -> None:
    seen = ps_of(window(answer(Fact.PROCESSES, 0, None), answer(Fact.UNIT, 0, "LoadState=not-found\n")), ENGINE)
    assert (seen.rows, seen.why) == ((), "h: no way")
    assert seen.unit is None
    assert "no such unit" in (seen.unit_why or "")
