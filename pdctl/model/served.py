"""What was found serving on a host, before it has a name: programs, and the host they were found on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdctl.model.cluster import Host


@dataclass(frozen=True, slots=True)
class Served:
    """An engine or router that runs. ``launcher`` is sglang, router or vllm; ``flags`` its options by canonical name,
    ``by`` what told them ("" where nothing did: the title took the command line's place). ``listening``: the addresses
    and ports its processes listen on, None where no listing of sockets names processes. ``metrics_port``: where its
    metrics answered, asked only where no option tells it. ``apart``: its network is not the host's (a container)."""

    pid: int
    launcher: str
    flags: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    listening: tuple[tuple[str, int], ...] | None = None
    unit: str | None = None
    script: str | None = None
    log: str | None = None
    metrics_port: int | None = None
    apart: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostSeen:
    """What runs on a host. ``names``: what it calls itself, and its addresses. ``ports``: every port anything listens
    on, None where that is not known. ``failure``: why nothing is known of it."""

    host: Host
    served: tuple[Served, ...] = ()
    names: frozenset[str] = frozenset()
    ports: frozenset[int] | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None
