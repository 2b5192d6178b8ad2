"""Router log records: requests begun and ended, workers that failed or refused, the circuit breaker.

sglang-router 0.1.9, 0.2.4, 0.3.2 and smg 1.13, text (stripped of its colours) or ``--log-json``. A latency is a Rust
duration with its unit in 0.1.9 and a whole number of microseconds from 0.2.4 on; of a streaming request it is the time
to the response's headers, not to its end.
"""

from __future__ import annotations

import re

from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import Rule, event, split, words_of
from pdctl.model.events import Event, Kind

_SPAN = re.compile(
    r'http_request\{method=(?P<method>[A-Z]+) (?:uri|path)=(?P<target>\S+) .*?request_id="?(?P<request_id>[^"\s}]+)'
)
_END = re.compile(
    r" status(?:_code)?=(?P<status>\d{3})\b[^}]*? latency=(?P<latency>\d+(?:\.\d+)?)(?P<unit>[a-zµμ]*)[ }]"
)
_PER_SECOND = {"": 1e6, "ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}  # no unit: microseconds
_OUTCOMES = {
    "finished processing request": "finished",
    "request failed with client error": "client-error",
    "request failed with server error": "server-error",
    "client closed the connection": "client-closed",
}
_ENDING = re.compile("|".join(_OUTCOMES))
_WORKER = re.compile(r"(?:(?P<leg>prefill|decode)_url|worker_url|worker)=\"?(?P<worker>https?://[^\s\"]+)")
_URL = re.compile(r"(?:url|failed for|status for|[Ww]orker|URL) \(?(?P<worker>https?://[^\s)\"]+)")
_STATUS = re.compile(r" status=(?P<status>\d{3})\b|status for \S+: (?P<code>\d{3})\b")
_ERROR = re.compile(r"(?:\berror=|/health: |check failed: |: (?=reqwest::))(?P<error>.{1,500})", re.S)
_ERROR_CODE = re.compile(r'error_code="?(?P<error_code>[\w-]+)')
_BREAKER = re.compile(r"state transition: (?P<from>\w+) -> (?P<to>\w+)")
_TRANSITION = re.compile(r"old=(?P<from>\w+) new=(?P<to>\w+)")
_COUNT = re.compile(r"(?:Activated|All) (?P<workers>\d+) worker")
_NO_WORKER = re.compile(
    r"(?P<error>(?:No (?:available )?|Failed to select )(?P<leg>prefill|decode) \w+(?: available)?(?: \([^)]*\))?)"
)


def read_started(record: Record) -> Event | None:
    """A request begun: ``request_id``, ``method``, ``path``. None where the line's beginning was cut off."""
    found = _span(record)
    return event(Kind.ROUTER_STARTED, record, None, found) if found else None


def read_finished(record: Record) -> Event | None:
    """A request ended: ``status``, ``latency_s``, and as ``outcome`` finished, client-error, server-error or
    client-closed. None where the line's beginning was cut off."""
    found = _span(record)
    end = _END.search(record.message)
    if not found or end is None or end["unit"] not in _PER_SECOND:
        return None
    said = _ENDING.search(record.message, end.end())
    found |= {"status": end["status"], "outcome": _OUTCOMES[said[0]] if said else "finished"}
    seconds = float(end["latency"]) / _PER_SECOND[end["unit"]]
    return event(Kind.ROUTER_FINISHED, record, {"status": float(end["status"]), "latency_s": seconds}, found)


def read_worker_error(record: Record) -> Event:
    """A worker that answered with an error, or not at all: ``worker``, ``leg``, ``status``, ``error``."""
    return event(Kind.ROUTER_WORKER_ERROR, record, *split(_trouble(record), ()))


def read_no_worker(record: Record) -> Event:
    """A request refused because no worker of one ``leg`` could be chosen: ``error`` says why, as far as it is known."""
    return event(Kind.ROUTER_NO_WORKER, record, None, _span(record) | words_of(_NO_WORKER, record.message))


def read_breaker(record: Record) -> Event:
    """A circuit breaker's change: ``from`` and ``to`` (closed, open, half_open); no release names the worker here,
    ``worker`` is there if one does."""
    return event(Kind.ROUTER_BREAKER, record, None, words_of(_BREAKER, record.message) | _trouble(record))


def read_unhealthy(record: Record) -> Event:
    """A health check of a worker that failed, or its being taken out of service: ``worker``, ``error``, ``status``."""
    found = _trouble(record)
    if "worker" in found:
        found["worker"] = found["worker"].removesuffix(":").removesuffix("/health")
    return event(Kind.ROUTER_WORKER_UNHEALTHY, record, None, found)


def read_healthy(record: Record) -> Event:
    """Workers taken into service: how many (``workers``), or which (``worker``)."""
    found = words_of(_COUNT, record.message) | words_of(_WORKER, record.message)
    return event(Kind.ROUTER_WORKER_HEALTHY, record, *split(found, ("workers",)))


def read_transition(record: Record) -> Event:
    """smg's word that a worker's state changed: ``worker``, ``from``, ``to`` (Ready, NotReady, ...)."""
    found = words_of(_WORKER, record.message) | words_of(_TRANSITION, record.message)
    ready = found.get("to") == "Ready"
    return event(Kind.ROUTER_WORKER_HEALTHY if ready else Kind.ROUTER_WORKER_UNHEALTHY, record, None, found)


def read_ready(record: Record) -> Event:
    """The router listens; its workers may not count yet."""
    return event(Kind.READY, record)


def read_shutdown(record: Record) -> Event:
    """The router was told to end; it waits for its requests (up to 180 s by default in 0.3.2)."""
    return event(Kind.SHUTDOWN, record)


def read_error(record: Record) -> Event:
    """Anything else a router logs as an error."""
    return event(Kind.ROUTER_ERROR, record, None, _trouble(record))


def _span(record: Record) -> dict[str, str]:
    found = words_of(_SPAN, record.message)
    if found:
        found["path"], _, query = found.pop("target").partition("?")
        if query:
            found["query"] = query
    return found


def _trouble(record: Record) -> dict[str, str]:
    text = record.message
    found = _span(record) | words_of(_URL, text) | words_of(_WORKER, text) | words_of(_STATUS, text)
    found |= words_of(_ERROR, text) | words_of(_ERROR_CODE, text)
    if (code := found.pop("code", None)) is not None:
        found["status"] = code
    return found


STARTED = Rule("started processing request", Kind.ROUTER_STARTED, read_started)
ENDED = Rule("finished processing request", Kind.ROUTER_FINISHED, read_finished)
ERROR = Rule("error", Kind.ROUTER_ERROR, read_error)
# Telling words, wherever they stand in a record; the first that is found counts.
_RULES = (
    Rule("Circuit breaker state transition", Kind.ROUTER_BREAKER, read_breaker),
    Rule("Failed to select PD pair", Kind.ROUTER_NO_WORKER, read_no_worker),
    Rule("No available", Kind.ROUTER_NO_WORKER, read_no_worker),
    Rule("server returned error status", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("Decode request failed", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("Prefill request failed", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("Prefill server failed", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("call_upstream_", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("Failed to send typed request", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("Stream error from decode server", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("PD request transport error", Kind.ROUTER_WORKER_ERROR, read_worker_error),
    Rule("ealth check failed", Kind.ROUTER_WORKER_UNHEALTHY, read_unhealthy),
    Rule("health check returned non-success", Kind.ROUTER_WORKER_UNHEALTHY, read_unhealthy),
    Rule("Health probe failed", Kind.ROUTER_WORKER_UNHEALTHY, read_unhealthy),
    Rule("Worker status transition", Kind.ROUTER_WORKER_UNHEALTHY, read_transition),
    Rule("became unhealthy", Kind.ROUTER_WORKER_UNHEALTHY, read_unhealthy),
    Rule("marked as healthy", Kind.ROUTER_WORKER_HEALTHY, read_healthy),
    Rule("became healthy", Kind.ROUTER_WORKER_HEALTHY, read_healthy),
    Rule("workers are healthy", Kind.ROUTER_WORKER_HEALTHY, read_healthy),
    Rule("Starting server on", Kind.READY, read_ready),
    Rule("Received terminate signal", Kind.SHUTDOWN, read_shutdown),
)
_BY_START = {rule.start: rule for rule in _RULES}
_TELLING = re.compile("|".join(re.escape(rule.start) for rule in _RULES))
_IS_ERROR = re.compile(r"^\S{0,40}\s?\S{0,40}\s*ERROR\s")
_SHAPES = ("http_request{", " smg::", "sglang_router_rs::", "sgl_model_gateway::", "model_gateway/src/")


def is_routers(text: str) -> bool:
    """Whether a record has the shape of a router's."""
    return any(shape in text for shape in _SHAPES)


def rule_for(record: Record) -> tuple[Rule, Record] | None:
    """The rule a router's record falls under; None for a record that says nothing we look for."""
    message = record.message
    if message.endswith("started processing request"):
        return STARTED, record
    if " latency=" in message and "request_id=" in message and _ENDING.search(message, len(message) // 3):
        return ENDED, record
    found = _TELLING.search(message)
    if found is not None:
        return _BY_START[found[0]], record
    return (ERROR, record) if _IS_ERROR.match(record.text) else None
