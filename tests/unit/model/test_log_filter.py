"""What is wanted of a log."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from pdctl.model.events import Event, Kind
from pdctl.model.log_filter import Wanted, in_clock, read_kinds, read_moment, read_rank
from pdctl.model.rank import Rank

NOW = datetime(2026, 11, 12, 3, 20)


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("10m", datetime(2026, 11, 12, 3, 10)),
        ("10min", datetime(2026, 11, 12, 3, 10)),
        ("90s", datetime(2026, 11, 12, 3, 18, 30)),
        ("1.5h", datetime(2026, 11, 12, 1, 50)),
        ("2d", datetime(2026, 11, 10, 3, 20)),
        ("03:14", datetime(2026, 11, 12, 3, 14)),
        ("3:14:05", datetime(2026, 11, 12, 3, 14, 5)),
        ("23:00", datetime(2026, 11, 11, 23)),  # the last one: yesterday's
        ("2026-11-11 12:00", datetime(2026, 11, 11, 12)),
        ("2026-11-12T02:14:00Z", datetime(2026, 11, 12, 3, 14)),  # the log's clock is an hour ahead of UTC
        ("2026-11-12T03:14:00+01:00", datetime(2026, 11, 12, 3, 14)),
    ],
)
def test_moments(text: str, clock: datetime) -> None:
    assert in_clock(read_moment(text), NOW, NOW, timedelta(hours=1)) == clock


def test_a_time_of_day_is_the_last_one_a_log_lived_through_and_ago_counts_from_now() -> None:
    last = NOW - timedelta(days=3, hours=1)
    assert in_clock(read_moment("02:00"), NOW, last, None) == datetime(2026, 11, 9, 2)
    assert in_clock(read_moment("02:30"), NOW, last, None) == datetime(2026, 11, 8, 2, 30)
    assert in_clock(read_moment("02:30"), NOW, None, None) == datetime(2026, 11, 12, 2, 30)
    assert in_clock(read_moment("1h"), NOW, last, None) == datetime(2026, 11, 12, 2, 20)


def test_a_moment_with_a_zone_is_taken_as_utc_where_the_logs_zone_is_not_known() -> None:
    assert in_clock(datetime(2026, 11, 12, 2, tzinfo=UTC), NOW, None, None) == datetime(2026, 11, 12, 2)


@pytest.mark.parametrize("text", ["", "soon", "10x", "25:00", "3", "10 m ago", "2026-13-01", "-5m"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError):
        read_moment(text)


def test_a_time_of_day_is_a_time() -> None:
    assert read_moment("7:05") == time(7, 5)


@pytest.mark.parametrize(
    ("text", "rank"),
    [("dp2", Rank(dp=2)), ("DP1 TP3", Rank(dp=1, tp=3)), ("dp1,tp=3", Rank(dp=1, tp=3)), ("attn_cp7", Rank(cp=7))],
)
def test_ranks(text: str, rank: Rank) -> None:
    assert read_rank(text) == rank


@pytest.mark.parametrize("text", ["", "2", "xp2", "dp", "dp2 and more"])
def test_what_is_no_rank(text: str) -> None:
    with pytest.raises(ValueError):
        read_rank(text)


def test_kinds() -> None:
    assert read_kinds(["crash, child-died", "watchdog"]) == {Kind.CRASH, Kind.CHILD_DIED, Kind.WATCHDOG}
    with pytest.raises(ValueError, match="'crashed'"):
        read_kinds(["crash,crashed"])


EVENT = Event(
    Kind.TRANSFER_FAILED, "Prefill Transfer failed rid='a1' room 77", NOW, Rank(dp=1, tp=3),
    words={"rid": "a1", "room": "77"},
)  # fmt: skip


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(), Wanted(kinds=frozenset({Kind.TRANSFER_FAILED})), Wanted(rank=Rank(dp=1)), Wanted(text="TRANSFER F"),
        Wanted(rid="a1"), Wanted(room="77"), Wanted(rid="a1", room="77"), Wanted(since=NOW), Wanted(until=NOW),
    ],
)  # fmt: skip
def test_taken(wanted: Wanted) -> None:
    assert wanted.takes(EVENT, NOW)


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(kinds=frozenset({Kind.CRASH})), Wanted(rank=Rank(dp=2)), Wanted(rank=Rank(dp=1, tp=0)),
        Wanted(rank=Rank(ep=1)), Wanted(text="handshake"), Wanted(rid="b2"), Wanted(room="78"),
        Wanted(rid="a1", room="78"), Wanted(since=NOW + timedelta(seconds=1)), Wanted(until=NOW - timedelta(seconds=1)),
    ],
)  # fmt: skip
def test_passed_over(wanted: Wanted) -> None:
    assert not wanted.takes(EVENT, NOW)


def test_a_record_that_names_the_request_in_passing_is_about_it() -> None:
    event = Event(Kind.OTHER, "abort of request a1 in room 77", NOW)
    assert Wanted(rid="a1").takes(event, NOW)
    assert Wanted(room="77").takes(event, NOW)


def test_an_event_without_any_time_is_in_no_span_of_time() -> None:
    assert Wanted().takes(EVENT, None)
    assert not Wanted(since=NOW).takes(EVENT, None)
