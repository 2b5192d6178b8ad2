"""Which of a host's processes belong to an instance: by its unit, by its command line's port, by the port it listens
on, and then whatever descends from those. Never by a scheduler's own name, which says nothing of its engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


def kin_of(instance: Instance, rows: Sequence[Listed], listening: Listening | None = None) -> Kin:
    """The instance's processes among those of its host. A unit that is named decides alone: its processes, or none."""
    if instance.unit:
        unit = _unit_name(instance.unit)
        mine = tuple(row for row in rows if row.unit == unit)
        if mine:
            return Kin(with_descendants(mine, rows), f"unit {unit}")
    roots = tuple(row for row in rows if serves(instance, row))
    if roots:
        return Kin(with_descendants(roots, rows), f"command line with port {port_of(instance)}")
    pids = (listening or {}).get(port_of(instance) or -1, frozenset())
    listeners = tuple(row for row in rows if row.pid in pids)
    if listeners:
        return Kin(with_descendants(_tops(listeners), rows), f"listening on port {port_of(instance)}")
    return Kin(())


def serves(instance: Instance, row: Listed) -> bool:
    """Whether a command line starts this instance: the right program, role and port."""
    launcher, flags = read_launch(row.argv)
    port = port_of(instance)
    if launcher is None or port is None or row.comm in SHELLS:
        return False
    if (launcher == ROUTER) != (instance.role is Role.ROUTER):
        return False
    mode = flags.get("--disaggregation-mode")
    if instance.is_engine and mode in (Role.PREFILL, Role.DECODE) and mode != instance.role:
        return False
    return flags.get("--port", str(DEFAULT_PORTS[launcher])) == str(port)


def port_of(instance: Instance) -> int | None:
    """The port the instance serves requests on, None where the inventory does not say."""
    if not instance.url:
        return None
    url = urlsplit(instance.url)
    return url.port or (443 if url.scheme == "https" else 80)


def with_descendants(roots: Iterable[Listed], rows: Sequence[Listed]) -> tuple[Listed, ...]:
    """The processes and all their descendants, in the order of the listing."""
    children: dict[int, list[Listed]] = defaultdict(list)
    for row in rows:
        children[row.ppid].append(row)
    seen: set[int] = set()
    waiting = [row.pid for row in roots]
    while waiting:
        pid = waiting.pop()
        if pid not in seen:
            seen.add(pid)
            waiting.extend(child.pid for child in children[pid])
    return tuple(row for row in rows if row.pid in seen)


def _tops(rows: Sequence[Listed]) -> tuple[Listed, ...]:
    """Of several that listen on one port (workers of one server) those whose parent is none of them."""
    pids = {row.pid for row in rows}
    return tuple(row for row in rows if row.ppid not in pids)


def _unit_name(unit: str) -> str:
    return unit if unit.endswith((".service", ".scope")) else f"{unit}.service"
