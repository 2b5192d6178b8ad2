"""Sums over events, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.model.digest import completions, failures_by_room, latencies, merged, percentile, slowest, unfinished
from pdctl.model.events import Event, Kind, Log
from pdctl.model.rank import Rank

AT = datetime(2026, 11, 12, 3, 14)


def failed(line: int, room: str | None, reason: str = "x", kind: Kind = Kind.TRANSFER_FAILED, tp: int = 0) -> Event:
    words = {"reason": reason, "rid": f"rid-{line}"} | ({"room": room} if room else {})
    return Event(kind, f"line {line}", AT + timedelta(seconds=line), Rank(tp=tp), {}, words, line)


def ended(request: str, seconds: float = 1.0, status: int = 200, **words: str) -> Event:
    told = {"request_id": request, "method": "POST", "path": "/generate", "status": str(status)} | words
    return Event(Kind.ROUTER_FINISHED, request, AT, numbers={"status": status, "latency_s": seconds}, words=told)


def begun(request: str, line: int = 0) -> Event:
    return Event(Kind.ROUTER_STARTED, request, AT, words={"request_id": request}, line=line)


def test_failures_are_told_by_room() -> None:
    rows = [
        failed(1, "7", "Failed due to an unknown reason from another rank", tp=0),
        failed(2, "8"),
        failed(3, "7", "timed out", tp=1),
        failed(4, "7", "timed out", tp=2),
        failed(5, "7", "lost", Kind.DECODE_TRANSFER_FAILED, tp=0),
        Event(Kind.DECODE_BATCH, "no failure"),
    ]
    first, second = failures_by_room(rows)
    assert (first.room, first.lines, first.when, first.first) == ("7", 4, AT + timedelta(seconds=1), rows[0])
    assert first.reason == "timed out"
    assert first.ranks == (Rank(tp=0), Rank(tp=1), Rank(tp=2))
    assert first.kinds == (Kind.TRANSFER_FAILED, Kind.DECODE_TRANSFER_FAILED)
    assert (second.room, second.lines) == ("8", 1)


def test_failures_without_a_room_do_not_become_one() -> None:
    assert len(failures_by_room([failed(1, None), failed(2, None)])) == 2


def test_a_failure_keeps_state_timeout_and_peer_of_whichever_line_told_them() -> None:
    plain = failed(1, "7")
    told = Event(Kind.TRANSFER_FAILED, "x", AT, Rank(tp=1), {"timeout_s": 300.0},
                 {"room": "7", "state": "WaitingForInput", "peer": "192.0.2.1:8998"}, 2)  # fmt: skip
    (failure,) = failures_by_room([plain, told])
    assert (failure.state, failure.timeout_s, failure.peer) == ("WaitingForInput", 300.0, "192.0.2.1:8998")


@pytest.mark.parametrize(
    ("values", "p50", "p90", "p99", "most"),
    [
        ([3.0], 3.0, 3.0, 3.0, 3.0),
        ([2.0, 1.0], 1.0, 2.0, 2.0, 2.0),
        ([float(n) for n in range(1, 101)], 50.0, 90.0, 99.0, 100.0),
        ([float(n) for n in range(1, 11)], 5.0, 9.0, 10.0, 10.0),
    ],
)
def test_percentiles_by_nearest_rank(values: list[float], p50: float, p90: float, p99: float, most: float) -> None:
    spread = latencies(values)
    assert spread is not None
    assert (spread.p50, spread.p90, spread.p99, spread.max, spread.count) == (p50, p90, p99, most, len(values))


def test_nothing_has_no_percentiles() -> None:
    assert latencies([]) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.floats(0.1, 100))
def test_a_percentile_occurred_and_is_the_least_that_reaches_its_share(values: list[float], p: float) -> None:
    ordered = sorted(values)
    value = percentile(ordered, p)
    assert value in ordered
    assert sum(v <= value for v in ordered) >= p / 100 * len(ordered) - 1e-9
    less = [v for v in ordered if v < value]
    assert len(less) < p / 100 * len(ordered) + 1e-9


def test_completions_are_answered_inference_requests() -> None:
    good = [ended("a"), ended("b", path="/v1/chat/completions", status=206)]
    other = [
        ended("c", status=500), ended("d", status=499), ended("e", path="/health"), ended("f", method="GET"),
        ended("g", path="/workers"), begun("h"),
    ]  # fmt: skip
    assert completions([*good, *other]) == tuple(good)


def test_the_slowest_come_first_and_equals_in_order() -> None:
    rows = [ended("a", 1.0), ended("b", 9.0), ended("c", 9.0), ended("d", 5.0), begun("e")]
    assert [e.words["request_id"] for e in slowest(rows, 3)] == ["b", "c", "d"]


def test_unfinished_requests() -> None:
    refused = Event(Kind.ROUTER_NO_WORKER, "no", AT, words={"request_id": "r"})
    rows = [begun("a", 1), begun("b", 2), ended("a"), begun("c", 3), ended("x"), begun("c", 4), ended("c"),
            begun("r", 5), refused]  # fmt: skip
    assert [(e.words["request_id"], e.line) for e in unfinished(rows)] == [("b", 2), ("c", 4)]


def test_readings_of_one_log_are_one_log() -> None:
    a, b, c = (Event(Kind.OTHER, text, line=n) for n, text in enumerate("abc"))
    whole = merged([Log((a, a, b), 9, 1, 2, timedelta(hours=1)), Log((b, c), 4, 0, 3)])
    assert [e.text for e in whole.events] == ["a", "a", "b", "c"]
    assert (whole.lines, whole.dropped, whole.let_go, whole.offset) == (9, 1, 3, timedelta(hours=1))
    assert merged([]) == Log(())


@pytest.mark.parametrize(
    ("when", "offset", "utc"),
    [
        (AT, timedelta(hours=2), AT.replace(hour=1, tzinfo=UTC)),
        (AT, None, None),
        (AT.replace(tzinfo=UTC), None, AT.replace(tzinfo=UTC)),
        (None, timedelta(), None),
    ],
)
def test_a_logs_time_in_utc(when: datetime | None, offset: timedelta | None, utc: datetime | None) -> None:
    assert Log((), offset=offset).utc(Event(Kind.OTHER, "", when)) == utc
