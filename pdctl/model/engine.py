"""What an engine says of itself over HTTP: its metrics page, live queue counts, server info, health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdctl.model.rank import Rank


class Gauge(StrEnum):
    """Canonical names of the engine values pdctl reads, whatever a release calls them (facts/names.py maps them).
    Gauges first, counters after; a counter's value is the running total since process start."""

    RUNNING = "running"
    QUEUE = "queue"
    BOOTSTRAP = "bootstrap"  # prefill: waits for decode's KV indices
    INFLIGHT = "inflight"  # prefill: KV being sent
    PREALLOC = "prealloc"  # decode: waits for KV memory or handshake
    TRANSFER = "transfer"  # decode: KV arriving
    RETRACTED = "retracted"
    PAUSED = "paused"
    GRAMMAR = "grammar"
    DEFERRED_RELEASE = "deferred-release"  # decode, release 0.5.23 and later
    HOST_RECEIVE = "host-receive"  # decode, release 0.5.21 and later
    TOKEN_USAGE = "token-usage"  # 0..1
    USED_TOKENS = "used-tokens"
    MAX_TOKENS = "max-tokens"
    KV_USED_TOKENS = "kv-used-tokens"
    PENDING_PREALLOC_USAGE = "pending-prealloc-usage"  # 0..1
    GEN_THROUGHPUT = "gen-throughput"  # tokens/s
    UTILIZATION = "utilization"
    # counters
    GENERATION_TOKENS = "generation-tokens"
    PROMPT_TOKENS = "prompt-tokens"
    REQUESTS = "requests"  # finished requests (tokenizer side)
    ABORTED = "aborted"
    BOOTSTRAP_FAILED = "bootstrap-failed"
    TRANSFER_FAILED = "transfer-failed"
    RETRIES = "retries"
    REALTIME_TOKENS = "realtime-tokens"  # scheduler side, per rank; moves with each batch
    GRAPH_PASSES = "graph-passes"  # scheduler side, per rank; moves with each batch
    TRANSFERS_DONE = "transfers-done"  # kv_transfer_latency_ms_count
    TRANSFER_MS = "transfer-ms"  # kv_transfer_latency_ms_sum, milliseconds
    IDLE_SECONDS = "idle-seconds"
    SCHEDULER_CPU_SECONDS = "scheduler-cpu-seconds"
    STAGE_SECONDS = "stage-seconds"  # sum over categories
    START_TIME = "start-time"  # process_start_time_seconds, where exported


COUNTERS = frozenset(
    {
        Gauge.GENERATION_TOKENS, Gauge.PROMPT_TOKENS, Gauge.REQUESTS, Gauge.ABORTED, Gauge.BOOTSTRAP_FAILED,
        Gauge.TRANSFER_FAILED, Gauge.RETRIES, Gauge.REALTIME_TOKENS, Gauge.GRAPH_PASSES, Gauge.TRANSFERS_DONE,
        Gauge.TRANSFER_MS, Gauge.IDLE_SECONDS, Gauge.SCHEDULER_CPU_SECONDS, Gauge.STAGE_SECONDS,
    }
)  # fmt: skip

# Values that every rank keeps for itself and that add up over data-parallel ranks. The rest (usage, throughput
# fractions, start time) do not add up: the greatest is taken.
NOT_SUMMED = frozenset({Gauge.TOKEN_USAGE, Gauge.PENDING_PREALLOC_USAGE, Gauge.UTILIZATION, Gauge.START_TIME})


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One read metrics page. ``values`` maps a canonical name to its value for each rank that exports it; a name
    the page does not hold is absent (absent is not 0). Priority parts are already folded away, duplicated series of
    one rank are their greatest. ``http_active`` are generate-like HTTP requests under way (health, metrics and other
    control endpoints left out), None where the release has no such gauge (before 0.5.8.post1). ``http_seen`` counts
    requests ever begun by endpoint. ``stages`` are scheduler seconds by category (0.5.20 and later). ``stage_counts``
    and ``stage_sums`` hold, by request stage and rank, how many requests went through it since the process started and
    for how many seconds in all (0.5.3 and later); a stage nobody went through yet is absent."""

    values: Mapping[Gauge, Mapping[Rank, float]]
    engine_type: str | None = None
    model: str | None = None
    http_active: float | None = None
    http_seen: Mapping[str, float] = field(default_factory=dict)
    engine: str = "sglang"
    families: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    stage_counts: Mapping[str, Mapping[Rank, float]] = field(default_factory=dict)
    stage_sums: Mapping[str, Mapping[Rank, float]] = field(default_factory=dict)

    def ranks(self, name: Gauge) -> Mapping[Rank, float]:
        return self.values.get(name, {})

    def by_dp(self, name: Gauge) -> dict[int | None, float]:
        """The value for each data-parallel rank: the greatest over its tensor, pipeline and expert ranks."""
        out: dict[int | None, float] = {}
        for rank, value in self.ranks(name).items():
            out[rank.dp] = max(out[rank.dp], value) if rank.dp in out else value
        return out

    def total(self, name: Gauge) -> float | None:
        """The engine's value: summed over data-parallel ranks (greatest for ratios), None when absent."""
        by_dp = self.by_dp(name)
        if not by_dp:
            return None
        return max(by_dp.values()) if name in NOT_SUMMED else sum(by_dp.values())


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One data-parallel rank of ``/v1/loads``. A count the release does not give is None. ``timestamp`` is the
    snapshot's own epoch seconds (release 0.5.16 and later), None where there is none. ``summed``: of ``/get_load``,
    where ``waiting`` is a sum: on prefill with bootstrap, on decode with prealloc, transfer and retracted."""

    dp: int | None
    timestamp: float | None = None
    mode: str | None = None
    running: int | None = None
    waiting: int | None = None
    bootstrap: int | None = None
    inflight: int | None = None
    prealloc: int | None = None
    transfer: int | None = None
    retracted: int | None = None
    prealloc_ready: int | None = None
    used_tokens: int | None = None
    max_tokens: int | None = None
    token_usage: float | None = None
    gen_throughput: float | None = None
    max_running: int | None = None
    summed: bool = False

    def count(self, queue: Gauge) -> int | None:
        """The row's count of one queue, by its canonical name."""
        return {
            Gauge.RUNNING: self.running, Gauge.QUEUE: self.waiting, Gauge.BOOTSTRAP: self.bootstrap,
            Gauge.INFLIGHT: self.inflight, Gauge.PREALLOC: self.prealloc, Gauge.TRANSFER: self.transfer,
            Gauge.RETRACTED: self.retracted, Gauge.USED_TOKENS: self.used_tokens,
        }.get(queue)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loads:
    """``/v1/loads``: ``answered`` is the server's clock at the answer (epoch seconds), not the snapshot's age."""

    rows: tuple[LoadRow, ...]
    version: str | None = None
    answered: float | None = None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """``/server_info``: the settings pdctl judges by. ``args`` holds every top-level scalar, secrets masked."""

    version: str | None
    mode: str | None = None
    args: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    internal: tuple[Mapping[str, object], ...] = ()

    @property
    def release(self) -> tuple[int, ...] | None:
        return parse_release(self.version)


@dataclass(frozen=True, slots=True)
class Health:
    """A health endpoint's answer. Since release 0.4.10.post2 an engine's /health is itself a one-token request."""

    status: int
    took: float


def parse_release(text: str | None) -> tuple[int, ...] | None:
    """Comparable form of a release: "0.5.10.post1" -> (0, 5, 10, 1); no post is 0. None for what is no release.

    >>> parse_release("0.5.10.post1") > parse_release("0.5.10")
    True
    """
    if not text:
        return None
    head = text.strip().lstrip("v").split("+")[0]
    numbers: list[int] = []
    post = 0
    for part in head.split("."):
        if part.startswith("post") and part[4:].isdigit():
            post = int(part[4:])
            break
        digits = ""
        for char in part:
            if not char.isdigit():
                break
            digits += char
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:  # 0.5.4rc1, 0.6.0.dev3
            break
    if len(numbers) < 2:
        return None
    return (*[*numbers, 0, 0][:3], post)
