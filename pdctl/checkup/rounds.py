"""The rounds in which a check asks over HTTP: one look or looks for a while, and on from there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from pdctl.checkup.order import Order
from pdctl.gather import Gatherer
from pdctl.model.ask import Ask
from pdctl.model.cluster import Cluster, Role
from pdctl.model.window import Window
from pdctl.reach.clock import Clock
from pdctl.sample import SamplePlan, Sampling, sample

LOOK_ON_S = 10.0  # what stands is told from what moves in so long


class Rounds:
    """The rounds of one check, which end at ``until`` by the clock."""

    def __init__(self, cluster: Cluster, order: Order, clock: Clock, until: float) -> None:
        self._cluster = cluster
        self._order = order
        self._clock = clock
        self._until = until

    def first(self, gatherer: Gatherer) -> Window:
        """One look, or looks for as long as was ordered; then the ends of logs, where those are wanted."""
        return _last(sample(gatherer, self._plan(), clock=self._clock))

    def more(
        self, gatherer: Gatherer, seen: Window, seconds: float, enough: Callable[[Window], bool] = lambda _: False
    ) -> Window:
        """The window with what further rounds bring, until it is enough and everybody has answered; for so many seconds
        and no longer than ``LOOK_ON_S``."""
        so_far = self._clock.now() - gatherer.start()
        seconds = min(LOOK_ON_S, seconds)
        if seconds < self._order.interval_s:
            return seen
        until = so_far + seconds
        plan = replace(
            self._plan(), seconds=until, count=None, first={}, last_asks=(), deadline_s=so_far + self._left()
        )  # fmt: skip

        def stop(window: Window) -> bool:
            return not gatherer.awaited() and enough(_both(seen, window))

        return _both(seen, _last(sample(gatherer, plan, clock=self._clock, stop=stop)))

    def _left(self) -> float:
        return max(0.0, self._until - self._clock.now())

    def _plan(self) -> SamplePlan:
        chosen, order = self._order.chosen, self._order
        roles = (Role.PREFILL, Role.DECODE, Role.ROUTER)
        return SamplePlan(
            interval_s=order.interval_s,
            seconds=order.seconds,
            count=1 if order.seconds is None else None,
            facts=dict.fromkeys(roles, tuple(chosen.facts)),
            first=dict.fromkeys(roles, tuple(chosen.once)),
            last_asks=self._log_asks(),
            via=self._cluster.via,
            timeout_s=order.timeout_s,
            deadline_s=self._left(),
        )

    def _log_asks(self) -> tuple[Ask, ...]:
        if not self._order.chosen.has("logs"):
            return ()
        from pdctl.watch import has_log, log_ask

        cluster = self._cluster
        return tuple(log_ask(i, cluster) for i in cluster.instances if has_log(i, cluster))


def _last(sampling: Sampling) -> Window:
    """The window when the sampling is over. Raises KeyboardInterrupt when it was interrupted."""
    (window,) = deque(sampling, maxlen=1)
    if sampling.interrupted:
        raise KeyboardInterrupt
    return window


def _both(seen: Window, later: Window) -> Window:
    return seen.extended(later.observations, later.end)
