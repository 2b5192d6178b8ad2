"""Reading a JSON body, and plain values out of it: a field of another type than expected is absent, never guessed."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pdctl.facts.base import Unreadable
from pdctl.model.answer import Answer, Why


def read_json(answer: Answer) -> object:
    """The decoded body. Raises Unreadable: EMPTY, TRUNCATED (the text ends before the value does), NOT_JSON."""
    text = (answer.body or b"").decode("utf-8-sig", "replace").strip()
    if not text:
        raise Unreadable(Why.EMPTY, "the answer has no body")
    try:
        return json.loads(text)
    except RecursionError:
        raise Unreadable(Why.NOT_JSON, "JSON nested too deep to be an answer of this kind") from None
    except ValueError as error:
        raise _unreadable(text, error) from None


def _unreadable(text: str, error: ValueError) -> Unreadable:
    if text.startswith("<"):
        return Unreadable(Why.NOT_JSON, "a web page came instead of JSON")
    cut = isinstance(error, json.JSONDecodeError) and (error.pos >= len(text) or error.msg.startswith("Unterminated"))
    if text[0] in '{["' and cut:
        return Unreadable(
            Why.TRUNCATED, f"truncated: the JSON ends after {len(text)} characters, before its value does"
        )
    return Unreadable(Why.NOT_JSON, "the body is no JSON")


def object_of(value: object) -> dict[str, object]:
    """The value where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def number_of(value: object) -> float | None:
    """A finite number, else None; booleans are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    return number if number - number == 0 else None


def count_of(value: object) -> int | None:
    """A count: a whole number from 0 up, else None."""
    number = number_of(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def flag_of(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def epoch_of(value: object) -> float | None:
    """Epoch seconds of a number, or of an ISO 8601 text (without a zone: UTC, as engines write it)."""
    if not isinstance(value, str):
        return number_of(value)
    try:
        when = datetime.fromisoformat(value)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
