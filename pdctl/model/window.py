"""Observations over a span of time: the one thing checks judge, live or read back from a capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from pdctl.model.answer import Fact, Missed, Observation, Seen

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class At(Generic[T_co]):
    """A value that was seen, with when (``t`` seconds since the window's start) and by which ask."""

    t: float
    value: T_co
    seen: Observation[T_co]


@dataclass(frozen=True, eq=False)
class Window:
    """Every observation of a span, in order of completion. ``start`` and ``end`` are aware UTC times.

    ``live`` is False for a capture. ``note`` says what of a recording was left out, if anything."""

    start: datetime
    end: datetime
    observations: tuple[Observation[Any], ...]
    live: bool = False
    note: str | None = None
    _index: dict[tuple[str, Fact], list[Observation[Any]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for seen in self.observations:
            self._index.setdefault((seen.subject, seen.fact), []).append(seen)

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())

    def timeline(self, subject: str, fact: Fact) -> tuple[Observation[Any], ...]:
        """Every observation of one fact of one instance (or ``host:NAME``), misses included."""
        return tuple(self._index.get((subject, fact), ()))

    def seen(self, subject: str, fact: Fact, kind: type[T]) -> tuple[At[T], ...]:
        """The read values of one fact that are of ``kind``, oldest first."""
        return tuple(self._values(subject, fact, kind))

    def last(self, subject: str, fact: Fact, kind: type[T]) -> At[T] | None:
        values = self.seen(subject, fact, kind)
        return values[-1] if values else None

    def missed(self, subject: str, fact: Fact) -> tuple[Observation[Any], ...]:
        return tuple(o for o in self._index.get((subject, fact), ()) if isinstance(o.got, Missed))

    def asked(self, subject: str, fact: Fact) -> bool:
        return (subject, fact) in self._index

    def subjects(self, fact: Fact) -> tuple[str, ...]:
        return tuple(dict.fromkeys(subject for subject, f in self._index if f == fact))

    def samples(self) -> int:
        """How many times the most-asked fact was asked of the most-asked subject."""
        return max((len(rows) for rows in self._index.values()), default=0)

    def extended(self, more: Iterable[Observation[Any]], end: datetime) -> Window:
        """A new window with later observations added."""
        return Window(self.start, end, (*self.observations, *more), self.live, self.note)

    def _values(self, subject: str, fact: Fact, kind: type[T]) -> Iterator[At[T]]:
        for o in self._index.get((subject, fact), ()):
            if isinstance(o.got, Seen) and isinstance(o.got.value, kind):
                yield At(o.t, o.got.value, o)
