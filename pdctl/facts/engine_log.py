"""Engine log records: which reader a line belongs to. SGLang and vLLM alike, whatever prefix stands before."""

from __future__ import annotations

import re

from pdctl.facts import engine_batch, engine_failure, engine_process, engine_request, vllm_log
from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import Rule, Rules
from pdctl.model.events import Kind

_BATCHES = (
    Rule("Prefill batch", Kind.PREFILL_BATCH, engine_batch.read_prefill),
    Rule("Decode batch", Kind.DECODE_BATCH, engine_batch.read_decode),
)
_STRONG = (
    *_BATCHES,
    *engine_failure.FAILURES,
    *engine_failure.PEERS,
    *engine_process.CRASHES,
    *engine_request.OTHERS,
)
_RULES = Rules(
    (*_STRONG, *engine_failure.SESSIONS, *engine_process.STARTS, *engine_request.REQUESTS, *vllm_log.RULES),
    _STRONG,
    (*engine_process.INNER, *engine_request.STATS),
)
_UVICORN = re.compile(r"(?:INFO|WARNING|ERROR):\s+")


def rule_for(record: Record) -> tuple[Rule, Record] | None:
    """The rule an engine's record falls under, and the record with its message beginning where the rule's words do;
    None for a record that is none of ours."""
    uvicorn = _UVICORN.match(record.message)
    if uvicorn is not None:
        record = record._replace(message=record.message[uvicorn.end() :])
        if ' - "' in record.message:
            return engine_request.ACCESS, record
    return _RULES.find(record)
