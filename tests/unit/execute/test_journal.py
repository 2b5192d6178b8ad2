"""The journal: added to and never rewritten, whole lines whatever happened before, no secrets."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.execute import journal
from pdctl.execute.journal import JournalError


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "state" / "journal.jsonl"
    journal.append("restart-begun", journal_file=file, run="r1", steps=["a", "b"], left=None)
    journal.append("restart-done", journal_file=file, run="r1", took=1.5)
    first, second = journal.read(file).entries
    assert (first.kind, first.fields) == ("restart-begun", {"run": "r1", "steps": ["a", "b"], "left": None})
    assert (second.kind, second.fields) == ("restart-done", {"run": "r1", "took": 1.5})
    assert first.at.tzinfo is not None and first.at <= second.at
    assert "@" in first.who


def test_an_entry_is_on_the_disk_when_it_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole line is handed to the disk before ``append`` returns; of a new file its name in the folder as well."""
    file, synced = tmp_path / "journal.jsonl", []

    def synced_now(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        synced.append((path, path.read_bytes().count(b"\n") if path.is_file() else None))

    monkeypatch.setattr(os, "fsync", synced_now)
    journal.append("a", journal_file=file)
    assert synced == [(file, 1), (tmp_path, None)]
    journal.append("b", journal_file=file)
    assert synced[2:] == [(file, 2)]


def test_the_place_is_the_users_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert journal.default_path() == tmp_path / ".local/state/pdctl/journal.jsonl"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert journal.default_path() == tmp_path / "state" / "pdctl" / "journal.jsonl"


def test_a_home_that_is_not_there_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "nobody"
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    for use in (lambda: journal.append("x"), journal.read):
        with pytest.raises(JournalError, match=f"no place for the journal.*not there: {home}") as told:
            use()
        assert (told.value.exit_status, "XDG_STATE_HOME" in told.value.hint) == (64, True)
    assert not home.exists()


def test_a_user_without_a_home_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(JournalError, match="no place"):
        journal.default_path()


def test_nothing_written_yet_is_an_empty_journal(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "none.jsonl").entries == ()


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "pdctl" / "journal.jsonl"
    journal.append("x", journal_file=file)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_line_costs_itself_alone(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "journal.jsonl"
    journal.append("first", journal_file=file)
    journal.append("second", journal_file=file)
    file.write_bytes(file.read_bytes()[:-cut])
    journal.append("third", journal_file=file)
    read = journal.read(file)
    assert [e.kind for e in read.entries] == ["first", *(["second"] if cut == 1 else []), "third"]
    assert read.unread == (0 if cut == 1 else 1)


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[1]", b"7", b"{}", b'{"at":"x","who":"a","kind":"b"}', b"[" * 5000])
def test_foreign_lines_are_passed_over_and_counted(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "journal.jsonl"
    journal.append("ours", journal_file=file)
    with file.open("ab") as add:
        add.write(line + b"\n")
    read = journal.read(file)
    assert [e.kind for e in read.entries] == ["ours"] and read.unread == 1


def test_secrets_never_reach_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    journal.append(
        "x", journal_file=file, command=["run", "--api-key=sk-abcdefgh12345678"], nested={"password": "hunter22"}
    )
    assert b"hunter22" not in file.read_bytes() and b"sk-abcdefgh" not in file.read_bytes()


def test_a_field_cannot_take_the_place_of_an_entrys_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="who"):
        journal.append("x", journal_file=tmp_path / "j", who="me")  # type: ignore[arg-type]


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        journal.append("x", journal_file=tmp_path / "file" / "journal.jsonl")


def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(JournalError, match="cannot be written"):
        journal.append("x", journal_file=Path("/dev/full"))


def test_entries_of_several_processes_are_all_whole(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    code = (
        "import sys; from pathlib import Path; from pdctl.execute import journal\n"
        "for n in range(50): journal.append('x', journal_file=Path(sys.argv[1]), by=sys.argv[2], n=n, pad='p' * 5000)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(file), name], env={**os.environ}) for name in ("a", "b", "c")
    ]
    assert [w.wait() for w in writers] == [0, 0, 0]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 150
    assert [r["n"] for r in rows if r["by"] == "b"] == list(range(50))


def test_who_is_the_one_behind_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    assert journal.who().startswith("alice@")
