"""Which commands to ask of a host for its files: scripts with their backups, watched paths, processes' own files.

GNU find and coreutils are used, which every engine host has; a host without them answers with the reason. Nothing is
written there, no time of access is relied on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import MEGABYTE, CommandAsk
from pdctl.model.cluster import Host

TIMEOUT = 10.0  # seconds
LISTING_CAP = 8 * MEGABYTE
TEXT_CAP = 4 * MEGABYTE
# %T@ modified, %s bytes, %m mode, %u %g owner, %y kind, %p path: a name may hold anything but NUL
_FORMAT = r"%T@\t%s\t%m\t%u\t%g\t%y\t%p\0"
_KEPT_FOLDERS = ("*bak*", "*back*", "*old*", "*orig*", "*save*", "*prev*", "*arch*", "*20[0-9][0-9]*")
_GLOB = re.compile(r"([*?\[\\])")
_ZONE = re.compile(r"[+-]\d{4}")
_ZONE_FILE = re.compile(r".*/zoneinfo/(?:posix/|right/)?(.+)")
_TIMES = (
    'date "+%s.%N %z"; echo "${TZ:-}"; readlink -f /etc/localtime 2>/dev/null || echo; '
    "cat /etc/timezone 2>/dev/null || echo"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder as it is listed; ``mtime`` is aware UTC, ``kind`` find's letter (f, d, l, ...)."""

    path: str
    mtime: datetime
    size: int
    mode: str
    owner: str
    group: str
    kind: str = "f"

    def about(self) -> tuple[tuple[str, object], ...]:
        """What a capture keeps of it beside its text; a folder's path ends in a slash."""
        path = f"{self.path.rstrip('/')}/" if self.kind == "d" else self.path
        return (
            ("path", path), ("mtime", self.mtime.isoformat()), ("size", self.size), ("mode", self.mode),
            ("owner", f"{self.owner}:{self.group}"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostTime:
    """A host's clock: seconds since the epoch as it says, its offset from UTC in minutes, the name of its zone."""

    epoch: float
    offset: int
    zone: str | None = None


def backups_listing_ask(subject: str, host: Host, script: str) -> CommandAsk:
    """The script and whatever may be a backup of it by its name: beside it, or in a folder of backups there."""
    path = PurePosixPath(script)
    names = [f"{_plain(path.name)}*"]
    if path.suffix:
        names.append(f"{_plain(path.stem)}[._~-]*{_plain(path.suffix)}")
    wanted = [word for name in names for word in ("-o", "-name", name)][1:]
    folders = [word for name in _KEPT_FOLDERS for word in ("-o", "-iname", name)][1:]
    argv = (
        "find", "-L", str(path.parent), "-mindepth", "1", "-maxdepth", "2",
        "(", "-type", "d", "(", *folders, ")", ")", "-o", "-type", "d", "-prune", "-o",
        "-type", "f", "(", *wanted, ")", "-printf", _FORMAT,
    )  # fmt: skip
    shown = f"ls -l {path.parent}/{path.name}*"
    return _ask(subject, Fact.FILE, host, argv, shown=shown, cap=LISTING_CAP)


def _plain(name: str) -> str:
    """A name that a pattern of find takes as it is."""
    return _GLOB.sub(r"\\\1", name)


def changed_ask(subject: str, host: Host, path: str, since: datetime) -> CommandAsk:
    """What of a watched path was modified since then, and the path itself whenever that was. What programs write for
    themselves (.git, caches of bytecode) is left out."""
    skipped = ("(", "-name", ".git", "-o", "-name", "__pycache__", ")", "-prune", "-o")
    argv = (
        "find", "-H", path, "-xdev", *skipped,
        "(", "-path", _plain(path), "-o", "-newermt", f"@{since.timestamp():.0f}", ")", "-printf", _FORMAT,
    )  # fmt: skip
    shown = f"find {path} -newermt @{since.timestamp():.0f}"
    return _ask(subject, Fact.FILE, host, argv, shown=shown, cap=LISTING_CAP, timeout=30.0, about=(("path", path),))


def entries_ask(subject: str, host: Host, paths: Sequence[str]) -> CommandAsk:
    """Those files alone, as they are listed."""
    argv = ("find", "-L", *paths, "-maxdepth", "0", "-printf", _FORMAT)
    return _ask(subject, Fact.FILE, host, argv, shown=f"ls -ld {' '.join(paths)}", cap=LISTING_CAP)


def siblings_ask(subject: str, host: Host, path: str) -> CommandAsk:
    """A file and what may be a backup of it by its name."""
    return backups_listing_ask(subject, host, path)


def digests_ask(subject: str, host: Host, paths: Sequence[str]) -> CommandAsk:
    """The SHA-256 of each file. Read by ``read_digests``."""
    argv = ("sha256sum", "-z", "--", *paths)
    return _ask(subject, Fact.FILE, host, argv, shown=f"sha256sum {' '.join(paths)}", timeout=60.0)


def text_ask(subject: str, fact: Fact, host: Host, entry: Entry) -> CommandAsk:
    """A file's text."""
    return _ask(subject, fact, host, ("cat", "--", entry.path), cap=TEXT_CAP, about=entry.about())


def undated_text_ask(subject: str, fact: Fact, host: Host, path: str) -> CommandAsk:
    """A file's text, where the host cannot list it."""
    return _ask(subject, fact, host, ("cat", "--", path), cap=TEXT_CAP, about=(("path", path),))


def process_ask(subject: str, fact: Fact, host: Host, pid: int, title: str) -> CommandAsk:
    """A process's command line (``Fact.CMDLINE``) or environment (``Fact.ENVIRON``)."""
    name = "cmdline" if fact is Fact.CMDLINE else "environ"
    about = (("pid", pid), ("title", title))
    return _ask(subject, fact, host, ("cat", f"/proc/{pid}/{name}"), cap=TEXT_CAP, about=about)


def times_ask(subject: str, host: Host) -> CommandAsk:
    """The host's clock and time zone. Read by ``read_times``."""
    return _ask(subject, Fact.FILE, host, ("sh", "-c", _TIMES), shown="date '+%s.%N %z'; readlink -f /etc/localtime")


def _ask(
    subject: str, fact: Fact, host: Host, argv: tuple[str, ...], *, shown: str | None = None, cap: int = MEGABYTE,
    timeout: float = TIMEOUT, about: tuple[tuple[str, object], ...] = (),
) -> CommandAsk:  # fmt: skip
    become = host.become is not None
    return CommandAsk(
        subject, fact, host.name, argv, timeout=timeout, cap=cap, become=become, about=about, shown=shown
    )  # fmt: skip


# --- reading -------------------------------------------------------------------------------------------------------


def read_entries(body: bytes) -> tuple[Entry, ...]:
    """The files of a listing, in its order; a row that was cut off is left out."""
    rows = []
    for raw in body.split(b"\0")[:-1]:
        parts = raw.split(b"\t", 6)
        if len(parts) == 7 and (entry := _entry([p.decode("utf-8", "surrogateescape") for p in parts])) is not None:
            rows.append(entry)
    return tuple(rows)


def _entry(parts: list[str]) -> Entry | None:
    stamp, size, mode, owner, group, kind, path = parts
    try:
        mtime = datetime.fromtimestamp(float(stamp), UTC)
        return Entry(path, mtime, int(size), mode, owner, group, kind)
    except (ValueError, OverflowError, OSError):
        return None


def read_digests(body: bytes) -> dict[str, str]:
    """Path -> SHA-256 in hex, of ``sha256sum -z``."""
    rows = (raw.split(b"  ", 1) for raw in body.split(b"\0") if b"  " in raw)
    return {path.decode("utf-8", "surrogateescape"): digest.decode("ascii", "replace") for digest, path in rows}


def read_times(answer: Answer) -> HostTime | None:
    """The host's clock; None where the answer is none."""
    lines = (answer.body or b"").decode("utf-8", "replace").splitlines()
    first = lines[0].split() if lines else []
    if len(first) != 2 or not _ZONE.fullmatch(first[1]):
        return None
    try:
        epoch = float(first[0])
    except ValueError:
        return None
    sign = -1 if first[1][0] == "-" else 1
    offset = sign * (int(first[1][1:3]) * 60 + int(first[1][3:5]))
    return HostTime(epoch, offset, _zone(lines[1:]))


def _zone(lines: list[str]) -> str | None:
    """The zone's name: of $TZ, of where /etc/localtime points, of /etc/timezone."""
    variable, link, file = (*(line.strip() for line in lines[:3]), "", "", "")[:3]
    named = _ZONE_FILE.fullmatch(link)
    for name in (variable.lstrip(":"), named[1] if named else "", file):
        if "/" in name or name == "UTC":
            found = _ZONE_FILE.fullmatch(name)
            return found[1] if found else name
    return None
