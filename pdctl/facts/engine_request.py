"""Engine records about single requests: HTTP accesses, request logs, time stats, clients that left.

Wording of uvicorn, utils/request_logger.py, observability/req_time_stats.py and managers/tokenizer_manager.py,
releases 0.4.6.post5 to 0.5.23.
"""

from __future__ import annotations

import re
from functools import partial

from pdctl.facts.engine_failure import RID, ROOM
from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import Rule, event, split, words_of
from pdctl.model.events import Event, Kind

_ACCESS = re.compile(
    r'(?P<client>\S+) - "(?P<method>[A-Z]{1,12}) (?P<target>.*) HTTP/[\d.]+" (?P<status>\d{3})(?!\d)', re.S
)
_LATENCY = re.compile(r"['\"]e2e_latency['\"]: (?P<latency_s>\d+(?:\.\d+)?)")
_JSON_EVENT = re.compile(r'"event": ?"(?P<event>[\w.]+)"')
_JSON_RID = re.compile(r'"rid": ?"(?P<rid>[^"]+)"')
_STAT = re.compile(r"(?P<key>[a-z_]+(?: [a-z]+)?)=(?P<value>-?\d+(?:\.\d+)?)\s?(?P<unit>ms|s|GB/s|MB)?(?=[,)\s]|$)")
_LEFT = re.compile(r"\(type (?P<type>\d+)\)")
_PENDING = re.compile(r"#queue-req: (?P<queue>\d+), #running-req: (?P<running>\d+)")
_JSON_KINDS = {"request.received": Kind.REQUEST_RECEIVED, "request.finished": Kind.REQUEST_FINISHED}


def read_access(record: Record) -> Event | None:
    """One HTTP request that was answered: ``client``, ``method``, ``path``, ``query``, ``status``."""
    found = words_of(_ACCESS, record.message)
    if not found:
        return None
    found["path"], _, query = found.pop("target").partition("?")
    if query:
        found["query"] = query
    return event(Kind.HTTP_ACCESS, record, {"status": float(found["status"])}, found)


def read_request(kind: Kind, record: Record) -> Event:
    """A request received or finished (``--log-requests``): the one place that names the rids that are outstanding."""
    found = words_of(RID, record.message) | words_of(ROOM, record.message)
    if kind is Kind.REQUEST_FINISHED:
        found |= words_of(_LATENCY, record.message)
    return event(kind, record, *split(found, ("latency_s",)))


def read_json_request(record: Record) -> Event:
    """The same in ``--log-requests-format json``; any other JSON event is plain text to us."""
    kind = _JSON_KINDS.get(words_of(_JSON_EVENT, record.message).get("event", ""), Kind.OTHER)
    found = words_of(_JSON_RID, record.message) | words_of(_LATENCY, record.message)
    return event(kind, record, *split(found, ("latency_s",)))


def read_time_stats(record: Record) -> Event:
    """A finished request's times (``--enable-request-time-stats-logging``): durations in seconds under the engine's own
    names with ``_s``, lengths in tokens, ``transfer_speed`` in GB/s, ``transfer_total`` in MB."""
    numbers: dict[str, float] = {}
    for found in _STAT.finditer(record.message):
        key, value = found["key"].strip().replace(" ", "_"), float(found["value"])
        if key.endswith("duration"):
            numbers[f"{key}_s"] = value / 1000 if found["unit"] == "ms" else value
        elif key.endswith("_len") or key in ("attempts", "transfer_speed", "transfer_total"):
            numbers[key] = value
    words = words_of(RID, record.message) | words_of(ROOM, record.message)
    return event(Kind.REQUEST_FINISHED, record, numbers, words | {"source": "time-stats"})


def read_disconnected(record: Record) -> Event:
    """A client that left; the engine aborts its request. ``type`` 1 is a waiting request, 3 a streaming one."""
    return event(
        Kind.DISCONNECTED, record, *split(words_of(RID, record.message) | words_of(_LEFT, record.message), ("type",))
    )


def read_not_flushed(record: Record) -> Event:
    """A cache flush refused because requests are pending: ``queue``, ``running``."""
    return event(Kind.CACHE_NOT_FLUSHED, record, *split(words_of(_PENDING, record.message), ("queue", "running")))


ACCESS = Rule("INFO:", Kind.HTTP_ACCESS, read_access)
RECEIVED = partial(read_request, Kind.REQUEST_RECEIVED)
FINISHED = partial(read_request, Kind.REQUEST_FINISHED)
REQUESTS = (
    Rule("Receive: obj=", Kind.REQUEST_RECEIVED, RECEIVED),
    Rule("Receive OpenAI: obj=", Kind.REQUEST_RECEIVED, RECEIVED),
    Rule("Finish: obj=", Kind.REQUEST_FINISHED, FINISHED),
    Rule('{"timestamp":', Kind.REQUEST_RECEIVED, read_json_request),
)
STATS = (
    Rule("Req Time Stats(", Kind.REQUEST_FINISHED, read_time_stats),
    Rule("ReqTimeStats(", Kind.REQUEST_FINISHED, read_time_stats),
)
OTHERS = (
    Rule("Error: Request is disconnected from the client side", Kind.DISCONNECTED, read_disconnected),
    Rule("Request is disconnected from the client side", Kind.DISCONNECTED, read_disconnected),
    Rule("Cache not flushed because there are pending requests", Kind.CACHE_NOT_FLUSHED, read_not_flushed),
)
