"""Two saved probes compared: medians, how sure their difference is, and whether it is more than noise.

The interval of a difference of medians is the bootstrap's, computed and not drawn: how often a resample of n values has
its median at each of them is a sum of binomials (Maritz and Jarrett, JASA 73, 1978), and the two probes' medians are
independent. So the same two files give the same numbers, however often they are compared.

Requests that are under way together share the moment's weather: sixteen at once are one look at the cluster, not
sixteen. So a wave of many, and the same round of all conversations, count as one value, their median.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import comb, exp, lgamma, log, log1p
from statistics import median

from pdctl.facts.base import Unreadable
from pdctl.facts.probe import attempt_of
from pdctl.facts.stamps import read_stamp, text_of
from pdctl.model.answer import Why
from pdctl.model.probe import Attempt, Trial
from pdctl.model.probe_compare import Compared, Comparison, Measure, Saved, Side, Verdict

SCHEMA = "pdctl.probe/1"
TOGETHER = 0.95  # of all intervals at once
FEWEST = 6  # values a side, each of a moment of its own: below, an interval of the median says nothing
MATTERS = 0.05  # of A's median: a smaller difference matters to nobody
MOST = 200  # values a side that are used; more would only cost time
Key = tuple[str, str, str]

MEASURED: tuple[tuple[Measure, Callable[[Attempt], float | None]], ...] = (
    (Measure.FIRST, lambda a: a.first_token_s),
    (Measure.BETWEEN, lambda a: a.between_s),
    (Measure.WHOLE, lambda a: a.took),
)


def read_saved(text: str) -> Saved:
    """A probe as ``pdctl probe --save`` wrote it. Raises ``Unreadable`` for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(Why.NOT_JSON, f"not JSON: {str(error)[:100]}") from None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise Unreadable(Why.OTHER, f"no saved probe: its schema is not {SCHEMA}")
    rows = value.get("attempts")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreadable(Why.OTHER, "a saved probe without a list of attempts")
    started = read_stamp(value.get("started"))
    return Saved(text_of(value, "cluster") or "?", started, tuple(map(attempt_of, rows)), text_of(value, "note"))


def compare(a: Saved, b: Saved) -> Compared:
    """B against A, path by path and kind by kind."""
    of_a, of_b = _grouped(a.attempts), _grouped(b.attempts)
    keys = [key for key in of_a if key in of_b]
    # First all that can be compared, to know how many intervals share the confidence; then each at its own level.
    rows = [row for key in keys for row in _compared(key, of_a[key], of_b[key], 1.0 - TOGETHER)]
    tried = max(1, sum(row.verdict is not Verdict.FEW for row in rows))
    share = (1.0 - TOGETHER) / tried
    rows = [row for key in keys for row in _compared(key, of_a[key], of_b[key], share)]
    only_a, only_b = (tuple(_named(k) for k in one if k not in other) for one, other in ((of_a, of_b), (of_b, of_a)))
    return Compared(tuple(rows), 1.0 - share, only_a, only_b)


def _grouped(attempts: Iterable[Attempt]) -> dict[Key, list[Attempt]]:
    """What was tried of each kind on each path; controls and requests that clients left stay out."""
    groups: dict[Key, list[Attempt]] = {}
    for attempt in attempts:
        trial = attempt.trial or (Trial.HEALTH.value if attempt.kind == "health" else Trial.ONE.value)
        opener = trial == Trial.IDLE and attempt.idle_s is None
        if not attempt.control and attempt.kind != "abort" and not opener:
            groups.setdefault((attempt.to, attempt.via, trial), []).append(attempt)
    return groups


def _named(key: Key) -> str:
    return f"{key[2]} at {key[0]}"


def _compared(key: Key, a: list[Attempt], b: list[Attempt], share: float) -> Iterator[Comparison]:
    failed = failures(key, a, b, share)
    yield failed
    for measure, of in MEASURED:
        left, right = values_of(a, of), values_of(b, of)
        if left and right:
            yield medians(key, measure, left, right, share)


def values_of(attempts: Iterable[Attempt], of: Callable[[Attempt], float | None]) -> list[float]:
    """A value for each moment: of requests that were under way together their median."""
    moments: dict[tuple[str, int], list[float]] = {}
    for number, attempt in enumerate(attempts):
        value = of(attempt) if attempt.good else None
        if value is not None:
            moment = ("round", attempt.round) if attempt.round is not None else ("alone", number)
            moments.setdefault(moment, []).append(value)
    return [median(values) for values in moments.values()]


# --- failures ---------------------------------------------------------------------------------------------------------


def failures(key: Key, a: Sequence[Attempt], b: Sequence[Attempt], share: float) -> Comparison:
    """How many failed, judged by Fisher's exact test: no assumption about how few they are."""
    bad_a, bad_b = (sum(1 for x in rows if not x.good) for rows in (a, b))
    chance = fisher(bad_a, len(a), bad_b, len(b))
    verdict = Verdict.SAME
    if min(len(a), len(b)) < 2:
        verdict = Verdict.FEW
    elif chance < share:
        verdict = Verdict.WORSE if bad_b * len(a) > bad_a * len(b) else Verdict.BETTER
    sides = Side(len(a), float(bad_a)), Side(len(b), float(bad_b))
    return Comparison(*key, Measure.FAILURES, *sides, verdict, chance=chance)


def fisher(bad_a: int, all_a: int, bad_b: int, all_b: int) -> float:
    """How likely failures at least so unevenly spread over two sides are by chance (two-sided).

    >>> round(fisher(1, 10, 9, 10), 6), fisher(0, 5, 0, 7)
    (0.001093, 1.0)
    """
    bad, everything = bad_a + bad_b, all_a + all_b
    ways = {k: comb(all_a, k) * comb(all_b, bad - k) for k in range(max(0, bad - all_b), min(bad, all_a) + 1)}
    return sum(w for w in ways.values() if w <= ways[bad_a]) / comb(everything, bad)


# --- medians ----------------------------------------------------------------------------------------------------------


def medians(key: Key, measure: Measure, a: list[float], b: list[float], share: float) -> Comparison:
    """Two medians and the interval of their difference at a confidence of 1 - ``share``."""
    sides = Side(len(a), median(a)), Side(len(b), median(b))
    row = Comparison(*key, measure, *sides, Verdict.FEW)
    if min(len(a), len(b)) < FEWEST:
        return row
    low, high = interval(thinned(a), thinned(b), share)
    return replace(row, low=low, high=high, verdict=_verdict(sides[0].value, sides[1].value, low, high))


def _verdict(a: float, b: float, low: float, high: float) -> Verdict:
    if low <= 0.0 <= high or abs(b - a) < MATTERS * a:
        return Verdict.SAME
    return Verdict.WORSE if low > 0 else Verdict.BETTER


def thinned(values: Iterable[float]) -> list[float]:
    """The values in order; of very many, as many quantiles of theirs."""
    ordered = sorted(values)
    if len(ordered) <= MOST:
        return ordered
    return [ordered[(2 * i + 1) * len(ordered) // (2 * MOST)] for i in range(MOST)]


def interval(a: Sequence[float], b: Sequence[float], share: float) -> tuple[float, float]:
    """Between which values median(b) - median(a) lies with a confidence of 1 - ``share``; both are sorted."""
    weights = [(right - left, p * q) for left, p in zip(a, median_weights(len(a)), strict=True) if p > 1e-9
               for right, q in zip(b, median_weights(len(b)), strict=True) if q > 1e-9]  # fmt: skip
    weights.sort()
    total = sum(weight for _, weight in weights)
    return _quantile(weights, share / 2 * total), _quantile(weights[::-1], share / 2 * total)


def _quantile(weights: Sequence[tuple[float, float]], tail: float) -> float:
    passed = 0.0
    for value, weight in weights:
        passed += weight
        if passed > tail:
            return value
    return weights[-1][0]


def median_weights(count: int) -> list[float]:
    """How often the median of a resample of ``count`` sorted values is each of them (for an even count: the mean of
    its two middle ranks' shares). Adds up to 1.

    >>> [round(w, 3) for w in median_weights(3)]
    [0.259, 0.481, 0.259]
    """
    ranks = ((count + 1) // 2,) if count % 2 else (count // 2, count // 2 + 1)
    ways = [lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) for k in range(count + 1)]
    tails = [_at_least(ranks, ways, i / count) for i in range(count + 1)]
    return [late - early for early, late in pairwise(tails)]


def _at_least(ranks: Sequence[int], ways: Sequence[float], share: float) -> float:
    """How likely at least so many draws (the mean over ``ranks``) fall within a part that holds ``share`` of all;
    ``ways`` are the logarithms of the binomial coefficients."""
    if share in (0.0, 1.0):
        return share
    count, inside, outside = len(ways) - 1, log(share), log1p(-share)
    odds = [exp(ways[k] + k * inside + (count - k) * outside) for k in range(min(ranks), count + 1)]
    return sum(sum(odds[rank - min(ranks) :]) for rank in ranks) / len(ranks)
