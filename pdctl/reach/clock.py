"""Time, asked of an object that is handed in, so that tests can turn it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What tells the time and waits."""

    def now(self) -> float:
        """Monotonic seconds; only differences mean anything."""

    def wall(self) -> datetime:
        """The time of day, aware, UTC."""

    def sleep(self, seconds: float) -> None:
        """Waits; at once for 0 or less."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class FakeClock:
    """A clock for tests: it stands still except while something sleeps on it or ``advance`` turns it."""

    def __init__(self, start: float = 0.0, wall: datetime = EPOCH) -> None:
        self._start = start
        self._now = start
        self._wall = wall
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return self._wall + timedelta(seconds=self._now - self._start)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Turns the clock forward; never back."""
        self._now += max(0.0, seconds)
