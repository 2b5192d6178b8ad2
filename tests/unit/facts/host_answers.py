"""Raw answers of hosts, as readers get them."""

from __future__ import annotations

from datetime import UTC, datetime

from pdctl.model.answer import Answer, Fact

AT = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)


def answer(fact: Fact, body: str | bytes | None, ask: str = "ask", **more: object) -> Answer:
    raw = body.encode() if isinstance(body, str) else body
    return Answer("decode-0", fact, ask, 1.0, AT, 0.01, body=raw, more=more)
