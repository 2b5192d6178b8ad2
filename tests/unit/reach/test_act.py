"""Acts on a host, with the scripts as a host runs them: once each, never without the lock, told to its syslog."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from on_this_machine import HERE, run

from pdctl.model.answer import Why
from pdctl.model.cluster import Host
from pdctl.reach import act, lock
from pdctl.reach.act import Mark, Permit


@pytest.fixture
def permit(tmp_path: Path) -> Permit:
    """The permit of a run that holds the lock."""
    path = lock.lock_path(str(tmp_path))
    mine = lock.new_owner("alice@ops", "prod", "r1")
    run(lock.take_ask(HERE, path, mine, None))
    return act.permit_of(path, mine)


@pytest.fixture
def syslog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A logger that writes what it was told."""
    folder, file = tmp_path / "bin", tmp_path / "syslog"
    folder.mkdir()
    tool = folder / "logger"
    tool.write_text(f'#!/bin/sh\nfor w in "$@"; do printf "[%s]" "$w"; done >>{file}\necho >>{file}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return file


def append(file: Path, word: str = "once") -> tuple[str, ...]:
    return ("sh", "-c", 'echo "$2" >>"$1"; echo done', "sh", str(file), word)


def mark_of(permit: Permit, step: str, attempt: int = 1) -> Mark | None:
    return act.read_mark(run(act.mark_ask(HERE, permit.mark(step, attempt), "x")))


def test_an_act_is_done_told_and_marked(permit: Permit, tmp_path: Path, syslog: Path) -> None:
    answer = run(act.unit_ask(HERE, permit, "restart:a", 1, append(tmp_path / "f"), "alice restarts a; $(id)"))
    assert answer.error is None and answer.status == 0
    assert (tmp_path / "f").read_text() == "once\n"
    assert syslog.read_text() == "[-t][pdctl][--][alice restarts a; $(id)]\n"
    assert mark_of(permit, "restart:a") == Mark(True, False, 0, "done")


def test_the_same_attempt_is_never_made_twice(permit: Permit, tmp_path: Path) -> None:
    ask = act.unit_ask(HERE, permit, "restart:a", 1, append(tmp_path / "f"), "x")
    run(ask)
    again = run(ask)
    assert again.status == act.BEGUN_BEFORE
    assert (tmp_path / "f").read_text() == "once\n"
    run(act.unit_ask(HERE, permit, "restart:a", 2, append(tmp_path / "f"), "x"))
    assert (tmp_path / "f").read_text() == "once\nonce\n"


def test_a_mark_that_cannot_be_made_is_not_one_that_is_there(permit: Permit, tmp_path: Path) -> None:
    answer = run(act.unit_ask(HERE, permit, "x" * 300, 1, append(tmp_path / "f"), "x"))
    assert answer.status == act.NO_MARK and "too long" in str(answer.more["stderr"])
    assert not (tmp_path / "f").exists()


def test_marks_that_are_another_users_are_not_trusted(permit: Permit, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    Path(permit.marks).mkdir()
    os.chown(permit.marks, 65534, 65534)
    answer = run(act.unit_ask(HERE, permit, "restart:a", 1, append(tmp_path / "f"), "x"))
    assert answer.status == act.NO_MARK and "belongs to another user" in str(answer.detail)
    assert not (tmp_path / "f").exists()


def test_whoever_lost_the_lock_does_nothing_more(permit: Permit, tmp_path: Path, syslog: Path) -> None:
    other = lock.new_owner("bob@ops2", "prod", "r2")
    run(lock.take_ask(HERE, permit.lock, other, permit.owner))
    for ask in (
        act.unit_ask(HERE, permit, "a", 1, append(tmp_path / "f"), "x"),
        act.job_ask(HERE, permit, "b", 1, append(tmp_path / "f"), "x"),
    ):
        answer = run(ask)
        assert answer.status == act.NOT_OURS and answer.detail is not None and "not ours" in answer.detail
    assert not (tmp_path / "f").exists() and not syslog.exists()


def test_without_a_lock_nothing_is_done(tmp_path: Path) -> None:
    permit = act.permit_of(lock.lock_path(str(tmp_path)), lock.new_owner("a@b", "c", "r"))
    assert run(act.unit_ask(HERE, permit, "a", 1, append(tmp_path / "f"), "x")).status == act.NOT_OURS
    assert not (tmp_path / "f").exists()


def test_an_act_that_fails_says_how(permit: Permit) -> None:
    answer = run(act.unit_ask(HERE, permit, "a", 1, ("sh", "-c", "echo no such unit >&2; exit 5"), "x"))
    assert answer.status == 5 and answer.detail == "exit status 5: no such unit"
    assert mark_of(permit, "a") == Mark(True, False, 5, "no such unit")


def test_a_host_without_a_syslog_acts_all_the_same(
    permit: Permit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "few"
    folder.mkdir()
    (folder / "logger").write_text("#!/bin/sh\nexit 1\n")
    (folder / "logger").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    answer = run(act.unit_ask(HERE, permit, "a", 1, append(tmp_path / "f"), "x"))
    assert answer.error is None
    assert "syslog did not take the line" in str(answer.more["stderr"])


def test_words_reach_a_command_as_they_are(permit: Permit) -> None:
    words = ["a b", "$(touch pwned)", "'", '"', "\\", "*", "", "-n", "ü\n"]
    answer = run(act.unit_ask(HERE, permit, "a", 1, ["printf", "[%s]", *words], "x"))
    assert (answer.body or b"").decode() == "".join(f"[{word}]" for word in words)


def test_with_sudo_only_the_command_itself_is_roots(tmp_path: Path) -> None:
    permit = act.permit_of("/tmp/pdctl.lock", lock.new_owner("a@b", "c", "r"))
    ask = act.unit_ask(Host("h", become="sudo"), permit, "a", 1, ("systemctl", "restart", "x"), "said")
    assert ask.become is False
    assert ask.argv[-6:] == ("sudo", "-n", "--", "systemctl", "restart", "x")
    assert str(ask) == "sudo -n -- systemctl restart x"


# --- jobs -------------------------------------------------------------------------------------------------------------


def wait_for(permit: Permit, step: str) -> Mark:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        mark = mark_of(permit, step)
        if mark is not None and mark.status is not None:
            return mark
        time.sleep(0.05)
    raise AssertionError("the job did not end")


def test_a_job_outlives_what_started_it(permit: Permit, tmp_path: Path) -> None:
    go = tmp_path / "go"
    words = ("sh", "-c", 'until [ -e "$1" ]; do sleep 0.05; done; echo ready; exit 3', "sh", str(go))
    answer = run(act.job_ask(HERE, permit, "a", 1, words, "x"))
    assert answer.error is None
    assert mark_of(permit, "a") == Mark(True, True, None, "")
    go.touch()
    assert wait_for(permit, "a") == Mark(True, False, 3, "ready")


def test_a_job_is_begun_once(permit: Permit, tmp_path: Path) -> None:
    ask = act.job_ask(HERE, permit, "a", 1, append(tmp_path / "f"), "x")
    run(ask)
    assert run(ask).status == act.BEGUN_BEFORE
    wait_for(permit, "a")
    assert (tmp_path / "f").read_text() == "once\n"


def test_a_server_that_a_job_leaves_behind_does_not_hold_it_up(permit: Permit, tmp_path: Path) -> None:
    words = ("sh", "-c", 'sleep 30 & echo $! >"$1"', "sh", str(tmp_path / "pid"))
    run(act.job_ask(HERE, permit, "a", 1, words, "x"))
    assert wait_for(permit, "a").status == 0
    os.kill(int((tmp_path / "pid").read_text()), 15)


def test_a_job_that_says_much_is_told_by_its_end(permit: Permit) -> None:
    run(act.job_ask(HERE, permit, "a", 1, ("sh", "-c", "yes | head -c 1000000; echo the end"), "x"))
    mark = wait_for(permit, "a")
    assert len(mark.said) <= act.SAID and mark.said.endswith("the end")


def test_what_was_never_begun_has_no_mark_and_silence_is_none(permit: Permit) -> None:
    assert mark_of(permit, "never") == Mark(False)
    answer = run(act.mark_ask(HERE, permit.mark("never", 1), "x"))
    assert act.read_mark(replace(answer, error=Why.SSH)) is None
    assert act.read_mark(replace(answer, body=b"garbage")) is None


def test_marks_go_with_the_run(permit: Permit, tmp_path: Path) -> None:
    run(act.unit_ask(HERE, permit, "a", 1, ("true",), "x"))
    assert Path(permit.marks).is_dir()
    run(act.tidy_ask(HERE, permit))
    assert not Path(permit.marks).exists()
    kept = tmp_path / "kept"
    kept.mkdir()
    run(act.tidy_ask(HERE, replace(permit, marks=str(kept))))
    assert kept.exists(), "only a folder of marks is ever removed"


# --- backups ----------------------------------------------------------------------------------------------------------


def back_up(permit: Permit, script: Path, attempt: int = 1) -> tuple[int | None, str]:
    backup = f"{script}.20261130-0007{attempt:02}.bak"
    words = ("cp", "--", str(script), backup)
    answer = run(act.backup_ask(HERE, permit, "backup", attempt, str(script), backup, words, "x"))
    return answer.status, (answer.body or b"").decode().strip()


def test_a_backup_is_made_by_the_command_given(permit: Permit, tmp_path: Path) -> None:
    script = tmp_path / "serve me.sh"
    script.write_bytes(b"#!/bin/sh\necho \xff\n")
    status, said = back_up(permit, script)
    assert (status, said) == (0, f"made {script}.20261130-000701.bak")
    assert Path(said.removeprefix("made ")).read_bytes() == script.read_bytes()


def test_a_backup_that_is_there_already_is_named_and_none_made(permit: Permit, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("one\n")
    back_up(permit, script)
    assert back_up(permit, script, 2) == (0, f"same {script}.20261130-000701.bak")
    script.write_text("two\n")
    assert back_up(permit, script, 3) == (0, f"made {script}.20261130-000703.bak")
    assert Path(f"{script}.20261130-000701.bak").read_text() == "one\n"


def test_a_backup_that_cannot_be_made_is_none(permit: Permit, tmp_path: Path) -> None:
    status, said = back_up(permit, tmp_path / "none.sh")
    assert status == 1 and "made" not in said
