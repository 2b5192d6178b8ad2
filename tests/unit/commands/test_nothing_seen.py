"""Nothing is green that was not seen: commands that look at hosts, where there was nothing to look at."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import main

CAPTURES = Path(__file__).parents[2] / "captures"
NO_HOSTS = CAPTURES / "metrics-disabled.tar.zst"  # metrics alone, nothing of any host


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main([*words, "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("command", "fact"), [("ps", "processes"), ("sockets", "sockets"), ("stacks", "stacks")])
def test_a_recording_that_holds_none_of_it_is_not_fine(
    capsys: pytest.CaptureFixture[str], command: str, fact: str
) -> None:
    status, told = report(capsys, command, "--from", str(NO_HOSTS))
    assert (status, told["status"]) == (3, "unknown")
    assert [(f["name"], f["subject"], f["summary"]) for f in told["findings"]] == [
        ("endpoint-unreadable", name, f"the {fact} of {name} could not be read: the recording holds none")
        for name in ("prefill-0", "decode-0")
    ]


def test_a_recording_that_holds_it_of_some_lists_the_others_as_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    status, told = report(capsys, "sockets", "--from", str(CAPTURES / "router-holds.tar.zst"))
    assert (status, told["status"]) == (2, "critical")  # the router's own sockets are there, and tell
    assert [(u["what"], u["subject"]) for u in told["unchecked"] if u["why"] == "the recording holds none"] == [
        ("sockets", "prefill-0"),
        ("sockets", "decode-0"),
    ]


def test_processes_of_which_none_is_an_engines_leave_nothing_to_dump(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    words = [sys.executable, "-c", code]  # a process that is no engine, and has none below it
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdin is not None
        url = f"http://127.0.0.1:{other.stdout.readline().strip()}"
        status, told = report(capsys, "stacks", "--prefill", url, "-n", "1")
        other.stdin.close()
    assert status == 3
    assert [f["summary"] for f in told["findings"]] == [
        "the stacks of prefill-0 could not be read: none of its processes is a scheduler or another part of an engine"
    ]


def test_a_listing_without_the_instance_is_not_an_instance_without_connections(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    status, told = report(capsys, "sockets", "--prefill", f"http://127.0.0.1:{port}")  # where nothing listens any more
    assert (status, [f["name"] for f in told["findings"]]) == (3, ["endpoint-unreadable"])
    assert told["findings"][0]["summary"].startswith("the sockets of prefill-0 could not be read: no process on host")


def test_what_changed_is_unknown_where_a_recording_holds_nothing_that_tells(capsys: pytest.CaptureFixture[str]) -> None:
    status, told = report(capsys, "changes", "--from", str(NO_HOSTS))
    assert (status, told["status"], told["changes"]["events"]) == (3, "unknown", [])
    assert main(["changes", "--from", str(NO_HOSTS), "--ascii"]) == 3
    assert capsys.readouterr().out.startswith("? Since ")  # no mark of what is fine


def test_what_changed_is_unknown_where_a_script_that_is_named_is_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    inventory = tmp_path / "pdctl.toml"
    inventory.write_text(f'[[instance]]\nname = "a"\nrole = "prefill"\nscript = "{tmp_path}/serve.sh"\n')
    status, told = report(capsys, "changes", "-c", str(inventory), "--no-logs")
    first = told["findings"][0]
    assert (status, first["name"], first["subject"]) == (3, "endpoint-unreadable", "a")
    (tmp_path / "serve.sh").write_text("python3 -m sglang.launch_server\n")
    status, told = report(capsys, "changes", "-c", str(inventory), "--no-logs")
    assert (status, told["status"]) == (0, "ok")


@pytest.mark.parametrize("command", ["triage", "pinned"])
def test_a_recording_of_which_nothing_can_be_read_is_not_fine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    (tmp_path / "cluster.toml").write_text('[[instance]]\nname = "p"\nrole = "prefill"\nurl = "http://127.0.0.1:1"\n')
    line = {"t": 0, "at": "2026-11-12T03:14:00Z", "instance": "p", "fact": "loads", "ask": "GET /v1/loads", "file": "p"}
    (tmp_path / "index.jsonl").write_text(json.dumps({**line, "took": 0.1, "status": 200}) + "\n")
    (tmp_path / "p").write_text("[" * 200_000)  # no JSON that anything can read
    status, told = report(capsys, command, "--from", str(tmp_path))
    assert (status, told["status"]) == (3, "unknown")
    assert "nothing was measured" in told["findings"][0]["summary"]


@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_a_check_there_is_not_is_wrong_usage_and_no_report_without_checks(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    status, told = report(capsys, "triage", option, "request-pinnd", "--from", str(NO_HOSTS))
    assert (status, told["status"], told["error"]["kind"]) == (64, "unknown", "usage")
    assert report(capsys, "triage", option, "request-pinned", "--from", str(NO_HOSTS))[0] in (0, 3)
