"""How often an endpoint may be asked: less often while its answers are slow. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

SLOW = 1.0  # seconds: slow for any page
TIMES = 10.0  # or so many times the usual,
NOTABLE = 0.25  # but never below this many seconds
SHARE = 0.25  # an answer within this share of the time between rounds leaves the endpoint time enough
MOST = 8  # rounds left out at most


@dataclass(frozen=True, slots=True)
class Pace:
    """``usual`` is a running mean of answers that were not slow, in seconds; ``slow`` how many slow ones came in a
    row; ``rest`` how many rounds are yet to be left out; ``took`` how long the last answer took."""

    usual: float | None = None
    slow: int = 0
    rest: int = 0
    took: float = 0.0


def after(pace: Pace, took: float, gap: float) -> Pace:
    """The pace after an answer that took ``took`` seconds where rounds are ``gap`` seconds apart: each slow answer in
    a row doubles the rounds left out, a quick one ends that."""
    if is_slow(pace, took, gap):
        return Pace(pace.usual, pace.slow + 1, min(2**pace.slow, MOST), took)
    return Pace(took if pace.usual is None else 0.8 * pace.usual + 0.2 * took, 0, 0, took)


def is_slow(pace: Pace, took: float, gap: float) -> bool:
    """Whether an answer took so long that asking as often as before would weigh on the endpoint."""
    unusual = pace.usual is not None and took > max(NOTABLE, TIMES * pace.usual)
    return took > SHARE * gap and (took > SLOW or unusual)


def rested(pace: Pace) -> Pace:
    """The pace after a round that was left out."""
    return replace(pace, rest=max(0, pace.rest - 1))
