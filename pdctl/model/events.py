"""Events read from engine and router logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from pdctl.model.rank import WHOLE, Rank


class Kind(StrEnum):
    """What a log record says. Part D and H5 of the engines' and routers' logs, whatever the release's wording."""

    PREFILL_BATCH = "prefill-batch"
    DECODE_BATCH = "decode-batch"
    BOOTSTRAP_FAILED = "bootstrap-failed"
    TRANSFER_FAILED = "transfer-failed"  # prefill side
    HANDSHAKE_FAILED = "handshake-failed"  # decode side
    DECODE_TRANSFER_FAILED = "decode-transfer-failed"
    PREFILL_INFO_FAILED = "prefill-info-failed"
    REGISTER_FAILED = "register-failed"
    RECONNECT = "reconnect"
    LOST_PREFILL = "lost-prefill"
    SESSION_FAILED = "session-failed"
    SESSION_RECOVERED = "session-recovered"
    DEFERRED_RELEASE_TIMEOUT = "deferred-release-timeout"
    METADATA_CORRUPT = "metadata-corrupt"
    TRANSFER_THREAD_FAILED = "transfer-thread-failed"
    TIMEOUT_HINT = "timeout-hint"  # logged once a process
    HEALTH_FAILED = "health-failed"
    WATCHDOG = "watchdog"
    SOFT_WATCHDOG = "soft-watchdog"
    CRASH = "crash"
    CHILD_DIED = "child-died"
    SHUTDOWN = "shutdown"
    READY = "ready"
    MEMORY_LEAK = "memory-leak"
    REQUEST_RECEIVED = "request-received"
    REQUEST_FINISHED = "request-finished"
    CACHE_NOT_FLUSHED = "cache-not-flushed"
    DISCONNECTED = "disconnected"
    HTTP_ACCESS = "http-access"
    VLLM_STATS = "vllm-stats"
    VLLM_DELAYED_FREE = "vllm-delayed-free"
    SERVER_ARGS = "server-args"
    # router
    ROUTER_STARTED = "router-started"
    ROUTER_FINISHED = "router-finished"
    ROUTER_ERROR = "router-error"
    ROUTER_NO_WORKER = "router-no-worker"
    ROUTER_WORKER_ERROR = "router-worker-error"
    ROUTER_BREAKER = "router-breaker"
    ROUTER_WORKER_UNHEALTHY = "router-worker-unhealthy"
    ROUTER_WORKER_HEALTHY = "router-worker-healthy"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Event:
    """One log record. ``when`` is what the line says: naive local time of its host where the line has no zone
    (engines and routers write none), aware UTC where it has one. ``numbers`` are the record's figures by canonical
    key (running, queue, bootstrap, inflight, prealloc, transfer, new_seq, new_token, throughput, latency_s,
    timeout_s, ...), ``words`` its texts (rid, room, peer, state, reason, request_id, method, path, status, client,
    worker, ...). ``text`` is the record as written, stripped of colours, never to be shown unescaped."""

    kind: Kind
    text: str
    when: datetime | None = None
    rank: Rank = WHOLE
    numbers: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True)
class Log:
    """A read log: events in the order written. ``lines`` counts input lines, ``dropped`` records cut short.

    ``let_go`` counts records of the noisy kinds (batches, HTTP accesses, requests, plain text) that were older than
    the newest ones kept; rare kinds are all kept. ``offset`` is how far the log's clock is ahead of UTC, None where
    nothing told: then a naive time of this log cannot be laid beside another clock."""

    events: tuple[Event, ...]
    lines: int = 0
    dropped: int = 0
    let_go: int = 0
    offset: timedelta | None = None

    def of(self, *kinds: Kind) -> tuple[Event, ...]:
        return tuple(e for e in self.events if e.kind in kinds)

    def utc(self, event: Event) -> datetime | None:
        """The event's time as an aware UTC time; None where it has none or the log's zone is not known."""
        return in_utc(event.when, self.offset)


def in_utc(when: datetime | None, offset: timedelta | None) -> datetime | None:
    """A log's time as an aware UTC time: an aware one is converted, a naive one needs its clock's offset."""
    if when is None or (when.tzinfo is None and offset is None):
        return None
    if when.tzinfo is not None:
        return when.astimezone(UTC)
    return (when - (offset or timedelta())).replace(tzinfo=UTC)
