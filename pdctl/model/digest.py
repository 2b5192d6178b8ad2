"""Sums over log events: failures by room, latencies, requests that never ended. Pure, for checks and commands alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from pdctl.model.events import Event, Kind, Log
from pdctl.model.rank import Rank

ROOM_FAILURES = (Kind.BOOTSTRAP_FAILED, Kind.TRANSFER_FAILED, Kind.HANDSHAKE_FAILED, Kind.DECODE_TRANSFER_FAILED)
# What a rank says that failed only because another did: the other's line has the cause.
SECONDHAND = ("Failed due to an unknown reason from another rank",)
ENDS = (Kind.ROUTER_FINISHED, Kind.ROUTER_NO_WORKER)
NOT_INFERENCE = ("/health", "/liveness", "/readiness", "/metrics", "/workers", "/get_", "/list_workers", "/flush_cache")
ENDLESS_CAVEAT = (
    "a request without an end may be under way, or ended unlogged: sglang-router 0.3.2 and older log no end where the "
    "client left before the response began, smg none where it refused for want of a worker"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One request that failed, whatever number of ranks and of sides said so. ``when`` is the first line's time,
    ``kinds`` and ``ranks`` are those that spoke, ``lines`` how many lines were about it."""

    room: str | None
    rid: str | None
    when: datetime | None
    reason: str | None
    state: str | None
    timeout_s: float | None
    peer: str | None
    kinds: tuple[Kind, ...]
    ranks: tuple[Rank, ...]
    lines: int
    first: Event


def failures_by_room(events: Iterable[Event]) -> tuple[Failure, ...]:
    """The failed requests among the events, in the order of their first line: all lines about one room are one
    failure. A line without a room counts by its rid, one without either for itself."""
    groups: dict[str, list[Event]] = {}
    for event in events:
        if event.kind in ROOM_FAILURES:
            key = event.words.get("room") or event.words.get("rid") or f"line {event.line}"
            groups.setdefault(key, []).append(event)
    return tuple(_failure(rows) for rows in groups.values())


def _failure(rows: Sequence[Event]) -> Failure:
    telling = next((e for e in rows if e.words.get("reason", SECONDHAND[0]) not in SECONDHAND), rows[0])
    return Failure(
        room=_first(rows, "room"),
        rid=_first(rows, "rid"),
        when=next((e.when for e in rows if e.when is not None), None),
        reason=telling.words.get("reason"),
        state=_first(rows, "state"),
        timeout_s=next((e.numbers["timeout_s"] for e in rows if "timeout_s" in e.numbers), None),
        peer=_first(rows, "peer"),
        kinds=tuple(dict.fromkeys(e.kind for e in rows)),
        ranks=tuple(dict.fromkeys(e.rank for e in rows)),
        lines=len(rows),
        first=rows[0],
    )


def _first(rows: Iterable[Event], word: str) -> str | None:
    return next((e.words[word] for e in rows if word in e.words), None)


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long requests took, in seconds: percentiles by nearest rank (each a value that occurred)."""

    count: int
    p50: float
    p90: float
    p99: float
    max: float


def latencies(seconds: Iterable[float]) -> Latencies | None:
    """Percentiles of the values; None for no value."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    p50, p90, p99 = (percentile(ordered, p) for p in (50, 90, 99))
    return Latencies(len(ordered), p50, p90, p99, ordered[-1])


def percentile(ordered: Sequence[float], p: float) -> float:
    """The nearest-rank percentile of an ascending, non-empty sequence: the least value that at least ``p`` percent of
    the values do not exceed."""
    return ordered[max(0, ceil(p / 100 * len(ordered)) - 1)]


def completions(events: Iterable[Event]) -> tuple[Event, ...]:
    """The router's ends of inference requests that were answered with success (2xx), health and control calls left
    out."""
    return tuple(
        e
        for e in events
        if e.kind is Kind.ROUTER_FINISHED
        and "latency_s" in e.numbers
        and 200 <= e.numbers.get("status", 0) < 300
        and is_inference(e.words)
    )


def is_inference(words: Mapping[str, str]) -> bool:
    """Whether a request's method and path are those of inference, and not of a probe or of control."""
    return words.get("method", "POST") == "POST" and not words.get("path", "").startswith(NOT_INFERENCE)


def slowest(events: Iterable[Event], count: int) -> tuple[Event, ...]:
    """The ``count`` events that took longest, longest first; of equals the earlier one first."""
    timed = [e for e in events if "latency_s" in e.numbers]
    return tuple(sorted(timed, key=lambda e: -e.numbers["latency_s"])[:count])


def unfinished(events: Iterable[Event]) -> tuple[Event, ...]:
    """Router requests that began and have no end among the events, oldest first; those refused for want of a worker
    have ended, whether or not that is logged (see ENDLESS_CAVEAT)."""
    under_way: dict[str, list[Event]] = {}
    for event in events:
        if (key := event.words.get("request_id")) is None:
            continue
        if event.kind is Kind.ROUTER_STARTED:
            under_way.setdefault(key, []).append(event)
        elif event.kind in ENDS and under_way.get(key):
            under_way[key].pop(0)
    return tuple(sorted((e for rows in under_way.values() for e in rows), key=lambda e: e.line))


def merged(logs: Iterable[Log]) -> Log:
    """One log that was read several times, oldest reading first, as one. A record that an earlier reading held is not
    repeated, so tails that overlap and tails that do not are alike."""
    whole: Log | None = None
    for log in logs:
        whole = log if whole is None else _joined(whole, log)
    return whole or Log(())


def _joined(earlier: Log, later: Log) -> Log:
    seen = {e.text for e in earlier.events}
    return Log(
        events=(*earlier.events, *(e for e in later.events if e.text not in seen)),
        lines=max(earlier.lines, later.lines),
        dropped=max(earlier.dropped, later.dropped),
        let_go=max(earlier.let_go, later.let_go),
        offset=later.offset if later.offset is not None else earlier.offset,
    )
