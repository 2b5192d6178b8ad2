"""The times that log prefixes write: with a zone, without one, without even a year.

An engine's or router's own time is local to its host and names no zone. What wraps it (kubectl, journald) may name one:
then the two together give the host's zone, and with it the record's time in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

QUARTER = timedelta(minutes=15)  # every zone on earth is a whole number of these from UTC
FARTHEST = timedelta(hours=14)  # from UTC
NEAR = timedelta(minutes=10)  # a log whose last line is this near the moment it was read tells its zone
AT_ONCE = timedelta(seconds=15)  # within this a line is on disk; a copied or touched file is rarely that near by chance
_FRACTION = re.compile(r"[.,](\d+)")
_MONTHS = {"Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6, "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10}
_MONTHS |= {"Nov": 11, "Dec": 12}
_DATED = re.compile(rb"(20\d\d)-([01]\d)-([0-3]\d)[ T]\d\d:\d\d:\d\d")


def read_stamp(text: str) -> datetime | None:
    """An ISO-like time: naive, or aware UTC where it names a zone. Digits beyond microseconds are cut off; None for a
    time that no calendar has."""
    if len(text) > len("2026-11-12 03:14:00"):
        text = _FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.astimezone(UTC) if when.tzinfo is not None else when


def in_zone_of(inner: datetime | None, outer: datetime | None) -> datetime | None:
    """The inner time; in UTC where it is naive and an outer, aware time of the same record shows its zone."""
    if inner is None:
        return outer
    if inner.tzinfo is not None or outer is None or outer.tzinfo is None:
        return inner
    offset = nearest_offset(inner, outer)
    return (inner - offset).replace(tzinfo=UTC) if offset is not None else inner


def nearest_offset(local: datetime, utc: datetime, slack: timedelta = QUARTER) -> timedelta | None:
    """How far a local clock that shows ``local`` at about the instant ``utc`` is ahead of UTC, in quarter hours; None
    where the two are farther apart than any zone, or farther than ``slack`` from whole quarters."""
    ahead = local - utc.astimezone(UTC).replace(tzinfo=None)
    offset = round(ahead / QUARTER) * QUARTER
    return offset if abs(offset) <= FARTHEST and abs(ahead - offset) <= slack else None


def offset_of(last: datetime | None, written: datetime | None, asked: datetime) -> timedelta | None:
    """How far a log's clock is ahead of UTC, from its last naive time and the file's mtime (``written``).

    Without an mtime only a log that was read about when its last line was written tells it, and only on a host that
    keeps UTC: the hours a quiet log has been quiet cannot be told from a zone. None where nothing tells."""
    if last is None:
        return None
    if written is not None:
        return nearest_offset(last, written, AT_ONCE)
    near = abs(last - asked.astimezone(UTC).replace(tzinfo=None)) <= NEAR
    return timedelta() if near else None


class Calendar:
    """Supplies the year that glog, vLLM and journald leave out: that of the nearest dated record, else the latest
    year that does not put the record after the moment the log was read."""

    def __init__(self, asked: datetime | None = None, beginning: bytes = b"") -> None:
        self._asked = asked.astimezone(UTC).replace(tzinfo=None) if asked else None
        self._near = _first_date(beginning)

    def learn(self, when: datetime | None) -> datetime | None:
        """The time as it is; its date is remembered for the records that follow."""
        if when is not None:
            self._near = when if when.tzinfo is None else when.replace(tzinfo=None)
        return when

    def dated(self, month: int, day: int, clock: str) -> datetime | None:
        """A time whose year is missing; None where nothing tells the year or the calendar has no such day."""
        around = self._near or self._asked
        if around is None:
            return None
        years = (around.year - 1, around.year, around.year + 1)
        days = [when for year in years if (when := read_stamp(f"{year}-{month:02d}-{day:02d} {clock}")) is not None]
        if self._near is not None:
            return min(days, key=lambda when: abs(when - around), default=None)
        return max((when for when in days if when <= around + timedelta(days=1)), default=None)

    def read_foreign(self, groups: dict[str, str | None]) -> datetime | None:
        """The time of a foreign prefix by the named groups of the pattern in log_lines; None where it has none."""
        if stamp := groups["iso"] or groups["syslog"]:
            return self.learn(read_stamp(stamp))
        if stamp := groups["glog"]:
            return self.dated(int(stamp[:2]), int(stamp[2:4]), stamp[5:])
        if stamp := groups["vllm"]:
            return self.dated(int(stamp[:2]), int(stamp[3:5]), stamp[6:])
        if stamp := groups["journal"]:
            return self._named_month(stamp[:3], stamp[4:6], None, stamp[7:])
        if stamp := groups["loki"]:
            month, day, year, _, clock = stamp.replace(",", "").split()
            return self._named_month(month, day, year, clock)
        return None

    def _named_month(self, month: str, day: str, year: str | None, clock: str) -> datetime | None:
        number = _MONTHS.get(month)
        if number is None:
            return None
        if year is None:
            return self.dated(number, int(day), clock)
        return self.learn(read_stamp(f"{year}-{number:02d}-{int(day):02d} {clock}"))


def _first_date(beginning: bytes) -> datetime | None:
    found = _DATED.search(beginning)
    return read_stamp(f"{found[1].decode()}-{found[2].decode()}-{found[3].decode()}") if found else None
