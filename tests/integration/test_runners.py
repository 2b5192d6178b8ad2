"""One contract, one test body, every transport: this machine, a plain sshd, and an sshd that is full of noise."""

from __future__ import annotations

import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from loopback_sshd import Sshd

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import MEGABYTE, CommandAsk, Secret
from pdctl.model.cluster import Host
from pdctl.reach.clock import SystemClock
from pdctl.reach.command import CommandReach, Stop
from pdctl.reach.local import LocalReach
from pdctl.reach.ssh import SshReach
from pdctl.reach.ssh_config import SshConfig
from pdctl.reach.ssh_link import Links

CLOCK = SystemClock()
Run = Callable[..., Answer]


@pytest.fixture(params=["local", "ssh", "noisy"])
def reach(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandReach]:
    if request.param == "local":
        monkeypatch.setenv("LC_ALL", "fr_FR.ISO-8859-1")
        yield LocalReach(Host("here"))
        return
    server: Sshd = request.getfixturevalue("sshd" if request.param == "ssh" else "noisy_sshd")
    links = Links(SshConfig(server.config()))
    yield SshReach(Host("there", server.spec), links.link(server.spec))
    links.close()


@pytest.fixture
def run(reach: CommandReach) -> Run:
    def asked(*argv: str | Secret, **more: object) -> Answer:
        started = CLOCK.now()
        ask = replace(CommandAsk("host:x", Fact.FILE, "x", argv), **more)  # type: ignore[arg-type]
        return reach.run(ask, started=started, deadline=started + 30)

    return asked


def stderr_of(answer: Answer) -> str:
    return str(answer.more.get("stderr", ""))


def wait_gone(mark: str, seconds: float = 5.0) -> list[str]:
    """Command lines that hold the mark and are alive still after that many seconds."""
    until = time.monotonic() + seconds
    while True:
        alive = [line for process in psutil.process_iter() if mark in (line := _line(process))]
        if not alive or time.monotonic() > until:
            return alive
        time.sleep(0.05)


def _line(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.Error:
        return ""


# --- words -------------------------------------------------------------------------------------------------------

WORDS = [
    "plain",
    "two words",
    " leading and trailing ",
    "",
    "it's",
    'say "hi"',
    "'\"'\"'",
    "$HOME",
    "${PATH}",
    "$(touch /tmp/never)",
    "`id`",
    "back\\slash",
    "\\\\",
    "\\'",
    "new\nline",
    "tab\there",
    "*",
    "~root",
    "{a,b}",
    "!history!",
    "#no comment",
    ";",
    "&&",
    "|",
    "> /tmp/never",
    "-n",
    "--",
    "a=b",
    "übergröße ☃ 日本",
    "\x01\x1b[31m",
]


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_a_word_means_itself(run: Run, word: str) -> None:
    answer = run("printf", "%s", word) if word != "--" else run("printf", "%s", "--")
    assert answer.body == word.encode()
    assert answer.status == 0
    assert answer.error is None


def test_words_stay_apart(run: Run) -> None:
    answer = run("printf", "%s\\0", *WORDS)
    assert answer.body is not None
    assert answer.body.split(b"\0")[:-1] == [word.encode() for word in WORDS]


def test_bytes_that_are_no_utf8_arrive(run: Run) -> None:
    assert run("printf", "%s", b"caf\xe9".decode("utf-8", "surrogateescape")).body == b"caf\xe9"


def test_the_program_is_run_and_no_builtin_of_a_shell(run: Run) -> None:
    assert run("echo", "a\\tb").body == b"a\\tb\n"  # dash's own echo would print a tab


@pytest.mark.parametrize("argv", [(), ("",), ("a=b", "c"), ("echo", "nul\0byte")], ids=repr)
def test_what_is_no_command_is_refused(run: Run, argv: tuple[str, ...]) -> None:
    answer = run(*argv)
    assert answer.error is Why.OTHER
    assert answer.status is None
    assert answer.body is None


def test_the_locale_is_c(run: Run) -> None:
    answer = run("sh", "-c", 'printf %s "$LC_ALL"')
    assert answer.body == b"C"


# --- ends --------------------------------------------------------------------------------------------------------


def test_success(run: Run) -> None:
    answer = run("echo", "fine")
    assert (answer.status, answer.error, answer.detail, answer.body) == (0, None, None, b"fine\n")
    assert answer.ask == "echo fine"
    assert (answer.subject, answer.fact) == ("host:x", Fact.FILE)
    assert 0 <= answer.took <= answer.t + 0.001
    assert answer.at.tzinfo is not None
    assert dict(answer.more) == {}


def test_no_output_is_an_empty_body(run: Run) -> None:
    assert run("true").body == b""


def test_exit_42(run: Run) -> None:
    answer = run("sh", "-c", "echo half; echo why >&2; exit 42")
    assert (answer.status, answer.error, answer.body) == (42, Why.OTHER, b"half\n")
    assert answer.detail == "exit status 42: why"
    assert stderr_of(answer) == "why\n"


def test_a_command_that_is_not_there(run: Run) -> None:
    answer = run("no-such-command-here", "x")
    assert (answer.status, answer.error) == (127, Why.NO_SUCH_TOOL)
    assert "no-such-command-here" in (answer.detail or "")
    assert "b'" not in (answer.detail or "")


def test_a_command_that_calls_one_that_is_not_there(run: Run) -> None:
    answer = run("sh", "-c", "no-such-command-here")
    assert (answer.status, answer.error) == (127, Why.NO_SUCH_TOOL)


def test_a_file_that_cannot_be_executed(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("no program")
    answer = run(str(file))
    assert (answer.status, answer.error) == (126, Why.PERMISSION)


def test_a_denial_is_told_from_other_failures(run: Run) -> None:
    answer = run("sh", "-c", "echo 'tool: /proc/1/mem: Permission denied' >&2; exit 1")
    assert (answer.status, answer.error) == (1, Why.PERMISSION)
    assert answer.detail == "tool: /proc/1/mem: Permission denied"


def test_killed_in_the_middle(run: Run) -> None:
    answer = run("sh", "-c", "echo half; kill -9 $$")
    assert (answer.status, answer.error, answer.body) == (137, Why.OTHER, b"half\n")
    assert "signal 9" in (answer.detail or "")


def test_there_is_no_terminal(run: Run) -> None:
    answer = run("sh", "-c", "for i in 0 1 2; do [ -t $i ] && echo $i; done; : < /dev/tty")
    assert answer.body == b""
    assert answer.status != 0


# --- streams -----------------------------------------------------------------------------------------------------


def test_four_megabytes_on_both_streams(run: Run) -> None:
    size = 4 * MEGABYTE
    answer = run("sh", "-c", f"head -c {size} /dev/zero >&2; head -c {size} /dev/zero; echo end >&2")
    assert answer.error is None
    assert answer.body == bytes(size)
    assert stderr_of(answer).endswith("end\n")
    assert len(stderr_of(answer)) < 10_000


def test_streams_that_take_turns(run: Run) -> None:
    answer = run("sh", "-c", "for i in $(seq 2000); do echo out$i; echo err$i >&2; done")
    assert answer.body == b"".join(b"out%d\n" % i for i in range(1, 2001))
    assert stderr_of(answer).startswith("err1\n")
    assert stderr_of(answer).endswith("err2000\n")


def test_stdin_arrives_whole(run: Run) -> None:
    data = bytes(range(256)) * 20_000
    assert run("cat", stdin=data).body == data


def test_stdin_that_nobody_reads(run: Run) -> None:
    answer = run("sh", "-c", "exec <&-; echo done", stdin=b"x" * 5_000_000)
    assert (answer.status, answer.body) == (0, b"done\n")


def test_no_stdin_is_an_empty_one(run: Run) -> None:
    answer = run("cat")
    assert (answer.status, answer.body) == (0, b"")


@pytest.mark.parametrize("redirect", ["", " >&2"], ids=["stdout", "stderr"])
def test_output_without_end_is_cut_off_and_ended(run: Run, redirect: str) -> None:
    mark = f"pdctl-cap-{time.monotonic_ns()}"
    answer = run("sh", "-c", f"yes {mark}{redirect}", cap=MEGABYTE)
    assert answer.error is Why.TOO_LARGE
    assert answer.status is None
    assert len(answer.body or b"") <= MEGABYTE
    assert wait_gone(mark) == []


# --- time --------------------------------------------------------------------------------------------------------


def test_a_deadline_ends_the_command_and_what_it_started(run: Run) -> None:
    mark = f"pdctl-late-{time.monotonic_ns()}"
    script = f"echo begun; sh -c 'sleep 300; : {mark}' & sh -c 'trap \"\" TERM INT HUP; sleep 300; : {mark}'; :"
    answer = run("sh", "-c", script, timeout=1.5)
    assert answer.error is Why.READ_TIMEOUT
    assert answer.status is None
    assert answer.body == b"begun\n"
    assert "1.5 s" in (answer.detail or "")
    assert answer.took < 100, "the command's own 300 s are not waited for"
    assert wait_gone(mark) == []


def test_the_window_s_deadline_counts_too(reach: CommandReach) -> None:
    now = CLOCK.now()
    ask = CommandAsk("host:x", Fact.FILE, "x", ("sleep", "300"), timeout=60)
    answer = reach.run(ask, started=now, deadline=now + 1.5)
    assert answer.error is Why.READ_TIMEOUT
    assert answer.took < 60


def test_output_that_drips_does_not_stretch_the_deadline(run: Run) -> None:
    answer = run("sh", "-c", "while :; do echo x; sleep 0.1; done", timeout=1.5)
    assert answer.error is Why.READ_TIMEOUT
    assert (answer.body or b"").startswith(b"x\nx\n")


def test_output_that_is_slow_but_in_time(run: Run) -> None:
    answer = run("sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done")
    assert (answer.status, answer.body) == (0, b"1\n2\n3\n")


def test_a_stream_held_open_by_a_child_is_late(run: Run) -> None:
    """What still may come is not known, so what came so far is no answer."""
    mark = f"pdctl-held-{time.monotonic_ns()}"
    answer = run("sh", "-c", f"sh -c 'sleep 300; : {mark}' & echo done", timeout=1.5)
    assert answer.error is Why.READ_TIMEOUT
    assert wait_gone(mark) == []


def test_many_at_once(run: Run) -> None:
    """More than sshd's MaxSessions, 10 on the plain server and 3 on the other: they wait for one another."""
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda i=i: answers.append(run("sh", "-c", f"sleep 0.1; echo {i}"))) for i in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.error for answer in answers] == [None] * 24
    assert {answer.body for answer in answers} == {b"%d\n" % i for i in range(24)}


# --- following ---------------------------------------------------------------------------------------------------


def test_following_hands_on_what_comes(reach: CommandReach) -> None:
    mark = f"pdctl-follow-{time.monotonic_ns()}"
    came = bytearray()

    def sink(data: bytes) -> None:
        came.extend(data)
        if came.count(b"\n") >= 3:
            raise Stop

    now = CLOCK.now()
    ask = CommandAsk("host:x", Fact.LOG, "x", ("sh", "-c", f"while :; do echo line; sleep 0.05; done; : {mark}"))
    answer = reach.follow(ask, sink, started=now, deadline=now + 30)
    assert answer.error is None
    assert came.startswith(b"line\nline\nline\n")
    assert answer.body == b""
    assert wait_gone(mark) == []


def test_following_to_the_end(reach: CommandReach) -> None:
    came = bytearray()
    now = CLOCK.now()
    ask = CommandAsk("host:x", Fact.LOG, "x", ("seq", "1000"), cap=10)
    answer = reach.follow(ask, came.extend, started=now, deadline=now + 30)
    assert (answer.status, answer.error) == (0, None)
    assert came == b"".join(b"%d\n" % i for i in range(1, 1001))


# --- secrets -----------------------------------------------------------------------------------------------------


def test_a_secret_is_used_and_not_shown(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    word = "hunter2-" + "s3cr3t"
    with caplog.at_level(logging.DEBUG):
        answer = run("sh", "-c", 'printf %s "$1" | wc -c; echo "bad key $1" >&2; exit 3', "sh", Secret(word))
    assert answer.body is not None
    assert answer.body.strip() == str(len(word)).encode()
    shown = repr(answer) + answer.ask + caplog.text
    assert word not in shown
    assert "***" in answer.ask
    assert stderr_of(answer) == "bad key ***\n"


# --- sudo, here (over SSH the lab tries it, with users of its own) -----------------------------------------------


def test_sudo_here_and_its_end() -> None:
    if shutil.which("sudo") is None or subprocess.run(["sudo", "-n", "true"], check=False).returncode != 0:
        pytest.skip("no sudo without a password here")
    reach = LocalReach(Host("here", None, "sudo"))
    mark = f"pdctl-sudo-{time.monotonic_ns()}"
    now = CLOCK.now()
    ask = CommandAsk("host:here", Fact.FILE, "here", ("id", "-u"), become=True)
    assert reach.run(ask, started=now, deadline=now + 30).body == b"0\n"
    late = replace(ask, argv=("sh", "-c", f"sleep 300; : {mark}"), timeout=1.5)
    assert reach.run(late, started=now, deadline=now + 30).error is Why.READ_TIMEOUT
    assert wait_gone(mark) == []
