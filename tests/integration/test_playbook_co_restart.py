"""``pdctl playbook run co-restart`` on processes of this machine, killed in the middle and gone on with."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from small_cluster import NAMES, SmallCluster, small_cluster

pytestmark = pytest.mark.slow
ASKS = b"Type small to do it on small"
RUN = ("playbook", "run", "co-restart", "--for", "3s")


class AtTerminal:
    """A pdctl whose questions come to a terminal, and whose run goes into a pipe of its own."""

    def __init__(self, small: SmallCluster, words: tuple[str, ...]) -> None:
        self._main, other = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pdctl", *words], cwd=small.folder, env=small.environment(), stdin=other,
            stdout=subprocess.DEVNULL, stderr=other, text=True,
        )  # fmt: skip
        small.begun.append(self.process)
        os.close(other)

    def answer(self, question: bytes, said: str) -> None:
        seen = b""
        while question not in seen:
            seen += os.read(self._main, 4096)
        os.write(self._main, said.encode() + b"\n")

    def ends(self) -> int:
        with contextlib.suppress(OSError):  # the end of a terminal is an error to who reads it
            while os.read(self._main, 4096):
                pass
        return self.process.wait(timeout=120)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)


@contextmanager
def at_terminal(small: SmallCluster, *words: str) -> Iterator[AtTerminal]:
    made = AtTerminal(small, words)
    try:
        yield made
    finally:
        made.close()


def transcript(small: SmallCluster) -> Path:
    (path,) = (small.folder / "home" / ".local" / "state" / "pdctl" / "playbooks").glob("co-restart-*.txt")
    return path


def until_acted(small: SmallCluster, instance: str) -> None:
    """Waits until the restart has done something to an instance, and said that it does."""
    until = time.monotonic() + 120
    said = f"| now {instance}: restart"
    while not any(r["kind"] == "step-acted" and r.get("instance") == instance for r in small.journal()) or (
        said not in transcript(small).read_text()
    ):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_killed_with_its_restart_and_gone_on_with(tmp_path: Path) -> None:
    with small_cluster(tmp_path) as small:
        with at_terminal(small, *RUN) as first:
            first.answer(ASKS, "small")
            until_acted(small, "prefill-0")
            (restart,) = psutil.Process(first.process.pid).children()
            first.process.kill()
            restart.kill()
            psutil.wait_procs([restart], timeout=30)  # while it is there, nobody goes on with it
        with at_terminal(small, *RUN[:3], "--resume") as second:
            second.answer(ASKS, "small")
            assert second.ends() == 0
        assert small.restarted() == list(NAMES), "each once, in order"
        assert all(small.alive(name) for name in NAMES)
        text = transcript(small).read_text()
    assert "| now prefill-0: restart prefill-0" in text, "what was under way when it was killed"
    assert "it may have done its work" in " ".join(text.split())
    assert "agreed: pdctl restart --resume" in text
    assert "\n[8/14] done" in text and "ended after" in text.splitlines()[-1]
