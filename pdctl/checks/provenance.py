"""Where an answer comes from: which process of which release, and how old what it says is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

from pdctl.model.answer import Fact, Missed, Observation, Why
from pdctl.model.engine import COUNTERS, EngineMetrics, Gauge, LoadRow, Loads, ServerInfo
from pdctl.model.events import Event, Kind, Log
from pdctl.model.rank import Rank
from pdctl.model.window import At, Window

SAME_CLOCK_S = 60.0
PROBE_PATHS = ("/health", "/health_generate")
FRACTIONAL = frozenset({Gauge.TRANSFER_MS})  # a gauge in releases before 0.5.10.post1


def dated(log: Log, event: Event) -> Event:
    """The event with its time in UTC, or with none where the log's zone is not known: engines and routers write local
    time without a zone."""
    return event if event.when is None else replace(event, when=log.utc(event))


def utc(when: datetime) -> datetime:
    """The time as UTC; a view's events are dated already, one without a zone is taken as UTC."""
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def is_after(event: Event, moment: datetime) -> bool:
    return event.when is not None and event.when > moment


def is_probe(event: Event) -> bool:
    """Whether a log record shows a health check: its access line, or a batch of one new token."""
    path = event.words.get("path", "")
    if event.kind == Kind.HTTP_ACCESS:
        return path.split("?")[0] in PROBE_PATHS
    return event.kind == Kind.PREFILL_BATCH and event.words.get("probe") == "likely"


def pages_from(pages: tuple[At[EngineMetrics], ...], since: float) -> tuple[At[EngineMetrics], ...]:
    """The pages from the last one at or before ``since`` on."""
    before = [p for p in pages if p.t <= since]
    return (*before[-1:], *(p for p in pages if p.t > since))


def snapshot_ages(rows: tuple[tuple[At[Loads], LoadRow], ...]) -> list[float]:
    """Age of each dated snapshot when it was answered, in seconds (``model.fresh`` says which is old). The server's own
    clock dates both, else the time of asking. Where a snapshot's time is of another clock (they advance together, far
    apart) the youngest of the window is taken as new."""
    stamps = [row.timestamp or 0.0 for _, row in rows]
    answers = [a.value.answered if a.value.answered is not None else a.seen.at.timestamp() for a, _ in rows]
    lags = [answer - stamp for answer, stamp in zip(answers, stamps, strict=True)]
    if not lags or abs(min(lags)) < SAME_CLOCK_S or not _advance_together(stamps, answers):
        return [abs(lag) for lag in lags]
    return [lag - min(lags) for lag in lags]


def _advance_together(stamps: list[float], answers: list[float]) -> bool:
    """Whether the snapshots' times went on about as fast as the answers'."""
    passed, went = max(answers) - min(answers), max(stamps) - min(stamps)
    return passed > 0 and went >= 0.5 * passed


def version_of(window: Window, name: str) -> str | None:
    """The engine's release as it said last: in /server_info, else in /v1/loads."""
    info = window.last(name, Fact.SERVER_INFO, ServerInfo)
    if info is not None and info.value.version:
        return info.value.version
    loads = window.last(name, Fact.LOADS, Loads)
    return loads.value.version if loads is not None else None


def hinted_release(pages: tuple[At[EngineMetrics], ...], loads: tuple[At[Loads], ...]) -> tuple[int, ...] | None:
    """The oldest release that could have answered so, when none was named: what it shows is claimed, no more."""
    if pages and pages[-1].value.ranks(Gauge.IDLE_SECONDS):
        return (0, 5, 20, 0)
    if any(row.timestamp is not None for at in loads for row in at.value.rows):
        return (0, 5, 16, 0)
    return None


def last_restart(pages: tuple[At[EngineMetrics], ...]) -> At[EngineMetrics] | None:
    """The first page of the process that answers now, when an earlier page was another process's: a counter fell, or
    the start time changed."""
    found = None
    for before, after in pairwise(pages):
        if _is_reset(before.value, after.value):
            found = after
    return found


def _is_reset(before: EngineMetrics, after: EngineMetrics) -> bool:
    old, new = before.total(Gauge.START_TIME), after.total(Gauge.START_TIME)
    if old is not None and new is not None and abs(new - old) > 1.0:
        return True
    return any(_fell(before.ranks(c), after.ranks(c)) for c in sorted(COUNTERS - FRACTIONAL))


def _fell(before: Mapping[Rank, float], after: Mapping[Rank, float]) -> bool:
    """Whether a counter went down, or its series is gone: a new process starts at 0, or without the series."""
    return any(after.get(rank, -1.0) < value - 1e-6 for rank, value in before.items() if value > 0)


def timed_out(rows: tuple[Observation[object], ...]) -> tuple[Observation[object], ...]:
    """The asks that got no answer in time."""
    return tuple(o for o in rows if isinstance(o.got, Missed) and o.got.why == Why.READ_TIMEOUT)
