"""pdctl's own commands as processes of their own."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from pdctl.outlet import REPORT_TO
from pdctl.reach.own import Ran, run_own


def run(*words: str, limit: float | None = 60.0) -> tuple[Ran, list[str]]:
    lines: list[str] = []
    ran = run_own(words, on_line=lines.append, limit=limit, report_variable=REPORT_TO, environment={"COLUMNS": "90"})
    return ran, lines


def test_what_it_prints_is_passed_on_and_kept() -> None:
    ran, lines = run("explain", "request-pinned")
    assert ran.exit == 0 and ran.report is None and lines[0] == "# request-pinned (critical)"
    assert ran.output == "\n".join(lines)


def test_its_report_is_left_whatever_form_is_shown(elsewhere: Path) -> None:
    capture = Path(__file__).parents[2] / "captures" / "pinned-inflight.tar.zst"
    ran, lines = run("triage", "--from", str(capture))
    assert ran.exit == 2 and ran.report is not None
    assert {row["name"] for row in ran.report["findings"]} >= {"request-pinned"}
    assert any("CRITICAL" in line for line in lines), "people see what they always see"


def test_wrong_usage_leaves_no_report() -> None:
    ran, lines = run("triage", "--from", "/nowhere")
    assert (ran.exit, ran.report) == (64, None) and lines


def test_a_command_past_its_limit_is_ended(elsewhere: Path) -> None:
    ran, _ = run("demo", "healthy", limit=0.01)
    assert ran.late and not ran.interrupted and ran.exit != 70


def test_ctrl_c_waits_for_what_it_has_to_say(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    monkeypatch.setattr("pdctl.reach.own.GRACE_S", 0.2)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    ran, _ = run("demo", "healthy")
    timer.join()
    assert ran.interrupted and not ran.late


def test_a_change_holds_a_lock_for_as_long_as_it_lasts_whatever_ends_who_began_it(tmp_path: Path) -> None:
    """A run that was killed is not gone on with while the restart that it began still goes on."""
    file = tmp_path / "lock"
    begin = (
        "import fcntl, os, sys; from pdctl.reach.own import run_own\n"
        "lock = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "say = lambda line: print(line, flush=True)\n"
        "run_own(('demo', 'healthy'), on_line=say, limit=None, report_variable='X', environment={}, held=(lock,))\n"
    )
    words = [sys.executable, "-c", begin, str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent, file.open("a") as mine:
        assert parent.stdout is not None and parent.stdout.readline(), "the command runs"
        (change,) = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait()
        with pytest.raises(BlockingIOError):
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for process in (*change.children(recursive=True), change):
            process.kill()
        psutil.wait_procs([change], timeout=30)
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
