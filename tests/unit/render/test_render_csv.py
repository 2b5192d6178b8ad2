"""CSV and JSON lines of samples: the same columns always, an empty field for what was not seen, never 0."""

from __future__ import annotations

import csv
import io
import json

from series_world import CLUSTER, JUST_PREFILL, START, loads, missed, page, router

from pdctl.model.answer import Fact, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import LoadRow
from pdctl.render.csv import HEADER, csv_header, csv_lines, jsonl_lines
from pdctl.render.series import Tally, step

ROUND = [
    page(0.25, "prefill-0", http=2.0, inflight=3, token_usage=0.125),
    loads(0.3, "prefill-0", LoadRow(0, inflight=2)),
    missed(5.0, "decode-0"),
    router(0.4, active={"u": 1.0}),
]


def csv_rows(lines: list[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("\n".join([csv_header(), *lines]))))


def test_the_columns_are_these_in_this_order() -> None:
    """Scripts depend on them: add at the end of a group, never rename."""
    assert csv_header() == (
        "at,t,sample,instance,role,rank,inflight,inflight_live,bootstrap,bootstrap_live,prealloc,prealloc_live,"
        "transfer,transfer_live,queue,queue_live,running,running_live,retracted,retracted_live,token_usage,"
        "token_usage_live,http_active,throughput,scheduled_s,prompt_s,generated_s,finished_s,transfers_s,idle,failed,"
        "aborted,active,oldest_s,breakers_open,requests_s,errors,note"
    )


def test_a_row_an_instance_with_gaps_left_empty() -> None:
    _, sample = step(Tally(), ROUND, CLUSTER)
    prefill, decode, routed = csv_rows(list(csv_lines(sample)))
    assert prefill["at"] == "2026-11-29T20:00:05Z"
    assert (prefill["t"], prefill["sample"], prefill["instance"], prefill["rank"]) == ("5.000", "1", "prefill-0", "")
    assert (prefill["inflight"], prefill["inflight_live"], prefill["token_usage"]) == ("3", "2", "0.125")
    assert (prefill["http_active"], prefill["bootstrap"], prefill["finished_s"]) == ("2", "", "")
    assert decode["note"] == "metrics:read-timeout"
    assert {value for key, value in decode.items() if key not in ("at", "t", "sample", "instance", "role", "note")} == {
        ""
    }
    assert (routed["active"], routed["oldest_s"]) == ("1", "")


def test_a_restart_is_noted() -> None:
    tally, _ = step(Tally(), [page(0, "prefill-0", requests=9)], JUST_PREFILL)
    _, sample = step(tally, [page(1, "prefill-0", requests=1)], JUST_PREFILL)
    (row,) = csv_rows(list(csv_lines(sample)))
    assert (row["finished_s"], row["note"]) == ("", "restart")


def test_ranks_have_their_own_column() -> None:
    _, sample = step(Tally(), [page(0, "prefill-0", inflight={0: 1, 3: 2})], JUST_PREFILL, ranks=True)
    assert [row["rank"] for row in csv_rows(list(csv_lines(sample)))] == ["", "0", "3"]


def test_hostile_names_stay_inside_their_field_and_off_the_terminal() -> None:
    name = 'p\x1b[2J,"x"\n=1'
    cluster = Cluster("c", (Instance(name, Role.PREFILL, "http://h"),))
    _, sample = step(Tally(), [page(0, name, inflight=1)], cluster)
    (line,) = csv_lines(sample)
    assert line.isprintable()
    (row,) = csv_rows([line])
    assert row["instance"] == 'p\\x1b[2J,"x"\\n=1'
    assert len(row) == len(HEADER)
    (told,) = jsonl_lines(sample)
    assert told.isascii()
    assert told.isprintable()
    assert json.loads(told)["instance"] == name


def test_json_lines_say_why_a_number_is_not_there() -> None:
    _, sample = step(Tally(), ROUND, CLUSTER)
    prefill, decode, _ = (json.loads(line) for line in jsonl_lines(sample))
    assert prefill["kind"] == "sample"
    assert prefill["values"]["inflight"] == 3
    assert prefill["live"] == {"inflight": 2}
    assert prefill["gone"]["bootstrap"] == "absent"
    assert prefill["rank"] is None
    assert decode["values"]["transfer"] is None
    assert decode["gone"]["transfer"] == "missed"
    assert decode["missed"] == {"metrics": "read-timeout"}


def test_live_counts_that_a_release_has_not_are_no_note() -> None:
    answers = [page(0, "prefill-0"), missed(0.1, "prefill-0", Fact.LOADS, Why.NOT_FOUND)]
    _, sample = step(Tally(), answers, JUST_PREFILL)
    (row,) = csv_rows(list(csv_lines(sample)))
    assert row["note"] == ""
    _, sample = step(Tally(), [page(0, "prefill-0"), missed(0.1, "prefill-0", Fact.LOADS)], JUST_PREFILL)
    (row,) = csv_rows(list(csv_lines(sample)))
    assert row["note"] == "loads:read-timeout"


def test_times_are_utc_with_z() -> None:
    assert START.tzinfo is not None
    _, sample = step(Tally(), [page(0, "prefill-0")], JUST_PREFILL)
    assert next(csv_lines(sample)).startswith("2026-11-29T20:00:00Z,0.000,1,prefill-0,prefill,,")
