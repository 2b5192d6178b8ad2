"""What a command's end means, and how it is shown."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import CommandAsk, Secret
from pdctl.reach.clock import FakeClock
from pdctl.reach.command import Collector, Outcome, Stop, answer_of, judge_outcome, shell_line, words_of


def ask(*argv: str | Secret, become: bool = False) -> CommandAsk:
    return CommandAsk("decode-0", Fact.STACKS, "gpu1", argv, become=become)


def answered(outcome: Outcome, *argv: str | Secret) -> Answer:
    clock = FakeClock(start=100.0)
    clock.advance(5)
    return answer_of(ask(*(argv or ("py-spy",))), outcome, clock=clock, started=101.0, begun=103.5)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))), min_size=1))
def test_a_line_reads_back_as_its_words(words: list[str]) -> None:
    assert shlex.split(shell_line(words)) == words


@pytest.mark.parametrize(
    ("status", "stderr", "error", "detail"),
    [
        (0, "warning: something", None, None),
        (42, "", Why.OTHER, "exit status 42"),
        (1, "first\nlast\n\n", Why.OTHER, "exit status 1: last"),
        (127, "env: 'ss': No such file or directory\n", Why.NO_SUCH_TOOL, "env: 'ss': No such file or directory"),
        (127, "", Why.NO_SUCH_TOOL, "command not found"),
        (1, "sudo: py-spy: command not found\n", Why.NO_SUCH_TOOL, "sudo: py-spy: command not found"),
        (126, "env: '/srv/x': Permission denied\n", Why.PERMISSION, "env: '/srv/x': Permission denied"),
        (126, "", Why.PERMISSION, "permission denied"),
        (1, "Error: Operation not permitted (os error 1)\n", Why.PERMISSION, None),
        (1, "Access denied\n", Why.PERMISSION, "Access denied"),
        (1, "No journal files were opened due to insufficient permissions.", Why.PERMISSION, None),
        (1, "eve is not in the sudoers file.\n", Why.PERMISSION, "eve is not in the sudoers file."),
        (4, "Interactive authentication required.\n", Why.PERMISSION, "Interactive authentication required."),
        (137, "Killed\n", Why.OTHER, "ended by signal 9: Killed"),
        (143, "", Why.OTHER, "ended by signal 15"),
    ],
)  # fmt: skip
def test_what_an_exit_means(status: int, stderr: str, error: Why | None, detail: str | None) -> None:
    judged = judge_outcome(Outcome(status, b"out", stderr.encode()))
    assert (judged.status, judged.stdout, judged.error) == (status, b"out", error)
    if detail is not None or error is None:
        assert judged.detail == detail


@pytest.mark.parametrize(
    "said",
    [
        "sudo: a password is required\n",
        "sudo: a terminal is required to read the password; either use the -S option to read from standard input or "
        "configure an askpass helper\nsudo: a password is required\n",
    ],
)
def test_sudo_that_wants_a_password_is_told_with_what_to_do(said: str) -> None:
    judged = judge_outcome(Outcome(1, b"", said.encode()))
    assert judged.error is Why.PERMISSION
    assert "NOPASSWD" in (judged.detail or "")


def test_an_error_of_the_transport_stays() -> None:
    judged = judge_outcome(Outcome(None, b"half", b"Permission denied", Why.READ_TIMEOUT, "late"))
    assert (judged.error, judged.detail) == (Why.READ_TIMEOUT, "late")


def test_an_answer_carries_its_times_and_what_was_said() -> None:
    answer = answered(Outcome(0, b"body", b"note"))
    assert (answer.t, answer.took) == (4.0, 1.5)
    assert answer.at.isoformat() == "2026-01-01T00:00:05+00:00"
    assert (answer.status, answer.error, answer.body) == (0, None, b"body")
    assert dict(answer.more) == {"stderr": "note"}


def test_nothing_came_is_not_an_empty_answer() -> None:
    assert answered(Outcome(0)).body == b""
    assert answered(Outcome(error=Why.SSH, detail="x")).body is None
    assert answered(Outcome(error=Why.READ_TIMEOUT, stdout=b"half")).body == b"half"


def test_long_stderr_keeps_both_ends() -> None:
    said = str(answered(Outcome(1, b"", b"A" * 5000 + b"B" * 50_000 + b"Z" * 5000)).more["stderr"])
    assert said.startswith("A" * 4096)
    assert said.endswith("Z" * 4096)
    assert len(said) < 9000


def test_a_secret_shows_nowhere() -> None:
    outcome = Outcome(1, b"", b"bad token tok-1234 given")
    answer = answered(outcome, "curl", Secret("tok-1234"))
    assert "tok-1234" not in repr(answer)
    assert answer.ask == "curl ***"
    assert answer.detail == "exit status 1: bad token *** given"
    assert "tok-1234" not in repr(ask("x", Secret("tok-1234")))


def test_sudo_is_asked_for_by_both_the_ask_and_the_host() -> None:
    assert words_of(ask("ss", become=True), "sudo") == ["sudo", "-n", "--", "ss"]
    assert words_of(ask("ss", become=True), None) == ["ss"]
    assert words_of(ask("ss"), "sudo") == ["ss"]


def test_the_cap_counts_each_stream_by_itself() -> None:
    into = Collector(10)
    into.out(b"x" * 10)
    into.err(b"y" * 10)
    assert not into.too_large
    into.err(b"y")
    assert into.too_large
    assert len(into.over_cap().stderr) == 10


def test_a_sink_gets_what_comes_and_may_stop() -> None:
    came: list[bytes] = []

    def sink(data: bytes) -> None:
        came.append(data)
        if len(came) == 2:
            raise Stop

    into = Collector(1, sink)
    into.out(b"one")
    assert not into.stopped
    into.out(b"two")
    assert into.stopped
    assert not into.too_large
    assert into.outcome(0).stdout == b""
