"""Sums over the entries of logs: failed requests by room, slow requests, latencies and ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pdctl.logbook.entries import Entry
from pdctl.model.digest import ENDS, ROOM_FAILURES, Failure, Latencies, completions, failures_by_room, latencies
from pdctl.model.events import Event, Kind

MOST_FAILURES = 100_000


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed request and the instances that told of it."""

    failure: Failure
    sources: tuple[str, ...]
    entry: Entry


def failures(stream: Iterable[Entry]) -> list[Failed]:
    """The failed requests of all logs by their room: what two sides and all their ranks said of one is one."""
    kept = deque((e for e in stream if e.event.kind in ROOM_FAILURES), maxlen=MOST_FAILURES)
    by_event = {id(e.event): e for e in kept}
    names: dict[str, dict[str, None]] = {}
    for e in kept:
        names.setdefault(_key(e.event), {})[e.source] = None
    found = failures_by_room(e.event for e in kept)
    return [Failed(f, tuple(names[_key(f.first)]), by_event[id(f.first)]) for f in found]


def _key(event: Event) -> str:
    return event.words.get("room") or event.words.get("rid") or f"line {event.line}"


@dataclass(frozen=True, slots=True)
class Spread:
    """The latencies of the completed requests of one path of one router."""

    source: str
    path: str
    latencies: Latencies


@dataclass(slots=True)
class Tally:
    """Latencies and ends of routers, taken in one entry at a time: memory grows with requests by a number each."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    statuses: dict[tuple[str, str], int] = field(default_factory=dict)
    under_way: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Takes in one entry; those of other kinds change nothing."""
        event = entry.event
        key = (entry.source, event.words.get("request_id", ""))
        if event.kind is Kind.ROUTER_STARTED:
            self.under_way[key] = self.under_way.get(key, 0) + 1
        elif event.kind in ENDS:
            left = self.under_way.pop(key, 0) - 1
            if left > 0:
                self.under_way[key] = left
        if event.kind is Kind.ROUTER_FINISHED:
            self._end(entry.source, event)

    def _end(self, source: str, event: Event) -> None:
        status = (source, event.words.get("status", "?"))
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if completions([event]):
            path = (source, event.words.get("path", "?"))
            self.seconds.setdefault(path, []).append(event.numbers["latency_s"])

    def spreads(self) -> list[Spread]:
        """The latencies of completed inference requests by router and path."""
        rows = [Spread(*key, spread) for key, values in self.seconds.items() if (spread := latencies(values))]
        return sorted(rows, key=lambda row: (row.source, -row.latencies.count))

    def routers(self) -> list[str]:
        """The logs that hold requests of a router."""
        return sorted({source for source, _ in (*self.statuses, *self.under_way)})

    def ends(self, source: str) -> list[tuple[str, int]]:
        """How many requests of this router ended with which status."""
        return sorted((status, count) for (name, status), count in self.statuses.items() if name == source)

    def endless(self, source: str) -> int:
        """How many requests of this router began and have no end in the log."""
        return sum(count for (name, _), count in self.under_way.items() if name == source)


def slow_entries(stream: Iterable[Entry], count: int) -> list[Entry]:
    """The router's requests that took longest, longest first, whatever their status."""
    from heapq import nlargest

    timed = (e for e in stream if "latency_s" in e.event.numbers)
    return nlargest(count, timed, key=lambda e: e.event.numbers["latency_s"])
