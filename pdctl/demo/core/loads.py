"""The live counts an engine tells: /v1/loads in each release's shape, and /get_load of the older ones."""

from __future__ import annotations

from datetime import UTC, datetime

from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.prefill import PrefillRank
from pdctl.demo.core.rank import Counts, Rank
from pdctl.demo.core.release import LoadsKind


def render_loads(engine: SimEngine, epoch: float) -> dict[str, object]:
    """The body of /v1/loads as of now. ``epoch`` is the wall time of the simulation's second 0."""
    now = engine.tl.now
    body: dict[str, object] = {"timestamp": _iso(epoch + now), "version": engine.spec.version}
    if engine.traits.loads is LoadsKind.RPC:
        body["dp_rank_count"] = engine.spec.dp
    if engine.traits.since("0.5.19"):
        body |= {"accelerator": None, "num_accelerators": engine.spec.tp}
    body["loads"] = [_row(engine, rank, *rank.published(now), epoch) for rank in engine.ranks]
    if engine.traits.loads is LoadsKind.RPC:
        body["aggregate"] = _aggregate([rank.counts() for rank in engine.ranks], engine.spec.kv_tokens)
    return body


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def _row(engine: SimEngine, rank: Rank, at: float, live: Counts, epoch: float) -> dict[str, object]:
    traits, spec = engine.traits, engine.spec
    row: dict[str, object] = {}
    if traits.loads_timestamp:
        row["timestamp"] = epoch + at
    if traits.loads is not LoadsKind.RPC or spec.dp > 1:
        row["dp_rank"] = rank.dp
    row |= {"num_running_reqs": live.running, "num_waiting_reqs": live.all_waiting}
    if traits.loads is not LoadsKind.RPC:
        row["num_waiting_uncached_tokens"] = 0
    row["num_used_tokens"] = live.used
    if traits.loads is not LoadsKind.RPC:
        row["num_total_tokens"] = live.used + live.pending
    row |= {
        "max_total_num_tokens": spec.kv_tokens,
        "max_running_requests": spec.max_running,
        "token_usage": round(live.used / spec.kv_tokens, 4),
        "gen_throughput": round(live.throughput if live.running else 0.0, 2),
        "cache_hit_rate": 0.0,
        "utilization": -1.0 if spec.is_prefill and traits.since("0.5.10") else 0.0,
        "disaggregation": _disaggregation(rank, live),
        "queues": _queues(rank, live),
    }
    if traits.loads is LoadsKind.RPC:
        row["num_total_reqs"] = live.running + live.all_waiting
    return row


def _disaggregation(rank: Rank, live: Counts) -> dict[str, object]:
    speed, latency = (rank.last_speed, rank.last_transfer_ms) if isinstance(rank, PrefillRank) else (0.0, 0.0)
    return {
        "mode": "prefill" if rank.spec.is_prefill else "decode",
        f"prefill_{rank.traits.bootstrap_name}_queue_reqs": live.bootstrap,
        "prefill_inflight_queue_reqs": live.inflight,
        "decode_prealloc_queue_reqs": live.prealloc,
        "decode_transfer_queue_reqs": live.transfer,
        "decode_retracted_queue_reqs": live.retracted,
        "kv_transfer_speed_gb_s": speed,
        "kv_transfer_latency_ms": latency,
    }


def _queues(rank: Rank, live: Counts) -> dict[str, int]:
    queues = {"waiting": live.waiting, "grammar": 0, "paused": 0, "retracted": live.retracted}
    if rank.traits.since("0.5.19"):
        queues["prealloc_ready"] = live.prealloc_ready
    return queues


def _aggregate(rows: list[Counts], size: int) -> dict[str, object]:
    many = max(len(rows), 1)
    return {
        "total_running_reqs": sum(row.running for row in rows),
        "total_waiting_reqs": sum(row.all_waiting for row in rows),
        "total_reqs": sum(row.running + row.all_waiting for row in rows),
        "avg_token_usage": round(sum(row.used for row in rows) / size / many, 4),
        "avg_throughput": round(sum(row.throughput for row in rows) / many, 2),
        "avg_utilization": 0.0,
    }


def render_get_load(engine: SimEngine) -> list[dict[str, object]]:
    """The body of /get_load (releases 0.4.9 to 0.5.20): requests in flight are not in it, their tokens are."""
    rows: list[dict[str, object]] = []
    for rank in engine.ranks:
        live = rank.counts()
        rows.append(
            {
                "dp_rank": rank.dp, "num_reqs": live.running + live.all_waiting,
                "num_waiting_reqs": live.all_waiting, "num_tokens": live.used + live.pending,
            }
        )  # fmt: skip
    return rows
