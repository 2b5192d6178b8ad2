"""Who belongs to the cluster: hosts and instances, as the inventory names them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

LOCAL = "local"  # this machine, as a host


class Role(StrEnum):
    """What an instance does in a prefill/decode-disaggregated cluster."""

    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"
    PROXY = "proxy"


ENGINE_ROLES = (Role.PREFILL, Role.DECODE)


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where an API key is read from when it is needed; the key itself is never held in the model."""

    env: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A machine. ``ssh`` is ``[user@]name[:port]`` or None for this machine; ``become`` is "sudo" or None."""

    name: str
    ssh: str | None = None
    become: str | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One engine, router or proxy. ``nodes`` are the further hosts of an engine that spans several, which runs there by
    the same unit, script and restart command. ``part_of`` names the engine of which this is such a node; only what
    changes hosts makes instances of nodes."""

    name: str
    role: Role
    url: str | None = None
    metrics_url: str | None = None
    host: str | None = None
    unit: str | None = None
    script: str | None = None
    log: str | None = None
    bootstrap_port: int | None = None
    engine: str = "sglang"
    api_key: KeySource | None = None
    ca_file: str | None = None
    watch: tuple[str, ...] = ()
    restart_command: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    part_of: str | None = None

    @property
    def is_engine(self) -> bool:
        return self.role in ENGINE_ROLES

    @property
    def metrics(self) -> str | None:
        """Where this instance's Prometheus page is: ``metrics_url``, else ``url`` + /metrics (engines only)."""
        if self.metrics_url:
            return self.metrics_url
        return f"{self.url.rstrip('/')}/metrics" if self.url and self.is_engine else None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The inventory. ``source`` says where it was read from, for messages."""

    name: str
    instances: tuple[Instance, ...]
    hosts: tuple[Host, ...] = ()
    source: str = "command line"

    def with_local(self) -> Cluster:
        """The cluster with this machine as a host, for files of instances that name none."""
        if any(host.name == LOCAL for host in self.hosts):
            return self
        return replace(self, hosts=(*self.hosts, Host(LOCAL)))

    @property
    def via(self) -> dict[str, str]:
        """The host whose connection carries what is asked of an instance over HTTP, for those at another machine."""
        remote = {host.name for host in self.hosts if host.ssh}
        return {i.name: i.host for i in self.instances if i.host is not None and i.host in remote}

    def instance(self, name: str) -> Instance | None:
        return next((i for i in self.instances if i.name == name), None)

    def of(self, *roles: Role) -> tuple[Instance, ...]:
        return tuple(i for i in self.instances if i.role in roles)

    @property
    def prefills(self) -> tuple[Instance, ...]:
        return self.of(Role.PREFILL)

    @property
    def decodes(self) -> tuple[Instance, ...]:
        return self.of(Role.DECODE)

    @property
    def routers(self) -> tuple[Instance, ...]:
        return self.of(Role.ROUTER)

    @property
    def engines(self) -> tuple[Instance, ...]:
        return self.of(*ENGINE_ROLES)
