"""What ``ps``, ``sockets`` and ``stacks`` show of an instance: values ready to be put in words or in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pdctl.model.host import Frame, ThreadStack, Unit
from pdctl.model.rank import WHOLE, Rank


@dataclass(frozen=True, slots=True)
class PsRow:
    """One process. ``depth`` below its instance's main process; ``cpu`` in cores over the look (None after one look),
    ``cpu_ever`` in cores since it started; ``gpu`` the number its engine counts."""

    pid: int
    ppid: int
    depth: int
    part: str
    title: str
    rank: Rank = WHOLE
    state: str | None = None
    started: datetime | None = None
    cpu: float | None = None
    cpu_ever: float | None = None
    rss_bytes: int | None = None
    open_files: int | None = None
    soft_limit: int | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class PsInstance:
    """An instance's processes. ``why`` says why there are none; ``unit_why`` why its unit could not be read."""

    name: str
    role: str
    host: str | None
    rows: tuple[PsRow, ...] = ()
    at: datetime | None = None
    unit: Unit | None = None
    unit_name: str | None = None
    unit_why: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ListenerRow:
    """A listening socket: connections waiting to be accepted, of how many (None where that is not listed). ``named``:
    the inventory knows the port."""

    address: str
    port: int
    waiting: int
    backlog: int | None
    holder: str
    named: bool = True


@dataclass(frozen=True, slots=True)
class PeerRow:
    """Connections with one peer that are in one condition. ``outward``: opened by the instance. ``change`` against the
    first listing (None after one); ``quiet`` the least and the most milliseconds since bytes last went either way, of
    those connections of which that is listed; ``unread`` and ``unacked`` in bytes, together."""

    peer: str
    outward: bool
    condition: str
    count: int
    change: int | None = None
    quiet: tuple[int, int] | None = None
    unread: int = 0
    unacked: int = 0
    holders: tuple[str, ...] = ()
    peers: int = 1


@dataclass(frozen=True, slots=True)
class SocketView:
    """An instance's sockets by its newest listing. ``notes`` put them beside what the instance itself counts."""

    name: str
    role: str
    host: str | None
    listeners: tuple[ListenerRow, ...] = ()
    peers: tuple[PeerRow, ...] = ()
    looks: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    why: str | None = None


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks whose main thread is at the same point of the program. ``odd``: not where most are. ``unmoved``: the same
    to the line in each dump (None after one); ``frames`` those of the newest dump of the first, innermost first."""

    names: tuple[str, ...]
    place: str
    wait: str
    frames: tuple[Frame, ...]
    odd: bool = False
    unmoved: bool | None = None
    state: str = ""


@dataclass(frozen=True, slots=True)
class ThreadGroup:
    """Threads beside the main one, by name and innermost frame, over all ranks."""

    name: str
    at: str
    count: int


@dataclass(frozen=True, slots=True)
class UnreadStack:
    """A process that gave no stack, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class StackView:
    """An instance's stacks. ``others`` are its further processes' main threads (main, detokenizer), by name."""

    name: str
    role: str
    host: str | None
    groups: tuple[StackGroup, ...] = ()
    others: tuple[tuple[str, ThreadStack], ...] = ()
    threads: tuple[ThreadGroup, ...] = ()
    unread: tuple[UnreadStack, ...] = ()
    dumps: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    why: str | None = None
    states: Mapping[str, int] = field(default_factory=dict)
