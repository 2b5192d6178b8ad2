"""An engine's batch lines: what a scheduler had in its queues when it wrote them.

Read by key, in any order, unknown keys passed over: fields come and go between releases, and hybrid caches write other
usage fields. Shapes: releases 0.4.6.post5 to 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import event
from pdctl.model.events import Event, Kind

_BATCH = re.compile(r"(?:Prefill|Decode) batch(?: \[\d+\])?[.,] *")
_TWO_DECIMALS = re.compile(r"throughput \(token/s\): -?\d+\.\d\d(?!\d)")
_BOTH = {
    "token usage": "token_usage",
    "full token usage": "full_token_usage",
    "swa token usage": "swa_token_usage",
    "mamba usage": "mamba_usage",
    "gpu token usage": "gpu_token_usage",
    "#running-req": "running",
    "#queue-req": "queue",
}
_PREFILL: Mapping[str, str] = {
    **_BOTH,
    "#new-seq": "new_seq",
    "#new-token": "new_token",
    "#cached-token": "cached_token",
    "#pending-token": "pending_token",
    "#replay-token": "replay_token",
    "#unbootstrapped-req": "bootstrap",  # 0.4.6 to 0.4.9
    "#prealloc-req": "bootstrap",  # 0.5.3 to 0.5.11: the bootstrap queue under decode's name
    "#bootstrap-req": "bootstrap",  # 0.5.12.post1 and later
    "#transferring-req": "inflight",  # 0.4.6 to 0.4.9
    "#inflight-req": "inflight",
    "#optimistic-req": "optimistic",
    "input throughput (token/s)": "throughput",
}
_DECODE: Mapping[str, str] = {
    **_BOTH,
    "#token": "token",
    "#full token": "full_token",
    "#swa token": "swa_token",
    "mamba num": "mamba_num",
    "#gpu token": "gpu_token",
    "pre-allocated usage": "preallocated_usage",
    "#prealloc-req": "prealloc",
    "#transfer-req": "transfer",
    "#host-receive-req": "host_receive",
    "#retracted-req": "retracted",
    "accept len": "accept_len",
    "accept rate": "accept_rate",
    "cap len": "cap_len",
    "block accept len": "block_accept_len",
    "gen throughput (token/s)": "throughput",
}
_PARTS_OF_USAGE = ("full_token_usage", "swa_token_usage", "mamba_usage")
LIKELY_PROBE: Mapping[str, str] = MappingProxyType({"probe": "likely"})


def read_prefill(record: Record) -> Event | None:
    """A prefill batch, None where the line was cut short. ``words["probe"]`` is "likely" for the one-token batch that
    a health check makes: it counts itself as in flight from release 0.5.10.post1 on."""
    numbers = _numbers(record.message, _PREFILL)
    if not _is_whole_prefill(numbers, record):
        return None
    probe = numbers["new_seq"] == 1 and numbers["new_token"] == 1 and not numbers.get("cached_token")
    return event(Kind.PREFILL_BATCH, record, numbers, LIKELY_PROBE if probe else None)


def read_decode(record: Record) -> Event | None:
    """A decode report, written every 40 decode steps by default; None where the line was cut short."""
    numbers = _numbers(record.message, _DECODE)
    if "running" not in numbers or "queue" not in numbers or not _TWO_DECIMALS.search(record.message):
        return None
    return event(Kind.DECODE_BATCH, record, numbers)


def _is_whole_prefill(numbers: Mapping[str, float], record: Record) -> bool:
    """Whether nothing of the line is missing. From 0.4.9 to 0.5.1 and from 0.5.6 on it ends in a throughput of two
    decimals; without one it ends in a separator, which a collector may have stripped from a line that has an end."""
    if not {"new_seq", "new_token", "queue"} <= numbers.keys():
        return False
    if _TWO_DECIMALS.search(record.message) or record.message.endswith((",", ", ", " ")):
        return True
    return record.ended and record.message.startswith("Prefill batch.") and "throughput" not in record.message


def _numbers(message: str, keys: Mapping[str, str]) -> dict[str, float]:
    head = _BATCH.match(message)
    found: dict[str, float] = {}
    for field in message[head.end() :].rstrip(", ").split(", ") if head else ():
        key, _, value = field.partition(": ")
        if (name := keys.get(key)) is not None and (number := _finite(value)) is not None:
            found[name] = number
    if "token_usage" not in found and (parts := [found[name] for name in _PARTS_OF_USAGE if name in found]):
        found["token_usage"] = max(parts)  # as the engine's own gauge of a hybrid cache
    return found


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if -1e18 < number < 1e18 else None
