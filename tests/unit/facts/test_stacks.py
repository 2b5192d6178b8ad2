"""py-spy's dumps: text of one or many processes, JSON, noise, and what it prints when it fails."""

from __future__ import annotations

import json

import pytest

from pdctl.facts import stacks
from pdctl.facts.base import Unreadable
from pdctl.model.answer import Fact
from pdctl.model.host import Frame, ProcessStack
from pdctl.model.rank import Rank
from tests.unit.facts.host_answers import answer


def read(body: str, **more: object) -> tuple[ProcessStack, ...]:
    return stacks.read(answer(Fact.STACKS, body, "py-spy dump", **more), None).processes


TWO = """Process 71000: sglang::scheduler_DP0_TP0_EP0
Python v3.12.3 (/usr/bin/python3.12)

Thread 71000 (idle): "MainThread"
    broadcast (torch/distributed/distributed_c10d.py:2730)
    recv_requests (scheduler.py:1293)
    <module> (<string>:1)
Thread 71500 (active+gil): "Thread-3 (decode_thread)"
    poll (zmq/sugar/socket.py:1045)

Process 71005: sglang::scheduler_DP5_TP5_EP5
Python v3.12.3 (/usr/bin/python3.12)

Thread 0x7F12AB (active): "MainThread"
    all_gather_into_tensor (torch/distributed/distributed_c10d.py:3798)
"""


def test_processes_threads_and_frames_innermost_first() -> None:
    one, two = read(TWO)
    assert (one.pid, one.rank, one.part, one.python, one.error) == (
        71000, Rank(dp=0, tp=0, ep=0), "scheduler", "3.12.3", None,
    )  # fmt: skip
    assert one.main is not None and one.main.state == "idle"
    assert one.main.frames == (
        Frame("broadcast", "torch/distributed/distributed_c10d.py", 2730),
        Frame("recv_requests", "scheduler.py", 1293),
        Frame("<module>", "<string>", 1),
    )
    assert [(t.name, t.state) for t in one.threads] == [
        ("MainThread", "idle"),
        ("Thread-3 (decode_thread)", "active+gil"),
    ]
    assert two.rank == Rank(dp=5, tp=5, ep=5)
    assert two.threads[0].tid == "0x7F12AB"


NOISY = """Process 24099: python -c
import time
time.sleep(30)
Python v3.11.7 (/usr/bin/python3.11)

Thread 24099 (idle)
    clock_nanosleep (libc.so.6)
    std::thread::_Invoker<std::tuple<void (*)(int)> >::operator()(int) (libtorch.so)
    Thread.run (threading.py:982)
        Arguments:
            self: <Thread at 0x7ff17561ef50>
        Locals:
            x: "Process 1: nonsense (a.py:1)"
    0x7ff17584524a (libc.so.6)
"""


def test_native_frames_locals_and_threads_without_a_name() -> None:
    (process,) = read(NOISY)
    assert process.main is not None and process.main.tid == "24099"
    assert [(f.function, f.file, f.line) for f in process.main.frames] == [
        ("clock_nanosleep", "libc.so.6", None),
        ("std::thread::_Invoker<std::tuple<void (*)(int)> >::operator()(int)", "libtorch.so", None),
        ("Thread.run", "threading.py", 982),
        ("0x7ff17584524a", "libc.so.6", None),
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions by going 'sudo env ...'", "permission"),
        ("Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n"
         "    0: Permission denied (os error 13)", "permission"),
        ("Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n"
         "    0: No such file or directory (os error 2)", "gone"),
        ("Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n"
         "    1: unexpected waitpid result PtraceEvent(Pid(2), SIGSTOP, 128) to 2", "stopped"),
        ("Error: Failed to find python version from target process", "version"),
        ("bash: py-spy: command not found", "no-such-tool"),
        ("Error: something new", "unreadable"),
    ],
)  # fmt: skip
def test_why_a_process_could_not_be_dumped(said: str, reason: str) -> None:
    (process,) = read(said + "\n\nStack backtrace:\n   0: py_spy::main\n", pid=71003, title="sglang::scheduler_TP3")
    assert process.threads == ()
    assert process.rank == Rank(tp=3)
    assert process.error is not None and process.error.startswith(f"{reason}: ")
    assert "py_spy::main" not in process.error


def test_a_dump_that_names_its_process_and_holds_no_thread() -> None:
    (process,) = read("Process 13375: sglang::scheduler\nPython v3.11.7 (/usr/bin/python3.11)\n\n")
    assert process.error == "unreadable: no thread in the dump"


def test_a_failed_process_among_others() -> None:
    body = TWO + "\nProcess 71006: sglang::scheduler_DP6_TP6_EP6\nError: Permission denied (os error 13)\n"
    assert [p.error is None for p in read(body)] == [True, True, False]


def test_json() -> None:
    def thread(pid: int, name: str, title: str) -> dict[str, object]:
        frames = [{"name": "f", "filename": "/x/a/b.py", "short_filename": "a/b.py", "line": 7, "locals": None}]
        info = {"pid": pid, "command_line": title}
        return {"pid": pid, "thread_name": name, "os_thread_id": pid, "active": False, "owns_gil": False,
                "frames": frames, "process_info": info}  # fmt: skip

    body = json.dumps(
        [thread(5, "MainThread", "sglang::scheduler_TP1"), thread(5, "w", ""), thread(6, "MainThread", "x")]
    )
    one, two = read(body)
    assert (one.pid, one.rank, len(one.threads), two.pid) == (5, Rank(tp=1), 2, 6)
    assert one.main is not None
    assert (one.main.frames, one.main.state) == ((Frame("f", "a/b.py", 7),), "idle")


@pytest.mark.parametrize("body", ["", "\n", "bash: no\n", "[", "[]", '{"a": 1}'])
def test_what_names_no_process_is_unreadable(body: str) -> None:
    with pytest.raises(Unreadable):
        read(body)


def test_secrets_of_a_command_line_do_not_pass() -> None:
    (process,) = read(
        TWO.splitlines()[0].replace("sglang::scheduler_DP0_TP0_EP0", "python --api-key sk-not-a-real-key-000")
    )
    assert "sk-not" not in process.title
