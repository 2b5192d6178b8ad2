"""Small files between runs: whole or not at all, this user's own, locked by whoever is at it."""

from __future__ import annotations

import errno
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pdctl.reach import state
from pdctl.reach.state import Held, locked, read_own, replace_whole, since_boot, state_folder, sweep

HOLD = """
import sys, time
from pathlib import Path
from pdctl.reach.state import locked
with locked(Path(sys.argv[1]), "process of the test"):
    print("held", flush=True)
    time.sleep(60)
"""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_the_folder_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert state_folder("a", "b") == Path("/var/state/pdctl/a/b")


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_else_below_home_and_a_relative_one_is_ignored_as_xdg_demands(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local/state/pdctl"


def test_a_home_that_is_not_there_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Users of services have /nonexistent for theirs."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    with pytest.raises(OSError, match=r"is not there.*nonexistent"):
        state_folder("check")


def test_without_home_the_user_database_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    assert state_folder() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/state/pdctl"


def test_a_user_that_nobody_knows_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(OSError, match="no home"):
        state_folder()


# --- reading -----------------------------------------------------------------------------------------------------


def test_no_file_is_none_and_no_error(tmp_path: Path) -> None:
    assert read_own(tmp_path / "none") is None


def test_a_link_is_not_followed_and_a_pipe_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError):
            read_own(tmp_path / name)


@root_only
def test_another_users_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(b"x")
    os.chown(path, 4711, 4711)
    with pytest.raises(PermissionError):
        read_own(path)


def test_a_file_too_large_to_be_state_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LARGEST", 3)
    (tmp_path / "f").write_bytes(b"1234")
    with pytest.raises(OSError, match="too large"):
        read_own(tmp_path / "f")


# --- writing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_is_replaced_whole_with_its_mode_whatever_the_umask(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    before = os.umask(0o077)
    try:
        replace_whole(path, b"new", mode)
    finally:
        os.umask(before)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)
    assert os.listdir(tmp_path) == ["f"]


def test_when_the_disk_is_full_the_old_file_stands_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        replace_whole(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["f"]


@root_only
def test_on_a_disk_of_a_few_kilobytes_too(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        replace_whole(disk / "f", b"old")
        with pytest.raises(OSError, match="No space"):
            replace_whole(disk / "f", b"x" * 64 * 1024)
        assert (disk / "f").read_bytes() == b"old" and os.listdir(disk) == ["f"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_sweep_leaves_the_newest_and_removes_what_killed_runs_left(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"{n}.memory").touch()
        os.utime(tmp_path / f"{n}.memory", (1000 + n, 1000 + n))
    for name, age in ((".a.part", 2 * state.LEFT_OVER_S), (".b.part", 0.0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    (tmp_path / "other.txt").touch()
    sweep(tmp_path, "*.memory", 2)
    assert sorted(os.listdir(tmp_path)) == [".b.part", "3.memory", "4.memory", "other.txt"]
    (tmp_path / "5.memory").touch()
    sweep(tmp_path, "*.memory", 0, idle_s=60.0)
    assert sorted(os.listdir(tmp_path)) == [".b.part", "5.memory", "other.txt"]


# --- the lock ----------------------------------------------------------------------------------------------------


def holder(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def test_who_comes_second_is_told_who_holds_it(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as child:
        try:
            with pytest.raises(Held) as held, locked(tmp_path / "lock", "me"):
                pass
            assert held.value.holder == "process of the test"
        finally:
            child.kill()


def test_a_killed_holder_leaves_no_stale_lock(tmp_path: Path) -> None:
    with holder(tmp_path / "lock") as child:
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    with locked(tmp_path / "lock", "me"):
        assert (tmp_path / "lock").read_text() == "me"
    assert (tmp_path / "lock").read_text() == ""


def test_a_lock_file_with_a_process_number_in_use_holds_nobody_up(tmp_path: Path) -> None:
    """What is written in it is for people: only the system's own lock counts."""
    (tmp_path / "lock").write_text(f"process {os.getppid()}, since 2026-01-01")
    with locked(tmp_path / "lock", "me"):
        pass


@root_only
def test_a_lock_file_that_another_user_left_in_our_folder_keeps_nobody_out() -> None:
    """As a run under sudo leaves it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        os.chown(folder, 65534, 65534)
        (folder / "lock").touch(0o600)
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            with locked(folder / "lock", "nobody"):
                os._exit(0 if (folder / "lock").stat().st_uid == 65534 else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_waiting_for_it_ends(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", "me"), pytest.raises(Held), locked(tmp_path / "lock", "you", wait_s=0.05):
        pass


def test_where_there_can_be_no_lock_that_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError), locked(tmp_path / "no" / "lock", "me"):
        pass


def test_the_time_since_boot_goes_on() -> None:
    first = since_boot()
    assert since_boot() >= first > 0
