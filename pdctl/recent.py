"""The observations of the last so many seconds, in bounded memory, and the window they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pdctl.model.answer import Fact, Observation
from pdctl.model.window import Window

KEEP_S = 3600.0  # seconds
KEEP_MOST = 50_000  # observations
_ROOM = 1.25  # let go only when so far beyond: it goes over all of them, and must not for each one that comes

Key = tuple[str, Fact, str, str]


def key_of(subject: str, fact: Fact, more: Mapping[str, object]) -> Key:
    """What an observation is about: a later one with the same key says the same anew."""
    return subject, fact, str(more.get("path")), str(more.get("pid"))


class Recent:
    """Observations as they come. Beyond ``keep_s`` seconds or ``keep_most`` of them the oldest are let go, except
    those whose like was not seen since: settings are asked once and hold for the whole window."""

    def __init__(self, start: datetime, *, live: bool, keep_s: float = KEEP_S, keep_most: int = KEEP_MOST) -> None:
        self._start = start
        self._live = live
        self._keep_s = keep_s
        self._keep_most = keep_most
        self._rows: list[Observation[Any]] = []
        self._shift = 0.0
        self._gone = 0

    def add(self, observations: Iterable[Observation[Any]]) -> None:
        """Adds observations, whose ``t`` counts from the start that was given."""
        for seen in observations:
            row = replace(seen, t=seen.t - self._shift) if self._shift else seen
            self._rows.append(row)
            if row.t > self._keep_s * _ROOM or len(self._rows) > self._keep_most * _ROOM:
                self._let_go(row.t)

    def window(self, end: datetime) -> Window:
        """The window so far. Once something was let go its start moves, and ``t`` counts from there: what was seen
        before and still holds has a ``t`` below 0."""
        note = left_out(self._gone, (end - self._start).total_seconds()) if self._gone else None
        return Window(self._start, end, tuple(self._rows), self._live, note)

    def _let_go(self, last_t: float) -> None:
        cut = last_t - self._keep_s
        if len(self._rows) > self._keep_most:
            cut = max(cut, self._rows[-self._keep_most].t)
        later = [row for row in self._rows if row.t >= cut]
        held = {key_of(row.subject, row.fact, row.more): row for row in self._rows if row.t < cut}
        for row in later:
            held.pop(key_of(row.subject, row.fact, row.more), None)
        kept = [*held.values(), *later]
        self._gone += len(self._rows) - len(kept)
        self._rows = [replace(row, t=row.t - cut) for row in kept]
        self._shift += cut
        self._start += timedelta(seconds=cut)


def left_out(count: int, seconds: float) -> str:
    """What a window says of what it does not hold."""
    return f"only the last {seconds:.0f} s are looked at; {count} earlier observations are left out"
