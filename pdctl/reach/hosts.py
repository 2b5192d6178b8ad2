"""The hosts of a cluster: which way each is reached, made when first needed and kept until closed.

with Hosts(cluster) as hosts:
    hosts.run(ask, started=..., deadline=...)       # a CommandAsk to whichever host it names
    HttpReach(dial=hosts.dial)                      # HTTP from where a host stands
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Cluster, Host
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.command import CommandReach, Outcome, Sink, answer_of

if TYPE_CHECKING:
    import httpcore

    from pdctl.reach.ssh_link import Links


class Hosts:
    """Runs commands on the cluster's hosts, and gives HTTP a way through them. Safe to use from several threads."""

    def __init__(self, cluster: Cluster, *, clock: Clock | None = None, links: Links | None = None) -> None:
        self._hosts = {host.name: host for host in cluster.hosts}
        self._clock = clock or SystemClock()
        self._links = links
        self._reaches: dict[str, CommandReach] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, ask: CommandAsk, *, started: float, deadline: float) -> Answer:
        """The answer of the host that the ask names; see ``command.CommandReach``."""
        found = self._reach_of(ask, started)
        return found if isinstance(found, Answer) else found.run(ask, started=started, deadline=deadline)

    def follow(self, ask: CommandAsk, sink: Sink, *, started: float, deadline: float) -> Answer:
        """As ``run``, with stdout going to ``sink`` as it comes."""
        found = self._reach_of(ask, started)
        return found if isinstance(found, Answer) else found.follow(ask, sink, started=started, deadline=deadline)

    def dial(self, name: str) -> httpcore.NetworkBackend:
        """The network as seen from that host. Raises ConnectionError for a host that is not in the inventory,
        SshFailure for a configuration that cannot be read."""
        host = self._hosts.get(name)
        if host is None:
            raise ConnectionError(f"no host {name} in the inventory")
        if host.ssh is None:
            import httpcore

            return httpcore.SyncBackend()
        from pdctl.reach.ssh_channel import SshBackend

        with self._lock:
            return SshBackend(self._all_links().link(host.ssh))

    def is_remote(self, name: str | None) -> bool:
        """Whether the host is reached over SSH."""
        host = self._hosts.get(name or "")
        return host is not None and host.ssh is not None

    def close(self) -> None:
        """Ends every connection, after what is still to be ended on the hosts has been."""
        with self._lock:
            reaches = list(self._reaches.values())
            self._reaches.clear()
            links, self._links = self._links, None
        for reach in reaches:
            reach.close()
        if links is not None:
            links.close()

    def _reach_of(self, ask: CommandAsk, started: float) -> CommandReach | Answer:
        from pdctl.errors import PdctlError

        begun = self._clock.now()
        try:
            return self._reach(ask.host)
        except PdctlError as error:
            outcome = Outcome(error=Why.SSH, detail=error.message)
        except LookupError:
            outcome = Outcome(error=Why.OTHER, detail=f"no host {ask.host} in the inventory")
        return answer_of(ask, outcome, clock=self._clock, started=started, begun=begun)

    def _reach(self, name: str) -> CommandReach:
        with self._lock:
            if name not in self._reaches:
                self._reaches[name] = self._made(self._hosts[name])
            return self._reaches[name]

    def _made(self, host: Host) -> CommandReach:
        if host.ssh is None:
            from pdctl.reach.local import LocalReach

            return LocalReach(host, self._clock)
        from pdctl.reach.ssh import SshReach

        return SshReach(host, self._all_links().link(host.ssh), self._clock)

    def _all_links(self) -> Links:
        if self._links is None:
            from pdctl.reach.ssh_link import Links

            self._links = Links()
        return self._links
