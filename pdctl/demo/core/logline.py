"""Log lines of the engines, in the exact shape of each release."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.demo.core.leg import Leg
from pdctl.demo.core.rank import Counts
from pdctl.demo.core.release import Traits


@dataclass(frozen=True, slots=True)
class PrefillBatch:
    sequences: int
    tokens: int
    cached: int
    usage: float
    throughput: float
    live: Counts


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    running: int
    tokens: int
    usage: float
    held: float  # pre-allocated usage
    throughput: float
    live: Counts


def prefill_batch(traits: Traits, batch: PrefillBatch) -> str:
    mark = "," if traits.since("0.5.4") else "."
    head = (
        f"Prefill batch{mark} #new-seq: {batch.sequences}, #new-token: {batch.tokens}, "
        f"#cached-token: {batch.cached}, token usage: {batch.usage:.2f}, "
    )
    return head + (_prefill_tail(traits, batch) if traits.since("0.5") else _prefill_tail_04(traits, batch))


def _prefill_tail_04(traits: Traits, batch: PrefillBatch) -> str:
    tail = (
        f"#unbootstrapped-req: {batch.live.bootstrap}, #queue-req: {batch.live.waiting}, "
        f"#transferring-req: {batch.live.inflight}"
    )
    return tail + (f", input throughput (token/s): {batch.throughput:.2f} " if traits.since("0.4.9") else " ")


def _prefill_tail(traits: Traits, batch: PrefillBatch) -> str:
    parts = [f"#running-req: 0, #queue-req: {batch.live.waiting}, "]
    if traits.since("0.5.11"):
        parts.append("#pending-token: 0, ")
    parts.append(f"#{traits.bootstrap_name}-req: {batch.live.bootstrap}, #inflight-req: {batch.live.inflight}, ")
    if traits.since("0.5.16"):
        parts.append("#optimistic-req: 0, ")
    if traits.since("0.5.10"):
        parts.append(f"cuda graph: False, input throughput (token/s): {batch.throughput:.2f}")
    elif traits.since("0.5.4"):
        parts.append(f"input throughput (token/s): {batch.throughput:.2f}, ")
    return "".join(parts)


def decode_batch(traits: Traits, batch: DecodeBatch) -> str:
    mark = "," if traits.since("0.5.4") else "."
    parts = [
        f"Decode batch{mark} #running-req: {batch.running}, #token: {batch.tokens}, "
        f"token usage: {batch.usage:.2f}, pre-allocated usage: {batch.held:.2f}, "
    ]
    if traits.since("0.5"):
        parts.append(f"#prealloc-req: {batch.live.prealloc}, #transfer-req: {batch.live.transfer}, ")
    if traits.since("0.4.9"):
        parts.append(f"#retracted-req: {batch.live.retracted}, ")
    parts.append(f"cuda graph: True, gen throughput (token/s): {batch.throughput:.2f}, ")
    parts.append(
        f"#queue-req: {batch.live.waiting}" + (", " if traits.since("0.5") and not traits.since("0.5.9") else "")
    )
    return "".join(parts)


def failure(traits: Traits, what: str, prefix: str, leg: Leg) -> str:
    """A request's failure: ``prefix`` is how the line names the request ("req" or "decode_req.req")."""
    line = f"{what} for request rank=0 {prefix}.rid={leg.rid!r} {prefix}.bootstrap_room={leg.room}"
    error = f"KVTransferError(bootstrap_room={leg.room}): {leg.error}"
    return f"{line} with exception {error}"


def deferred_timeout(room: int, seconds: float) -> str:
    return (
        f"Deferred KV release for room {room} timed out after {seconds:.1f}s without a full drain ack from prefill; "
        "releasing anyway."
    )


def health_failed(began: str, heard: str) -> str:
    return (
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
        f"tic start time: {began}. last_heartbeat time: {heard}"
    )


def access(client: str, method: str, path: str, status: int, version: str = "1.1") -> str:
    """An access line as uvicorn writes it through the engine's log format."""
    words = {200: "OK", 404: "Not Found", 400: "Bad Request", 401: "Unauthorized", 500: "Internal Server Error",
             503: "Service Unavailable"}  # fmt: skip
    return f'INFO:     {client} - "{method} {path} HTTP/{version}" {status} {words.get(status, "")}'.rstrip()


def rank_words(dp: int | None, tp: int | None) -> str:
    """The ranks in a line's prefix: dp first in every release."""
    words = [f"DP{dp}" if dp is not None else "", f"TP{tp}" if tp is not None else ""]
    return "".join(f" {word}" for word in words if word)
