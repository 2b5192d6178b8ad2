"""Samples: what was not seen is never a number, a restart never gives a rate, live counts stand beside gauges."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from series_world import (
    CLUSTER,
    DECODE,
    JUST_PREFILL,
    PREFILL,
    START,
    age_bucket,
    loads,
    missed,
    page,
    router,
    seen,
)

from pdctl.model.answer import Fact, Observation, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import Health, LoadRow
from pdctl.model.window import Window
from pdctl.render.series import Cell, Gone, Row, Sample, Tally, rounds, samples, step


def run(*groups: list[Observation[object]], cluster: Cluster = JUST_PREFILL, ranks: bool = False) -> list[Sample]:
    tally, out = Tally(), []
    for group in groups:
        tally, sample = step(tally, group, cluster, ranks)
        out.append(sample)
    return out


def cell(sample: Sample, key: str, instance: str = "prefill-0", dp: int | None = None) -> Cell:
    return row_of(sample, instance, dp).cells[key]


def row_of(sample: Sample, instance: str = "prefill-0", dp: int | None = None) -> Row:
    return next(r for r in sample.rows if r.instance == instance and r.dp == dp)


def test_a_gauge_stands_beside_the_live_count() -> None:
    (sample,) = run([page(0, "prefill-0", inflight=3), loads(0.1, "prefill-0", LoadRow(0, inflight=2))])
    assert cell(sample, "inflight") == Cell(3.0, None, 2.0)
    assert cell(sample, "inflight").best == 2.0


@pytest.mark.parametrize(
    ("version", "age", "live"),
    [
        ("0.5.19", 0.05, 2.0),
        ("0.5.19", 30.0, None),  # the scheduler stands still: an old count is no live one
        ("0.5.17", 30.0, None),  # frozen while something is pinned
        ("0.5.15", None, None),  # undated: of any age
        ("0.5.13.post1", None, None),
        ("0.5.12.post1", None, 2.0),  # asked of the scheduler itself
        ("0.5.8.post1", None, 2.0),
        ("not a release", None, None),
    ],
)
def test_only_a_count_that_was_true_when_answered_is_live(version: str, age: float | None, live: float | None) -> None:
    (sample,) = run([page(0, "prefill-0"), loads(0.1, "prefill-0", LoadRow(0, inflight=2), version=version, age=age)])
    assert cell(sample, "inflight").live == live


def test_live_counts_add_up_over_ranks_and_need_all_of_them() -> None:
    rows = (LoadRow(0, inflight=1, token_usage=0.2), LoadRow(1, inflight=4, token_usage=0.6))
    (sample,) = run([loads(0.1, "prefill-0", *rows)], ranks=True)
    assert cell(sample, "inflight").live == 5.0
    assert cell(sample, "token_usage").live == 0.6
    assert cell(sample, "inflight", dp=1).live == 4.0
    (partial,) = run([loads(0.1, "prefill-0", LoadRow(0, inflight=1), LoadRow(1))])
    assert cell(partial, "inflight").live is None


def test_a_missed_page_is_no_zero() -> None:
    (sample,) = run([missed(5, "prefill-0")])
    assert cell(sample, "inflight") == Cell(None, Gone.MISSED)
    assert cell(sample, "finished_s") == Cell(None, Gone.MISSED)
    assert row_of(sample).missed == {Fact.METRICS: "read-timeout"}


def test_every_instance_has_a_row_though_nobody_asked_it() -> None:
    (sample,) = run([page(0, "prefill-0", inflight=0)], cluster=CLUSTER)
    assert [row.instance for row in sample.rows] == ["prefill-0", "decode-0", "router-0"]
    assert cell(sample, "transfer", "decode-0") == Cell(None, Gone.NOT_ASKED)
    assert not cell(sample, "transfer", "decode-0").asked


def test_a_proxy_has_no_numbers_and_no_row() -> None:
    proxy = Instance("proxy-0", Role.PROXY, "https://proxy")
    (sample,) = run([page(0, "prefill-0")], cluster=Cluster("c", (PREFILL, proxy)))
    assert [row.instance for row in sample.rows] == ["prefill-0"]


def test_an_absent_gauge_is_absent_not_zero() -> None:
    (sample,) = run([page(0, "prefill-0", queue=0)])
    assert cell(sample, "queue") == Cell(0.0)
    assert cell(sample, "inflight") == Cell(None, Gone.ABSENT)
    assert cell(sample, "inflight").is_absent


def test_a_rate_is_growth_over_the_time_between_the_two_answers() -> None:
    first, second = run([page(10, "prefill-0", requests=100)], [page(14, "prefill-0", requests=130)])
    assert cell(first, "finished_s") == Cell(None, Gone.FIRST)
    assert cell(second, "finished_s") == Cell(7.5)


def test_a_rate_bridges_a_missed_answer_over_the_whole_gap() -> None:
    *_, last = run([page(0, "prefill-0", requests=100)], [missed(2, "prefill-0")], [page(4, "prefill-0", requests=120)])
    assert cell(last, "finished_s") == Cell(5.0)


def test_a_counter_that_fell_is_a_restart_and_every_rate_of_it_a_gap() -> None:
    before = page(0, "prefill-0", requests=100, prompt_tokens=5000)
    after = page(2, "prefill-0", requests=3, prompt_tokens=6000)
    later = page(4, "prefill-0", requests=5, prompt_tokens=6010)
    _, second, third = run([before], [after], [later])
    assert cell(second, "finished_s") == Cell(None, Gone.RESTART)
    assert cell(second, "prompt_s") == Cell(None, Gone.RESTART)  # it grew, but not in one life
    assert row_of(second).restarted
    assert cell(third, "finished_s") == Cell(1.0)
    assert not row_of(third).restarted


def test_another_start_time_is_a_restart_even_where_counters_grew() -> None:
    _, second = run(
        [page(0, "prefill-0", requests=1, start_time=100)], [page(2, "prefill-0", requests=9, start_time=150)]
    )
    assert cell(second, "finished_s") == Cell(None, Gone.RESTART)


def test_a_failure_counter_that_appears_is_an_increment() -> None:
    first, second, third = run(
        [page(0, "prefill-0", requests=1)],
        [page(1, "prefill-0", requests=1, transfer_failed=2)],
        [page(2, "prefill-0", requests=1, transfer_failed=2, bootstrap_failed=3)],
    )
    assert cell(first, "failed").is_absent
    assert cell(second, "failed") == Cell(2.0)
    assert cell(third, "failed") == Cell(3.0)


def test_any_other_counter_that_appears_has_no_rate_yet() -> None:
    _, second = run([page(0, "prefill-0")], [page(1, "prefill-0", requests=70)])
    assert cell(second, "finished_s") == Cell(None, Gone.FIRST)


def test_per_rank_rows_follow_the_whole() -> None:
    values = {0: 1.0, 1: 5.0}
    first, second = run(
        [page(0, "prefill-0", inflight=values, realtime_tokens={0: 10, 1: 10}, requests=5)],
        [page(2, "prefill-0", inflight=values, realtime_tokens={0: 30, 1: 10}, requests=9)],
        ranks=True,
    )
    assert [row.dp for row in second.rows] == [None, 0, 1]
    assert cell(first, "inflight").value == 6.0
    assert cell(second, "inflight", dp=1).value == 5.0
    assert cell(second, "scheduled_s", dp=0) == Cell(10.0)
    assert cell(second, "scheduled_s", dp=1) == Cell(0.0)
    assert cell(second, "scheduled_s") == Cell(10.0)
    assert cell(second, "finished_s", dp=0) == Cell(None, Gone.ABSENT)  # the tokenizer's counter knows no rank


def test_an_engine_of_one_rank_has_no_rank_rows() -> None:
    (sample,) = run([page(0, "prefill-0", inflight={0: 1.0})], ranks=True)
    assert [row.dp for row in sample.rows] == [None]


def test_a_router_shows_what_is_under_way_how_old_it_is_and_who_is_shut_out() -> None:
    urls = {"http://127.0.0.1:30000": 6.0, "http://127.0.0.1:30100": 4.0}
    ages = (age_bucket(0, 1), age_bucket(60, 2), age_bucket(600, 0))
    first, second = run(
        [router(0, active=urls, ages=ages, breaker={"a": 1.0, "b": 0.0}, requests=10.0, responses={"200": 5.0})],
        [router(2, active=urls, ages=ages, breaker={"a": 2.0}, requests=14.0, responses={"200": 6.0, "503": 3.0})],
        cluster=CLUSTER,
    )
    assert cell(first, "active", "router-0") == Cell(6.0)  # each request is counted on both legs
    assert cell(first, "oldest_s", "router-0") == Cell(60.0)
    assert cell(first, "breakers_open", "router-0") == Cell(1.0)
    assert cell(second, "requests_s", "router-0") == Cell(2.0)
    assert cell(second, "errors", "router-0") == Cell(3.0)


def test_a_router_that_says_nothing_yet_has_no_zeros() -> None:
    (sample,) = run([router(0)], cluster=CLUSTER)
    for key in ("active", "oldest_s", "breakers_open"):
        assert cell(sample, key, "router-0") == Cell(None, Gone.ABSENT)


def test_a_router_that_restarted_has_no_rate() -> None:
    _, second = run([router(0, requests=50.0)], [router(2, requests=3.0)], cluster=CLUSTER)
    assert cell(second, "requests_s", "router-0") == Cell(None, Gone.RESTART)


def test_rounds_begin_when_something_comes_again() -> None:
    stream = [page(0.1, "a"), page(0.2, "b"), page(1.1, "a"), missed(1.2, "b"), page(2.1, "a")]
    assert [[(o.subject, o.t) for o in r] for r in rounds(stream)] == [
        [("a", 0.1), ("b", 0.2)],
        [("a", 1.1), ("b", 1.2)],
        [("a", 2.1)],
    ]


def test_rounds_are_told_apart_by_when_they_were_asked() -> None:
    row = LoadRow(0)
    stream = [page(0.1, "a"), loads(0.2, "a", row), loads(1.2, "a", row), page(2.1, "a"), loads(2.2, "a", row)]
    assert [[o.fact for o in r] for r in rounds(stream)] == [
        [Fact.METRICS, Fact.LOADS],
        [Fact.LOADS],
        [Fact.METRICS, Fact.LOADS],
    ]


def test_facts_that_are_no_sample_do_not_make_a_round() -> None:
    health = seen(0.5, "prefill-0", Fact.HEALTH, Health(200, 0.1))
    assert list(rounds([health])) == []
    window = Window(START, START + timedelta(seconds=3), (page(0, "prefill-0"), health, page(2, "prefill-0")))
    assert [s.number for s in samples(window, JUST_PREFILL)] == [1, 2]


def test_a_release_without_live_counts_is_no_miss_worth_telling() -> None:
    (sample,) = run([page(0, "prefill-0"), missed(0.1, "prefill-0", Fact.LOADS, Why.NOT_FOUND)])
    assert row_of(sample).missed == {Fact.LOADS: "not-found"}


def test_a_round_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        step(Tally(), [], JUST_PREFILL)


@given(st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=30))
def test_no_rate_is_ever_negative(counts: list[int | None]) -> None:
    groups = [[missed(i, "decode-0") if c is None else page(i, "decode-0", requests=c)] for i, c in enumerate(counts)]
    for sample in run(*groups, cluster=Cluster("c", (DECODE,))):
        value = cell(sample, "finished_s", "decode-0").value
        assert value is None or value >= 0


def test_counts_that_were_not_renewed_are_called_old() -> None:
    answers = [page(0, "prefill-0", inflight=1), loads(0.1, "prefill-0", LoadRow(0, inflight=1), age=12.0)]
    (sample,) = run(answers)
    assert row_of(sample).missed == {Fact.LOADS: "old"}
    assert cell(sample, "inflight") == Cell(1.0)
