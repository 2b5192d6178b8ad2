"""Sparklines: 0 is the lowest level and nothing else is, a gap is not 0, a restart is a break."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pdctl.render.spark import spark


def test_levels_in_both_alphabets() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert spark([0, 1, 2, 3, 4, 5, 6, 7], ascii_only=True) == "_.:-=+*#"


def test_a_gap_is_seen_and_is_not_zero() -> None:
    assert spark([0, None, 4]) == "▁?█"
    assert spark([None, None]) == "??"
    assert spark([math.nan, math.inf, 2.0]) == "??█"


def test_a_restart_breaks_the_line_and_an_absent_number_leaves_a_blank() -> None:
    assert spark([4, "restart", 2, "absent"], ascii_only=True) == "#|= "


def test_whatever_is_above_zero_is_drawn_above_zero() -> None:
    assert spark([0, 0.001, 1000]) == "▁▂█"


def test_all_zero_and_nothing() -> None:
    assert spark([0, 0]) == "▁▁"
    assert spark([]) == ""


def test_a_given_top_sets_the_scale_and_what_is_above_it_is_full() -> None:
    assert spark([0.5, 1.0, 1.5], top=1.0, ascii_only=True) == "=##"


@given(st.lists(st.none() | st.floats() | st.sampled_from(["restart", "absent"]), max_size=40), st.booleans())
def test_one_character_a_point_whatever_the_points(points: list[object], ascii_only: bool) -> None:
    drawn = spark(points, ascii_only)  # type: ignore[arg-type]
    assert len(drawn) == len(points)
    assert not ascii_only or drawn.isascii()
    zeros = [c for c, p in zip(drawn, points, strict=True) if c in "▁_"]
    assert len(zeros) <= sum(1 for p in points if isinstance(p, float) and (p <= 0 or max_of(points) <= 0))


def max_of(points: list[object]) -> float:
    return max([p for p in points if isinstance(p, float) and math.isfinite(p)], default=0.0)
