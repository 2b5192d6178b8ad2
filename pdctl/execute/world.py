"""The way to the hosts and instances of a cluster, as carrying out a plan needs it: acts, looks, real requests."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

from pdctl.gather import Gatherer
from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import Ask, CommandAsk
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.plan import Ground, Owner
from pdctl.model.probe import Attempt
from pdctl.model.window import Window
from pdctl.plans.nodes import with_nodes
from pdctl.plans.restart import host_of
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.hosts import Hosts

AT_ONCE = 8  # generations


class World(Protocol):
    """What carrying out a plan touches. Nothing here decides anything."""

    @property
    def clock(self) -> Clock: ...

    def survey(self, own: Owner | None = None) -> Ground:
        """What a plan stands on, now. ``own`` is the owner of the locks that are ours."""

    def act(self, ask: CommandAsk) -> Answer:
        """Makes a change; what the host said."""

    def look(self, asks: Sequence[Ask], timeout: float) -> tuple[Answer | None, ...]:
        """An answer for each ask, in their order, all asked at once; None for one that was not asked this time."""

    def generate(self, instances: Sequence[Instance], timeout: float) -> dict[str, Attempt]:
        """One real generation at each, at the same time."""

    def generate_pair(self, instance: Instance, timeout: float) -> tuple[Attempt, ...]:
        """A generation on a fresh connection and one on the same connection kept alive."""

    def window(self, seconds: float) -> Window:
        """A look at the whole cluster for that long at most, for the question of pinned requests."""


class OpenWorld:
    """The real one. Use it as a context manager."""

    def __init__(self, cluster: Cluster, *, clock: Clock | None = None, lock_path: str) -> None:
        self._whole = cluster.with_local()
        self.cluster = with_nodes(self._whole)
        self.clock: Clock = clock or SystemClock()
        self.lock_path = lock_path
        self._stack = ExitStack()
        self.hosts = self._stack.enter_context(Hosts(self.cluster, clock=self.clock))
        self.gatherer = self._stack.enter_context(
            Gatherer(self.cluster, clock=self.clock, commands=self.hosts, via=self.hosts.dial)
        )
        self._started = self.gatherer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def survey(self, own: Owner | None = None) -> Ground:
        from pdctl.execute.survey import survey

        return survey(self, own)

    def act(self, ask: CommandAsk) -> Answer:
        now = self.clock.now()
        return self.hosts.run(ask, started=self._started, deadline=now + ask.timeout)

    def look(self, asks: Sequence[Ask], timeout: float) -> tuple[Answer | None, ...]:
        if not asks:
            return ()
        came = {(a.subject, a.fact, a.ask): a for a in self.gatherer.gather(asks, timeout)}
        return tuple(_for(ask, came) for ask in asks)

    def generate(self, instances: Sequence[Instance], timeout: float) -> dict[str, Attempt]:
        if not instances:
            return {}
        with ThreadPoolExecutor(min(AT_ONCE, len(instances))) as pool:
            made = pool.map(lambda i: (i.name, self._pair(i, timeout, reuse=False)[0]), instances)
            return dict(made)

    def generate_pair(self, instance: Instance, timeout: float) -> tuple[Attempt, ...]:
        return self._pair(instance, timeout, reuse=True)

    def window(self, seconds: float) -> Window:
        from pdctl.checks.settled import pinned_settled
        from pdctl.watch import Look, watch

        look = Look(2.0, seconds, stop=lambda window: pinned_settled(window, self._whole))
        return watch(self._whole, look, self.clock).window

    def _pair(self, instance: Instance, timeout: float, *, reuse: bool) -> tuple[Attempt, ...]:
        from pdctl.reach.prober import generate_pair

        host = host_of(instance, self.cluster)
        via = host.name if host is not None and host.ssh is not None else None
        return generate_pair(instance, timeout=timeout, host=via, dial=self.hosts.dial, clock=self.clock, reuse=reuse)


def _for(ask: Ask, came: dict[tuple[str, Fact, str], Answer]) -> Answer | None:
    """The answer to an ask, with what the ask says of it beside."""
    from pdctl.reach.url import shown

    words = str(ask) if isinstance(ask, CommandAsk) else f"{ask.method} {shown(ask.url)}"
    answer = came.get((ask.subject, ask.fact, words))
    if answer is None or not isinstance(ask, CommandAsk):
        return answer
    return replace(answer, more={**dict(ask.about), **answer.more})
