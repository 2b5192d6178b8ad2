"""Small files kept between runs: where they are, how they are replaced whole, and the lock of whoever is at it.

A disk that is full or read-only, a home that is not there: each is an OSError here, and never a half-written file.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LARGEST = 64 * 1024 * 1024  # bytes of a state file that is read at all
LEFT_OVER_S = 3600.0  # a temporary file this old is nobody's any more


class Held(Exception):
    """The lock is held by another run. ``holder`` is what that run wrote of itself, "" where it wrote nothing."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def state_folder(*parts: str) -> Path:
    """The user's folder for state, and below it ``parts``: $XDG_STATE_HOME, else ~/.local/state by $HOME, else by the
    user database (cron may give no HOME). Not made here. Raises OSError where there is none."""
    named = os.environ.get("XDG_STATE_HOME", "")
    if not Path(named).is_absolute():
        named = f"{_home()}/.local/state"
    return Path(named, "pdctl", *parts)


def plain_name(name: str) -> str:
    """A cluster's name as a part of a file name; names that only differ in odd characters share one."""
    return "".join(c if (c.isalnum() and c.isascii()) or c in "-_" else "-" for c in name)[:60] or "cluster"


def _home() -> str:
    """The home of this user. One that is not there (/nonexistent, say) is none: it is not for us to make."""
    home = os.environ.get("HOME", "")
    if not Path(home).is_absolute():
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise FileNotFoundError(2, "no home directory is known for this user") from None
    if not Path(home).is_dir():
        raise FileNotFoundError(2, "this user's home directory is not there", home)
    return home


def read_own(path: Path) -> bytes | None:
    """The file's bytes, None where there is none. Raises OSError for one that is not this user's regular file (a link,
    say), or too large to be state."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError(1, "is not this user's own file")
        if facts.st_size > LARGEST:
            raise OSError(27, f"has {facts.st_size} bytes, which is too large")
        return file.read()


def replace_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Puts the bytes in the file's place, all of them or none: a temporary file in the same folder, then a rename.
    Raises OSError; then the old file is as it was and nothing is left lying about."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with suppress(FileNotFoundError):
        part.unlink()
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def own_folder(path: Path) -> Path:
    """The folder, made for this user alone where it is not there. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def sweep(folder: Path, pattern: str, keep: int, idle_s: float = 0.0) -> None:
    """Removes what runs that were killed left in the folder, and of the files of ``pattern`` beyond the newest ``keep``
    those not written to for ``idle_s`` seconds. What cannot be removed stays."""
    with suppress(OSError):
        for part in folder.glob(".*.part"):
            if time.time() - part.stat().st_mtime > LEFT_OVER_S:
                part.unlink()
        files = sorted(folder.glob(pattern), key=lambda p: p.stat().st_mtime, reverse=True)
        for file in files[keep:]:
            if time.time() - file.stat().st_mtime >= idle_s:
                file.unlink()


@contextmanager
def locked(path: Path, note: str, wait_s: float = 0.0) -> Iterator[None]:
    """Holds the lock of that file while the block runs. ``note`` says who holds it, for whoever comes meanwhile.

    The system holds it for this process and lets go when it ends, however it ends: such a lock is never stale, and a
    process number used again fools nobody. Raises Held when another run keeps it for ``wait_s`` seconds, OSError where
    there can be no lock."""
    fd = _lock_file(path)
    try:
        until = time.monotonic() + wait_s
        while not _taken(fd):
            if time.monotonic() >= until:
                raise Held(os.pread(fd, 200, 0).decode("utf-8", "replace").strip("\0\n "))
            time.sleep(0.02)
        with suppress(OSError):  # the lock stands on a full disk, too
            os.ftruncate(fd, 0)
            os.pwrite(fd, note.encode(), 0)
        yield
        with suppress(OSError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _lock_file(path: Path) -> int:
    """The file opened. One that another user left in this user's own folder (a run under sudo, say) gives way: it would
    keep this user out for ever."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except PermissionError:
        if path.parent.stat().st_uid != os.geteuid():
            raise
        path.unlink()
        return os.open(path, flags, 0o600)


def _taken(fd: int) -> bool:
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def since_boot() -> float:
    """Seconds since the machine started, sleep included: what a clock that is set does not change."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(clock) if clock is not None else time.monotonic()
