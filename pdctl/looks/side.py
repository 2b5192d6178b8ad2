"""What the hosts say beside what the instances say, for commands that judge everything: processes, sockets before and
after, units, limits, scripts. Stacks are left to those who ask for them: a dump touches the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pdctl.gather import Gatherer
from pdctl.looks.hosts import HostLook, HostPlan
from pdctl.model.answer import Answer, Observation
from pdctl.model.cluster import Cluster
from pdctl.model.window import Window
from pdctl.reach.hosts import Hosts

LIMITED = ("main", "scheduler", "router")
PHASE_S = 8.0  # for one phase of asking: a host that hangs must not hold up the rest


class HostSide:
    """A look at the hosts that keeps the time of another look: its answers count their seconds from the same start."""

    def __init__(self, cluster: Cluster, hosts: Hosts, gatherer: Gatherer, keep: Callable[[Answer], None]) -> None:
        self._own = Gatherer(cluster, clock=gatherer.clock, commands=hosts, via=hosts.dial)
        self._own.started, self._own.started_at = gatherer.start(), gatherer.started_at
        self._look = HostLook(cluster.with_local(), cluster.instances, HostPlan(PHASE_S), hosts, self._own, keep)

    @property
    def placed(self) -> bool:
        """Whether any instance's host is known."""
        return any(True for _ in self._look.placed())

    def before(self) -> None:
        """Whose processes there are, and the sockets to compare with later."""
        self._look.sockets()
        self._look.processes()

    def after(self) -> None:
        """The sockets again, units, limits, scripts with their backups."""
        self._look.sockets()
        self._look.units()
        self._look.limits(LIMITED)
        self._scripts()

    def _scripts(self) -> None:
        from pdctl.looks.files import FileLook, places_of

        places = places_of(self._look)
        if places:
            files = FileLook(self._look)
            files.scripts(places)
            files.processes()

    def joined(self, window: Window) -> Window:
        """The window with what the hosts said."""
        seen: Iterable[Observation[Any]] = self._look.window().observations
        rows = tuple(sorted((*window.observations, *seen), key=lambda o: o.t))
        return replace(window, observations=rows, end=max(window.end, self._own.clock.wall()))

    def close(self) -> None:
        self._own.close()
