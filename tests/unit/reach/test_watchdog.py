"""The hard end: a process that hangs is gone in time and has said so."""

from __future__ import annotations

import subprocess
import sys
import time

from pdctl.reach.watchdog import Watchdog

HANGS = """
import sys, threading, time
from pdctl.reach.watchdog import Watchdog
def say():
    print("time is up", flush=True)
    return 3
def stuck():
    time.sleep(600)
with Watchdog(0.3, {say}, 7):
    threading.Thread(target=stuck).start()  # no daemon: an ordinary exit would wait for it
    time.sleep(600)
"""


def run(say: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HANGS.format(say=say)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_process_that_hangs_says_so_and_ends_with_the_status_it_said() -> None:
    done = run("say")
    assert (done.returncode, done.stdout) == (3, "time is up\n")


def test_when_even_saying_it_hangs_it_ends_all_the_same() -> None:
    assert run("stuck").returncode == 7


def test_one_that_was_called_off_does_nothing() -> None:
    with Watchdog(0.05, lambda: 3, 3):
        pass
    time.sleep(0.2)
