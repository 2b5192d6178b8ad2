"""What stands before a record: ranks, times with and without zone or year, colours, and whatever collected it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from pdctl.model.cluster import Role
from pdctl.model.events import Kind
from pdctl.model.rank import WHOLE, Rank
from tests.unit.facts.log_answers import ASKED, event_of, log_of

BATCH = "Decode batch, #running-req: 4, #transfer-req: 3, gen throughput (token/s): 1.00, #queue-req: 0"
LOCAL = datetime(2026, 11, 12, 3, 14, 7)


@pytest.mark.parametrize(
    ("tokens", "rank"),
    [
        ("", WHOLE),
        (" TP0", Rank(tp=0)),
        (" DP1 TP2 EP3", Rank(dp=1, tp=2, ep=3)),
        (" PP3 TP0", Rank(pp=3, tp=0)),
        (" ATTN_CP7 TP7 EP6", Rank(cp=7, tp=7, ep=6)),
        (" DP2 PP0 ATTN_CP1 MOE_DP5 TP2 EP2", Rank(dp=2, pp=0, cp=1, tp=2, ep=2)),
        (" EP4 TP3 DP12", Rank(dp=12, tp=3, ep=4)),
    ],
)
def test_rank_tokens_are_a_set(tokens: str, rank: Rank) -> None:
    event = event_of(f"[2026-11-12 03:14:07{tokens}] {BATCH}")
    assert (event.rank, event.when, event.kind) == (rank, LOCAL, Kind.DECODE_BATCH)


@pytest.mark.parametrize(
    ("prefix", "when"),
    [
        ("[2026-11-12 03:14:07.123 TP0] ", LOCAL.replace(microsecond=123000)),
        ("[2026-11-12 03:14:07][scheduler_metrics_mixin.py:424][INFO]: ", LOCAL),
        ("Nov 12, 2026 @ 03:14:09.560    [2026-11-12 03:14:07 DP2 TP2] ", LOCAL),
        ("sglang-prefill-1  | [2026-11-12 03:14:07 TP4] ", LOCAL),
        ("[2026-11-12 03:14:09] [/bin/sh@<0,0>]: [2026-11-12 03:14:07 TP0] ", LOCAL),
        ("Nov 12 03:14:07 gpu-1 python3[4711]: [2026-11-12 03:14:07 TP0] ", LOCAL),
        ("Nov 12 03:14:07 gpu-1 sglang: ", LOCAL),
        ("Nov  2 03:14:07.25 gpu-1 sglang[1]: ", datetime(2026, 11, 2, 3, 14, 7, 250000)),
        ("[pod/prefill-0/engine] [2026-11-12 03:14:07 TP0] ", LOCAL),
        ("I1112 03:14:07.000000   162 launcher.go:877] ", LOCAL),
        ("2026-11-12 03:14:07,250 INFO scheduler.py:12 - ", LOCAL.replace(microsecond=250000)),
        ("2026-11-12T03:14:07.788089Z  INFO metrics_reporter.report_decode_stats: ",
         datetime(2026, 11, 12, 3, 14, 7, 788089, UTC)),
        ("\x1b[2m2026-11-12T03:14:07Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mreporter\x1b[0m\x1b[2m:\x1b[0m ",
         LOCAL.replace(tzinfo=UTC)),
        ("2026-11-12T03:14:07+0100 gpu-1 python3[4711]: ", datetime(2026, 11, 12, 2, 14, 7, tzinfo=UTC)),
        ("<30>1 2026-11-12T03:14:07.5Z gpu-1 sglang 4711 - - ", datetime(2026, 11, 12, 3, 14, 7, 500000, UTC)),
        ("2026-11-12T03:14:07.560123456Z stderr F ", datetime(2026, 11, 12, 3, 14, 7, 560123, UTC)),
    ],
)  # fmt: skip
def test_foreign_prefixes_are_stripped(prefix: str, when: datetime) -> None:
    event = event_of(prefix + BATCH)
    assert event.kind is Kind.DECODE_BATCH
    assert (event.numbers["running"], event.numbers["transfer"]) == (4, 3)
    assert event.when == when
    assert (event.when.tzinfo is None) == (when.tzinfo is None)


@pytest.mark.parametrize(
    ("outer", "utc"),
    [
        ("2026-11-12T02:14:08.900Z ", datetime(2026, 11, 12, 2, 14, 7, tzinfo=UTC)),  # a host one hour ahead of UTC
        ("2026-11-12T08:44:07+05:30 gpu-1 python3[1]: ", datetime(2026, 11, 12, 3, 14, 7, tzinfo=UTC)),
        ("2026-11-11T21:44:10Z stderr F ", datetime(2026, 11, 11, 21, 44, 7, tzinfo=UTC)),  # 5 h 30 min ahead
    ],
)
def test_a_collector_that_names_its_zone_gives_the_records_zone(outer: str, utc: datetime) -> None:
    event = event_of(f"{outer}[2026-11-12 03:14:07 DP1] {BATCH}")
    assert (event.when, event.rank) == (utc, Rank(dp=1))


def test_a_collectors_time_days_away_says_nothing_of_the_zone() -> None:
    assert event_of(f"2026-11-20T00:00:00Z [2026-11-12 03:14:07] {BATCH}").when == LOCAL


def test_journal_json() -> None:
    row = {"__REALTIME_TIMESTAMP": "1794453247250000", "_PID": "4711", "MESSAGE": f"[2026-11-12 03:14:07 TP3] {BATCH}"}
    event = event_of(json.dumps(row))
    assert (event.kind, event.rank, event.numbers["running"]) == (Kind.DECODE_BATCH, Rank(tp=3), 4)
    assert event.when == LOCAL.replace(tzinfo=UTC)


def test_journal_json_of_bytes_with_colours_and_several_lines() -> None:
    text = f"\x1b[32m[2026-11-12 03:14:07 TP3]\x1b[0m {BATCH}\n[2026-11-12 03:14:07 TP4] {BATCH}"
    log = log_of(json.dumps({"MESSAGE": list(text.encode())}) + "\n")
    assert [e.rank for e in log.events] == [Rank(tp=3), Rank(tp=4)]


def test_docker_json_file() -> None:
    row = {"log": f"[2026-11-12 03:14:07 TP3] {BATCH}\n", "stream": "stderr", "time": "2026-11-12T01:14:07.5Z"}
    assert event_of(json.dumps(row)).when == datetime(2026, 11, 12, 1, 14, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "row", ['{"MESSAGE": null}', '{"a": 1}', "{", "[1]", '{"MESSAGE": {"x": 1}}', '{"log": 7}', '{"__REAL']
)
def test_json_that_is_no_wrapper_is_plain_text(row: str) -> None:
    assert [e.kind for e in log_of(row + "\n").events] == [Kind.OTHER]


# --- years -------------------------------------------------------------------------------------------------------


def test_a_missing_year_is_that_of_the_nearest_dated_record() -> None:
    log = log_of("[2024-12-31 23:59:59] a\nE0101 00:00:01.500000   162 transfer_metadata.cpp:877] Local segment\n")
    assert log.events[1].when == datetime(2025, 1, 1, 0, 0, 1, 500000)


def test_a_dated_record_below_tells_the_year_as_well() -> None:
    log = log_of("E0302 00:00:01.500000   162 x.cpp:877] Local segment\n[2023-03-02 00:00:02] a\n")
    assert log.events[0].when == datetime(2023, 3, 2, 0, 0, 1, 500000)


def test_without_any_dated_record_a_log_is_not_from_the_future() -> None:
    line = "Dec  1 10:00:00 gpu-1 python3[1]: hello\n"
    assert log_of(line, asked=ASKED).events[0].when == datetime(2025, 12, 1, 10)
    assert log_of(line, asked=datetime(2026, 12, 2, tzinfo=UTC)).events[0].when == datetime(2026, 12, 1, 10)


def test_a_day_no_calendar_has_is_no_time() -> None:
    assert log_of("E0231 00:00:01.500000   162 x.cpp:877] Local segment\n").events[0].when is None
    assert log_of("[2026-13-12 03:14:07] text\n").events[0].when is None


# --- the zone of a whole log ---------------------------------------------------------------------------------------


def test_the_files_mtime_tells_how_far_the_log_is_ahead_of_utc() -> None:
    log = log_of(f"[2026-11-12 03:14:07] {BATCH}\n", mtime="2026-11-12T01:14:08.354Z")
    assert log.offset == timedelta(hours=2)
    assert log.utc(log.events[0]) == datetime(2026, 11, 12, 1, 14, 7, tzinfo=UTC)


@pytest.mark.parametrize("mtime", ["2026-11-12T01:20:08Z", "2026-11-20T01:14:08Z", "yesterday", None])
def test_an_mtime_that_fits_no_zone_tells_nothing(mtime: str | None) -> None:
    log = log_of(f"[2026-11-12 03:14:07] {BATCH}\n", asked=datetime(2026, 11, 12, 9, tzinfo=UTC), mtime=mtime)
    assert log.offset is None
    assert log.utc(log.events[0]) is None


def test_a_log_read_as_it_is_written_is_in_utc() -> None:
    assert log_of(f"[2026-11-12 03:14:07] {BATCH}\n", asked=ASKED).offset == timedelta()


# --- bytes and text ------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_utf8_and_crlf() -> None:
    event = log_of(b"[2026-11-12 03:14:07 TP0] \xff\xfe " + BATCH.encode() + b"\r\n").events[0]
    assert (event.kind, event.numbers["running"]) == (Kind.DECODE_BATCH, 4)
    assert "\\xff\\xfe Decode batch" in event.text
    assert not event.text.endswith("\r")


def test_text_of_other_scripts_stays_whole() -> None:
    text = "[2026-11-12 03:14:13 TP0] 当前队列告警：请求 rid='7f3a…' 卡住 120 秒，正在等待 KV 传输完成"
    event = event_of(text)
    assert (event.kind, event.text) == (Kind.OTHER, text)


def test_text_before_a_record_is_a_record_of_its_own() -> None:
    log = log_of(f"当并发 128 时 decode 报错： [2026-11-12 03:14:07 TP6] {BATCH}\n")
    assert [(e.kind, e.text) for e in log.events] == [
        (Kind.OTHER, "当并发 128 时 decode 报错： "),
        (Kind.DECODE_BATCH, f"[2026-11-12 03:14:07 TP6] {BATCH}"),
    ]


def test_a_request_dump_is_never_cut_whatever_a_user_wrote_into_it() -> None:
    prompt = "[2026-11-12 03:14:07 TP0] Scheduler hit an exception: Traceback (most recent call last):"
    log = log_of(f"[2026-11-12 03:14:07] Receive: obj=GenerateReqInput(rid='a1', text='look: {prompt}')\n")
    assert [(e.kind, e.words["rid"]) for e in log.events] == [(Kind.REQUEST_RECEIVED, "a1")]


def test_a_very_long_record_keeps_its_beginning_and_its_end() -> None:
    line = "[2026-11-12 03:14:07] Finish: obj=GenerateReqInput(rid='a1', text='" + "x" * 500_000 + "'e2e_latency': 1.5"
    event = event_of(line)
    assert len(event.text) < 10_000
    assert (event.words["rid"], event.numbers["latency_s"]) == ("a1", 1.5)
    assert "characters left out" in event.text


@pytest.mark.parametrize("role", [None, *Role])
def test_hostile_lines_never_break_the_reader(role: Role | None) -> None:
    lines = [
        b"\x00\x1b]0;title\x07", b"[2026-", b"[[[[[[[[", b"{" * 3000, b'{"MESSAGE": [999, "x", -1]}', b"| | | | |",
        b"Prefill batch", b"Decode batch, : , #:, ,,", b"Session  failed.", b"latency= request_id= finished processing",
        b"http_request{method=GET uri=/ request_id=x status=200 latency=9999999999s}: finished processing request",
        "[2026-11-12 03:14:07 TP٣] x".encode(), b"[2026-11-12 03:14:07 TP" + b"9" * 5000 + b"] x", b"(x pid=1) " * 400,
        b"INFO 99-99 99:99:99 [x] Engine 0: Running: 1 reqs", b"Engine 0" * 900, b"#queue-req: 1" * 500,
    ]  # fmt: skip
    log = log_of(b"\n".join(lines), role)
    assert log.lines == len(lines)
