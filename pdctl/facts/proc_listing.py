"""A host's processes as one pass over its /proc lists them.

Lines are ``4711/stat:...``, ``4711/cmdline:...``, ``4711/cgroup:...`` as grep prints them, after two lines that
say what the numbers in them mean. A file of several lines comes as several, each with its name before it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pdctl.facts.base import Unreadable
from pdctl.model.answer import Why

_LINE = re.compile(rb"(\d+)/(stat|cmdline|cgroup|wchan):(.*)", re.DOTALL)
_EXE = re.compile(rb".*\s(\d+)/exe -> (.*)")
_CLOCK = re.compile(rb"clock (\d+) (\d+) (\d+)")
_BTIME = re.compile(rb"btime (\d+)")
_UNIT = re.compile(r"[^/]+\.(?:service|scope)(?=/|$)")
# Places in /proc/PID/stat after the name (proc(5) counts the state as the third field).
_STATE, _PPID, _UTIME, _STIME, _START, _RSS = 0, 1, 11, 12, 19, 21


@dataclass(frozen=True, slots=True)
class Listed:
    """One process. ``argv`` is empty for a kernel thread; ``started`` in seconds since the epoch; ``unit`` is the
    systemd unit or scope its cgroup names."""

    pid: int
    ppid: int
    comm: str
    state: str
    argv: tuple[str, ...]
    started: float
    cpu_seconds: float
    rss_bytes: int
    exe: str | None = None
    unit: str | None = None

    @property
    def title(self) -> str:
        """Its command line as shown; a kernel thread's name in brackets."""
        return " ".join(self.argv) or f"[{self.comm}]"

    def as_row(self) -> dict[str, object]:
        """As the capture format has it, with the keys that readers here know beside."""
        return {
            "pid": self.pid,
            "ppid": self.ppid,
            "title": self.title,
            "cmdline": list(self.argv),
            "exe": self.exe,
            "started": datetime.fromtimestamp(self.started, UTC).isoformat(timespec="milliseconds"),
            "comm": self.comm,
            "state": self.state,
            "cpu_seconds": round(self.cpu_seconds, 2),
            "rss_bytes": self.rss_bytes,
        }


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread: its name, its state (as /proc/PID/stat), where in the kernel it waits ("" where that is hidden)."""

    tid: int
    name: str
    state: str
    waits_in: str


def read_listing(body: bytes) -> tuple[Listed, ...]:
    """Every process of the listing, by number. A process that ended while it was listed is left out. Raises
    ``Unreadable`` for a listing without processes."""
    clock, btime = _CLOCK.search(body), _BTIME.search(body)
    files, links = _files(body)
    if clock is None or btime is None or not files:
        raise Unreadable(Why.OTHER, "no listing of /proc")
    ticks, page, boot = int(clock[2]) or 100, int(clock[3]) or 4096, int(btime[1])
    rows = (_listed(pid, found, links.get(pid), boot, ticks, page) for pid, found in sorted(files.items()))
    return tuple(row for row in rows if row is not None)


def read_states(body: bytes) -> dict[int, str]:
    """The state of each process in a listing of stat files."""
    files, _ = _files(body)
    return {pid: fields[1][_STATE] for pid, found in files.items() if (fields := _stat(found.get("stat", b"")))}


def read_threads(body: bytes) -> tuple[Thread, ...]:
    """Every thread of a listing of a process's tasks."""
    files, _ = _files(body)
    rows = []
    for tid, found in sorted(files.items()):
        parsed = _stat(found.get("stat", b""))
        if parsed is not None:
            waits_in = _text(found.get("wchan", b"")).strip()
            rows.append(Thread(tid, parsed[0], parsed[1][_STATE], "" if waits_in == "0" else waits_in))
    return tuple(rows)


def _files(body: bytes) -> tuple[dict[int, dict[str, bytes]], dict[int, str]]:
    """The text of each file by process, and where each process's exe points."""
    files: dict[int, dict[str, bytes]] = defaultdict(dict)
    links: dict[int, str] = {}
    for line in body.split(b"\n"):
        found = _LINE.match(line)
        if found is not None:
            theirs, kind = files[int(found[1])], found[2].decode()
            theirs[kind] = theirs[kind] + b"\n" + found[3] if kind in theirs else found[3]
        elif link := _EXE.match(line):
            links[int(link[1])] = _text(link[2])
    return files, links


def _listed(pid: int, found: dict[str, bytes], exe: str | None, boot: int, ticks: int, page: int) -> Listed | None:
    parsed = _stat(found.get("stat", b""))
    if parsed is None:
        return None
    comm, fields = parsed
    return Listed(
        pid=pid,
        ppid=int(fields[_PPID]),
        comm=comm,
        state=fields[_STATE],
        argv=tuple(_words(found.get("cmdline", b""))),
        started=boot + int(fields[_START]) / ticks,
        cpu_seconds=(int(fields[_UTIME]) + int(fields[_STIME])) / ticks,
        rss_bytes=max(0, int(fields[_RSS])) * page,
        exe=exe,
        unit=_unit(_text(found.get("cgroup", b""))),
    )


def _stat(raw: bytes) -> tuple[str, list[str]] | None:
    """Name and the fields after it. The name may hold anything, parentheses and newlines too."""
    head, _, tail = raw.rpartition(b") ")
    fields = tail.decode("ascii", "replace").split()
    if len(fields) <= _RSS or not all(f.lstrip("-").isdigit() for f in fields[1:]):
        return None
    return _text(head.partition(b" (")[2]), fields


def _words(raw: bytes) -> Iterator[str]:
    """A command line's words. A title that took its place is followed by the rest of the memory, as NULs."""
    stripped = raw.rstrip(b"\0")
    return (_text(word) for word in stripped.split(b"\0")) if stripped else iter(())


def _unit(cgroup: str) -> str | None:
    """The innermost service or scope: of cgroup v2, or of systemd's own hierarchy in v1."""
    for line in cgroup.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers in ("", "name=systemd") and (names := _UNIT.findall(path)):
            return str(names[-1])
    return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
