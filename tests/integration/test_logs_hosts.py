"""``pdctl logs`` of instances on hosts over a real sshd: files and journals on one time line, followed until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from loopback_sshd import MISSING, Sshd, find_sshd, start_sshd

JOURNAL = """#!/bin/sh
case "$*" in
  *secret*)
    echo "Hint: You are currently not seeing messages from other users and the system." >&2
    echo "-- No entries --"; exit 0;;
  *" -f -n 2000 "*) exec tail -n 2000 -F "{folder}/live";;
  *" -f "*) exec tail -n 0 -F "{folder}/live";;
  *) echo "$*" >>"{folder}/asked"; cat "{folder}/journal"; echo "-- cursor: s=abc;i=1";;
esac
"""
DATE = """#!/bin/sh
[ "$1" = "+%s.%N %z" ] && {{ echo "$(($(/bin/date +%s) + {ahead})).0 +0900"; exit; }}
exec /bin/date "$@"
"""
INVENTORY = """
name = "c"
[[host]]
name = "a"
ssh = "a"
[[instance]]
name = "prefill-0"
role = "prefill"
host = "a"
log = "{folder}/prefill.log"
[[instance]]
name = "decode-0"
role = "decode"
host = "a"
unit = "pd-decode"
"""
READY = "The server is fired up and ready to roll!"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    """A host whose PATH has a journalctl of ours first."""
    if find_sshd() is None:
        pytest.skip(MISSING)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "journalctl").write_text(JOURNAL.format(folder=tmp_path))
    (tools / "journalctl").chmod(0o755)
    for name in ("journal", "live", "prefill.log"):
        (tmp_path / name).touch()
    made = start_sshd(tmp_path / "sshd", f"SetEnv PATH={tools}:/usr/bin:/bin")
    yield made
    made.stop()


@pytest.fixture
def world(server: Sshd, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    block = f"Host a\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
    (home / ".ssh" / "config").write_text(server.config(block))
    monkeypatch.setenv("HOME", str(home))
    (elsewhere / "pdctl.toml").write_text(INVENTORY.format(folder=tmp_path))
    return tmp_path


def skewed(world: Path, ahead: int) -> None:
    """The host's clock by its own account: nine hours east of UTC, so many seconds ahead."""
    (world / "tools" / "date").write_text(DATE.format(ahead=ahead))
    (world / "tools" / "date").chmod(0o755)


def record(when: datetime, text: str) -> str:
    """An engine's record as its file has it: local time without a zone."""
    return f"[{when:%Y-%m-%d %H:%M:%S} TP0] {text}\n"


def journaled(when: datetime, text: str) -> str:
    """The same as journalctl shows it, from an engine in UTC."""
    return f"{when:%Y-%m-%dT%H:%M:%S}.000000+0000 gpu1 python3[4711]: {record(when, text)}"


def written(path: Path, text: str, when: datetime) -> None:
    path.write_text(text)
    os.utime(path, (when.timestamp(), when.timestamp()))


def run(*words: str, status: int = 0) -> tuple[list[dict[str, object]], str]:
    done = subprocess.run(
        [sys.executable, "-m", "pdctl", "logs", *words, "-o", "jsonl"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_file_and_a_journal_on_one_time_line(world: Path) -> None:
    base = datetime(2026, 11, 12, 3, 0, tzinfo=UTC)
    lines = [record(base + timedelta(minutes=m), READY) for m in (0, 2)]
    written(world / "prefill.log", "".join(lines), base + timedelta(minutes=2))
    (world / "journal").write_text(journaled(base + timedelta(minutes=1), READY))
    rows, err = run()
    assert [(r["instance"], r["at"]) for r in rows] == [
        ("prefill-0", "2026-11-12T03:00:00Z"),
        ("decode-0", "2026-11-12T03:01:00Z"),
        ("prefill-0", "2026-11-12T03:02:00Z"),
    ]
    assert "unknown" not in err


def test_a_journal_that_is_not_shown_is_unknown_and_the_others_go_on(world: Path, elsewhere: Path) -> None:
    written(world / "prefill.log", record(datetime(2026, 11, 12, 3, tzinfo=UTC), READY), datetime.now(UTC))
    file = elsewhere / "pdctl.toml"
    file.write_text(file.read_text().replace("pd-decode", "secret"))
    rows, err = run(status=3)
    assert [r["instance"] for r in rows] == ["prefill-0"]
    assert "decode-0: unknown: " in err
    assert "not shown the system's journal" in err
    assert run("decode-0", status=3)[0] == []


def test_a_file_that_is_not_there_and_one_that_may_not_be_read(world: Path, elsewhere: Path) -> None:
    (world / "journal").write_text(journaled(datetime(2026, 11, 12, 3, tzinfo=UTC), READY))
    (world / "prefill.log").unlink()
    rows, err = run(status=3)
    assert [r["instance"] for r in rows] == ["decode-0"]
    assert "prefill-0: unknown: " in err
    assert "No such file" in err


def test_times_are_those_of_the_hosts_zone_and_skew_is_said(world: Path) -> None:
    """The host is in UTC+9 and 120 s ahead: 12:00 there is 03:00 UTC by its own clock."""
    skewed(world, 120)
    base = datetime(2026, 11, 12, 3, 0, tzinfo=UTC)
    east = base.replace(tzinfo=None) + timedelta(hours=9)
    lines = "".join(record(east.replace(tzinfo=UTC) + timedelta(minutes=m), READY) for m in (0, 10, 20))
    written(world / "prefill.log", lines, base + timedelta(minutes=20))
    (world / "journal").write_text(journaled(base + timedelta(minutes=15), READY))
    rows, err = run("--since", "2026-11-12 12:05", "--until", "2026-11-12 12:15")
    assert [(r["instance"], r["at"]) for r in rows] == [
        ("prefill-0", "2026-11-12T03:10:00Z"),
        ("decode-0", "2026-11-12T03:15:00Z"),
    ]
    assert "the clock of a is " in err
    assert "ahead of this machine's" in err
    asked = (world / "asked").read_text()
    assert f"--since @{(base + timedelta(minutes=5)).timestamp():.0f}" in asked


def test_both_are_followed_until_ctrl_c_and_nothing_stays_on_the_host(world: Path) -> None:
    now = datetime.now(UTC)
    written(world / "prefill.log", record(now, READY) + "[half a line", now)
    process = subprocess.Popen(
        [sys.executable, "-m", "pdctl", "logs", "-f", "-o", "jsonl", "--kind", "ready"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["instance"] == "prefill-0"
        until = time.monotonic() + 30
        while len(_tails(world)) < 2:
            assert time.monotonic() < until, "both are followed"
            time.sleep(0.1)
        for path, line in ((world / "prefill.log", "\n" + record(now, READY)), (world / "live", journaled(now, READY))):
            with path.open("a") as file:
                file.write(line)
        got = {json.loads(process.stdout.readline())["instance"] for _ in range(2)}
        assert got == {"prefill-0", "decode-0"}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        until = time.monotonic() + 10
        while _tails(world):
            assert time.monotonic() < until, "the commands on the host have ended"
            time.sleep(0.1)
    finally:
        process.kill()
        process.communicate()


def test_a_lost_connection_is_made_again_and_no_line_is_lost_or_told_twice(world: Path, server: Sshd) -> None:
    now = datetime.now(UTC)
    written(world / "prefill.log", record(now, READY), now)
    process = subprocess.Popen(
        [sys.executable, "-m", "pdctl", "logs", "-f", "-o", "jsonl", "--grep", "request"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def grow(*numbers: int) -> None:
        for path, one in ((world / "prefill.log", record), (world / "live", journaled)):
            with path.open("a") as file:
                file.writelines(one(now, f"request {n}") for n in numbers)

    def come(count: int) -> list[tuple[object, object]]:
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(count)]
        return [(row["instance"], row["text"].partition("] ")[2]) for row in rows]

    timer = threading.Timer(90, process.kill)  # reading its output ends in any case
    timer.start()
    try:
        until = time.monotonic() + 30
        while len(_tails(world)) < 2:
            assert time.monotonic() < until, "both are followed"
            time.sleep(0.1)
        grow(1, 2)
        before = come(4)
        family = psutil.Process(server.process.pid).children(recursive=True)
        for process_of_server in sorted(family, key=lambda one: not one.name().startswith("sshd")):
            with contextlib.suppress(psutil.NoSuchProcess):
                process_of_server.kill()
        grow(3, 4)
        after = come(4)
        grow(5)
        last = come(2)
    finally:
        timer.cancel()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    both = ("decode-0", "prefill-0")
    assert sorted(before) == [(name, f"request {n}") for name in both for n in (1, 2)]
    assert sorted(after) == [(name, f"request {n}") for name in both for n in (3, 4)]
    assert sorted(last) == [(name, "request 5") for name in both]
    for name in both:
        assert said.count(f"{name}: cut off, and tried again: ") == 1


def _tails(folder: Path) -> list[int]:
    """The commands that follow a file of this test."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[:1] == ["tail"] and any(str(folder) in word for word in words):
            found.append(process.pid)
    return found
