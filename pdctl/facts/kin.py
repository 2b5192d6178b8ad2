"""Which of a host's processes belong to an instance: by its unit, by its command line's port, by the port it listens
on, and then whatever descends from those. Never by a scheduler's own name, which says nothing of its engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from pdctl.facts.flags import ROUTER, SGLANG, VLLM, read_launch
from pdctl.facts.proc_listing import Listed
from pdctl.model.cluster import Instance, Role

DEFAULT_PORTS = {SGLANG: 30000, ROUTER: 30000, VLLM: 8000}
SHELLS = frozenset({"sh", "bash", "dash", "sudo", "su", "tmux", "screen", "sshd", "systemd"})

Listening = Mapping[int, frozenset[int]]  # port -> processes that listen on it


@dataclass(frozen=True, slots=True)
class Kin:
    """An instance's processes, and by what they were told. No row: none was found."""

    rows: tuple[Listed, ...]
    by: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """A process whose command line starts one of ours: the program, and the flags it was given."""

    row: Listed
    launcher: str
    flags: Mapping[str, str]


class Roster:
    """A host's processes by what instances are told by. Every command line is read once, whatever the number of
    instances that are looked for."""

    def __init__(self, rows: Sequence[Listed]) -> None:
        self.rows = rows
        self.by_unit: dict[str, list[Listed]] = defaultdict(list)
        self.by_port: dict[str, list[Started]] = defaultdict(list)
        self._children: dict[int, list[int]] = defaultdict(list)
        self._places: dict[int, list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            self._places[row.pid].append(place)
            self._children[row.ppid].append(row.pid)
            if row.unit:
                self.by_unit[row.unit].append(row)
            self._note_launch(row)

    def _note_launch(self, row: Listed) -> None:
        launcher, flags = read_launch(row.argv)
        if launcher is not None and row.comm not in SHELLS:
            self.by_port[flags.get("--port", str(DEFAULT_PORTS[launcher]))].append(Started(row, launcher, flags))

    def of_pids(self, pids: Iterable[int]) -> tuple[Listed, ...]:
        """The processes of these numbers, in the order of the listing."""
        return tuple(self.rows[place] for place in sorted(p for pid in set(pids) for p in self._places.get(pid, ())))

    def with_descendants(self, roots: Iterable[Listed]) -> tuple[Listed, ...]:
        """The processes and all their descendants, in the order of the listing."""
        seen: set[int] = set()
        waiting = [row.pid for row in roots]
        while waiting:
            pid = waiting.pop()
            if pid not in seen:
                seen.add(pid)
                waiting.extend(self._children.get(pid, ()))
        return self.of_pids(seen)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A listing as a key: itself and no other that is equal, for comparing thousands of rows costs more than it saves.
    It holds the listing, so that nothing else takes its identity."""

    rows: tuple[Listed, ...]

    def __hash__(self) -> int:
        return id(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.rows is self.rows


@lru_cache(maxsize=4)
def _remembered(listing: _Same) -> Roster:
    return Roster(listing.rows)


def roster_of(rows: Sequence[Listed]) -> Roster:
    """The roster of a listing (remembered for the last few; of a list, which may change, always made anew)."""
    return _remembered(_Same(rows)) if isinstance(rows, tuple) else Roster(rows)


def kin_of(instance: Instance, rows: Sequence[Listed], listening: Listening | None = None) -> Kin:
    """The instance's processes among those of its host. A unit that is named decides alone: its processes, or none."""
    roster = roster_of(rows)
    if instance.unit:
        unit = _unit_name(instance.unit)
        mine = roster.by_unit.get(unit, ())
        if mine:
            return Kin(roster.with_descendants(mine), f"unit {unit}")
    port = port_of(instance)
    roots = tuple(s.row for s in roster.by_port.get(str(port), ()) if serves(instance, s))
    if roots:
        return Kin(roster.with_descendants(roots), f"command line with port {port}")
    listeners = roster.of_pids((listening or {}).get(port or -1, frozenset()))
    if listeners:
        return Kin(roster.with_descendants(_tops(listeners)), f"listening on port {port}")
    return Kin(())


def serves(instance: Instance, started: Started) -> bool:
    """Whether what a command line starts is this instance: the right program, role and port."""
    if (started.launcher == ROUTER) != (instance.role is Role.ROUTER):
        return False
    mode = started.flags.get("--disaggregation-mode")
    if instance.is_engine and mode in (Role.PREFILL, Role.DECODE) and mode != instance.role:
        return False
    port = port_of(instance)
    return port is not None and started.flags.get("--port", str(DEFAULT_PORTS[started.launcher])) == str(port)


def port_of(instance: Instance) -> int | None:
    """The port the instance serves requests on, None where the inventory does not say."""
    if not instance.url:
        return None
    url = urlsplit(instance.url)
    return url.port or (443 if url.scheme == "https" else 80)


def with_descendants(roots: Iterable[Listed], rows: Sequence[Listed]) -> tuple[Listed, ...]:
    """The processes and all their descendants, in the order of the listing."""
    return roster_of(rows).with_descendants(roots)


def _tops(rows: Sequence[Listed]) -> tuple[Listed, ...]:
    """Of several that listen on one port (workers of one server) those whose parent is none of them."""
    pids = {row.pid for row in rows}
    return tuple(row for row in rows if row.ppid not in pids)


def _unit_name(unit: str) -> str:
    return unit if unit.endswith((".service", ".scope")) else f"{unit}.service"
