"""Life and death: starts, watchdogs, crashes and the exception they end in, dead children, shutdowns."""

from __future__ import annotations

import pytest

from pdctl.model.events import Kind
from pdctl.model.rank import Rank
from tests.unit.facts.log_answers import event_of, log_of

P = "[2026-11-12 03:14:00] "
T = "[2026-11-12 03:14:00 TP3] "


@pytest.mark.parametrize(
    ("line", "kind", "words", "numbers"),
    [
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", Kind.WATCHDOG,
         {"process": "Scheduler"}, {"timeout_s": 300}),
        ("DetokenizerManager watchdog timeout (self.watchdog_timeout=60.5, self.soft=False)", Kind.WATCHDOG,
         {"process": "DetokenizerManager"}, {"timeout_s": 60.5}),
        ("Scheduler watchdog timeout (self.watchdog_timeout=30, self.soft=True)", Kind.SOFT_WATCHDOG,
         {"process": "Scheduler"}, {"timeout_s": 30}),
        ("Watchdog timeout (self.watchdog_timeout=300)", Kind.WATCHDOG, {"process": "Scheduler"}, {"timeout_s": 300}),
        ("SIGQUIT received. signum=<Signals.SIGQUIT: 3>, frame=<frame>. It usually means one child failed.",
         Kind.CHILD_DIED, {}, {}),
        ("Received sigquit from a child process. It usually means the child failed.", Kind.CHILD_DIED, {}, {}),
        ("Subprocess scheduler_0 (pid=4711) crashed with exit code -6. Triggering SIGQUIT for cleanup...",
         Kind.CHILD_DIED, {"process": "scheduler_0"}, {"pid": 4711, "exit_code": -6}),
        ("Child process unexpectedly failed with exitcode=9. pid=4711", Kind.CHILD_DIED, {},
         {"pid": 4711, "exit_code": 9}),
        ("Child process unexpectedly failed with an exit code 9. pid=4711", Kind.CHILD_DIED, {},
         {"pid": 4711, "exit_code": 9}),
        ("Received SIGQUIT from scheduler process. Scheduler failed, shutting down gRPC server.", Kind.CHILD_DIED, {},
         {}),
        ("Gracefully exiting... remaining number of requests 4", Kind.SHUTDOWN, {}, {"remaining": 4}),
        ("Rank 2 scheduler is dead. Please check if there are relevant logs.", Kind.CRASH, {"process": "scheduler"},
         {"rank": 2}),
        ("SIGTERM received. signum=15 frame=<frame>. Draining requests and shutting down...", Kind.SHUTDOWN, {}, {}),
        ("Gracefully exiting... Remaining number of requests 4. Remaining requests remaining_rids=['a'].",
         Kind.SHUTDOWN, {}, {"remaining": 4}),
        ("INFO:     Shutting down", Kind.SHUTDOWN, {}, {}),
        ("The server is fired up and ready to roll!", Kind.READY, {}, {}),
        ("INFO:     Application startup complete.", Kind.OTHER, {}, {}),
        ("token_to_kv_pool_allocator memory leak detected! available_size=10, total=20", Kind.MEMORY_LEAK,
         {"pool": "token_to_kv_pool_allocator", "reason": "available_size=10, total=20"}, {}),
        ("req_to_token_pool memory leak detected!available_size=2047, session_held=0, total_size=2048",
         Kind.MEMORY_LEAK,
         {"pool": "req_to_token_pool", "reason": "available_size=2047, session_held=0, total_size=2048"}, {}),
        ("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: "
         "03:14:02. last_heartbeat time: 03:13:51", Kind.HEALTH_FAILED, {"tic": "03:14:02", "heartbeat": "03:13:51"},
         {"timeout_s": 20}),
        ("server_args=ServerArgs(model_path='/m/x', host='127.0.0.1', port=30000, tp_size=8, dp_size=2, "
         "disaggregation_mode='prefill', watchdog_timeout=300)", Kind.SERVER_ARGS,
         {"model_path": "/m/x", "host": "127.0.0.1", "mode": "prefill"},
         {"port": 30000, "tp_size": 8, "dp_size": 2, "watchdog_timeout": 300}),
        ("Fatal Python error: Segmentation fault", Kind.CRASH, {"reason": "Segmentation fault"}, {}),
        ("Rank 2 scheduler died during initialization (exit code: -9).", Kind.CRASH, {"process": "scheduler"},
         {"rank": 2}),
    ],
)  # fmt: skip
def test_process_lines(line: str, kind: Kind, words: dict[str, str], numbers: dict[str, float]) -> None:
    event = event_of(P + line)
    assert (event.kind, dict(event.words), dict(event.numbers)) == (kind, words, numbers)


@pytest.mark.parametrize(
    ("line", "kind", "words", "numbers"),
    [
        ("systemd[1]: sglang-prefill.service: Main process exited, code=killed, status=9/KILL", Kind.CRASH,
         {"how": "killed", "reason": "KILL", "process": "main"}, {"exit_code": 9}),
        ("systemd[1]: sglang-prefill.service: Main process exited, code=exited, status=1/FAILURE", Kind.CRASH,
         {"how": "exited", "reason": "FAILURE", "process": "main"}, {"exit_code": 1}),
        ("systemd[1]: sglang-prefill.service: Main process exited, code=killed, status=15/TERM", Kind.SHUTDOWN,
         {"how": "killed", "reason": "TERM", "process": "main"}, {"exit_code": 15}),
        ("systemd[1]: Stopping SGLang prefill...", Kind.SHUTDOWN, {"by": "systemd"}, {}),
        ("systemd[1]: sglang-prefill.service: A process of this unit has been killed by the OOM killer.",
         Kind.CHILD_DIED, {"reason": "oom-kill"}, {}),
        ("kernel: Out of memory: Killed process 4711 (sglang::schedul) total-vm:99kB", Kind.CHILD_DIED,
         {"process": "sglang::schedul", "reason": "oom-kill"}, {"pid": 4711}),
    ],
)  # fmt: skip
def test_lines_of_systemd_and_the_kernel(
    line: str, kind: Kind, words: dict[str, str], numbers: dict[str, float]
) -> None:
    event = event_of("Nov 12 03:14:00 gpu-1 " + line)
    assert (event.kind, dict(event.words), dict(event.numbers)) == (kind, words, numbers)


def test_stopping_something_is_no_shutdown_unless_systemd_says_so() -> None:
    assert event_of(P + "Stopping profiler").kind is Kind.OTHER


def test_nccl_gives_up_a_collective() -> None:
    event = event_of(
        "[rank3]:[E1112 03:14:00.123 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=91, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600027 milliseconds before timing out."
    )
    assert event.kind is Kind.WATCHDOG
    assert event.words["process"] == "NCCL"
    assert event.words["reason"].startswith("SeqNum=91, OpType=ALLREDUCE")
    assert event.numbers == {"rank": 3, "timeout_s": 600.027}


TRACE = """Traceback (most recent call last):
  File "/x/scheduler.py", line 2777, in run_scheduler_process
    scheduler.event_loop_overlap_disagg_prefill()
    ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~^^
  File "/x/model_runner.py", line 9, in forward
    raise self.error
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
CUDA kernel errors might be asynchronously reported at some other API call.
"""


@pytest.mark.parametrize(
    "process", ["Scheduler", "DetokenizerManager", "TokenizerManager", "DataParallelController", "TpModelWorkerClient"]
)
def test_a_crash_names_the_exception_its_traceback_ends_in(process: str) -> None:
    log = log_of(f"{T}{process} hit an exception: {TRACE}\n{P}SIGQUIT received. signum=3, frame=None.\n")
    crash = log.of(Kind.CRASH)
    assert [(e.words["process"], e.rank, e.line) for e in crash] == [(process, Rank(tp=3), 1)]
    assert crash[0].words["reason"].startswith("torch.cuda.OutOfMemoryError: CUDA out of memory.")
    assert len(log.of(Kind.CHILD_DIED)) == 1


def test_of_chained_exceptions_the_last_is_the_reason() -> None:
    chain = (
        TRACE
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + TRACE.replace("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried", "RuntimeError: gave up. Tried")
    )
    assert (
        log_of(f"{T}Scheduler hit an exception: {chain}").of(Kind.CRASH)[0].words["reason"].startswith("RuntimeError")
    )


def test_a_later_records_exception_is_not_the_crashs() -> None:
    log = log_of(f"{T}Scheduler hit an exception: Traceback (most recent call last):\n{P}next record\nValueError: no\n")
    assert "reason" not in log.of(Kind.CRASH)[0].words


def test_a_traceback_behind_a_journals_prefix() -> None:
    prefix = "Nov 12 03:14:00 gpu-1 python3[4711]: "
    lines = f"{T}Scheduler hit an exception: {TRACE}".splitlines()
    log = log_of("".join(f"{prefix}{line}\n" for line in lines))
    assert log.of(Kind.CRASH)[0].words["reason"].startswith("torch.cuda.OutOfMemoryError")


@pytest.mark.parametrize(
    ("thread", "kind"),
    [
        ("Thread-3 (bootstrap_thread)", Kind.TRANSFER_THREAD_FAILED),
        ("Thread-4 (transfer_worker)", Kind.TRANSFER_THREAD_FAILED),
        ("HeartbeatChecker", Kind.TRANSFER_THREAD_FAILED),
        ("Thread-9 (_report)", Kind.OTHER),
    ],
)
def test_a_dead_helper_thread_is_no_crash(thread: str, kind: Kind) -> None:
    log = log_of(f"Exception in thread {thread}:\n{TRACE}")
    assert (log.events[0].kind, log.events[0].words["thread"]) == (kind, thread)
    assert not log.of(Kind.CRASH)


def test_the_reason_of_a_dead_bootstrap_thread() -> None:
    log = log_of(f"Exception in thread Thread-3 (bootstrap_thread):\n{TRACE}")
    assert log.events[0].words["reason"].startswith("torch.cuda.OutOfMemoryError: CUDA out of memory.")
