"""When two series differ by more than chance: seldom where they don't, surely where they do."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from pdctl.checks.noise import LEAST, counts_differ, differ, spread_of

Make = Callable[[Random, int], list[float]]


def normal(rng: Random, n: int) -> list[float]:
    return [rng.gauss(10.0, 1.0) for _ in range(n)]


def exponential(rng: Random, n: int) -> list[float]:
    return [rng.expovariate(0.1) for _ in range(n)]


def counted(rng: Random, n: int) -> list[float]:
    """Requests that arrive by chance: 2 a reading on average."""
    return [float(sum(rng.random() < 0.02 for _ in range(100))) for _ in range(n)]


def bursts(rng: Random, n: int) -> list[float]:
    return [rng.choice([0.0] * 8 + [20.0]) for _ in range(n)]


def hanging_together(rng: Random, n: int) -> list[float]:
    """Neighbours correlate by 0.8."""
    value, out = rng.gauss(0.0, 1.0), []
    for _ in range(n):
        value = 0.8 * value + 0.6 * rng.gauss(0.0, 1.0)
        out.append(10.0 + value)
    return out


def share_that_differs(make: Make, n: int, shift: float = 0.0, tries: int = 500) -> float:
    rng = Random(n)
    told = 0
    for _ in range(tries):
        a, b = spread_of(make(rng, n)), spread_of([v + shift for v in make(rng, n)])
        assert a is not None and b is not None
        told += differ(a, b, 0.0) is not None
    return told / tries


@pytest.mark.parametrize("n", [4, 8, 16, 40])
@pytest.mark.parametrize("make", [normal, exponential, counted, bursts])
def test_windows_of_the_same_make_seldom_differ(make: Make, n: int) -> None:
    assert share_that_differs(make, n) < 0.01


@pytest.mark.parametrize("n", [16, 40])
def test_nor_do_readings_that_hang_together(n: int) -> None:
    assert share_that_differs(hanging_together, n) < 0.012


def test_a_shift_of_three_spreads_is_found_in_sixteen_readings_and_of_two_in_forty() -> None:
    assert share_that_differs(normal, 16, shift=3.0) > 0.85
    assert share_that_differs(normal, 40, shift=2.0) > 0.95


def test_a_gauge_that_stood_still_on_both_sides_differs_when_it_stands_elsewhere() -> None:
    a, b = spread_of([0.0] * 3), spread_of([2.0] * 3)
    assert a is not None and b is not None and differ(a, b, 1.0) == ("median", 0.0)


def test_what_nobody_acts_on_is_no_difference() -> None:
    a, b = spread_of([1000.0] * 9), spread_of([1050.0] * 9)
    assert a is not None and b is not None and differ(a, b, 0.0) is None  # less than a tenth
    c, d = spread_of([0.01] * 9), spread_of([0.02] * 9)
    assert c is not None and d is not None and differ(c, d, 0.02) is None  # less than the grain


def test_a_burst_that_medians_do_not_see_shows_in_the_mean() -> None:
    rng = Random(3)
    a, b = spread_of([0.0] * 60), spread_of([rng.choice([0.0, 0.0, 40.0]) for _ in range(60)])
    assert a is not None and b is not None and a.median == b.median == 0.0
    found = differ(a, b, 1.0)
    assert found is not None and found[0] == "mean"


def test_few_readings_have_no_noise_that_could_be_known() -> None:
    assert spread_of([1.0] * (LEAST - 1)) is None and spread_of([]) is None
    assert spread_of([1.0] * LEAST) is not None


def test_one_outlier_moves_neither_median_nor_spread() -> None:
    plain, spoiled = spread_of([1.0, 2.0, 3.0, 4.0, 5.0]), spread_of([1.0, 2.0, 3.0, 4.0, 5e9])
    assert plain is not None and spoiled is not None
    assert (plain.median, plain.scale) == (spoiled.median, spoiled.scale) == (3.0, 1.4826)


def test_readings_that_hang_together_count_for_fewer() -> None:
    rng = Random(5)
    loose, tied = spread_of(normal(rng, 100)), spread_of(hanging_together(rng, 100))
    assert loose is not None and tied is not None
    assert loose.worth > 70 and tied.worth < 30


@pytest.mark.parametrize(
    "a, b, differs", [(0, 0, False), (0, 3, False), (0, 60, True), (100, 130, False), (100, 300, True)]
)
def test_connections_come_and_go(a: int, b: int, differs: bool) -> None:
    noise = counts_differ(a, b)
    assert (noise is not None) is differs and counts_differ(b, a) == noise
    assert noise is None or noise == pytest.approx(4.0 * math.sqrt(a + b))
