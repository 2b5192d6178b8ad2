"""engine-crashed: what is a crash, what only looks like one, and what is history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pdctl.checks.base import Verdict
from pdctl.checks.crashed import judge_crashes
from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.finding import Confidence, Finding, RuledOut, Severity, Unchecked
from pdctl.model.rank import WHOLE, Rank
from tests.unit.checks.log_windows import CLUSTER, START, log_answer, window_of

READY = "[2026-11-12 03:0{}:00] The server is fired up and ready to roll!\n"
BATCH = "[2026-11-12 03:1{} TP0] Decode batch, #running-req: 3, gen throughput (token/s): 9.00, #queue-req: 0\n"
CRASH = (
    "[2026-11-12 03:12:30 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/scheduler.py", line 2777, in run_scheduler_process\n'
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n\n"
)
SIGQUIT = "[2026-11-12 03:12:31] SIGQUIT received. signum=3, frame=None. It usually means one child failed.\n"
CHILD = "[2026-11-12 03:12:31] Subprocess scheduler_0 (pid=41) crashed with exit code -9. Triggering SIGQUIT ...\n"
WATCHDOG = "[2026-11-12 03:12:30 DP1 TP1] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
SIGTERM = "[2026-11-12 03:11:00] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...\n"
ARGS = "[2026-11-12 03:13:00] server_args=ServerArgs(model_path='/m', disaggregation_mode='decode')\n"
LEAK = "[2026-11-12 03:12:29 TP0] token_to_kv_pool_allocator memory leak detected! available=1\n"


def judge(*observations: Observation[Any]) -> Verdict:
    """The verdict on the decode."""
    (verdict,) = [v for v in judge_crashes(window_of(*observations), CLUSTER) if v.subject == "d"]
    return verdict


def of(text: str) -> Verdict:
    return judge(log_answer("d", text))


def http(t: float, got: Seen[Any] | Missed) -> Observation[Any]:
    at = START + timedelta(seconds=t)
    return Observation("d", Fact.METRICS, t, at, 0.01, "GET d/metrics", got)


def page(start_time: float | None = None) -> Seen[Any]:
    return Seen(EngineMetrics({Gauge.START_TIME: {WHOLE: start_time}} if start_time else {}))


REFUSED = Missed(Why.CONNECT_REFUSED)


def test_a_crash_with_its_parents_word_is_certain() -> None:
    found = of(READY.format(1) + BATCH.format("0:00") + CRASH + SIGQUIT)
    assert isinstance(found, Finding)
    assert (found.name, found.severity, found.confidence) == ("engine-crashed", Severity.CRITICAL, Confidence.CERTAIN)
    assert found.rank == Rank(tp=3)
    assert found.since == datetime(2026, 11, 12, 3, 12, 30, tzinfo=UTC)
    assert "Scheduler crashed: torch.AcceleratorError: CUDA error" in found.summary
    assert "2026-11-12 03:12:30" in found.summary
    assert [e.values["line"] for e in found.evidence] == [3, 7]
    assert found.next[0].startswith("pdctl logs d ")


@pytest.mark.parametrize("lines", [CRASH, SIGQUIT, CHILD, WATCHDOG])
def test_each_of_the_words_alone_is_a_crash_and_likely(lines: str) -> None:
    found = of(BATCH.format("0:00") + lines)
    assert isinstance(found, Finding)
    assert found.confidence is Confidence.LIKELY
    assert any("one line alone" in limit for limit in found.limits)


def test_a_refused_connection_confirms_it() -> None:
    found = judge(log_answer("d", CRASH), http(5, REFUSED))
    assert isinstance(found, Finding)
    assert found.confidence is Confidence.CERTAIN
    assert any("refuses" in e.saw for e in found.evidence)


def test_the_watchdogs_rank_and_time() -> None:
    found = of(WATCHDOG + SIGQUIT)
    assert isinstance(found, Finding)
    assert found.rank == Rank(dp=1, tp=1)
    assert "300 s without progress" in found.summary


def test_ranks_that_fall_with_the_first_are_counted() -> None:
    others = "".join(CRASH.replace("TP3", f"TP{n}").replace("12:30", "12:32") for n in (0, 1, 2))
    found = of(CRASH + others + SIGQUIT)
    assert isinstance(found, Finding)
    assert found.rank == Rank(tp=3)
    assert "3 more ranks" in found.summary


@pytest.mark.parametrize(
    "text",
    [
        BATCH.format("0:00"),
        SIGTERM,
        SIGTERM + CHILD + SIGQUIT + CRASH,
        WATCHDOG.replace("self.soft=False", "self.soft=True"),
        LEAK + BATCH.format("2:40"),
        "Exception in thread Thread-3 (bootstrap_thread):\nTraceback (most recent call last):\nValueError: x\n",
        "Traceback (most recent call last):\n  File x\nValueError: x\n",
        READY.format(1) + BATCH.format("0:00"),
        "[2026-11-12 03:12:30] Receive: obj=GenerateReqInput(rid='a', text='Scheduler hit an exception: no')\n",
    ],
    ids=["batches", "sigterm", "falls over while draining", "soft", "leak", "thread", "traceback", "ready", "prompt"],
)
def test_what_is_no_crash(text: str) -> None:
    assert isinstance(of(text), RuledOut)


def test_a_crash_that_was_put_right_is_history_and_told_as_such() -> None:
    verdict = of(READY.format(1) + CRASH + SIGQUIT + ARGS + READY.format(9) + BATCH.format("9:30"))
    assert isinstance(verdict, RuledOut)
    assert "2026-11-12 03:12:31" in verdict.by
    assert "history" in verdict.by


def test_a_restart_that_is_not_ready_yet_does_not_end_it() -> None:
    found = of(READY.format(1) + CRASH + SIGQUIT + ARGS)
    assert isinstance(found, Finding)
    assert "a restart has begun and is not ready yet" in found.summary


def test_a_second_crash_after_a_restart_is_no_history() -> None:
    again = CRASH.replace("03:12:30", "03:13:30")
    found = of(CRASH + SIGQUIT + READY.format(9).replace("03:09", "03:13") + again)
    assert isinstance(found, Finding)
    assert "03:13:30" in found.summary


def test_a_crash_after_a_shutdown_and_a_new_start_is_a_crash() -> None:
    assert isinstance(of(SIGTERM + ARGS + CRASH), Finding)


def test_batches_a_minute_later_show_that_it_runs() -> None:
    verdict = of(CRASH + BATCH.format("3:45"))
    assert isinstance(verdict, RuledOut)
    assert isinstance(of(CRASH + BATCH.format("2:45")), Finding)


def test_a_leak_that_ended_it_is_told_with_it() -> None:
    found = of(LEAK + CRASH + SIGQUIT)
    assert isinstance(found, Finding)
    assert any("memory leak detected" in e.saw for e in found.evidence)


def test_an_endpoint_that_answers_speaks_against_it() -> None:
    found = judge(log_answer("d", CRASH), http(20, page()))
    assert isinstance(found, Finding)
    assert found.confidence is Confidence.POSSIBLE
    assert "it answered HTTP at 03:14:20Z" in found.against[0]


def test_a_process_that_started_after_the_crash_makes_it_history() -> None:
    later = datetime(2026, 11, 12, 3, 13, tzinfo=UTC).timestamp()
    verdict = judge(log_answer("d", CRASH), http(20, page(later)))
    assert isinstance(verdict, RuledOut)
    assert "started at 03:13:00Z" in verdict.by
    assert isinstance(judge(log_answer("d", CRASH), http(20, page(later - 600))), Finding)


def test_a_log_read_twice_is_one_log() -> None:
    """The second tail begins behind the crash: it is still there; with the start in it, it is history."""
    assert isinstance(judge(log_answer("d", CRASH), log_answer("d", BATCH.format("2:35"), 5.0)), Finding)
    assert isinstance(judge(log_answer("d", CRASH), log_answer("d", READY.format(9), 5.0)), RuledOut)


def test_a_log_that_was_not_read_is_not_checked() -> None:
    verdicts = list(judge_crashes(window_of(log_answer("d", "", error=Why.PERMISSION)), CLUSTER))
    assert all(isinstance(v, Unchecked) for v in verdicts)
    assert {v.subject: v.why for v in verdicts if isinstance(v, Unchecked)} == {
        "p": "its log was not asked for",
        "d": "its log was not read: permission",
    }


def test_an_empty_log_rules_nothing_out() -> None:
    assert isinstance(of(""), Unchecked)
