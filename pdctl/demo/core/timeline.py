"""The order of events in simulated time: callables on a heap, run as time is advanced."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Handle:
    """A scheduled call that can be called off."""

    __slots__ = ("args", "call", "live")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call = call
        self.args = args
        self.live = True

    def cancel(self) -> None:
        self.live = False


class Timeline:
    """Simulated seconds. ``now`` moves only by ``advance_to``; calls at one instant run in the order scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Handle]] = []
        self._serial = itertools.count()

    def at(self, when: float, call: Callable[..., object], *args: Any) -> Handle:
        """Schedules a call; an instant already past means at once."""
        handle = Handle(call, args)
        heapq.heappush(self._heap, (max(when, self.now), next(self._serial), handle))
        return handle

    def after(self, delay: float, call: Callable[..., object], *args: Any) -> Handle:
        return self.at(self.now + delay, call, *args)

    @property
    def next_at(self) -> float | None:
        """When the next call is due, None when nothing is scheduled."""
        while self._heap and not self._heap[0][2].live:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def advance_to(self, when: float) -> None:
        """Runs everything due up to and including ``when``; time never goes back."""
        heap = self._heap
        while heap and heap[0][0] <= when:
            due, _, handle = heapq.heappop(heap)
            self.now = due
            if handle.live:
                handle.live = False
                handle.call(*handle.args)
        self.now = max(self.now, when)
