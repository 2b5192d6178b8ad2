"""engine-crashed: the log says that a process of the engine died, and nothing after it says that it came back.

What counts as a death: an exception that ended a scheduler, detokenizer or tokenizer process; a child's death as its
parent told it; a hard watchdog; a fatal signal. What does not: a SIGTERM and whatever falls over while the engine
drains after it; a traceback in a helper thread; a soft watchdog; a memory-leak complaint the scheduler survived.

A crash before the log's last "fired up and ready" is history: the engine has been restarted since, and answered its
own warm-up. It is told as ruled out, with its time. So is one after which batches were still logged a minute later, or
before which the process that runs now was not yet there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.model.answer import Fact, Missed, Seen, Why
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.digest import merged
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.events import Event, Kind, Log
from pdctl.model.finding import Confidence, Finding, RuledOut, Unchecked
from pdctl.model.host import Processes
from pdctl.model.window import At, Window

TITLE = "a crash in an engine's log"
DEATHS = (Kind.CRASH, Kind.CHILD_DIED, Kind.WATCHDOG)
BATCHES = (Kind.PREFILL_BATCH, Kind.DECODE_BATCH)
HTTP = (Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO, Fact.HEALTH)
# A hard watchdog waits 5 s before it ends the engine, and other ranks' last lines may straggle in.
AFTERMATH = timedelta(seconds=60)
SHOWN = 5  # lines of a crash given as evidence
LIMIT = "a process killed from outside (SIGKILL, the kernel's OOM killer) writes nothing into its own log"


@dataclass(frozen=True, slots=True)
class Life:
    """What a log tells of its engine's last life. ``deaths`` came unasked and nothing came back after them;
    ``history`` are those that a later start has made good; ``survived`` are complaints that look like a crash."""

    deaths: tuple[Event, ...]
    history: tuple[Event, ...]
    survived: tuple[Event, ...]
    leaks: tuple[Event, ...]
    restarting: bool


def judge_crashes(window: Window, cluster: Cluster) -> Iterator[Verdict]:
    """One verdict an engine: it crashed, it did not as far as its log goes, or its log was not read."""
    for engine in cluster.engines:
        logs = window.seen(engine.name, Fact.LOG, Log)
        if logs:
            yield _judge(window, engine, logs)
        else:
            yield Unchecked(TITLE, engine.name, why_no_log(window, engine.name))


def why_no_log(window: Window, name: str) -> str:
    """Why there is no log of this instance to judge by."""
    missed = window.missed(name, Fact.LOG)
    if not missed or (why := missed[-1].missed) is None:
        return "its log was not asked for"
    return f"its log was not read: {why.detail or why.why}"


def _judge(window: Window, engine: Instance, logs: tuple[At[Log], ...]) -> Verdict:
    log = merged(at.value for at in logs)
    life = read_life(log)
    if life.deaths and (started := _started_after(window, engine.name, log.utc(life.deaths[-1]))) is not None:
        told = f"{what_happened(life.deaths[-1])} at {_clock(life.deaths[-1])}"
        return RuledOut("engine-crashed", engine.name, f"{told}, before today's process started at {started:%H:%M:%S}Z")
    if not life.deaths:
        return RuledOut("engine-crashed", engine.name, _why_not(log, life))
    return _crashed(window, engine, log, life, logs[-1])


def read_life(log: Log) -> Life:
    """The deaths of the log's last life, and what only looks like one."""
    ready = max((i for i, e in enumerate(log.events) if e.kind is Kind.READY), default=-1)
    before, after = log.events[: ready + 1], log.events[ready + 1 :]
    deaths = _unasked(after)
    if deaths and _went_on(after, deaths[-1]):
        before, deaths = (*before, *deaths), ()
    return Life(
        deaths=deaths,
        history=_unasked(before),
        survived=tuple(e for e in after if e.kind in (Kind.SOFT_WATCHDOG, Kind.TRANSFER_THREAD_FAILED)),
        leaks=tuple(e for e in after if e.kind is Kind.MEMORY_LEAK),
        restarting=bool(deaths) and any(e.kind is Kind.SERVER_ARGS and e.line > deaths[-1].line for e in after),
    )


def _unasked(events: Iterable[Event]) -> tuple[Event, ...]:
    """The deaths that no shutdown began: from SIGTERM to the next start, processes may end as they like."""
    stopping, deaths = False, []
    for event in events:
        if event.kind is Kind.SHUTDOWN:
            stopping = True
        elif event.kind in (Kind.READY, Kind.SERVER_ARGS):
            stopping = False
        elif event.kind in DEATHS and not stopping:
            deaths.append(event)
    return tuple(deaths)


def _went_on(events: Iterable[Event], death: Event) -> bool:
    """Whether batches were logged well after the death: the engine runs, its start was not logged or rotated away."""
    return any(
        e.kind in BATCHES
        and e.line > death.line
        and (past := time_between(death.when, e.when)) is not None
        and past > AFTERMATH
        for e in events
    )


def time_between(earlier: datetime | None, later: datetime | None) -> timedelta | None:
    """From one time of a log to another; None where one is missing, or only one of them names a zone."""
    if later is None or earlier is None or (later.tzinfo is None) != (earlier.tzinfo is None):
        return None
    return later - earlier


def _crashed(window: Window, engine: Instance, log: Log, life: Life, at: At[Log]) -> Finding:
    first = life.deaths[0]
    since = log.utc(first)
    answered = _answered_after(window, engine.name, since)
    refused = _refused(window, engine.name)
    told = {e.kind for e in life.deaths}
    return found(
        "engine-crashed",
        engine.name,
        _summary(life),
        confidence=_confidence(len(told) > 1 or refused, answered is not None),
        rank=first.rank,
        since=since,
        evidence=[
            *(saw(_told(e), at, line=e.line, log_time=_clock(e), kind=e.kind.value) for e in life.deaths[:SHOWN]),
            *(saw(f"before it: {_told(e)}", at, line=e.line) for e in life.leaks[-1:] if e.line < first.line),
            *([saw("its HTTP endpoint refuses connections")] if refused else []),
        ],
        against=[f"it answered HTTP at {answered:%H:%M:%S}Z, after the crash: it may have been restarted"]
        if answered
        else [],
        limits=_limits(len(told), refused),
        next=[
            f"pdctl logs {engine.name} --kind crash,child-died,watchdog,memory-leak",
            "pdctl triage",
            "pdctl explain engine-crashed",
        ],
    )


def _confidence(second_signal: bool, answers: bool) -> Confidence:
    if answers:
        return Confidence.LIKELY if second_signal else Confidence.POSSIBLE
    return Confidence.CERTAIN if second_signal else Confidence.LIKELY


def _limits(kinds: int, refused: bool) -> list[str]:
    if kinds > 1 or refused:
        return [LIMIT]
    return [LIMIT, "one line alone says so: no other process's word and no refused connection confirms it"]


def _summary(life: Life) -> str:
    first = life.deaths[0]
    more = len({str(e.rank) for e in life.deaths if e.kind is first.kind}) - 1
    tail = f"; {more} more ranks said the same" if more > 0 else ""
    restart = "; a restart has begun and is not ready yet" if life.restarting else ""
    return f"{what_happened(first)} at {_clock(first)}{tail}{restart}"


def what_happened(death: Event) -> str:
    """One death in a few words: which process, and of what."""
    process = death.words.get("process", "a process")
    reason = f": {_short(death.words['reason'])}" if "reason" in death.words else ""
    if death.kind is Kind.WATCHDOG:
        after = f" after {death.numbers['timeout_s']:g} s without progress" if "timeout_s" in death.numbers else ""
        return f"the {process} watchdog ended the engine{after}{reason}"
    if death.kind is Kind.CHILD_DIED:
        code = f" with exit code {death.numbers['exit_code']:g}" if "exit_code" in death.numbers else ""
        return (
            f"a child process died ({process}{code}){reason}" if "process" in death.words else f"a child died{reason}"
        )
    return f"{process} crashed{reason}"


def _told(event: Event) -> str:
    rank = f" [{event.rank}]" if str(event.rank) else ""
    return f"{what_happened(event)}{rank}" if event.kind in DEATHS else _short(event.text, 200)


def _clock(event: Event) -> str:
    return f"{event.when:%Y-%m-%d %H:%M:%S}" if event.when is not None else f"line {event.line}"


def _short(text: str, most: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _answered_after(window: Window, name: str, crash: datetime | None) -> datetime | None:
    """When the instance last answered over HTTP more than a moment after the crash; None where it did not."""
    if crash is None:
        return None
    rows = [o for fact in HTTP for o in window.timeline(name, fact) if isinstance(o.got, Seen)]
    return max((o.at for o in rows if o.at - crash > AFTERMATH), default=None)


def _started_after(window: Window, name: str, crash: datetime | None) -> datetime | None:
    """When the engine's main process of today started, where that was after the crash; None where it was not, or where
    nothing tells."""
    if crash is None:
        return None
    page = window.last(name, Fact.METRICS, EngineMetrics)
    told = page.value.total(Gauge.START_TIME) if page is not None else None
    starts = [datetime.fromtimestamp(told, UTC)] if told else []
    if (rows := window.last(name, Fact.PROCESSES, Processes)) is not None:
        starts += [p.started for p in rows.value.rows if p.part == "main" and p.started is not None]
    return max((start for start in starts if start > crash), default=None)


def _refused(window: Window, name: str) -> bool:
    """Whether the last thing its HTTP endpoint did was to refuse."""
    rows = sorted((o for fact in HTTP for o in window.timeline(name, fact)), key=lambda o: o.t)
    return bool(rows) and isinstance(rows[-1].got, Missed) and rows[-1].got.why is Why.CONNECT_REFUSED


def _why_not(log: Log, life: Life) -> str:
    parts = [f"no crash that stands in {log.lines} lines of its log"]
    if life.history:
        last = life.history[-1]
        parts.append(f"an earlier one ({what_happened(last)}, {_clock(last)}) is history: it runs again since")
    if life.survived:
        parts.append(f"{len(life.survived)} complaints (soft watchdog, helper thread) did not end it")
    if life.leaks:
        parts.append(f"{len(life.leaks)} memory-leak complaints did not end it")
    return "; ".join(parts)


CHECKS = (Check("engine-crashed", TITLE, ("engine-crashed",), (Fact.LOG,), judge_crashes),)
