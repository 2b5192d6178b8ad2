"""One line of a capture's index.jsonl: an answer without its body, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pdctl.model.answer import Answer, Fact, Why

FORMAT = 1
BEYOND = 1e10  # seconds: no recording is three hundred years long
KEYS = frozenset({"t", "at", "instance", "fact", "ask", "file", "took", "status", "error", "detail"})
OURS = frozenset({"content_type", "sha256"})  # keys of this writer beyond the format's own
# The errors the format knows. Answers carry no other, but if one did, another reader must not stumble over it.
ERRORS = frozenset(
    {
        Why.CONNECT_REFUSED, Why.CONNECT_TIMEOUT, Why.READ_TIMEOUT, Why.RESET, Why.TRUNCATED, Why.TOO_LARGE,
        Why.REDIRECT_LOOP, Why.TLS, Why.AUTH, Why.NOT_FOUND, Why.PERMISSION, Why.NO_SUCH_TOOL, Why.SSH, Why.OTHER,
    }
)  # fmt: skip
_FACTS = {fact.value: fact for fact in Fact}
_WHYS = {why.value: why for why in Why}


class BadLine(ValueError):
    """A line that stands for no answer; the text says why."""


class UnknownFact(BadLine):
    """A line about a fact this version does not know."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a line says. ``t`` and ``at`` are None where it does not say."""

    instance: str
    fact: Fact
    t: float | None = None
    at: datetime | None = None
    ask: str = ""
    file: str | None = None
    took: float = 0.0
    status: int | None = None
    error: Why | None = None
    detail: str | None = None
    content_type: str | None = None
    more: dict[str, object] = field(default_factory=dict)


def row_of(line: bytes) -> Row:
    """The row a line holds. A missing key equals null; a value of the wrong kind counts as missing. Raises BadLine."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise BadLine("no JSON") from None
    if not isinstance(said, dict):
        raise BadLine("no JSON object")
    instance, fact = said.get("instance"), said.get("fact")
    if not isinstance(instance, str) or not instance:
        raise BadLine("no instance")
    if not isinstance(fact, str) or fact not in _FACTS:
        raise UnknownFact(str(fact)[:40])
    error, detail = _error(_text(said, "error"), _text(said, "detail"))
    return Row(
        instance, _FACTS[fact], _number(said, "t"), read_time(_text(said, "at")), _text(said, "ask") or "",
        _text(said, "file"), _number(said, "took") or 0.0, _whole(said, "status"), error, detail,
        _text(said, "content_type"), {key: said[key] for key in said.keys() - KEYS - OURS if said[key] is not None},
    )  # fmt: skip


def line_of(answer: Answer, file: str | None, **ours: str | None) -> bytes:
    """The line for an answer whose body is at ``file``, newline included."""
    error, detail = answer.error, answer.detail
    if error is not None and error not in ERRORS:
        error, detail = Why.OTHER, f"{answer.error}: {detail}" if detail else str(answer.error)
    said: dict[str, object] = {
        "t": round(answer.t, 6), "at": write_time(answer.at), "instance": answer.subject, "fact": answer.fact.value,
        "ask": answer.ask, "file": file, "took": round(answer.took, 6), "status": answer.status,
        "error": error.value if error else None, "detail": detail,
    }  # fmt: skip
    said |= {key: value for key, value in answer.more.items() if key not in KEYS and key not in OURS}
    said |= {key: value for key, value in ours.items() if value is not None}
    return json.dumps(said, default=str).encode() + b"\n"


def read_time(text: str | None) -> datetime | None:
    """An RFC 3339 time as aware UTC; a time without a zone counts as UTC; None for what is no time."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def write_time(when: datetime) -> str:
    """RFC 3339 in UTC, to the microsecond where it has any."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def moment(start: datetime, seconds: float) -> datetime:
    """So many seconds after the start; the start itself for a span no calendar holds."""
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:
        return start


def _error(word: str | None, detail: str | None) -> tuple[Why | None, str | None]:
    if word is None or word in _WHYS:
        return (_WHYS[word] if word else None), detail
    return Why.OTHER, f"{word}: {detail}" if detail else word


def _text(said: dict[str, object], key: str) -> str | None:
    value = said.get(key)
    return value if isinstance(value, str) else None


def _number(said: dict[str, object], key: str) -> float | None:
    value = said.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if abs(value) < BEYOND else None
    except OverflowError:
        return None


def _whole(said: dict[str, object], key: str) -> int | None:
    value = said.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
