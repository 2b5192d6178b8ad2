"""Observations packed and unpacked: what is remembered is what was seen, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow, Loads, ServerInfo
from pdctl.model.host import Processes, SocketRow, Sockets
from pdctl.model.packed import BAD, kinds_of, pack, shape, unpack
from pdctl.model.rank import WHOLE, Rank
from pdctl.model.router import AgeBucket, RouterMetrics, Worker, Workers
from pdctl.model.secrets import digest

AT = datetime(2026, 11, 29, 20, 0, 0, 125000, tzinfo=UTC)
RANK = Rank(dp=3, pp=0, tp=12)

PAGE = EngineMetrics(
    values={Gauge.INFLIGHT: {RANK: 2.0, WHOLE: 0.5}, Gauge.REQUESTS: {Rank(ep=1, cp=2): 1e12}},
    engine_type="prefill",
    model="m",
    http_active=2.0,
    http_seen={"/generate": 7.0},
    engine="sglang",
    families=31,
    stages={"forward": 1.5},
    stage_counts={"prefill_forward": {RANK: 9.0}},
    stage_sums={"prefill_forward": {RANK: 0.25}},
)
LOADS = Loads((LoadRow(*range(len(fields(LoadRow)))),), "0.5.23", 1.25)  # type: ignore[arg-type]
INFO = ServerInfo("0.5.23", "prefill", {"tp_size": 8, "x": None, "y": True}, {"NCCL_DEBUG": "INFO"})
ROUTER = RouterMetrics(
    "smg", {"http://a": 2.0}, {"http://a": 1.0}, {"http://a": 0.0}, {"http://a": 3.0}, (AgeBucket(30.0, 60.0, 2.0),),
    9.0, {"200": 8.0}, {"prefill/timeout": 1.0}, {"decode": 2.0}, 12.5, 8.0, 4.0, 11,
)  # fmt: skip
WORKERS = Workers((Worker("http://a", "prefill", True, 0.5, 8998), Worker("http://b", None)))
SOCKET = SocketRow("ESTAB", 1, 2, "::1", 3, "192.0.2.9", 443, "python3", 9, 8, "timer", 5, 6, 7)
SOCKETS = Sockets((SOCKET,), listeners=False, connections=True, owners=False)


def observed(value: object, fact: Fact = Fact.METRICS) -> Observation[Any]:
    got = value if isinstance(value, Missed) else Seen(value)
    return Observation("prefill-0", fact, 1.25, AT, 0.5, "GET http://192.0.2.1/metrics", got, 200)


@pytest.mark.parametrize("value", [PAGE, LOADS, INFO, ROUTER, WORKERS, SOCKETS], ids=lambda v: type(v).__name__)
def test_what_was_packed_comes_back_as_it_was_through_json(value: object) -> None:
    row = json.loads(json.dumps(pack(observed(value))))
    assert unpack(row) == observed(value)


def test_the_samples_above_fill_every_field_so_that_a_new_one_is_noticed() -> None:
    for value in (PAGE, LOADS, ROUTER, WORKERS.rows[0], SOCKET):
        for field in fields(value):
            assert getattr(value, field.name) not in (None, (), {}), field.name


def test_a_miss_is_remembered_with_its_reason() -> None:
    missed = observed(Missed(Why.READ_TIMEOUT, "no answer in 5 s"))
    assert unpack(json.loads(json.dumps(pack(missed)))) == missed


def test_infinity_and_what_is_no_number_come_back() -> None:
    page = EngineMetrics({Gauge.UTILIZATION: {WHOLE: float("inf")}})
    assert unpack(json.loads(json.dumps(pack(observed(page))))) == observed(page)


def test_processes_are_asked_anew_and_not_remembered() -> None:
    assert pack(observed(Processes(()), Fact.PROCESSES)) is None


def test_a_secret_is_not_remembered_even_in_its_masked_form() -> None:
    """The masked form is another in each run: compared with the next run's it would always differ."""
    info = ServerInfo("0.5.23", None, {"api_key": digest("sk-1234567890abcdef"), "tp_size": 8})
    back = unpack(json.loads(json.dumps(pack(observed(info, Fact.SERVER_INFO)))))
    assert isinstance(back.got, Seen) and back.got.value.args == {"tp_size": 8}


GOOD = json.loads(json.dumps(pack(observed(PAGE))))


@pytest.mark.parametrize(
    "row",
    [
        [],
        None,
        {},
        GOOD[:-1],
        [*GOOD[:7], "Popen", ["ls"]],
        [*GOOD[:8], []],
        [*GOOD[:8], GOOD[8][:-1]],
        [GOOD[0], "no-fact", *GOOD[2:]],
        [*GOOD[:3], "yesterday", *GOOD[4:]],
        [*GOOD[:3], 1e300, *GOOD[4:]],
        [*GOOD[:7], "missed", ["no-reason", ""]],
        [*GOOD[:8], [{"no-gauge": {}}, *GOOD[8][1:]]],
        [*GOOD[:8], [{"inflight": {"a.b": 1}}, *GOOD[8][1:]]],
    ],
)
def test_anything_else_is_refused(row: Any) -> None:
    with pytest.raises(BAD):
        unpack(row)


def test_the_shape_names_every_field() -> None:
    assert shape(["Loads", "Sockets"]) == "Loads:rows,version,answered;Sockets:rows,listeners,connections,owners"
    with pytest.raises(KeyError):
        shape(["Popen"])


def test_kinds_are_those_of_values_not_of_misses() -> None:
    rows = [pack(observed(value)) for value in (PAGE, PAGE, LOADS, Missed(Why.RESET))]
    assert kinds_of([row for row in rows if row]) == ["EngineMetrics", "Loads"]


def test_times_survive_to_the_microsecond() -> None:
    at = AT + timedelta(microseconds=1)
    seen = Observation("a", Fact.LOADS, 0.0, at, 0.0, "", Seen(LOADS), None)
    assert abs((unpack(json.loads(json.dumps(pack(seen)))).at - at).total_seconds()) <= 1e-6
