"""What a series of queue readings shows by itself: what stayed, what fell, how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.checks.view import Count


@dataclass(frozen=True, slots=True)
class Plateau:
    """The trailing readings over which a queue never fell: what stood in it at the start can still be there.
    ``stayed`` is that first reading, ``last`` the newest one."""

    readings: tuple[Count, ...]

    @property
    def stayed(self) -> float:
        return self.readings[0].value

    @property
    def last(self) -> float:
        return self.readings[-1].value

    @property
    def seconds(self) -> float:
        return self.readings[-1].t - self.readings[0].t


def plateau(readings: Sequence[Count]) -> Plateau | None:
    """The trailing non-falling readings that are at least 1, None when the newest is 0 or there is none."""
    kept: list[Count] = []
    for reading in reversed(readings):
        if reading.value < 1 or (kept and reading.value > kept[-1].value):
            break
        kept.append(reading)
    return Plateau(tuple(reversed(kept))) if kept else None


def tail(readings: Sequence[Count]) -> tuple[Count, ...]:
    """The readings since the queue was last seen empty."""
    empty = max((i for i, reading in enumerate(readings) if reading.value < 1), default=-1)
    return tuple(readings[empty + 1 :])


def floor_of(readings: Sequence[Count]) -> float:
    """The least reading, 0.0 of none."""
    return min((r.value for r in readings), default=0.0)


def mean_of(readings: Sequence[Count]) -> float:
    return sum(r.value for r in readings) / len(readings) if readings else 0.0


def constant(readings: Sequence[Count]) -> bool:
    return len({r.value for r in readings}) == 1


def fall(readings: Sequence[Count]) -> tuple[float, float] | None:
    """How many a second a queue lost from its highest reading to its newest and when that began (seconds into the
    window); None when it did not fall."""
    if len(readings) < 3:
        return None
    top = max(range(len(readings)), key=lambda i: (readings[i].value, i))
    lost, seconds = readings[top].value - readings[-1].value, readings[-1].t - readings[top].t
    return (lost / seconds, readings[top].t) if lost > 0 and seconds > 0 else None


def series_text(readings: Sequence[Count], most: int = 9) -> str:
    """The readings as people write them: "2 2 2 3 (4 readings, 12 s)"; long series show their two ends."""
    words = [f"{r.value:g}" for r in readings]
    if len(words) > most:
        words = [*words[: most // 2], "..", *words[-(most // 2) :]]
    span = readings[-1].t - readings[0].t if readings else 0.0
    return f"{' '.join(words)} ({len(readings)} readings over {span:.0f} s)"
