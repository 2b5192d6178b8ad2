"""Socket listings of a window, and whose each socket is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import urlsplit

from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.host import Processes, SocketRow, Sockets
from pdctl.model.window import At, Window

LOOPBACK = ("127.", "::1")
WILDCARDS = frozenset({"0.0.0.0", "::", "*", ""})
SERVERS = ("python", "sglang", "smg", "vllm", "uvicorn", "gunicorn", "nginx", "envoy", "haproxy", "caddy")
HOST = "host:"


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """One listing: of an instance, or of a host (``host:NAME``)."""

    subject: str
    at: At[Sockets]

    @property
    def t(self) -> float:
        return self.at.t

    @property
    def rows(self) -> tuple[SocketRow, ...]:
        return self.at.value.rows


@lru_cache(maxsize=4)
def listings_of(window: Window) -> tuple[Listing, ...]:
    """Every listing, oldest first (remembered for the last few windows)."""
    found = [Listing(s, at) for s in window.subjects(Fact.SOCKETS) for at in window.seen(s, Fact.SOCKETS, Sockets)]
    return tuple(sorted(found, key=lambda listing: listing.t))


def by_subject(window: Window) -> dict[str, list[Listing]]:
    """The listings of each instance or host, oldest first."""
    out: dict[str, list[Listing]] = defaultdict(list)
    for listing in listings_of(window):
        out[listing.subject].append(listing)
    return dict(out)


@lru_cache(maxsize=64)
def rows_by_port(listing: Listing) -> dict[int | None, tuple[SocketRow, ...]]:
    """The rows of a listing by their own port, in its order (remembered for the last listings): one pass for all the
    instances that share a host."""
    out: dict[int | None, list[SocketRow]] = defaultdict(list)
    for row in listing.rows:
        out[row.local_port].append(row)
    return {port: tuple(rows) for port, rows in out.items()}


@dataclass(frozen=True, eq=False)
class Owners:
    """Which instance a socket belongs to: by the process that holds it, by the port it serves, else by whose listing it
    is. What the inventory says is looked up, never searched: a host may hold hundreds of instances."""

    cluster: Cluster
    by_pid: dict[int, str]

    def of(self, row: SocketRow, listing: Listing) -> str | None:
        """The instance's name; None for a socket of a host that no instance is known to hold."""
        if row.pid is not None and row.pid in self.by_pid and self._may_hold(self.by_pid[row.pid], listing):
            return self.by_pid[row.pid]
        return self._served(row.local_port, listing)

    def _served(self, port: int | None, listing: Listing) -> str | None:
        """The first instance of the inventory that serves a port and whose sockets the listing can hold."""
        if not listing.subject.startswith(HOST):
            return listing.subject
        host = listing.subject.removeprefix(HOST)
        known = [self._by_port[place] for place in ((host, port), (None, port)) if place in self._by_port]
        return min(known)[1] if known else None

    @cached_property
    def _by_port(self) -> dict[tuple[str | None, int | None], tuple[int, str]]:
        """Of each host (None: of instances that name none) and port, the first instance: its place and name."""
        out: dict[tuple[str | None, int | None], tuple[int, str]] = {}
        for number, instance in enumerate(self.cluster.instances):
            named = self.instance(instance.name)
            for port in ports_of(instance):
                out.setdefault((named.host if named else None, port), (number, instance.name))
        return out

    @cached_property
    def _by_name(self) -> dict[str, Instance]:
        return {instance.name: instance for instance in reversed(self.cluster.instances)}

    def instance(self, name: str | None) -> Instance | None:
        """As ``Cluster.instance``, without a search."""
        return self._by_name.get(name) if name else None

    def near(self, listing: Listing) -> Iterator[Instance]:
        """The instances whose sockets a listing can hold."""
        for instance in self.cluster.instances:
            if self._may_hold(instance.name, listing):
                yield instance

    def _may_hold(self, name: str, listing: Listing) -> bool:
        if not listing.subject.startswith(HOST):
            return name == listing.subject
        instance = self.instance(name)
        host = listing.subject.removeprefix(HOST)
        return instance is not None and instance.host in (None, host)

    def at_address(self, address: str, port: int | None) -> str | None:
        """The instance that serves an address and port, by its URL."""
        for instance in self.cluster.instances:
            url = urlsplit(instance.url or "")
            if port is not None and port in ports_of(instance) and url.hostname == address:
                return instance.name
        return None


@lru_cache(maxsize=4)
def owners_of(window: Window, cluster: Cluster) -> Owners:
    """The owners of a cluster's sockets, by the processes the window has seen."""
    by_pid: dict[int, str] = {}
    for instance in cluster.instances:
        for seen in window.seen(instance.name, Fact.PROCESSES, Processes):
            by_pid.update({process.pid: instance.name for process in seen.value.rows})
    return Owners(cluster, by_pid)


@lru_cache(maxsize=4096)
def ports_of(instance: Instance) -> tuple[int, ...]:
    """The ports an instance serves HTTP on: its own, its metrics', its bootstrap server's."""
    urls = [urlsplit(u) for u in (instance.url, instance.metrics_url) if u]
    ports = [u.port or (443 if u.scheme == "https" else 80) for u in urls]
    return tuple(dict.fromkeys([*ports, *([instance.bootstrap_port] if instance.bootstrap_port else [])]))


def is_loopback(address: str) -> bool:
    return address.startswith(LOOPBACK)


def held_by(row: SocketRow) -> str:
    """The holder of a socket in words: "python3, pid 3310"."""
    if row.pid is None:
        return "a process that was not listed (ss needs root and -p)"
    return f"{row.process or 'a process'}, pid {row.pid}"


def place(address: str, port: int | None) -> str:
    """An address and port as people write them."""
    shown = f"[{address}]" if ":" in address else address
    return shown if port is None else f"{shown}:{port}"
