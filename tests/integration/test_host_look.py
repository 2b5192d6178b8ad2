"""Looking at this machine's own processes: found by port, dumped by a real py-spy, and left as they were."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from loopback_sshd import Sshd, free_port

from pdctl.looks.hosts import HostLook, HostPlan, looking
from pdctl.looks.stacks import StackLook, StackPlan, dumping
from pdctl.model.answer import Fact, Missed
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.host import Limits, Processes, Sockets, Stacks
from pdctl.reach import local_sockets, pyspy
from pdctl.reach.pyspy import DumpPlan

ENGINE = """
import socket, sys, time, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
def event_loop_normal():
    while True:
        recv_requests()
def recv_requests():
    waiting_for = "a request"
    time.sleep(0.2)
event_loop_normal()
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process whose command line is an engine's, that listens where that says."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(ENGINE)
    port = free_port()
    words = [sys.executable, "-m", "sglang.launch_server", "--port", str(port), "--disaggregation-mode", "prefill"]
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    until = time.monotonic() + 20
    while port not in {c.laddr.port for c in psutil.Process(process.pid).net_connections() if c.laddr}:
        assert time.monotonic() < until
        time.sleep(0.05)
    yield process, port
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


Look = Callable[[], HostLook]


def cluster_of(port: int, host: Host | None = None) -> Cluster:
    instance = Instance("p", Role.PREFILL, url=f"http://127.0.0.1:{port}", host=host.name if host else None)
    return Cluster("c", (instance,), (host,) if host else ())


def test_what_is_seen_of_an_engine_here(engine: tuple[subprocess.Popen[bytes], int], tmp_path: Path) -> None:
    process, port = engine
    cluster = cluster_of(port)
    record = tmp_path / "record"
    with looking(cluster, cluster.instances, HostPlan(record=record)) as look:
        look.processes()
        look.sockets()
        look.limits(("main",))
        window = look.window()
    (row,) = window.seen("p", Fact.PROCESSES, Processes)[-1].value.rows
    assert (row.pid, row.part) == (process.pid, "main")
    limits = window.last("p", Fact.LIMITS, Limits)
    assert limits is not None
    assert limits.value.open_files
    assert limits.seen.more["pid"] == process.pid
    sockets = window.last("host:local", Fact.SOCKETS, Sockets)
    assert sockets is not None
    assert [r.pid for r in sockets.value.rows if r.local_port == port and r.state == "LISTEN"] == [process.pid]

    from pdctl.reach.capture import open_capture
    from pdctl.replay import read_window

    again = read_window(open_capture(record))
    assert again.seen("p", Fact.PROCESSES, Processes)[-1].value.rows == (row,)


def test_sockets_where_there_is_no_ss(
    engine: tuple[subprocess.Popen[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, port = engine
    monkeypatch.setattr(local_sockets, "has_ss", lambda: False)
    cluster = cluster_of(port)
    with looking(cluster, cluster.instances, HostPlan()) as look:
        look.sockets()
        seen = look.window().last("host:local", Fact.SOCKETS, Sockets)
    assert seen is not None
    assert "psutil" in seen.seen.ask
    (row,) = [r for r in seen.value.rows if r.local_port == port and r.state == "LISTEN"]
    assert (row.pid, row.send_q) == (process.pid, 0)


def test_an_instance_of_another_machine_is_not_looked_for_here() -> None:
    cluster = Cluster("c", (Instance("p", Role.PREFILL, url="http://192.0.2.11:30000"),))
    with looking(cluster, cluster.instances, HostPlan()) as look:
        look.processes()
        assert look.why == {"p": "the inventory names no host for it"}
        assert look.used_hosts == ()


def test_a_process_that_is_not_there(engine: tuple[subprocess.Popen[bytes], int]) -> None:
    cluster = cluster_of(free_port())
    with looking(cluster, cluster.instances, HostPlan()) as look:
        look.processes()
        assert look.unfound
        assert "no process on host local" in look.why["p"]


# --- stacks ------------------------------------------------------------------------------------------------------


def dumped(cluster: Cluster, plan: StackPlan) -> tuple[StackLook, HostLook]:
    with looking(cluster, cluster.instances, HostPlan()) as look:
        look.processes()
        with dumping(look, plan) as stacks:
            stacks.dump()
        return stacks, look


def test_a_real_dump(engine: tuple[subprocess.Popen[bytes], int]) -> None:
    _, port = engine
    _, look = dumped(cluster_of(port), StackPlan(1))
    seen = look.window().seen("p", Fact.STACKS, Stacks)
    assert len(seen) == 1
    main = seen[0].value.processes[0].main
    assert main is not None
    assert {"event_loop_normal", "recv_requests"} <= {frame.function for frame in main.frames}


@pytest.fixture
def clumsy(engine: tuple[subprocess.Popen[bytes], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy that leaves the process stopped, as one that is killed in the middle may."""
    spy = tmp_path / "py-spy"
    spy.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\nkill -STOP "$3"\n'
        'printf "Process %s: x\\nThread %s (idle): \\"MainThread\\"\\n    f (x.py:1)\\n" "$3" "$3"\n'
    )
    spy.chmod(0o755)
    monkeypatch.setattr(pyspy, "find_spy", lambda run, host, beside: pyspy.Spy(str(spy)))
    monkeypatch.setattr("pdctl.looks.stacks.find_spy", lambda run, host, beside: pyspy.Spy(str(spy)))


NATIVE = StackPlan(1, dump=DumpPlan(native=True))


def state_of(process: subprocess.Popen[bytes]) -> str:
    return str(psutil.Process(process.pid).status())


def test_what_a_dump_left_stopped_goes_on(engine: tuple[subprocess.Popen[bytes], int], clumsy: None) -> None:
    process, port = engine
    stacks, _ = dumped(cluster_of(port), NATIVE)
    assert state_of(process) != psutil.STATUS_STOPPED
    (note,) = stacks.notes
    assert f"pid {process.pid}" in note
    assert "left stopped by the dump; it goes on" in note


def test_what_was_stopped_before_stays_so(engine: tuple[subprocess.Popen[bytes], int], clumsy: None) -> None:
    process, port = engine
    process.send_signal(signal.SIGSTOP)
    while state_of(process) != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    stacks, _ = dumped(cluster_of(port), NATIVE)
    assert state_of(process) == psutil.STATUS_STOPPED
    assert stacks.notes == []


def test_a_dump_that_stops_nothing_never_lets_anything_go_on(
    engine: tuple[subprocess.Popen[bytes], int], clumsy: None
) -> None:
    """Without native frames py-spy stops nobody: whoever is stopped then, somebody else did it."""
    process, port = engine
    stacks, _ = dumped(cluster_of(port), StackPlan(1))
    assert state_of(process) == psutil.STATUS_STOPPED
    assert stacks.notes == []


def test_without_any_py_spy_each_rank_says_so(
    engine: tuple[subprocess.Popen[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = engine
    monkeypatch.setattr("pdctl.looks.stacks.find_spy", lambda run, host, beside: pyspy.NoSpy("no py-spy on h"))
    _, look = dumped(cluster_of(port), StackPlan(1))
    (seen,) = look.window().timeline("p", Fact.STACKS)
    assert isinstance(seen.got, Missed)
    assert seen.got.detail == "no py-spy on h"


def _has_ended(pid: int) -> bool:
    """Whether a process ends, within a bound that only a hang exceeds."""
    try:
        process = psutil.Process(pid)
        give_up = time.monotonic() + 30.0
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < give_up:
            time.sleep(0.05)
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_copy_is_put_on_a_host_that_has_none_and_taken_away(
    sshd: Sshd, engine: tuple[subprocess.Popen[bytes], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, port = engine
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text(sshd.config())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("pdctl.looks.stacks._interpreters", lambda rows, all_rows: [])
    monkeypatch.setattr(pyspy, "_FIND", "exit 127")
    with looking(
        cluster_of(port, Host("h", sshd.spec)), cluster_of(port, Host("h", sshd.spec)).instances, HostPlan()
    ) as look:
        look.processes()
        with dumping(look, StackPlan(1)) as stacks:
            (spy,) = stacks._spies.values()
            assert isinstance(spy, pyspy.Spy)
            assert spy.folder is not None
            assert (Path(spy.folder) / "py-spy").stat().st_mode & 0o777 == 0o700
            watch = int((Path(spy.folder) / "watch").read_text())
            stacks.dump()
        assert not Path(spy.folder).exists()
        assert _has_ended(watch)
        assert stacks.notes == []
        (seen,) = look.window().seen("p", Fact.STACKS, Stacks)
        assert seen.value.processes[0].threads
        assert seen.seen.ask.startswith("py-spy dump")


def test_a_program_for_another_machine_is_not_put_anywhere() -> None:
    arm = b"\x7fELF" + b"\0" * 14 + (183).to_bytes(2, "little") + b"\0" * 40
    assert "aarch64" in pyspy._machines_of(arm)
    assert pyspy._machines_of(b"#!/bin/sh\n" + b" " * 40) == ()


# --- the commands ------------------------------------------------------------------------------------------------


def pdctl(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    from pdctl.cli import main

    status = main(words)
    out, err = capsys.readouterr()
    return status, out, err


def test_ps_here(engine: tuple[subprocess.Popen[bytes], int], capsys: pytest.CaptureFixture[str]) -> None:
    process, port = engine
    status, out, _ = pdctl(capsys, "ps", "--prefill", f"http://127.0.0.1:{port}", "-o", "json")
    report = json.loads(out)
    (row,) = report["instances"][0]["processes"]
    assert (status, row["pid"], row["part"]) == (0, process.pid, "main")
    assert row["cpu_cores"] is not None
    assert row["open_files"] >= 3


def test_ps_of_nothing_cannot_tell(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = pdctl(capsys, "ps", "--prefill", f"http://127.0.0.1:{free_port()}")
    assert status == 3
    assert "no process" in out
    assert "endpoint-unreadable" in out


def test_sockets_here(engine: tuple[subprocess.Popen[bytes], int], capsys: pytest.CaptureFixture[str]) -> None:
    _, port = engine
    with socket.create_connection(("127.0.0.1", port)):
        _, out, _ = pdctl(capsys, "sockets", "--prefill", f"http://127.0.0.1:{port}", "-o", "json")
    row = json.loads(out)["instances"][0]
    assert [x["port"] for x in row["listeners"]] == [port]
    assert sum(c["count"] for c in row["connections"]) >= 1


def test_stacks_here_recorded_and_read_back(
    engine: tuple[subprocess.Popen[bytes], int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, port = engine
    record = str(tmp_path / "record")
    where = ("--prefill", f"http://127.0.0.1:{port}")
    _, live, _ = pdctl(capsys, "stacks", *where, "-n", "2", "--interval", "100ms", "--record", record)
    assert "main (pid" in live
    assert "event_loop_normal" in live
    _, again, _ = pdctl(capsys, "stacks", "--from", record)
    assert again.splitlines()[1:4] == live.splitlines()[1:4]
    _, folded, _ = pdctl(capsys, "stacks", "--from", record, "--folded")
    (line,) = folded.splitlines()
    assert line.endswith(" 2"), "the same stack in two dumps"
    assert "event_loop_normal" in line
    _, raw, _ = pdctl(capsys, "stacks", "--from", record, "--raw")
    assert raw.count("Python v3") == 2
    _, with_locals, _ = pdctl(capsys, "stacks", *where, "-n", "1", "--locals")
    assert "a request" in with_locals
    assert "a request" not in raw


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stacks", "--raw", "--folded", "--prefill", "http://127.0.0.1:1"), "two ways to show the same"),
        (("stacks", "--raw", "-o", "json", "--prefill", "http://127.0.0.1:1"), "a form of its own"),
        (("ps", "nobody", "--prefill", "http://127.0.0.1:1"), "no instance 'nobody'"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = pdctl(capsys, *words)
    assert status == 64
    assert said in err
