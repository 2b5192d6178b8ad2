"""What a host says: processes, units, limits, sockets, stacks, GPUs, files, checkouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pdctl.model.rank import WHOLE, Rank


@dataclass(frozen=True, slots=True)
class Process:
    """One process. ``title`` is its command line as shown (a retitled scheduler shows only its title)."""

    pid: int
    ppid: int
    title: str
    cmdline: tuple[str, ...] = ()
    exe: str | None = None
    comm: str | None = None
    state: str | None = None  # as /proc/PID/stat: R S D T Z
    started: datetime | None = None
    rank: Rank = WHOLE
    cpu_seconds: float | None = None
    rss_bytes: int | None = None
    launcher: str | None = None  # sglang | router | vllm: the program its command line starts
    flags: Mapping[str, str] = field(default_factory=dict)  # its options by canonical name, "" for a bare switch
    part: str = ""  # main, router, scheduler, detokenizer, dp-controller, tokenizer-worker, helper, other


@dataclass(frozen=True, slots=True)
class Processes:
    rows: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """``systemctl show``: every property as text, the usual ones parsed. ``launcher`` and ``flags`` are those of its
    ExecStart, as Process has them; None where that starts a script."""

    properties: Mapping[str, str]
    restarts: int | None = None
    main_pid: int | None = None
    active: str | None = None
    sub: str | None = None
    since: datetime | None = None
    result: str | None = None
    launcher: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Open files of a process against its soft limit."""

    open_files: int | None
    soft_limit: int | None


@dataclass(frozen=True, slots=True)
class SocketRow:
    """One TCP socket. For LISTEN, recv_q is the accept queue and send_q the backlog; else bytes not read by the
    process and bytes not acknowledged by the peer. Addresses are text, IPv6 without brackets."""

    state: str  # LISTEN ESTAB CLOSE-WAIT FIN-WAIT-1 FIN-WAIT-2 SYN-SENT SYN-RECV TIME-WAIT LAST-ACK CLOSING
    recv_q: int
    send_q: int
    local: str
    local_port: int
    peer: str
    peer_port: int | None
    process: str | None = None
    pid: int | None = None
    fd: int | None = None
    timer: str | None = None
    last_send_ms: int | None = None
    last_recv_ms: int | None = None
    unacked: int | None = None


@dataclass(frozen=True, slots=True)
class Sockets:
    """A listing. ``listeners`` is False where it cannot hold LISTEN rows, ``connections`` where it cannot hold others
    (``ss -l``): what such a listing lacks is not known to be absent. ``owners`` tells whether processes were listed."""

    rows: tuple[SocketRow, ...]
    listeners: bool = True
    connections: bool = True
    owners: bool = True


@dataclass(frozen=True, slots=True)
class Nstat:
    counters: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """Frames innermost first, as py-spy prints them. ``state`` is py-spy's word: active, idle, active+gil, ..."""

    tid: str
    name: str | None
    state: str
    frames: tuple[Frame, ...]

    @property
    def is_main(self) -> bool:
        return self.name == "MainThread"


@dataclass(frozen=True, slots=True)
class ProcessStack:
    pid: int
    title: str
    rank: Rank
    threads: tuple[ThreadStack, ...]
    python: str | None = None
    error: str | None = None
    part: str = ""  # as Process.part

    @property
    def main(self) -> ThreadStack | None:
        """The main thread: by its name, else by its id (the dump of a stopped process has no names)."""
        named = next((t for t in self.threads if t.is_main), None)
        return named or next((t for t in self.threads if t.tid == str(self.pid)), None)


@dataclass(frozen=True, slots=True)
class Stacks:
    """One dump of one or more processes."""

    processes: tuple[ProcessStack, ...]


@dataclass(frozen=True, slots=True)
class GpuRow:
    index: int
    utilization: float | None  # percent
    power_w: float | None
    memory_used_mib: float | None


@dataclass(frozen=True, slots=True)
class Gpus:
    rows: tuple[GpuRow, ...]


@dataclass(frozen=True, slots=True)
class Cmdline:
    """A command line, secrets masked. ``launcher`` names the program it starts (sglang, router, vllm), None for any
    other and for a process that put a title in place of its command line: such a one shows no flags."""

    argv: tuple[str, ...]
    launcher: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Environ:
    """A process's environment; secret values are masked before they get here."""

    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file's metadata. ``same_as`` names what its bytes are equal to (a backup's path, ``git HEAD``), where that was
    looked at; ``line`` is the first line of a small text file, masked."""

    path: str
    mtime: datetime | None
    sha256: str | None = None
    size: int | None = None
    same_as: str | None = None
    line: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One entry of a checkout's reflog: when its head came to stand at ``head``, and by what (``pull: Fast-forward``).
    A commit's own date says when it was made, this one when it arrived."""

    at: datetime
    head: str
    what: str


@dataclass(frozen=True, slots=True)
class Checkout:
    head: str | None
    branch: str | None
    dirty: tuple[str, ...] = ()
    committed: datetime | None = None
    path: str | None = None
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """A serve script or one of its backups. ``flags``: option -> value ("" for a bare switch); ``variables``: what it
    exports or sets; ``unsure`` names what cannot be known without running it. Secret values are masked. ``exported``
    names the variables its command sees, ``sources`` the files it reads in, ``launcher`` the program it starts,
    ``doubtful`` the variables and options whose value cannot be known from the text alone ("*": options may be added
    from outside), ``others`` the other commands it runs, quotes taken off, ``program`` the words of its command that
    stand before the program's own arguments (wrappers, container and image, interpreter)."""

    path: str
    mtime: datetime | None
    text: str
    flags: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    exported: frozenset[str] = frozenset()
    sources: tuple[str, ...] = ()
    launcher: str | None = None
    doubtful: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()
    program: tuple[str, ...] = ()
