"""A health endpoint's answer -> Health. Its body is empty or a word; status and time are what it says."""

from __future__ import annotations

from pdctl.facts.base import Unreadable
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.engine import Health


def read(answer: Answer, instance: Instance | None) -> Health:
    """Status and seconds taken. An engine answers 503 while it starts, drains, or has had no output for 20 s; a 200
    takes it at least a second (release 0.4.10.post2 and later)."""
    if answer.status is None:
        raise Unreadable(Why.OTHER, "no HTTP status was recorded")
    return Health(answer.status, answer.took)
