"""Log events for people and for programs: a line each, failures by room, slow requests, latencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from pdctl.model.cluster import Role
from pdctl.model.digest import ENDLESS_CAVEAT, Failure, Latencies
from pdctl.model.events import Event, Kind
from pdctl.render.look import Look, Mark
from pdctl.render.text import pad, rfc3339
from pdctl.render.wire import number, text

_BAD = frozenset({
    Kind.CRASH, Kind.CHILD_DIED, Kind.WATCHDOG, Kind.BOOTSTRAP_FAILED, Kind.TRANSFER_FAILED, Kind.HANDSHAKE_FAILED,
    Kind.DECODE_TRANSFER_FAILED, Kind.LOST_PREFILL, Kind.METADATA_CORRUPT, Kind.TRANSFER_THREAD_FAILED,
    Kind.ROUTER_NO_WORKER,
})  # fmt: skip
_WARN = frozenset({
    Kind.SOFT_WATCHDOG, Kind.MEMORY_LEAK, Kind.HEALTH_FAILED, Kind.SESSION_FAILED, Kind.RECONNECT, Kind.REGISTER_FAILED,
    Kind.PREFILL_INFO_FAILED, Kind.TIMEOUT_HINT, Kind.DEFERRED_RELEASE_TIMEOUT, Kind.DISCONNECTED, Kind.SHUTDOWN,
    Kind.ROUTER_ERROR, Kind.ROUTER_WORKER_ERROR, Kind.ROUTER_BREAKER, Kind.ROUTER_WORKER_UNHEALTHY,
})  # fmt: skip
KIND_WIDTH = 22
NO_TIME = "-" * len("2026-11-12 03:14:00")


def event_line(look: Look, event: Event, message: str, clock: datetime | None, source: str = "") -> str:
    """One event: time by the log's own clock, the instance where there are several, kind, rank and message."""
    name = f"{look.say(source)}  " if source else ""
    kind = pad(event.kind.value, KIND_WIDTH)
    painted = look.paint(kind, Mark.BAD) if event.kind in _BAD else kind
    if event.kind in _WARN:
        painted = look.paint(kind, Mark.WARN)
    rank = f"{event.rank}  " if str(event.rank) else ""
    return f"{stamp(clock)}  {name}{painted} {rank}{look.say(message)}".rstrip()


def stamp(clock: datetime | None) -> str:
    """A time by a log's own clock, to the millisecond where it has any."""
    if clock is None:
        return NO_TIME
    fraction = f".{clock.microsecond // 1000:03d}" if clock.microsecond else ""
    return f"{clock:%Y-%m-%d %H:%M:%S}{fraction}"


def event_value(event: Event, source: str, utc: datetime | None) -> dict[str, Any]:
    """One event for JSON. ``at`` is UTC with Z where that is known, else absent; ``local`` is what the record says."""
    value: dict[str, Any] = {"instance": text(source), "kind": event.kind.value, "line": event.line}
    if utc is not None:
        value["at"] = rfc3339(utc)
    if event.when is not None:
        value["local"] = rfc3339(event.when)
    return value | {
        "rank": event.rank.as_dict(),
        "numbers": {key: number(event.numbers[key]) for key in sorted(event.numbers)},
        "words": {key: text(event.words[key]) for key in sorted(event.words)},
        "text": text(event.text),
    }


def source_value(name: str, role: Role | None, lines: int, dropped: int, offset: timedelta | None) -> dict[str, Any]:
    """What was read of one log, for JSON; ``ahead_of_utc_s`` is null where nothing told the log's zone."""
    ahead = number(offset.total_seconds()) if offset is not None else None
    told = {"name": text(name), "role": role.value if role else None}
    return told | {"lines": lines, "dropped": dropped, "ahead_of_utc_s": ahead}


# --- failures by room --------------------------------------------------------------------------------------------


def failure_line(look: Look, failure: Failure, sources: Sequence[str]) -> str:
    """One failed request: when first, of which room, who said so, on how many ranks, and why."""
    ranks = [str(rank) for rank in failure.ranks if str(rank)]
    where = f" [{', '.join(ranks[:4])}{' ...' if len(ranks) > 4 else ''}]" if ranks else ""
    kinds = ", ".join(kind.value for kind in failure.kinds)
    lines = f" ({failure.lines} lines)" if failure.lines > 1 else ""
    head = f"{stamp(failure.when)}  {look.paint(pad(kinds, KIND_WIDTH), Mark.BAD)} room {failure.room or 'unknown'}"
    return f"{head}  {look.say(', '.join(sources))}{where}{lines}: {look.say(failure.reason or 'no reason given')}"


def failure_value(failure: Failure, sources: Sequence[str], utc: datetime | None) -> dict[str, Any]:
    """One failed request for JSON."""
    value: dict[str, Any] = {
        "room": failure.room, "rid": failure.rid, "kinds": [kind.value for kind in failure.kinds],
        "instances": [text(name) for name in sources], "ranks": [rank.as_dict() for rank in failure.ranks],
        "lines": failure.lines, "state": failure.state, "timeout_s": failure.timeout_s, "peer": failure.peer,
        "reason": failure.reason, "local": rfc3339(failure.when) if failure.when else None,
        "at": rfc3339(utc) if utc else None,
    }  # fmt: skip
    return {key: text(v) if isinstance(v, str) else v for key, v in value.items() if v is not None}


# --- requests of the router --------------------------------------------------------------------------------------


def slow_line(look: Look, event: Event, clock: datetime | None, source: str) -> str:
    """One request that took long: how long, how it ended, when, which."""
    words = event.words
    what = f"{words.get('method', '')} {words.get('path', '')}".strip()
    took = f"{event.numbers['latency_s']:10.3f} s"
    return f"{took}  {words.get('status', '?'):>3}  {stamp(clock)}  {look.say(source)}  {look.say(what)}  " + look.say(
        words.get("request_id", words.get("rid", ""))
    )


def latency_lines(rows: Iterable[tuple[str, str, Latencies]], look: Look) -> Iterator[str]:
    """The percentiles of completed requests, a row a path of a router, in seconds."""
    shown = [(look.say(source), look.say(path), spread) for source, path, spread in rows]
    if not shown:
        yield "no completed inference request in the log"
        return
    first = max(len("router"), *(len(source) for source, _, _ in shown))
    second = max(len("path"), *(len(path) for _, path, _ in shown))
    yield f"{pad('router', first)}  {pad('path', second)}  {'count':>8}" + "".join(
        f"{name:>10}" for name in ("p50 s", "p90 s", "p99 s", "max s")
    )
    for source, path, s in shown:
        figures = "".join(f"{value:10.3f}" for value in (s.p50, s.p90, s.p99, s.max))
        yield f"{pad(source, first)}  {pad(path, second)}  {s.count:>8}{figures}"


def ends_line(look: Look, source: str, statuses: Iterable[tuple[str, int]], endless: int) -> str:
    """How the requests of a router ended, by status, and how many have no end."""
    ended = ", ".join(f"{count} with {look.say(status)}" for status, count in statuses) or "none"
    return f"{look.say(source)}: ended {ended}; {endless} began and have no end" + (
        f" ({ENDLESS_CAVEAT})" if endless else ""
    )


def spread_value(source: str, path: str, spread: Latencies) -> dict[str, Any]:
    """The percentiles of one path of a router for JSON, in seconds."""
    return {
        "instance": text(source), "path": text(path), "count": spread.count,
        "p50_s": spread.p50, "p90_s": spread.p90, "p99_s": spread.p99, "max_s": spread.max,
    }  # fmt: skip


def ends_value(source: str, statuses: Iterable[tuple[str, int]], endless: int) -> dict[str, Any]:
    """How the requests of a router ended, for JSON."""
    return {
        "instance": text(source),
        "ended": {text(status): count for status, count in statuses},
        "without_end": endless,
        "caveat": ENDLESS_CAVEAT,
    }
