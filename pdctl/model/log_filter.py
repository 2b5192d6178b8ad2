"""Which log events are wanted: by kind, rank, text, request, room and time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from pdctl.model.events import Event, Kind
from pdctl.model.rank import WHOLE, Rank

_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|min|m|h|d)")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_OF_DAY = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_RANK = re.compile(r"(dp|pp|tp|ep|cp|attn_cp)[=_ ]?(\d{1,9})", re.I)

Moment = timedelta | time | datetime  # ago, of the day, absolute


def read_moment(text: str) -> Moment:
    """A point in time as people write it: "10m" (ago), "12:00" (the log's last one), "2026-11-12 03:14" (the log's own
    clock), "2026-11-12T03:14:00Z". Raises ValueError for anything else."""
    text = text.strip()
    if (ago := _AGO.fullmatch(text)) is not None:
        return timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
    if _OF_DAY.fullmatch(text):
        return time.fromisoformat(text.zfill(5) if text.count(":") == 1 else text.zfill(8))
    return datetime.fromisoformat(text)


def in_clock(moment: Moment, now: datetime, last: datetime | None, offset: timedelta | None) -> datetime:
    """The moment as a log's own clock shows it, naive. ``now`` is that clock's present, ``last`` the log's last line: a
    time of day is the last one the log lived through. ``offset`` is how far the clock is ahead of UTC (taken as UTC
    where that is not known)."""
    if isinstance(moment, timedelta):
        return now - moment
    if isinstance(moment, time):
        end = last or now
        that_day = datetime.combine(end.date(), moment)
        return that_day if that_day <= end else that_day - timedelta(days=1)
    if moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None) + (offset or timedelta())
    return moment


def read_rank(text: str) -> Rank:
    """A rank as people write it: "dp2", "DP1 TP3", "tp=0". Raises ValueError for anything else."""
    named = {m[1].lower().removeprefix("attn_"): int(m[2]) for m in _RANK.finditer(text)}
    if not named or re.sub(r"[\s,]+", "", _RANK.sub("", text)):
        raise ValueError(text)
    return Rank(**named)


def read_kinds(values: Iterable[str]) -> frozenset[Kind]:
    """Kinds by their names, several in one value parted by commas. Raises ValueError with a name that is none."""
    names = [name.strip() for value in values for name in value.split(",") if name.strip()]
    known = {kind.value: kind for kind in Kind}
    for name in names:
        if name not in known:
            raise ValueError(repr(name))
    return frozenset(known[name] for name in names)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a log; everything, as long as nothing is said. ``since`` and ``until`` are naive times of the
    log's own clock."""

    kinds: frozenset[Kind] = frozenset()
    rank: Rank = WHOLE
    text: str = ""
    rid: str | None = None
    room: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def takes(self, event: Event, clock: datetime | None) -> bool:
        """Whether the event is wanted. ``clock`` is its time, or that of the last event before it that had one; an
        event without any is in no span of time."""
        if self.kinds and event.kind not in self.kinds:
            return False
        if self.text and self.text.lower() not in event.text.lower():
            return False
        return self._in_time(clock) and self._of_rank(event.rank) and self._about(event)

    def _in_time(self, clock: datetime | None) -> bool:
        if clock is None:
            return self.since is None and self.until is None
        return (self.since is None or clock >= self.since) and (self.until is None or clock <= self.until)

    def _of_rank(self, rank: Rank) -> bool:
        return self.rank.as_dict().items() <= rank.as_dict().items()

    def _about(self, event: Event) -> bool:
        """A request is known by its own field; lines that name it in passing count as well."""
        if self.rid is not None and self.rid not in (event.words.get("rid"), event.words.get("request_id")):
            return self.rid in event.text and (self.room is None or self.room in event.text)
        return self.room is None or event.words.get("room") == self.room or self.room in event.text
