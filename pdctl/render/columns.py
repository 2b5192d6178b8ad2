"""What a sample shows of an instance: one row a column. The keys are stable: scripts read them in CSV and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pdctl.model.cluster import ENGINE_ROLES, Role
from pdctl.model.engine import Gauge


class Kind(StrEnum):
    """What a column's number is."""

    QUEUE = "queue"  # a gauge with a live count beside it where the release has one
    GAUGE = "gauge"  # the last report
    NOW = "now"  # true when it was asked
    RATE = "rate"  # a counter's growth a second
    NEW = "new"  # a counter's growth since the sample before


@dataclass(frozen=True, slots=True)
class Column:
    """``key`` names it in CSV and JSON, ``title`` on screen; ``sources`` are the counters added up or the gauge read.
    ``shown`` is False for what only CSV and JSON hold. ``born_late``: absent until it first counts."""

    key: str
    title: str
    roles: tuple[Role, ...]
    kind: Kind
    sources: tuple[Gauge, ...] = ()
    digits: int = 0
    shown: bool = True
    born_late: bool = False


P, D, R = (Role.PREFILL,), (Role.DECODE,), (Role.ROUTER,)
COLUMNS = (
    Column("inflight", "inflight", P, Kind.QUEUE, (Gauge.INFLIGHT,)),
    Column("bootstrap", "bootstrap", P, Kind.QUEUE, (Gauge.BOOTSTRAP,)),
    Column("prealloc", "prealloc", D, Kind.QUEUE, (Gauge.PREALLOC,)),
    Column("transfer", "transfer", D, Kind.QUEUE, (Gauge.TRANSFER,)),
    Column("queue", "queue", ENGINE_ROLES, Kind.QUEUE, (Gauge.QUEUE,)),
    Column("running", "running", ENGINE_ROLES, Kind.QUEUE, (Gauge.RUNNING,)),
    Column("retracted", "retracted", D, Kind.QUEUE, (Gauge.RETRACTED,)),
    Column("token_usage", "KV usage", ENGINE_ROLES, Kind.QUEUE, (Gauge.TOKEN_USAGE,), digits=2),
    Column("http_active", "HTTP active", ENGINE_ROLES, Kind.NOW),
    Column("throughput", "throughput", D, Kind.GAUGE, (Gauge.GEN_THROUGHPUT,), digits=1),
    Column("scheduled_s", "tokens/s", ENGINE_ROLES, Kind.RATE, (Gauge.REALTIME_TOKENS,), digits=1),
    Column("prompt_s", "prompt tokens/s", ENGINE_ROLES, Kind.RATE, (Gauge.PROMPT_TOKENS,), digits=1, shown=False),
    Column("generated_s", "done tokens/s", ENGINE_ROLES, Kind.RATE, (Gauge.GENERATION_TOKENS,), digits=1, shown=False),
    Column("finished_s", "finished/s", ENGINE_ROLES, Kind.RATE, (Gauge.REQUESTS,), digits=1),
    Column("transfers_s", "transfers/s", P, Kind.RATE, (Gauge.TRANSFERS_DONE,), digits=1, shown=False),
    Column("idle", "idle share", ENGINE_ROLES, Kind.RATE, (Gauge.IDLE_SECONDS,), digits=2, shown=False),
    Column(
        "failed",
        "newly failed",
        ENGINE_ROLES,
        Kind.NEW,
        (Gauge.BOOTSTRAP_FAILED, Gauge.TRANSFER_FAILED),
        born_late=True,
    ),
    Column("aborted", "newly aborted", ENGINE_ROLES, Kind.NEW, (Gauge.ABORTED,), born_late=True),
    Column("active", "active", R, Kind.NOW),
    Column("oldest_s", "oldest, seconds", R, Kind.NOW),
    Column("breakers_open", "breakers open", R, Kind.NOW),
    Column("requests_s", "requests/s", R, Kind.RATE, digits=1),
    Column("errors", "new 5xx answers", R, Kind.NEW, born_late=True),
)
