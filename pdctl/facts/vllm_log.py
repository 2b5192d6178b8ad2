"""vLLM's log records: its periodic stats, and blocks kept until a KV transfer is acknowledged.

Seen on 0.11: ``INFO 11-12 03:14:16 [loggers.py:257] Engine 000: ...``; the prefix is stripped before (log_lines).
"""

from __future__ import annotations

import re
from dataclasses import replace

from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import Rule, event, number_of, split, words_of
from pdctl.model.events import Event, Kind
from pdctl.model.rank import WHOLE, Rank

_ENGINE = re.compile(r"Engine (\d{1,6}):")
_FIELD = re.compile(r"([A-Z][A-Za-z ]+): (-?\d+(?:\.\d+)?) ?(%|reqs|tokens/s)?")
_KEYS = {
    "Avg prompt throughput": "prompt_throughput",
    "Avg generation throughput": "throughput",
    "Running": "running",
    "Waiting": "queue",
    "Swapped": "swapped",
    "GPU KV cache usage": "token_usage",
    "CPU KV cache usage": "cpu_usage",
    "Prefix cache hit rate": "prefix_hit_rate",
    "External prefix cache hit rate": "external_hit_rate",
}
_FREE = re.compile(r"Delaying free of (?P<blocks>\d+) blocks for request (?P<rid>\S+)")


def read_stats(record: Record) -> Event:
    """One engine's stats: counts as they are, percentages as fractions of 1, throughputs in tokens/s."""
    numbers: dict[str, float] = {}
    for name, value, unit in _FIELD.findall(record.message):
        key, number = _KEYS.get(name), number_of(value)
        if key is not None and number is not None:
            numbers[key] = number / 100 if unit == "%" else number
    made = event(Kind.VLLM_STATS, record, numbers)
    engine = _ENGINE.match(record.message)
    return replace(made, rank=Rank(dp=int(engine[1]))) if engine and made.rank == WHOLE else made


def read_delayed_free(record: Record) -> Event:
    """Blocks a prefill keeps for a request until its KV is fetched: ``rid``, ``blocks``."""
    return event(Kind.VLLM_DELAYED_FREE, record, *split(words_of(_FREE, record.message), ("blocks",)))


RULES = (
    Rule("Engine 0", Kind.VLLM_STATS, read_stats),
    Rule("Engine 1", Kind.VLLM_STATS, read_stats),
    Rule("Avg prompt throughput: ", Kind.VLLM_STATS, read_stats),
    Rule("Delaying free of ", Kind.VLLM_DELAYED_FREE, read_delayed_free),
)
