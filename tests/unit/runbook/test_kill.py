"""SIGKILL in the middle of a step: what was done is in the transcript, and the run goes on with that step."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pdctl.runbook.transcript import read_events

BOOK = """\
about: Looks, rests, says.
steps:
  - step: look
    run: [findings]
  - step: rest
    wait: {time: 4s}
  - step: done
    end: as-found
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_was_killed_goes_on_where_it_was(sign: signal.Signals, elsewhere: Path) -> None:
    (elsewhere / "b.yaml").write_text(BOOK)
    (elsewhere / "pdctl.toml").write_text('[[instance]]\nname = "p"\nrole = "prefill"\nurl = "http://127.0.0.1:9"\n')
    words = [sys.executable, "-m", "pdctl", "playbook", "run", "b.yaml", "--yes-read-only", "--transcript", "t"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        _until(elsewhere / "t.jsonl", '"step":"rest"')
        child.send_signal(sign)
        status = child.wait(timeout=60)
    assert status == (-9 if sign == signal.SIGKILL else 130)
    events = read_events(elsewhere / "t.jsonl")
    assert [e["step"] for e in events if e["event"] == "step"] == ["look"]
    assert (events[-1]["event"] == "end") == (sign != signal.SIGKILL)
    done = subprocess.run([*words, "--resume", "-o", "json"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, "nothing was judged"
    assert [step["step"] for step in json.loads(done.stdout)["steps"]] == ["rest", "done"]


def _until(path: Path, text: str) -> None:
    for _ in range(600):
        if path.exists() and text in path.read_text("utf-8"):
            return
        time.sleep(0.05)
    raise AssertionError(f"{text} never came")
