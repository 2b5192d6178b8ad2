"""slow-responses: the router's log shows completions that took very long, although they ended with success.

Slow is measured against the same log, so that a cluster whose work is long is not called slow for it. Lengths of
answers spread evenly, over two decades and more; a hang that ends makes a gap, or a crowd:

- 60 s and ten times the median, and a gap: three times as long as the slowest of the others.
- 180 s and five times the median, and a gap (of two for three and more), or as many as one in twenty.
- 180 s and a gap of ten, whatever the median: then most are slow.
- At least three, and half of those over 60 s, end just after 300 s or 600 s: the engines' default KV timeout and the
  one their log advises. Answers of natural length do not end together there.
- 900 s, whatever is usual: half of the router's default request timeout (1800 s), three of the default KV timeouts.

With fewer than ten completions there is no usual to compare with; then 180 s alone counts, as a possibility. What ended
more than an hour before the log's last line (or the window, where that is longer) is no news.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.crashed import time_between, why_no_log
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Role
from pdctl.model.digest import Latencies, completions, latencies, merged, percentile, slowest
from pdctl.model.events import Event, Log
from pdctl.model.finding import Confidence, Evidence, Finding, RuledOut, Unchecked
from pdctl.model.window import At, Window

TITLE = "completions that took very long in the router's log"
APART_S, APART_MEDIANS, APART_GAP = 60.0, 10.0, 3.0
LONG_S, LONG_MEDIANS, LONG_GAP, LONG_SHARE = 180.0, 5.0, 2.0, 0.05
ENDLESS_S = 900.0
ENOUGH = 10  # completions from which on their median says what is usual
WIDE_GAP = 10.0
FEWEST = 3  # on either side of a gap, to be more than chance
TIMEOUTS_S, AFTER = (300.0, 600.0), 1.1  # a transfer that timed out and was retried in silence ends a little after
RECENT = timedelta(hours=1)
SHOWN = 3
LIMITS = (
    "of a streaming request the router logs the time to the response's headers, not to its end: slow streams are not "
    "all here",
    "a long generation for a client that does not stream is legitimate; the log does not say how long the answers were",
    "requests that never ended are not counted",
)


def judge_slow(window: Window, cluster: Cluster) -> Iterator[Verdict]:
    """One verdict a router: slow completions, none, or nothing to judge by."""
    for router in cluster.of(Role.ROUTER):
        logs = window.seen(router.name, Fact.LOG, Log)
        if not logs:
            yield Unchecked(TITLE, router.name, why_no_log(window, router.name))
            continue
        log = merged(at.value for at in logs)
        ended = completions(log.events)
        if not ended:
            yield Unchecked(TITLE, router.name, "its log holds no completion")
        else:
            slow = _recent(slow_of(ended), log, max(RECENT, timedelta(seconds=window.seconds)))
            yield _judge(router.name, log, ended, slow, logs[-1], cluster)


def _recent(slow: Sequence[Event], log: Log, span: timedelta) -> tuple[Event, ...]:
    """Those that ended within ``span`` of the log's last line; those without a comparable time stay."""
    last = next((e.when for e in reversed(log.events) if e.when is not None), None)
    return tuple(e for e in slow if (age := time_between(e.when, last)) is None or age <= span)


def slow_of(ended: Sequence[Event]) -> tuple[Event, ...]:
    """The completions that took very long by the rules above, longest first."""
    ordered = slowest(ended, len(ended))
    took = [e.numbers["latency_s"] for e in ordered]
    median = percentile(took[::-1], 50)
    count = max(_long(took, median), _apart(took, median), _timed_out(took))
    return ordered[:count]


def _long(took: Sequence[float], median: float) -> int:
    """How many are long by themselves; ``took`` is descending."""
    if len(took) < ENOUGH:
        return sum(seconds >= LONG_S for seconds in took)
    many = sum(seconds >= max(LONG_S, LONG_MEDIANS * median) for seconds in took)
    share = many if many >= 2 and many >= LONG_SHARE * len(took) else 0
    return max(share, sum(seconds >= ENDLESS_S for seconds in took))


def _apart(took: Sequence[float], median: float) -> int:
    """How many stand apart from the rest: down to the lowest gap there is; 0 where there is none."""
    if len(took) < ENOUGH:
        return 0
    return max((i for i in range(1, len(took)) if _is_gap(took, i, median)), default=0)


def _is_gap(took: Sequence[float], i: int, median: float) -> bool:
    """Whether the i longest are cut off from the others."""
    slow, rest = took[i - 1], took[i]
    if slow >= LONG_S and slow >= WIDE_GAP * rest:
        return len(took) - i >= FEWEST
    gap = LONG_GAP if i >= FEWEST else APART_GAP  # one value far out is in the nature of a long tail
    if slow >= max(LONG_S, LONG_MEDIANS * median) and slow >= gap * rest:
        return True
    return slow >= max(APART_S, APART_MEDIANS * median) and slow >= APART_GAP * rest


def _timed_out(took: Sequence[float]) -> int:
    """How many took as long as a timeout or longer, where the long ones crowd just behind it; else 0."""
    long = sum(seconds >= APART_S for seconds in took)
    for timeout in TIMEOUTS_S:
        crowd = sum(timeout <= seconds <= AFTER * timeout for seconds in took)
        if crowd >= FEWEST and 2 * crowd >= long:
            return sum(seconds >= timeout for seconds in took)
    return 0


def _judge(
    name: str, log: Log, ended: Sequence[Event], slow: Sequence[Event], at: At[Log], cluster: Cluster
) -> Finding | RuledOut:
    spread = latencies(e.numbers["latency_s"] for e in ended)
    assert spread is not None
    if not slow:
        return RuledOut("slow-responses", name, f"{spread.count} completions, the longest {spread.max:.1f} s")
    least, most = slow[-1].numbers["latency_s"], slow[0].numbers["latency_s"]
    took = f"{least:.0f} to {most:.0f} s" if len(slow) > 1 else f"{most:.0f} s"
    return found(
        "slow-responses",
        name,
        f"{len(slow)} of {spread.count} completions took {took} and ended with success (median {spread.p50:.2f} s)",
        confidence=Confidence.LIKELY if spread.count >= ENOUGH else Confidence.POSSIBLE,
        since=min(filter(None, (_began(log, e) for e in slow)), default=None),
        evidence=[_spread(spread, slow, at), *_worst(slow, at), *_retries(slow, at)],
        limits=LIMITS,
        next=[
            f"pdctl logs {name} --slow 20",
            f"pdctl logs {name} --latency",
            " ".join(["pdctl logs", *(e.name for e in cluster.engines), "--failures"]),
            "pdctl pinned",
        ],
    )


def _began(log: Log, event: Event) -> datetime | None:
    ended = log.utc(event)
    return ended - timedelta(seconds=event.numbers["latency_s"]) if ended is not None else None


def _spread(spread: Latencies, slow: Sequence[Event], at: At[Log]) -> Evidence:
    text = (
        f"latencies of {spread.count} completions: p50 {spread.p50:.2f} s, p90 {spread.p90:.2f} s, "
        f"p99 {spread.p99:.2f} s, longest {spread.max:.1f} s"
    )
    values = {key: round(value, 6) for key, value in asdict(spread).items()}
    return saw(text, at, slow=len(slow), **values, **_span(slow))


def _span(slow: Sequence[Event]) -> dict[str, str]:
    times = sorted(str(e.when) for e in slow if e.when is not None)
    return {"first_ended": times[0], "last_ended": times[-1]} if times else {}


def _worst(slow: Sequence[Event], at: At[Log]) -> list[Evidence]:
    return [
        saw(
            f"{e.words.get('path', 'a request')} took {e.numbers['latency_s']:.1f} s, status {e.words.get('status')}",
            at,
            request_id=e.words.get("request_id"),
            ended=str(e.when) if e.when else None,
            line=e.line,
        )
        for e in slow[:SHOWN]
    ]


def _retries(slow: Sequence[Event], at: At[Log]) -> list[Evidence]:
    """The mark of a hung transfer: it ends at the engines' timeout, the router retries in silence, the retry works."""
    told = []
    for timeout in TIMEOUTS_S:
        count = sum(timeout <= e.numbers["latency_s"] <= AFTER * timeout for e in slow)
        text = (
            f"{count} of them took a little over {timeout:.0f} s, a usual timeout of a KV transfer: timed out in the "
            "engine and retried by the router in silence"
        )
        told += [saw(text, at, count=count)] if count else []
    return told


CHECKS = (Check("slow-responses", TITLE, ("slow-responses",), (Fact.LOG,), judge_slow),)
