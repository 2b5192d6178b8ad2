"""Log answers for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pdctl.facts.log import read
from pdctl.model.answer import Answer, Fact
from pdctl.model.cluster import Instance, Role
from pdctl.model.events import Event, Log

DATA = Path(__file__).parent / "data" / "log"
ASKED = datetime(2026, 11, 12, 3, 20, tzinfo=UTC)


def log_of(text: str | bytes, role: Role | None = None, asked: datetime = ASKED, **more: object) -> Log:
    """The log that a text holds, read of an instance of that role (of none: by shape)."""
    body = text.encode() if isinstance(text, str) else text
    answer = Answer("it", Fact.LOG, "tail it.log", 0.0, asked, 0.0, body=body, more=more)
    return read(answer, Instance("it", role) if role else None)


def event_of(line: str, role: Role | None = None) -> Event:
    """The one event of one line."""
    log = log_of(line + "\n", role)
    assert len(log.events) == 1, [e.kind for e in log.events]
    return log.events[0]
