"""Two probes compared: exact values by hand, and no difference found where there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdctl.facts.base import Unreadable
from pdctl.facts.probe_compare import compare, fisher, interval, median_weights, read_saved, thinned, values_of
from pdctl.model.probe import Attempt, row_of
from pdctl.model.probe_compare import Compared, Comparison, Measure, Saved, Verdict

GOOD = Attempt("router-0", trial="many", status=200, took=1.0)


def saved(*attempts: Attempt) -> Saved:
    return Saved("c", None, attempts)


def timed(*seconds: float, **more: object) -> Saved:
    return saved(*(replace(GOOD, took=s, **more) for s in seconds))  # type: ignore[arg-type]


def row(compared: Compared, measure: Measure) -> Comparison:
    (found,) = (r for r in compared.rows if r.measure is measure)
    return found


# --- the numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "chance"),
    # Fisher's own tea: 3 of 4 against 1 of 4; and tables whose sums are counted by hand
    [((3, 4, 1, 4), 34 / 70), ((0, 5, 0, 5), 1.0), ((0, 3, 3, 3), 2 / 20), ((2, 2, 0, 2), 2 / 6)],
)
def test_fishers_exact_test(table: tuple[int, int, int, int], chance: float) -> None:
    assert fisher(*table) == pytest.approx(chance)


def test_the_median_of_a_resample_by_counting_all_of_them() -> None:
    """All 3^3 and 4^4 resamples, each counted."""
    for count in (3, 4):
        values = list(range(count))
        middles = [sorted(draw)[i] for draw in product(values, repeat=count) for i in {(count - 1) // 2, count // 2}]
        shares = [middles.count(v) / len(middles) for v in values]
        assert median_weights(count) == pytest.approx(shares)


@given(st.integers(1, 200))
def test_the_weights_are_a_distribution(count: int) -> None:
    weights = median_weights(count)
    assert len(weights) == count
    assert sum(weights) == pytest.approx(1.0)
    assert all(w >= -1e-12 for w in weights)
    assert weights == pytest.approx(weights[::-1])


@settings(deadline=None)
@given(
    st.lists(st.floats(0.001, 100), min_size=6, max_size=30), st.lists(st.floats(0.001, 100), min_size=6, max_size=30)
)
def test_the_interval_is_in_order_within_the_values_and_turns_with_the_sides(a: list[float], b: list[float]) -> None:
    a, b = sorted(a), sorted(b)
    low, high = interval(a, b, 0.05)
    assert low <= high
    assert b[0] - a[-1] <= low and high <= b[-1] - a[0]
    back_low, back_high = interval(b, a, 0.05)
    assert (back_low, back_high) == pytest.approx((-high, -low))
    wide_low, wide_high = interval(a, b, 0.001)
    assert wide_low <= low and high <= wide_high


def test_very_many_values_keep_their_quantiles() -> None:
    values = [float(v) for v in range(10_000)]
    few = thinned(values)
    assert len(few) == 200
    assert median(few) == pytest.approx(median(values), abs=50)
    assert thinned([3.0, 1.0]) == [1.0, 3.0]


# --- the verdicts -----------------------------------------------------------------------------------------------------

STEADY = (0.30, 0.31, 0.29, 0.30, 0.32, 0.31, 0.30, 0.29, 0.31, 0.30, 0.30, 0.32)


def test_the_same_probe_twice_differs_in_nothing() -> None:
    compared = compare(timed(*STEADY), timed(*STEADY))
    assert {r.verdict for r in compared.rows} == {Verdict.SAME}
    whole = row(compared, Measure.WHOLE)
    assert whole.low is not None and whole.high is not None and whole.low <= 0 <= whole.high


def test_a_difference_beyond_the_spread_is_told_in_both_directions() -> None:
    slower = timed(*(s + 0.1 for s in STEADY))
    worse = row(compare(timed(*STEADY), slower), Measure.WHOLE)
    assert worse.verdict is Verdict.WORSE
    assert worse.low is not None and 0.05 < worse.low < 0.1 < (worse.high or 0) < 0.15
    assert row(compare(slower, timed(*STEADY)), Measure.WHOLE).verdict is Verdict.BETTER


def test_a_sure_difference_too_small_to_matter_is_none() -> None:
    a = timed(*(1.0 + i / 1e6 for i in range(12)))
    b = timed(*(1.02 + i / 1e6 for i in range(12)))
    whole = row(compare(a, b), Measure.WHOLE)
    assert whole.verdict is Verdict.SAME
    assert whole.low is not None and whole.low > 0


def test_few_are_too_few() -> None:
    whole = row(compare(timed(0.1, 0.1, 0.1), timed(9.0, 9.0, 9.0)), Measure.WHOLE)
    assert (whole.verdict, whole.low) == (Verdict.FEW, None)
    assert row(compare(timed(0.1), timed(0.1)), Measure.FAILURES).verdict is Verdict.FEW


def test_more_failures_than_chance_allows() -> None:
    bad = replace(GOOD, status=503)
    some = saved(*[GOOD] * 15, bad)
    many = saved(*[GOOD] * 4, *[bad] * 12)
    assert row(compare(some, many), Measure.FAILURES).verdict is Verdict.WORSE
    assert row(compare(many, some), Measure.FAILURES).verdict is Verdict.BETTER
    few = saved(*[GOOD] * 14, bad, bad)
    assert row(compare(some, few), Measure.FAILURES).verdict is Verdict.SAME


def test_only_good_answers_have_times_and_controls_and_openers_are_left_out() -> None:
    hung = replace(GOOD, status=None, error="read-timeout", took=20.0)
    opener = replace(GOOD, trial="idle", took=50.0)
    kept = replace(GOOD, trial="idle", connection="reused", idle_s=4.0)
    one = saved(*timed(*STEADY).attempts, hung, replace(GOOD, control=True, took=9.0), opener, kept)
    compared = compare(one, one)
    assert {(r.trial, r.measure): r.a.count for r in compared.rows} == {
        ("many", Measure.FAILURES): 13, ("many", Measure.WHOLE): 12,
        ("idle", Measure.FAILURES): 1, ("idle", Measure.WHOLE): 1,
    }  # fmt: skip
    assert row(replace(compared, rows=compared.rows[:2]), Measure.WHOLE).a.value == 0.30


def test_the_more_is_compared_the_surer_each_must_be() -> None:
    one = timed(*STEADY)
    four = saved(*one.attempts, *(replace(a, trial="rounds", first_token_s=0.1, between_s=0.01) for a in one.attempts))
    assert compare(one, one).level == pytest.approx(1 - 0.05 / 2)
    assert compare(four, four).level == pytest.approx(1 - 0.05 / 6)


def test_what_only_one_of_them_tried_is_named() -> None:
    other = saved(*timed(*STEADY).attempts, replace(GOOD, to="proxy-0"))
    compared = compare(timed(*STEADY), other)
    assert (compared.only_a, compared.only_b) == ((), ("many at proxy-0",))


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_saved_probe_is_read_back() -> None:
    attempt = replace(GOOD, first_byte_s=0.25, told="echoed", line=3)
    document = {
        "schema": "pdctl.probe/1", "cluster": "c", "started": "2026-11-29T20:00:00Z", "note": "before",
        "attempts": [row_of(attempt)], "more": 1,
    }  # fmt: skip
    read = read_saved(json.dumps(document))
    assert (read.cluster, read.note, read.attempts) == ("c", "before", (attempt,))
    assert read.started is not None and read.started.hour == 20


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"schema":"pdctl.report/1"}', '{"schema":"pdctl.probe/1"}',
     '{"schema":"pdctl.probe/1","attempts":[1]}', '{"schema":"pdctl.probe/1","attempts":[{"status":200}]}',
     "[" * 100_000],
)  # fmt: skip
def test_what_is_no_saved_probe(text: str) -> None:
    with pytest.raises(Unreadable):
        read_saved(text)


# --- moments ----------------------------------------------------------------------------------------------------------


def test_requests_of_one_wave_are_one_look() -> None:
    """Six waves of four are six values, their medians; one wave of twenty-four is one."""
    waves = [replace(GOOD, round=n, took=n + spread) for n in range(1, 7) for spread in (0.0, 0.1, 0.2, 5.0)]
    assert values_of(waves, lambda a: a.took) == pytest.approx([n + 0.15 for n in range(1, 7)])
    one = saved(*(replace(GOOD, round=1, took=s) for s in STEADY))
    assert row(compare(one, one), Measure.WHOLE).verdict is Verdict.FEW
    assert row(compare(saved(*waves), saved(*waves)), Measure.WHOLE).a.count == 6


def test_failed_requests_give_no_time() -> None:
    assert values_of([replace(GOOD, status=503), GOOD], lambda a: a.took) == [1.0]
