"""Engine records about the life and death of processes: start, ready, watchdogs, crashes, dead children, shutdown.

Wording of managers/, entrypoints/ and utils/watchdog.py, releases 0.4.6.post5 to 0.5.23, and of systemd and the kernel
where the log is a journal.
"""

from __future__ import annotations

import re

from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import Rule, event, split, words_of
from pdctl.model.events import Event, Kind

_PROCESS = re.compile(r"(?P<process>\w+) hit an exception|Rank (?P<rank>\d+) (?P<died>scheduler) (?:died|is dead)")
_FATAL = re.compile(r"(?:Fatal Python error: |throwing an instance of |\*\*\* )(?P<reason>[^\n*]+)")
_WATCHDOG = re.compile(
    r"(?P<process>[\w.-]*) ?[Ww]atchdog timeout \((?:self\.)?watchdog_timeout=(?P<timeout_s>\d+(?:\.\d+)?)"
    r"(?:, (?:self\.)?soft=(?P<soft>\w+))?"
)
_NCCL = re.compile(
    r"\[Rank (?P<rank>\d+)\] Watchdog caught collective operation timeout: WorkNCCL\((?P<reason>[^)]*)\)"
    r"(?:.*?ran for (?P<ms>\d+) milli)?"
)
_CHILD = re.compile(
    r"Subprocess (?P<process>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<exit_code>-?\d+)"
    r"|failed with (?:(?:self\.)?exit_?code=|an exit code )(?P<code>-?\d+)(?:\.? ?pid=(?P<child>\d+))?"
    r"|Killed process (?P<killed>\d+) \((?P<name>[^)]*)\)"
)
_SAME = {"code": "exit_code", "child": "pid", "killed": "pid", "name": "process", "died": "process"}
_UNIT_END = re.compile(r"Main process exited, code=(?P<how>\w+), status=(?P<exit_code>\d+)/(?P<reason>\w+)")
_REMAINING = re.compile(r"[Rr]emaining number of requests:? (?P<remaining>\d+)")
_HEALTH = re.compile(
    r"last (?P<timeout_s>\d+(?:\.\d+)?) seconds?(?:.*?tic start time: (?P<tic>[\d:]+))?"
    r"(?:.*?last_heartbeat time: (?P<heartbeat>[\d:]+))?"
)
_LEAK = re.compile(r"(?P<pool>[\w.]+) memory leak detected! ?(?P<reason>.{0,300})", re.S)
_ARG = re.compile(
    r"\b(?P<key>disaggregation_mode|model_path|host|port|tp_size|dp_size|watchdog_timeout)=(?P<value>'[^']*'|[\d.]+)"
)
_THREAD = re.compile(r"Exception in thread (?P<thread>.+?):?\s*$")
_TRANSFER_THREADS = ("transfer", "bootstrap", "decode", "heartbeat", "Heartbeat", "probe", "Probe")


def read_crash(record: Record) -> Event:
    """A process that ended by an exception or a fatal signal: ``process``, ``reason`` (the last line of the traceback
    that follows), ``rank`` where a launcher names one."""
    found = words_of(_PROCESS, record.message) | words_of(_FATAL, record.message)
    return event(Kind.CRASH, record, *split(_renamed(found), ("rank",)))


def read_watchdog(record: Record) -> Event:
    """A watchdog that fired. The soft one only dumps stacks; the hard one ends the engine five seconds later."""
    found = words_of(_WATCHDOG, record.message)
    soft = found.pop("soft", "") == "True"
    if not found.get("process"):
        found["process"] = "Scheduler"  # up to 0.5.6 the line names no process: it was the scheduler's
    return event(Kind.SOFT_WATCHDOG if soft else Kind.WATCHDOG, record, *split(found, ("timeout_s",)))


def read_nccl(record: Record) -> Event:
    """NCCL's own watchdog gave up a collective; PyTorch then ends the process."""
    found = words_of(_NCCL, record.message)
    numbers, words = split(found, ("rank", "ms"))
    if (ms := numbers.pop("ms", None)) is not None:
        numbers["timeout_s"] = ms / 1000
    return event(Kind.WATCHDOG, record, numbers, words | {"process": "NCCL"})


def read_child(record: Record) -> Event:
    """A child that died: ``process``, ``pid``, ``exit_code`` where the line names them."""
    found = _renamed(words_of(_CHILD, record.message))
    if "memory" in record.message or "OOM" in record.message:
        found["reason"] = "oom-kill"
    return event(Kind.CHILD_DIED, record, *split(found, ("pid", "exit_code")))


def read_unit_end(record: Record) -> Event:
    """systemd's word on how the main process ended: by itself with success or by SIGTERM is a shutdown, all else a
    crash."""
    found = words_of(_UNIT_END, record.message)
    willing = found.get("reason") in ("SUCCESS", "TERM") or not found
    kind = Kind.SHUTDOWN if willing else Kind.CRASH
    return event(kind, record, *split(found | {"process": "main"}, ("exit_code",)))


def read_shutdown(record: Record) -> Event:
    """A willing end: SIGTERM, draining (``remaining`` requests), the HTTP server's stop."""
    return event(Kind.SHUTDOWN, record, *split(words_of(_REMAINING, record.message), ("remaining",)))


def read_stopping(record: Record) -> Event:
    """systemd stopping the unit; the same word from anyone else is no record of ours."""
    return event(Kind.SHUTDOWN if "systemd[" in record.text else Kind.OTHER, record, None, {"by": "systemd"})


def read_ready(record: Record) -> Event:
    """A complete start: the engine has answered its own warm-up request."""
    return event(Kind.READY, record)


def read_started(record: Record) -> Event:
    """vLLM is ready when its HTTP server is; SGLang's says the same before its warm-up, so it counts for nothing."""
    return event(Kind.READY if "APIServer" in record.text else Kind.OTHER, record)


def read_health(record: Record) -> Event:
    """A health check that got no answer in ``timeout_s``; ``tic`` and ``heartbeat`` are clock times as printed."""
    return event(Kind.HEALTH_FAILED, record, *split(words_of(_HEALTH, record.message), ("timeout_s",)))


def read_leak(record: Record) -> Event:
    """The idle check of a memory pool found entries missing: fatal in strict releases, else a complaint."""
    return event(Kind.MEMORY_LEAK, record, None, words_of(_LEAK, record.message))


def read_server_args(record: Record) -> Event:
    """The settings line an engine begins its log with: ``mode``, ``model_path``, ``host``, ``port``, sizes."""
    found = {m["key"]: m["value"].strip("'") for m in _ARG.finditer(record.message)}
    if "disaggregation_mode" in found:
        found["mode"] = found.pop("disaggregation_mode")
    return event(Kind.SERVER_ARGS, record, *split(found, ("port", "tp_size", "dp_size", "watchdog_timeout")))


def read_thread(record: Record) -> Event:
    """A thread that died of an exception: ``thread``, ``reason``. The process lives on without what it did."""
    found = words_of(_THREAD, record.message)
    telling = any(word in found.get("thread", "") for word in _TRANSFER_THREADS)
    return event(Kind.TRANSFER_THREAD_FAILED if telling else Kind.OTHER, record, None, found)


def _renamed(found: dict[str, str]) -> dict[str, str]:
    return {_SAME.get(key, key): value for key, value in found.items()}


THREAD_START = "Exception in thread "
CRASHES = (
    *(Rule(f"{name} hit an exception", Kind.CRASH, read_crash)
      for name in ("Scheduler", "DetokenizerManager", "TokenizerManager", "DataParallelController")),
    Rule("Fatal Python error: ", Kind.CRASH, read_crash),
    Rule("!!!!!!! Segfault encountered", Kind.CRASH, read_crash),
    Rule("terminate called after throwing an instance of", Kind.CRASH, read_crash),
    Rule("EngineCore encountered a fatal error", Kind.CRASH, read_crash),
    Rule("SIGQUIT received.", Kind.CHILD_DIED, read_child),
    Rule("Received sigquit from a child process", Kind.CHILD_DIED, read_child),
    Rule("Received SIGQUIT from scheduler process", Kind.CHILD_DIED, read_child),
    Rule("Child process unexpectedly failed", Kind.CHILD_DIED, read_child),
    Rule("SIGTERM received.", Kind.SHUTDOWN, read_shutdown),
    Rule("Signal SIGTERM received while", Kind.SHUTDOWN, read_shutdown),
    Rule("Gracefully exiting...", Kind.SHUTDOWN, read_shutdown),
    Rule("The server is fired up and ready to roll!", Kind.READY, read_ready),
    Rule("Out of memory: Killed process", Kind.CHILD_DIED, read_child),
    Rule("A process of this unit has been killed by the OOM killer", Kind.CHILD_DIED, read_child),
    Rule("Main process exited, code=", Kind.CRASH, read_unit_end),
    Rule("Health check failed. Server couldn't get a response", Kind.HEALTH_FAILED, read_health),
)  # fmt: skip
# Known by words that do not stand first, or that anyone may write: the first only at the start, the second anywhere.
STARTS = (
    Rule(THREAD_START, Kind.TRANSFER_THREAD_FAILED, read_thread),
    Rule("Subprocess ", Kind.CHILD_DIED, read_child),
    Rule("Stopping ", Kind.SHUTDOWN, read_stopping),
    Rule("Shutting down", Kind.SHUTDOWN, read_shutdown),
    Rule("Finished server process", Kind.SHUTDOWN, read_shutdown),
    Rule("Application startup complete.", Kind.READY, read_started),
)
INNER = (
    Rule("atchdog timeout (", Kind.WATCHDOG, read_watchdog),
    Rule("Watchdog caught collective operation timeout", Kind.WATCHDOG, read_nccl),
    Rule("taking the entire process down", Kind.CRASH, read_crash),
    Rule("hit an exception: ", Kind.CRASH, read_crash),
    Rule("scheduler died during initialization", Kind.CRASH, read_crash),
    Rule("scheduler is dead. Please check", Kind.CRASH, read_crash),
    Rule("Engine core proc", Kind.CHILD_DIED, read_child),
    Rule("memory leak detected!", Kind.MEMORY_LEAK, read_leak),
    Rule("server_args=ServerArgs(", Kind.SERVER_ARGS, read_server_args),
)
