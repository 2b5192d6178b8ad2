"""Loads: recorded answers of five releases and the older list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from http_answers import PREFILL, answer, recorded

from pdctl.facts.base import Unreadable
from pdctl.facts.loads import read
from pdctl.model.answer import Fact, Why
from pdctl.model.engine import Gauge, LoadRow, Loads


def of(body: bytes | object) -> Loads:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read(answer(Fact.LOADS, raw), PREFILL)


def test_0_5_9_rows_name_no_rank_and_call_bootstrap_prealloc() -> None:
    loads = of(recorded("loads-0.5.9.json"))
    assert loads.version == "0.5.9"
    assert loads.answered == pytest.approx(1795991808.177868)  # 2026-11-29T22:36:48.177868+00:00
    assert loads.rows == (
        LoadRow(
            dp=None, timestamp=None, mode="prefill", running=0, waiting=0, bootstrap=0, inflight=1, prealloc=0,
            transfer=0, retracted=0, prealloc_ready=None, used_tokens=500, max_tokens=20000, token_usage=0.025,
            gen_throughput=0.0, max_running=4096,
        ),
    )  # fmt: skip


def test_0_5_10_decode_under_load() -> None:
    (row,) = of(recorded("loads-0.5.10.post1.json")).rows
    assert (row.mode, row.dp, row.running, row.used_tokens) == ("decode", None, 4, 1734)
    assert row.gen_throughput == 109.31


def test_0_5_15_has_ranks_and_no_snapshot_time() -> None:
    (row,) = of(recorded("loads-0.5.15.json")).rows
    assert (row.dp, row.timestamp, row.inflight, row.used_tokens) == (0, None, 0, 500)


def test_0_5_19_snapshot_time_is_not_the_answers_time() -> None:
    loads = of(recorded("loads-0.5.19.json"))
    (row,) = loads.rows
    assert row.timestamp == 1795991127.0928094
    assert loads.answered is not None
    assert 0 < loads.answered - row.timestamp < 0.1
    assert (row.transfer, row.prealloc_ready) == (1, 0)


def test_0_5_23_decode_without_room() -> None:
    (row,) = of(recorded("loads-0.5.23.json")).rows
    assert (row.running, row.waiting, row.prealloc, row.prealloc_ready, row.token_usage) == (13, 0, 137, 137, 0.8009)
    assert row.count(Gauge.PREALLOC) == 137


def row_of(**fields: Any) -> LoadRow:
    (row,) = of({"loads": [fields]}).rows
    return row


def test_the_old_name_of_the_bootstrap_queue() -> None:
    assert row_of(disaggregation={"mode": "prefill", "prefill_prealloc_queue_reqs": 3}).bootstrap == 3
    assert row_of(disaggregation={"mode": "prefill", "prefill_bootstrap_queue_reqs": 4}).bootstrap == 4


@pytest.mark.parametrize(
    ("pd", "waiting"),
    [
        ({"mode": "prefill", "prefill_bootstrap_queue_reqs": 3}, 7),
        ({"mode": "prefill", "prefill_prealloc_queue_reqs": 3}, 7),
        ({"mode": "decode", "decode_prealloc_queue_reqs": 1, "decode_transfer_queue_reqs": 2,
          "decode_retracted_queue_reqs": 4}, 3),
        ({"mode": "decode", "decode_prealloc_queue_reqs": 1, "decode_transfer_queue_reqs": 2}, None),
        ({"mode": "prefill", "prefill_bootstrap_queue_reqs": 11}, None),
        ({"mode": "null"}, 10),
        ({}, None),
    ],
)  # fmt: skip
def test_without_the_queues_the_waiting_queue_is_what_is_left(pd: dict[str, object], waiting: int | None) -> None:
    assert row_of(num_waiting_reqs=10, disaggregation=pd).waiting == waiting


def test_with_the_queues_the_waiting_queue_is_theirs() -> None:
    assert row_of(num_waiting_reqs=10, queues={"waiting": 0}, disaggregation={"mode": "null"}).waiting == 0


@pytest.mark.parametrize("value", [None, "3", True, -1, 1.5, [], {}])
def test_what_is_no_count_is_absent_and_not_zero(value: object) -> None:
    row = row_of(num_running_reqs=value, disaggregation={"prefill_inflight_queue_reqs": value})
    assert row.running is None
    assert row.inflight is None


def test_missing_sections_are_absent_and_not_zero() -> None:
    row = row_of(num_running_reqs=1)
    assert row == LoadRow(dp=None, running=1)


def test_rows_without_ranks_stand_in_the_order_of_their_ranks() -> None:
    rows = of({"loads": [{"num_running_reqs": 1}, {"num_running_reqs": 2}]}).rows
    assert [(row.dp, row.running) for row in rows] == [(0, 1), (1, 2)]


def test_rows_with_ranks_keep_them() -> None:
    assert [row.dp for row in of({"loads": [{"dp_rank": 3}, {"dp_rank": 1}]}).rows] == [3, 1]


def test_get_load() -> None:
    loads = of(
        [
            {"dp_rank": 0, "num_reqs": 5, "num_waiting_reqs": 2, "num_tokens": 900},
            {"dp_rank": 1, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 500},
        ]
    )
    assert loads.rows == (
        LoadRow(dp=0, running=3, waiting=2, used_tokens=None, summed=True),
        LoadRow(dp=1, running=0, waiting=0, used_tokens=500, summed=True),
    )
    assert (loads.version, loads.answered) == (None, None)


def test_no_rank_has_reported() -> None:
    with pytest.raises(Unreadable) as caught:
        of({"timestamp": "2026-11-29T22:36:48+00:00", "version": "0.5.19", "loads": []})
    assert caught.value.why is Why.EMPTY


@pytest.mark.parametrize("end", [1, 40, 300, -1])
def test_cut_json(end: int) -> None:
    with pytest.raises(Unreadable) as caught:
        of(recorded("loads-0.5.23.json")[:end])
    assert caught.value.why is Why.TRUNCATED


def test_a_time_of_day_without_a_zone_is_utc() -> None:
    assert of({"timestamp": "1970-01-01T00:01:00", "loads": [{}]}).answered == 60.0
    assert of({"timestamp": "yesterday", "loads": [{}]}).answered is None
