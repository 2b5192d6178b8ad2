"""When two series of readings differ by more than chance: the rule of ``pdctl compare``.

Each gauge is judged by its own noise, in its own two windows:

- Its spread is 1.4826 times the median absolute deviation (where more than half of the readings are equal, so that this
  is 0: 1.2533 times the mean absolute deviation from the median). Outliers move neither.
- Neighbouring readings are alike, so n of them are worth fewer: n (1 - r) / (1 + r), with r the correlation of each
  with the next, put right for what few readings underestimate of it.
- A median of so many readings has the standard error 1.2533 spread / sqrt(worth). Two medians differ when they are more
  than 4 standard errors of their difference apart; few readings know their own spread badly, so it takes
  4 (1 + 6 / (worth of both - 2)) of them. Sixteen readings a side find a shift of three spreads.
- Medians do not see a burst, so means are compared as well, by their own standard error and the same rule.
- And whatever the noise: a difference of less than a tenth of the larger value, or than the gauge's own grain (one
  request, 2 % of usage), is none that anybody acts on.
- Fewer than 3 readings on a side have no noise that could be known: they are not compared.

In simulation two windows of the same make differ in under 1 % of gauges: of normal, exponential and Poisson noise from
4 readings on, of readings that hang together (r = 0.8) from 15 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, sqrt
from statistics import fmean, median

from pdctl.model.comparison import Spread

ERRORS = 4.0
FEW = 6.0
LEAST = 3  # readings
SHARE = 0.1
OF_NORMAL = 1.4826
OF_MEAN = 1.2533  # also the standard error of a median over that of a mean


def spread_of(values: Sequence[float]) -> Spread | None:
    """How the values spread; None for fewer than ``LEAST``. NaN and infinity are no readings."""
    values = [v for v in values if isfinite(v)]
    if len(values) < LEAST:
        return None
    middle, mean = median(values), fmean(values)
    away = [abs(v - middle) for v in values]
    scale = OF_NORMAL * median(away) or OF_MEAN * fmean(away)
    deviation = sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return Spread(len(values), middle, mean, scale, deviation, worth_of(values, mean))


def worth_of(values: Sequence[float], mean: float) -> float:
    """As how many independent readings these count: from 1 to their number."""
    around = [v - mean for v in values]
    total = sum(a * a for a in around)
    if total == 0.0:
        return float(len(values))
    r = sum(a * b for a, b in pairwise(around)) / total
    r = min(max(r + (1.0 + 4.0 * max(r, 0.0)) / len(values), 0.0), 0.99)
    return max(1.0, len(values) * (1.0 - r) / (1.0 + r))


def differ(a: Spread, b: Spread, grain: float) -> tuple[str, float] | None:
    """Whether the two differ beyond their noise: by what ("median" or "mean"), and how much chance alone could make;
    None where they don't. ``grain`` is the least difference that matters, in the values' own unit."""
    for by, old, new, noise in (
        ("median", a.median, b.median, median_noise(a, b)),
        ("mean", a.mean, b.mean, mean_noise(a, b)),
    ):
        least = max(grain, SHARE * max(abs(old), abs(new)))
        if abs(new - old) > noise and abs(new - old) >= least:
            return by, noise
    return None


def median_noise(a: Spread, b: Spread) -> float:
    return _errors(a, b) * OF_MEAN * sqrt(a.scale**2 / a.worth + b.scale**2 / b.worth)


def mean_noise(a: Spread, b: Spread) -> float:
    return _errors(a, b) * sqrt(a.deviation**2 / a.worth + b.deviation**2 / b.worth)


def _errors(a: Spread, b: Spread) -> float:
    """How many standard errors it takes."""
    return ERRORS * (1.0 + FEW / max(a.worth + b.worth - 2.0, 1.0))


def counts_differ(a: int, b: int) -> float | None:
    """Whether two counts of things that come and go by themselves (connections) differ: by more than 4 standard errors
    of counts with their mean. Returns how much chance alone could make, None where they don't differ.

    >>> counts_differ(10, 14), counts_differ(10, 60)
    (None, 33.46640106136302)
    """
    noise = ERRORS * sqrt(a + b)
    return noise if abs(a - b) > noise else None
