"""Log records that a collector wrapped in JSON: ``journalctl -o json``, docker's json-file, and routers' --log-json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pdctl.facts.log_time import read_stamp

_TIMES = ("time", "timestamp", "@timestamp", "ts")
_TEXTS = ("MESSAGE", "log", "message", "msg")


class Wrapped(NamedTuple):
    """What a JSON line holds: one text, of one or more lines, and the wrapper's own time."""

    text: str
    when: datetime | None


def unwrapped(line: str) -> Wrapped | None:
    """The text inside a JSON line; None where the line is no wrapper (an engine's JSON request log is none)."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if "target" in fields and ("message" in fields or "fields" in fields):
        return Wrapped(_as_router_line(fields), _time(fields))
    text = next((fields[key] for key in _TEXTS if key in fields), None)
    return Wrapped(_text(text), _time(fields)) if text is not None else None


def _text(value: object) -> str:
    """journald writes a text that is no UTF-8, or holds control characters, as a list of bytes."""
    if isinstance(value, list):
        return bytes(b for b in value if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "backslashreplace")
    return str(value)


def _time(fields: Mapping[str, object]) -> datetime | None:
    micros = str(fields.get("__REALTIME_TIMESTAMP", ""))
    if micros.isascii() and micros.isdigit() and len(micros) <= 17:
        return datetime.fromtimestamp(int(micros) / 1e6, UTC)
    return next((read_stamp(str(fields[key])) for key in _TIMES if key in fields), None)


_SPAN_ORDER = ("method", "uri", "path", "version", "module", "request_id", "status_code", "status", "latency")
_NOT_SAID = frozenset({"timestamp", "level", "message", "target", "filename", "line_number", "span", "spans", "fields"})


def _as_router_line(fields: Mapping[str, object]) -> str:
    """A router's JSON record (seen on smg 1.13.0) in the shape of its text record, so that one reader does for both."""
    inner = _mapping(fields.get("fields")) or fields
    span = dict(_mapping(fields.get("span")))
    name = span.pop("name", None)
    order = {key: span[key] for key in _SPAN_ORDER if key in span}
    head = f"{name}{{{_pairs(order | span)}}}: " if name else ""
    more = _pairs({key: value for key, value in inner.items() if key not in _NOT_SAID})
    said = f"{inner.get('message', '')} {more}".rstrip()
    return f"{fields.get('level', '')} {head}{fields['target']}: {said}".replace("\n", "\\n")


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _pairs(fields: Mapping[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in fields.items())
