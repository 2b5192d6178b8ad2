"""Bodies as text and as JSON, with the reason where they are neither."""

from __future__ import annotations

import json

from pdctl.facts.base import Unreadable
from pdctl.model.answer import Answer, Why


def body_of(answer: Answer) -> bytes:
    """The raw bytes. Raises ``Unreadable`` where nothing came."""
    if answer.body is None:
        raise Unreadable(Why.EMPTY, "no answer was kept")
    return answer.body


def text_of(answer: Answer) -> str:
    """The body as text, broken UTF-8 replaced. Raises ``Unreadable`` for a missing or blank body."""
    text = body_of(answer).decode("utf-8", "replace")
    if not text.strip():
        raise Unreadable(Why.EMPTY, "the answer is empty")
    return text


def json_of(answer: Answer) -> object:
    """The body as a JSON value. Raises ``Unreadable``."""
    text = text_of(answer)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(Why.NOT_JSON, f"not JSON: {str(error)[:120]}") from None


def rows_of(answer: Answer) -> list[dict[str, object]]:
    """The body as a JSON list of objects. Raises ``Unreadable``."""
    value = json_of(answer)
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise Unreadable(Why.OTHER, "not a JSON list of objects")
    return value
