from __future__ import annotations

import pytest

from pdctl.reach.pace import MOST, Pace, after, is_slow, rested


@pytest.mark.parametrize(
    ("usual", "took", "gap", "slow"),
    [
        (0.02, 0.02, 1.0, False),
        (0.02, 0.24, 0.5, False),  # twelve times the usual, but a quarter of a second harms nobody
        (0.02, 0.3, 1.0, True),  # fifteen times the usual, and a third of the time
        (0.2, 0.9, 1.0, False),  # long, but usual here
        (0.02, 1.1, 1.0, True),
        (None, 1.1, 0.0, True),  # the first answer
        (None, 0.9, 0.0, False),
        (0.02, 1.2, 10.0, False),  # an eighth of the time between rounds
        (0.02, 3.0, 10.0, True),
    ],
)
def test_slow(usual: float | None, took: float, gap: float, slow: bool) -> None:
    assert is_slow(Pace(usual), took, gap) is slow


def test_rounds_left_out_double_up_to_a_bound_and_end_with_a_quick_answer() -> None:
    pace, rests = Pace(), []
    for _ in range(6):
        pace = after(pace, 5.0, 1.0)
        rests.append(pace.rest)
    assert rests == [1, 2, 4, 8, 8, 8]
    assert MOST == 8
    assert after(pace, 0.01, 1.0).rest == 0
    assert after(after(pace, 0.01, 1.0), 5.0, 1.0).rest == 1


def test_a_slow_answer_does_not_become_the_usual() -> None:
    pace = after(Pace(), 0.1, 1.0)
    assert pace.usual == 0.1
    assert after(pace, 5.0, 1.0).usual == 0.1
    assert after(pace, 0.2, 1.0).usual == pytest.approx(0.12)


def test_resting_ends() -> None:
    assert rested(Pace(rest=2)).rest == 1
    assert rested(Pace(rest=0)).rest == 0
