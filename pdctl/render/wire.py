"""The report as JSON, schema ``pdctl.report/1``: for programs, masked and plain ASCII.

The standard library's json is used: it costs 1 ms to import, msgspec 11. Keys keep the schema's order, keys of free
mappings are sorted. A number that JSON has no word for (NaN, infinity) becomes the string "NaN", "Infinity" or
"-Infinity": never null, which means that there is nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from pdctl import __version__
from pdctl.model.finding import Evidence, Finding, InstanceReport, Report, RuledOut, Unchecked, by_weight
from pdctl.model.rank import WHOLE, Rank
from pdctl.render.escape import mask, mask_value, safe
from pdctl.render.text import rfc3339

SCHEMA = "pdctl.report/1"
# Keys of the schema that a mapping of further details must not shadow.
_OWN_KEYS = ("name", "role", "version", "reachable", "why")


def report_json(report: Report) -> str:
    """The whole report as one JSON document, indented, without a final newline."""
    return dumps(report_value(report), indent=2)


def report_jsonl(report: Report) -> str:
    """One JSON object a line, each with a "kind": finding, unchecked, ruled_out, instance; a summary comes last."""
    value = report_value(report)
    rows = [
        {"kind": kind, **row}
        for kind, key in (
            ("finding", "findings"), ("unchecked", "unchecked"), ("ruled_out", "ruled_out"), ("instance", "instances")
        )
        for row in value[key]
    ]  # fmt: skip
    head = {key: value[key] for key in ("schema", "pdctl", "cluster", "status", "window")}
    counts = {key: len(value[key]) for key in ("findings", "unchecked", "ruled_out", "instances")}
    return "\n".join(dumps(row) for row in [*rows, {"kind": "summary", **head, **counts}])


def report_value(report: Report) -> dict[str, Any]:
    """The report as values that JSON knows, every text masked."""
    return {
        "schema": SCHEMA,
        "pdctl": __version__,
        "cluster": text(report.cluster),
        "status": report.status.value,
        "window": {"start": rfc3339(report.start), "end": rfc3339(report.end), "samples": report.samples},
        "findings": [finding_value(f) for f in by_weight(report.findings)],
        "unchecked": [_unchecked(u) for u in report.unchecked],
        "ruled_out": [_ruled_out(r) for r in report.ruled_out],
        "instances": [_instance(i) for i in report.instances],
    }


def finding_value(finding: Finding) -> dict[str, Any]:
    """One finding. ``rank`` and ``muted`` are null where there is none, ``since`` where it is not known."""
    return {
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "subject": text(finding.subject),
        "rank": None if finding.rank == WHOLE else finding.rank.as_dict(),
        "summary": text(finding.summary),
        "since": rfc3339(finding.since) if finding.since else None,
        "muted": None if finding.muted is None else plain(finding.muted),
        "evidence": [_evidence(e) for e in finding.evidence],
        "against": _texts(finding.against),
        "limits": _texts(finding.limits),
        "next": _texts(finding.next),
    }


def dumps(value: Mapping[str, Any], indent: int | None = None) -> str:
    """One JSON document in plain ASCII; raises ValueError rather than write NaN."""
    separators = (",", ": ") if indent else (",", ":")
    written = json.dumps(value, indent=indent, separators=separators, allow_nan=False)
    return written.replace("\x7f", "\\u007f")


def text(value: str) -> str:
    """Foreign text for JSON: masked, and lone surrogates (bytes that were no UTF-8) written out, which many readers
    of JSON refuse. Control characters stay: JSON escapes them."""
    masked = mask(value)
    try:
        masked.encode("utf-8")
    except UnicodeEncodeError:
        return "".join(safe(char) if "\ud800" <= char <= "\udfff" else char for char in masked)
    return masked


def plain(value: object, key: str = "") -> Any:
    """Any value as JSON knows it: times as RFC 3339, ranks as objects, sets sorted, the rest as text."""
    if value is None or (isinstance(value, bool | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Rank):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {text(str(k)): plain(value[k], str(k)) for k in sorted(value, key=str)}
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain(item, key) for item in value]
    return _word(value, key)


def number(value: float) -> float | int | str:
    """A number; whole ones without a fraction, those JSON has no word for as text."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _word(value: object, key: str) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    word = str(value.value) if isinstance(value, Enum) else str(value)
    return text(mask_value(key, word))


def _evidence(seen: Evidence) -> dict[str, Any]:
    return {
        "saw": text(seen.saw),
        "at": rfc3339(seen.at) if seen.at else None,
        "instance": None if seen.instance is None else text(seen.instance),
        "ask": None if seen.ask is None else text(seen.ask),
        "values": plain(seen.values),
    }


def _unchecked(row: Unchecked) -> dict[str, Any]:
    return {"what": text(row.what), "subject": text(row.subject), "why": text(row.why)}


def _ruled_out(row: RuledOut) -> dict[str, Any]:
    return {"what": text(row.what), "subject": text(row.subject), "by": text(row.by)}


def _instance(row: InstanceReport) -> dict[str, Any]:
    own = {
        "name": text(row.name),
        "role": text(row.role),
        "version": None if row.version is None else text(row.version),
        "reachable": row.reachable,
        "why": None if row.why is None else text(row.why),
    }
    return {**own, **dict(_further(row.details))}


def _further(details: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
    for key in sorted(details):
        if key not in _OWN_KEYS:
            yield text(key), plain(details[key], key)


def _texts(rows: Iterable[str]) -> list[str]:
    return [text(row) for row in rows]
