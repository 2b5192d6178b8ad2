"""What is asked of a host for a log, and how what comes back is taken apart."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from host_answers import answer

from pdctl.facts import read as read_fact
from pdctl.facts.asks_logs import FILE_BYTES, follow_ask, history_ask, read_history
from pdctl.facts.log import journal_denial
from pdctl.model.answer import Fact, Missed, Why
from pdctl.model.cluster import Host, Instance, Role

HOST = Host("h", "h", "sudo")
FILE = Instance("p", Role.PREFILL, host="h", log="/var/log/it's.log", unit="p")
UNIT = Instance("decode-0", Role.DECODE, host="h", unit="pd-decode")
HINT = "Hint: You are currently not seeing messages from other users and the system.\n      Users in groups ..."


def test_a_file_goes_before_a_unit() -> None:
    assert history_ask(FILE, HOST).argv[0] == "sh"
    assert history_ask(UNIT, HOST).argv[0] == "journalctl"
    assert history_ask(UNIT, HOST).become


def test_a_journal_is_bounded_in_lines_and_time() -> None:
    argv = history_ask(UNIT, HOST, datetime(2026, 11, 12, tzinfo=UTC)).argv
    assert "--no-pager" in argv
    assert argv[argv.index("-n") + 1] == "100000"
    assert argv[argv.index("--since") + 1] == "@1794441600"


def history_of(path: Path, most: int = FILE_BYTES) -> bytes:
    argv = [str(word) for word in history_ask(Instance("p", Role.PREFILL, log=str(path)), Host("h")).argv]
    done = subprocess.run([*argv[:-1], str(most)], capture_output=True, check=True)
    return done.stdout


def test_a_file_is_read_to_its_last_whole_line_and_goes_on_there(tmp_path: Path) -> None:
    path = tmp_path / "a b.log"
    path.write_bytes(b"one\ntwo\nhal")
    kept = read_history(FILE, answer(Fact.LOG, history_of(path)))
    assert kept is not None
    assert (kept.text, kept.is_cut, kept.goes_on) == (b"one\ntwo\n", False, 8)
    assert kept.written == datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    assert follow_ask(FILE, HOST, 8).argv == ("tail", "-c", "+9", "-F", "--", "/var/log/it's.log")


def test_of_a_large_file_the_newest_whole_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    path.write_bytes(b"".join(b"line %03d\n" % n for n in range(100)))
    kept = read_history(FILE, answer(Fact.LOG, history_of(path, 30)))
    assert kept is not None
    assert (kept.text, kept.is_cut, kept.goes_on) == (b"line 097\nline 098\nline 099\n", True, 900)


def test_an_empty_file_and_an_answer_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    kept = read_history(FILE, answer(Fact.LOG, history_of(path)))
    assert kept is not None
    assert (kept.text, kept.goes_on) == (b"", 0)
    assert read_history(FILE, answer(Fact.LOG, b"")) is None


def test_a_journal_goes_on_after_its_cursor() -> None:
    kept = read_history(UNIT, answer(Fact.LOG, b"a line\n-- cursor: s=ab;i=2\n"))
    assert kept is not None
    assert (kept.text, kept.goes_on) == (b"a line\n", "s=ab;i=2")
    assert "--after-cursor=s=ab;i=2" in follow_ask(UNIT, HOST, kept.goes_on).argv


def test_an_empty_journal_is_followed_from_its_end() -> None:
    kept = read_history(UNIT, answer(Fact.LOG, b"-- No entries --\n"))
    assert kept is not None
    assert (kept.text, kept.goes_on) == (b"", None)
    assert follow_ask(UNIT, HOST, None).argv[-4:] == ("-n", "0", "-u", "pd-decode")


@pytest.mark.parametrize(("stderr", "denied"), [(HINT, True), ("No journal files were found.", False), (None, False)])
def test_a_journal_that_is_not_shown_is_no_permission_and_not_an_empty_log(stderr: str | None, denied: bool) -> None:
    more = {"stderr": stderr} if stderr else {}
    came = answer(Fact.LOG, "-- No entries --\n", **more)
    assert (journal_denial(came) is not None) is denied
    got = read_fact(came, UNIT).got
    assert isinstance(got, Missed)
    assert got.why is (Why.PERMISSION if denied else Why.EMPTY)
