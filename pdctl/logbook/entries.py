"""The wanted entries of logs, one log or several on one time line, those there are and those to come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import chain

from pdctl.facts.log import events_of
from pdctl.logbook.sources import Source
from pdctl.model.events import Event, in_utc
from pdctl.model.log_filter import Moment, Wanted, in_clock
from pdctl.reach import log_file
from pdctl.reach.clock import Clock

FreshOf = Callable[[], "dict[str, list[bytes]] | None"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An event of one instance. ``clock`` is its time by its log's own clock (or that of the last timed event before
    it), ``order`` the same in UTC where that is known: what entries of several logs are sorted by."""

    source: str
    event: Event
    clock: datetime | None
    order: datetime
    utc: datetime | None


def wanted_of(source: Source, wanted: Wanted, since: Moment | None, until: Moment | None) -> Wanted:
    """What is wanted of this source: the moments as its own clock shows them."""
    return replace(
        wanted,
        since=in_clock(since, source.now, source.last, source.offset) if since is not None else None,
        until=in_clock(until, source.now, source.last, source.offset) if until is not None else None,
    )


def entries(source: Source, wanted: Wanted, lines: Iterable[bytes] | None = None) -> Iterator[Entry]:
    """The wanted entries of one log, in the order written."""
    for event in events_of(source.lines() if lines is None else lines, source.scanner):
        if event.when is not None:
            source.clock = _in_own_clock(event.when, source.offset)
            source.order = max(source.order, source.clock - (source.offset or timedelta()) - source.ahead)
        if wanted.takes(event, source.clock):
            yield Entry(source.name, event, source.clock, source.order, _utc_of(event, source))


def _in_own_clock(when: datetime, offset: timedelta | None) -> datetime:
    if when.tzinfo is None:
        return when
    return when.astimezone(UTC).replace(tzinfo=None) + (offset or timedelta())


def _utc_of(event: Event, source: Source) -> datetime | None:
    when = event.when if event.when is not None else source.clock
    return in_utc(when, source.offset)


def on_one_line(streams: Iterable[Iterator[Entry]]) -> Iterator[Entry]:
    """The entries of several logs on one time line."""
    return merge(*streams, key=lambda entry: entry.order)


def newest(stream: Iterable[Entry], limit: int) -> tuple[list[Entry], int]:
    """The last ``limit`` entries (all for 0), and how many were before them."""
    kept: deque[Entry] = deque(maxlen=limit or None)
    count = 0
    for entry in stream:
        kept.append(entry)
        count += 1
    return list(kept), count - len(kept)


def followed(
    sources: Sequence[Source], wanted: Sequence[Wanted], clock: Clock, fresh_of: FreshOf | None = None
) -> Generator[Entry, None, None]:
    """The wanted entries that come from now on, those of one look in order. ``fresh_of`` tells the lines that came from
    hosts since it was last called, by the name of their source; it ends the looking when none will come any more
    (None). Entries of several logs are held back for one look, for a slower host's to take their place among them."""
    pairs = list(zip(sources, wanted, strict=True))
    growing = [(s, w) for s, w in pairs if s.path is not None]
    held: list[Entry] = []
    for looks in log_file.follow([(s.path, s.read_to) for s, _ in growing if s.path is not None], clock):
        came = [list(entries(s, w, lines)) for (s, w), lines in zip(growing, looks, strict=True)]
        told = fresh_of() if fresh_of is not None else {}
        came += [list(entries(s, w, told[s.name])) for s, w in pairs if told and s.name in told]
        rows = sorted(chain(held, *came), key=lambda entry: entry.order)
        last = max((e.order for e in held), default=datetime.min)
        is_over = told is None and not growing
        held = [e for e in rows if e.order > last] if len(sources) > 1 and not is_over else []
        yield from rows[: len(rows) - len(held)]
        if is_over:
            return
