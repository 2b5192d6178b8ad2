"""Finding engines on real hosts, and reading their journals over SSH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labkit import ROOT
from machines import Lab
from test_commands_lab import Pdctl


class Running(Pdctl):
    """Starts commands as well, to be ended by the test."""

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The running command; killed after a while, so that reading its output ends in any case."""
        environment = {"HOME": str(self._home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-m", "pdctl", *words], cwd=self._folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        timer = threading.Timer(90, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()
            process.communicate()


@pytest.fixture
def pdctl(engines: Lab, tmp_path: Path) -> Running:
    return Running(tmp_path, engines.home)


def test_init_finds_engines_with_their_units_and_says_what_runs_nowhere(pdctl: Pdctl, tmp_path: Path) -> None:
    shown = pdctl.run("init", "--host", "h1", "--host", "h2", "--host", "h3", "--force", "--timeout", "3s")
    text = (tmp_path / "pdctl.toml").read_text()
    document = tomllib.loads(text)
    rows = {row["name"]: row for row in document["instance"]}
    assert rows["prefill-0"].items() >= {
        "role": "prefill", "url": "http://127.0.0.1:30000", "host": "h1", "unit": "pd-prefill.service",
    }.items()  # fmt: skip
    assert rows["decode-0"].items() >= {"role": "decode", "host": "h2", "unit": "pd-decode.service"}.items()
    assert "log" not in rows["prefill-0"], "its output goes to the journal"
    assert [row["name"] for row in document["host"]] == ["h1", "h2"]
    assert "h3: no engine or router runs there" in text
    assert "tp 2" in shown


def test_what_init_wrote_is_enough_to_look(pdctl: Pdctl, tmp_path: Path) -> None:
    pdctl.run("init", "--host", "h1", "--host", "h2", "--force", "--timeout", "3s")
    report = pdctl.json("ps")
    assert {row["name"] for row in report["instances"]} == {"prefill-0", "decode-0"}
    assert all(any(p["part"] == "main" for p in row["processes"]) for row in report["instances"])
    assert os.listdir(tmp_path) == ["pdctl.toml"]


def test_journals_of_two_hosts_are_read(pdctl: Pdctl, engines: Lab) -> None:
    """The demo's engines write simulated times, so nothing is said of their order here."""
    pdctl.run("init", "--host", "h1", "--host", "h2", "--force", "--timeout", "3s")
    rows = [json.loads(line) for line in pdctl.run("logs", "-o", "jsonl", "--limit", "0").splitlines()]
    assert {row["instance"] for row in rows if "at" in row} == {"prefill-0", "decode-0"}
    started = [row["instance"] for row in rows if "systemd" in row["text"] and "Started" in row["text"]]
    assert {"prefill-0", "decode-0"} == set(started), "what systemd says of a unit is in its journal"


def test_a_user_who_is_not_shown_the_journal_is_told_so(pdctl: Pdctl, engines: Lab) -> None:
    pdctl.run("init", "--host", "plain@h1", "--host", "h2", "--force", "--timeout", "3s", status=None)
    rows = [json.loads(line) for line in pdctl.run("logs", "-o", "jsonl", status=3).splitlines()]
    assert {row["instance"] for row in rows} == {"decode-0"}


def test_journals_are_followed_live(pdctl: Running, engines: Lab) -> None:
    """What is written while it is followed comes, and Ctrl-C ends journalctl on the hosts."""
    pdctl.run("init", "--host", "h1", "--host", "h2", "--force", "--timeout", "3s")
    with pdctl.started("logs", "-f", "-o", "jsonl", "--grep", "Started") as process:
        for host, unit in (("h1", "pd-prefill"), ("h2", "pd-decode")):
            engines[host].wait_for("pgrep", "-f", "journalctl .*-f ")
            engines[host].run("systemctl", "restart", unit)
        assert process.stdout is not None
        seen: set[str] = set()
        while seen != {"prefill-0", "decode-0"}:
            row = json.loads(process.stdout.readline())
            if row["line"] > 0:
                seen.add(row["instance"])
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    for host in ("h1", "h2"):
        engines[host].wait_for("sh", "-c", "! pgrep -x journalctl")
