"""Processes, command lines and environments."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from pdctl.facts import cmdline, environ, processes
from pdctl.facts.base import Unreadable
from pdctl.model.answer import Fact, Why
from pdctl.model.host import Cmdline, Environ, Process
from pdctl.model.rank import Rank
from tests.unit.facts.host_answers import answer

KEY = "sk-not-a-real-key-000"


def rows(*listed: dict[str, object]) -> tuple[Process, ...]:
    return processes.read(answer(Fact.PROCESSES, json.dumps(listed)), None).rows


def test_a_main_process_and_its_scheduler() -> None:
    argv = ["python", "-m", "sglang.launch_server", "--tp", "2", "--api-key", KEY]
    main, child = rows(
        {"pid": 10, "ppid": 1, "title": " ".join(argv), "cmdline": argv, "exe": "/usr/bin/python3",
         "started": "2026-11-12T03:08:30.250Z", "state": "S", "comm": "python"},
        {"pid": 12, "ppid": 10, "title": "sglang::scheduler_DP1_TP1", "cmdline": ["sglang::scheduler_DP1_TP1", "", ""],
         "started": None, "state": "T"},
    )  # fmt: skip
    assert main.started == datetime(2026, 11, 12, 3, 8, 30, 250000, tzinfo=UTC)
    assert (main.launcher, main.part, main.flags["--tp-size"]) == ("sglang", "main", "2")
    assert KEY not in main.title + " ".join(main.cmdline) + main.flags["--api-key"]
    assert (child.part, child.rank, child.state, child.started) == ("scheduler", Rank(dp=1, tp=1), "T", None)
    assert child.cmdline == ("sglang::scheduler_DP1_TP1",)
    assert (child.launcher, dict(child.flags)) == (None, {})


def test_no_process_is_an_answer() -> None:
    assert rows() == ()


@pytest.mark.parametrize("body", ["", "{}", "[1]", '[{"ppid": 1}]', "<html>"])
def test_what_is_no_list_of_processes_is_unreadable(body: str) -> None:
    with pytest.raises(Unreadable):
        processes.read(answer(Fact.PROCESSES, body), None)


def line(body: bytes) -> Cmdline:
    return cmdline.read(answer(Fact.CMDLINE, body), None)


def test_a_command_line_with_nuls_and_as_text() -> None:
    one = line(b"python3\0-m\0sglang.launch_server\0--served-model-name\0a b\0--tp=2\0")
    other = line(b"python3 -m sglang.launch_server --served-model-name 'a b' --tp 2\n")
    assert one.flags == other.flags == {"--served-model-name": "a b", "--tp-size": "2"}
    assert one.launcher == "sglang"


def test_a_title_over_its_command_line_shows_no_flags() -> None:
    retitled = line(b"sglang::router\0\0\0\0\0\0\0")
    assert (retitled.argv, retitled.launcher, dict(retitled.flags)) == (("sglang::router",), None, {})


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"\n"])
def test_an_empty_command_line_is_not_an_answer(body: bytes) -> None:
    with pytest.raises(Unreadable) as raised:
        line(body)
    assert raised.value.why == Why.EMPTY


def env(body: bytes) -> Environ:
    return environ.read(answer(Fact.ENVIRON, body), None)


def test_environments_with_nuls_and_newlines() -> None:
    nul = env(b"PATH=/usr/bin\0TEXT=a\nb=c\0SGLANG_API_KEY=" + KEY.encode() + b"\0EMPTY=\0")
    assert nul.values["TEXT"] == "a\nb=c"
    assert nul.values["EMPTY"] == ""
    assert nul.values["SGLANG_API_KEY"].startswith("***")
    lines = env(b"PATH=/usr/bin\nTEXT=a\nsecond line\nHF_TOKEN=" + KEY.encode() + b"\n")
    assert lines.values["TEXT"] == "a\nsecond line"
    assert lines.values["HF_TOKEN"] == nul.values["SGLANG_API_KEY"]


@pytest.mark.parametrize("body", [b"", b"\0" * 300, b"sglang::router\0\0\0"])
def test_an_environment_that_a_title_was_written_over_is_not_an_empty_one(body: bytes) -> None:
    with pytest.raises(Unreadable) as raised:
        env(body)
    assert raised.value.why == Why.EMPTY
