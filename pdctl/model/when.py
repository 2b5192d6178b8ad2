"""A moment as people say it in an incident: "12:00", "yesterday 18:00", "90m", RFC 3339. Pure: the clock and the time
zone it is meant in are handed in."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta, tzinfo

SAID = '10m (ago), 12:00, "today 12:00", "yesterday 18:00", "monday 9:00", 2026-11-12, "2026-11-12 03:14" or RFC 3339'

_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(s|sec|m|min|h|d|w)(?:\s+ago)?", re.I)
_UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?\s*(am|pm)?", re.I)
_WORDS = {"noon": time(12), "midnight": time(0)}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def resolve(text: str, now: datetime, zone: tzinfo) -> datetime:
    """The moment that is meant, aware, in ``zone``. A time of day alone is the last one that has been; a day alone its
    beginning. Raises ValueError for what is no moment, and for one that is yet to come.

    >>> from datetime import UTC
    >>> now = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)
    >>> resolve("12:00", now, UTC).isoformat(), resolve("yesterday 18:00", now, UTC).isoformat()
    ('2026-11-11T12:00:00+00:00', '2026-11-11T18:00:00+00:00')
    """
    here = now.astimezone(zone)
    moment = _moment(" ".join(text.strip().split()), here, zone)
    if moment > here + timedelta(minutes=1):
        last = " ".join(lowered for lowered in text.lower().split() if lowered != "today")
        instead = f"; {last} alone is the last one" if last != text.lower() and _time(last) is not None else ""
        raise ValueError(f"{text!r} is yet to come ({moment.isoformat()}){instead}")
    return moment


def _moment(text: str, here: datetime, zone: tzinfo) -> datetime:
    lowered = text.lower()
    if lowered == "now":
        return here
    if (ago := _AGO.fullmatch(lowered)) is not None:
        return here - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
    if (of_day := _time(lowered)) is not None:
        today = datetime.combine(here.date(), of_day, zone)
        return today if today <= here else datetime.combine(here.date() - timedelta(days=1), of_day, zone)
    word, _, rest = lowered.partition(" ")
    day = _day(word, here.date())
    if day is not None:
        clock = _time(rest.removeprefix("at ")) if rest else time(0)
        if clock is None:
            raise ValueError(f"{rest!r} is no time of day")
        return datetime.combine(day, clock, zone)
    moment = datetime.fromisoformat(text)
    return moment.astimezone(zone) if moment.tzinfo is not None else moment.replace(tzinfo=zone)


def _day(word: str, today: date) -> date | None:
    if word in ("today", "yesterday"):
        return today - timedelta(days=word == "yesterday")
    named = [index for index, day in enumerate(_DAYS) if len(word) >= 3 and day.startswith(word)]
    return today - timedelta(days=(today.weekday() - named[0]) % 7) if len(named) == 1 else None


def _time(text: str) -> time | None:
    if text in _WORDS:
        return _WORDS[text]
    found = _CLOCK.fullmatch(text)
    if found is None or (found[2] is None and found[4] is None):
        return None
    hour, half = int(found[1]), found[4]
    if half is not None:
        if not 1 <= hour <= 12:
            raise ValueError(f"{text!r} is no time of day")
        hour = hour % 12 + (12 if half == "pm" else 0)
    try:
        return time(hour, int(found[2] or 0), int(found[3] or 0))
    except ValueError:
        raise ValueError(f"{text!r} is no time of day") from None
