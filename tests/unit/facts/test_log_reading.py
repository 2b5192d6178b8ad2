"""The log as a whole: what is kept of a large one, what an empty one is, reading it as a stream."""

from __future__ import annotations

import tracemalloc
from io import BytesIO

import pytest

from pdctl.facts import read as read_fact
from pdctl.facts.log import NOISY, Scanner, events_of
from pdctl.model.answer import Answer, Fact, Missed, Why
from pdctl.model.cluster import Role
from pdctl.model.events import Kind
from tests.unit.facts.log_answers import ASKED, log_of

BATCH = "[2026-11-12 03:14:07 TP0] Decode batch, #running-req: {}, gen throughput (token/s): 1.00, #queue-req: 0\n"
FAILED = "[2026-11-12 03:14:00 TP0] Lost connection with prefill instance (bootstrap_addr: a:1), 3 requests affected\n"


@pytest.mark.parametrize("body", [None, b"", b" \n\n", b"-- No entries --\n"])
def test_an_empty_log_says_nothing_and_is_not_read_as_a_quiet_one(body: bytes | None) -> None:
    seen = read_fact(Answer("it", Fact.LOG, "tail", 0.0, ASKED, 0.0, body=body), None)
    assert isinstance(seen.got, Missed)
    assert seen.got.why is Why.EMPTY


def test_a_command_that_failed_is_no_empty_log() -> None:
    answer = Answer("it", Fact.LOG, "tail it.log", 0.0, ASKED, 0.0, status=1, detail="tail: it.log: denied", body=b"")
    seen = read_fact(answer, None)
    assert isinstance(seen.got, Missed)
    assert (seen.got.why, seen.got.detail) == (Why.OTHER, "tail: it.log: denied")


def test_of_a_large_log_the_newest_batches_and_every_rare_event_are_kept() -> None:
    text = FAILED + "".join(BATCH.format(n) for n in range(NOISY + 5)) + FAILED
    log = log_of(text)
    batches = log.of(Kind.DECODE_BATCH)
    assert (len(batches), batches[0].numbers["running"], batches[-1].numbers["running"]) == (NOISY, 5, NOISY + 4)
    assert [e.line for e in log.of(Kind.LOST_PREFILL)] == [1, NOISY + 7]
    assert (log.lines, log.let_go, log.dropped) == (NOISY + 7, 5, 0)
    assert [e.line for e in log.events] == sorted(e.line for e in log.events)


def test_the_stream_holds_every_event() -> None:
    body = "".join(BATCH.format(n) for n in range(NOISY + 5)).encode()
    assert sum(1 for _ in events_of(BytesIO(body), Scanner(Role.DECODE))) == NOISY + 5


def test_the_stream_takes_no_memory_for_what_has_passed() -> None:
    line = BATCH.format(7).encode()
    tracemalloc.start()
    try:
        count = sum(1 for _ in events_of((line for _ in range(20_000)), Scanner(Role.DECODE)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < 2_000_000  # a list of them would take 20 MB and more


def test_the_stream_gives_a_crash_its_reason_before_it_gives_the_crash() -> None:
    lines = [
        b"[2026-11-12 03:14:07 TP0] Scheduler hit an exception: Traceback (most recent call last):\n",
        b'  File "x.py", line 1, in f\n',
        b"RuntimeError: gone\n",
        BATCH.format(1).encode(),
    ]
    kinds = [(e.kind, e.words.get("reason")) for e in events_of(lines, Scanner(None))]
    assert kinds[0] == (Kind.CRASH, "RuntimeError: gone")
    assert kinds[-1] == (Kind.DECODE_BATCH, None)


def test_a_log_that_ends_within_a_traceback_is_given_whole() -> None:
    lines = [b"[2026-11-12 03:14:07 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"]
    assert [e.kind for e in events_of(lines, Scanner(None))] == [Kind.CRASH]


def test_an_engines_and_a_routers_records_in_one_log_are_told_apart_by_shape() -> None:
    router = (
        '2026-11-12 03:14:07  INFO http_request{method=GET uri=/health version=HTTP/1.1 request_id="r"}: '
        "smg::request: x.rs:1: started processing request\n"
    )
    for role in (None, Role.ROUTER, Role.PREFILL, Role.PROXY):
        log = log_of(BATCH.format(1) + router + FAILED, role)
        assert [e.kind for e in log.events] == [Kind.DECODE_BATCH, Kind.ROUTER_STARTED, Kind.LOST_PREFILL], role
