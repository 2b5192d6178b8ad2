"""Times as answers write them, and the fields captures add to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime


def read_stamp(text: object) -> datetime | None:
    """An RFC 3339 time as an aware time; None for anything else, a time without a zone included."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def text_of(more: Mapping[str, object], key: str) -> str | None:
    value = more.get(key)
    return value if isinstance(value, str) and value else None


def whole_of(value: object) -> int | None:
    """An integer that was written as one; None for anything else (booleans included)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
