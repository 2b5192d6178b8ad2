"""Nothing is green that was not seen: commands that look at hosts, where there was nothing to look at."""

from __future__ import annotations

import json
import socket
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
    with socket.create_server(("127.0.0.1", 0)) as listener:  # this very process, which is no engine
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        status, told = report(capsys, "stacks", "--prefill", url, "-n", "1")
    assert status == 3
    assert [f["summary"] for f in told["findings"]] == [
        "the stacks of prefill-0 could not be read: none of its processes is a scheduler or another part of an engine"
    ]
