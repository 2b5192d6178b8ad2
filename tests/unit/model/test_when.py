"""Moments as people say them, in the zone they are meant in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from pdctl.model.when import resolve

NOW = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)  # a Thursday
CET = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-12T04:14:00+01:00"),
        ("10m", "2026-11-12T04:04:00+01:00"),
        ("90 min ago", "2026-11-12T02:44:00+01:00"),
        ("2d", "2026-11-10T04:14:00+01:00"),
        ("12:00", "2026-11-11T12:00:00+01:00"),
        ("4:00", "2026-11-12T04:00:00+01:00"),
        ("noon", "2026-11-11T12:00:00+01:00"),
        ("midnight", "2026-11-12T00:00:00+01:00"),
        ("6pm", "2026-11-11T18:00:00+01:00"),
        ("12am", "2026-11-12T00:00:00+01:00"),
        ("today 3:30", "2026-11-12T03:30:00+01:00"),
        ("today", "2026-11-12T00:00:00+01:00"),
        ("yesterday", "2026-11-11T00:00:00+01:00"),
        ("Yesterday  18:00", "2026-11-11T18:00:00+01:00"),
        ("yesterday at noon", "2026-11-11T12:00:00+01:00"),
        ("mon 9:00", "2026-11-09T09:00:00+01:00"),
        ("thursday 01:00:30", "2026-11-12T01:00:30+01:00"),
        ("2026-11-10", "2026-11-10T00:00:00+01:00"),
        ("2026-11-10 22:01", "2026-11-10T22:01:00+01:00"),
        ("2026-11-10T22:01:00Z", "2026-11-10T23:01:00+01:00"),
        ("2026-11-10T22:01:00+08:00", "2026-11-10T15:01:00+01:00"),
    ],
)
def test_moments(text: str, expected: str) -> None:
    assert resolve(text, NOW, CET).isoformat() == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "13pm", "yesterday late", "5", "today 23:00", "2026-11-13", "t 9:00"]
)
def test_no_moments(text: str) -> None:
    with pytest.raises(ValueError):
        resolve(text, NOW, CET)


def test_a_day_on_which_clocks_were_turned() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 10, 25, 12, 0, tzinfo=UTC)  # summer time ended at 01:00 UTC
    assert resolve("00:30", now, berlin).astimezone(UTC).isoformat() == "2026-10-24T22:30:00+00:00"
    assert resolve("12:00", now, berlin).astimezone(UTC).isoformat() == "2026-10-25T11:00:00+00:00"


def test_a_time_of_today_that_is_yet_to_come_is_told_how_it_is_meant() -> None:
    with pytest.raises(ValueError, match=r"yet to come .*; 12:00 alone is the last one$"):
        resolve("today 12:00", NOW, CET)
    with pytest.raises(ValueError, match=r"yet to come \([^;]*\)$"):
        resolve("2026-11-13", NOW, CET)
