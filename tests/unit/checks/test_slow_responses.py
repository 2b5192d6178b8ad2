"""slow-responses: slow against the log's own usual, by hand-made router logs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pdctl.checks.base import Verdict
from pdctl.checks.slow_responses import judge_slow
from pdctl.model.answer import Observation
from pdctl.model.finding import Confidence, Finding, RuledOut, Severity, Unchecked
from tests.unit.checks.log_windows import CLUSTER, log_answer, window_of

LAST = datetime(2026, 11, 12, 3, 14)


def line(seconds: float, status: int = 200, path: str = "/v1/completions", at: datetime = LAST, n: int = 0) -> str:
    return (
        f'{at:%Y-%m-%d %H:%M:%S}  INFO http_request{{method=POST uri={path} version=HTTP/1.1 module="smg" '
        f'request_id="cmpl-{n}" status_code={status} latency={int(seconds * 1e6)}}}: smg::response: '
        "src/middleware.rs:359: finished processing request\n"
    )


def judge(*observations: Observation[Any]) -> Verdict:
    (verdict,) = judge_slow(window_of(*observations), CLUSTER)
    return verdict


def of(latencies: Iterable[float], **more: Any) -> Verdict:
    text = "".join(line(s, n=n, **more) for n, s in enumerate(latencies))
    return judge(log_answer("r", text))


def fast(count: int) -> list[float]:
    return [0.2 + n % 7 * 0.1 for n in range(count)]


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param([88.3, 88.4, 88.4], id="a stop of 88 s"),
        pytest.param([301.2], id="one retried transfer"),
        pytest.param([62.0] * 5, id="just a minute"),
        pytest.param([185.0, 940.0], id="long and endless"),
    ],
)
def test_hangs_among_fast_completions(slow: Sequence[float]) -> None:
    found = of(fast(40) + list(slow))
    assert isinstance(found, Finding)
    assert (found.name, found.severity, found.confidence) == ("slow-responses", Severity.WARNING, Confidence.LIKELY)
    assert found.summary.startswith(f"{len(slow)} of {40 + len(slow)} completions took ")
    assert found.evidence[0].values["slow"] == len(slow)
    assert found.evidence[0].values["max"] == max(slow)
    assert len(found.limits) == 3
    assert found.since == (LAST - timedelta(seconds=max(slow))).replace(tzinfo=UTC)


def test_its_figures() -> None:
    found = of([1.0] * 90 + [2.0] * 9 + [400.0])
    assert isinstance(found, Finding)
    values = found.evidence[0].values
    assert {key: values[key] for key in ("count", "p50", "p90", "p99", "max")} == {
        "count": 100, "p50": 1.0, "p90": 1.0, "p99": 2.0, "max": 400.0,
    }  # fmt: skip
    assert "pdctl logs r --slow 20" in found.next


def test_a_crowd_just_behind_the_engines_timeout_is_named() -> None:
    found = of([*fast(20), 300.4, 301.0, 302.2])
    assert isinstance(found, Finding)
    assert any("3 of them took a little over 300 s" in e.saw for e in found.evidence)


def test_most_may_be_slow() -> None:
    """Eight of twelve timed out and were retried: the median is one of them."""
    assert isinstance(of([0.4, 0.5, 0.5, 0.6] + [301.0 + n / 10 for n in range(8)]), Finding)
    assert isinstance(of([301.0 + n / 10 for n in range(12)]), Finding)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("median", "spread"), [(2.0, 0.8), (5.0, 0.7), (30.0, 0.5), (20.0, 0.8), (120.0, 0.3), (200.0, 0.25)]
)
def test_ordinary_long_generation_is_not_slow(seed: int, median: float, spread: float) -> None:
    """Lengths of answers spread evenly (log-normal), however long they are by themselves."""
    rng = random.Random(seed)
    latencies = [median * rng.lognormvariate(0, spread) for _ in range(400)]
    assert isinstance(of(latencies), RuledOut)


def test_a_cluster_that_grows_slower_and_slower() -> None:
    """No gap anywhere, but one in seven took over three minutes while most took a few seconds."""
    assert isinstance(of([2.0 + n % 5 for n in range(120)] + [10.0 * 1.2**n for n in range(21)] * 2), Finding)


def test_a_queue_that_everybody_stands_in_is_not_slow() -> None:
    """A decode out of memory: all wait, the last longest (recorded: 128 completions, median 44 s, longest 85 s)."""
    assert isinstance(of([44.0 + n * 0.3 for n in range(128)]), RuledOut)


def test_fifteen_minutes_are_long_whatever_is_usual() -> None:
    assert isinstance(of([400.0] * 30 + [900.0]), Finding)
    assert isinstance(of([400.0] * 30 + [890.0]), RuledOut)


def test_with_a_handful_there_is_no_usual() -> None:
    found = of([1.0, 200.0, 1.5])
    assert isinstance(found, Finding)
    assert found.confidence is Confidence.POSSIBLE
    assert isinstance(of([1.0, 100.0, 1.5]), RuledOut)


def test_only_completions_count() -> None:
    text = "".join(line(s, n=n) for n, s in enumerate(fast(20)))
    text += line(400.0, status=500) + line(400.0, status=499) + line(400.0, path="/health_generate")
    assert isinstance(judge(log_answer("r", text)), RuledOut)


def test_yesterdays_hang_is_no_news() -> None:
    old = line(400.0, at=LAST - timedelta(hours=2), n=99)
    recent = "".join(line(s, n=n) for n, s in enumerate(fast(20)))
    assert isinstance(judge(log_answer("r", old + recent)), RuledOut)
    half_an_hour = line(400.0, at=LAST - timedelta(minutes=30), n=99)
    assert isinstance(judge(log_answer("r", half_an_hour + recent)), Finding)


def test_durations_of_the_oldest_router() -> None:
    head = "2026-11-12 03:14:00  INFO http_request{method=POST uri=/generate version=HTTP/1.1 request_id=gnt-"
    tail = "}: sglang_router_rs::response: src/middleware.rs:169: finished processing request\n"
    text = "".join(f"{head}{n} status=200 OK latency=305.6ms{tail}" for n in range(20))
    found = judge(log_answer("r", text + f"{head}x status=200 OK latency=310.25s{tail}"))
    assert isinstance(found, Finding)
    assert found.evidence[0].values["max"] == 310.25


def test_readings_that_overlap_count_a_completion_once() -> None:
    first = "".join(line(s, n=n) for n, s in enumerate(fast(20))) + line(88.0, n=50)
    second = line(88.0, n=50) + line(89.0, n=51)
    found = judge(log_answer("r", first), log_answer("r", second, 5.0))
    assert isinstance(found, Finding)
    assert found.summary.startswith("2 of 22 completions")


def test_what_was_not_read_is_not_checked() -> None:
    assert isinstance(judge(), Unchecked)
    empty = judge(log_answer("r", "2026-11-12 03:14:00  INFO smg::server: src/server.rs:1: Starting router\n"))
    assert isinstance(empty, Unchecked)
    assert "no completion" in empty.why
