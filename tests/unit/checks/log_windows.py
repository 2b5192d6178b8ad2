"""Windows that hold logs as they are written, read by the real readers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pdctl.facts import read
from pdctl.model.answer import Answer, Fact, Observation, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.window import Window

START = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)
CLUSTER = Cluster("test", (Instance("p", Role.PREFILL), Instance("d", Role.DECODE), Instance("r", Role.ROUTER)))


def log_answer(name: str, text: str, t: float = 0.0, error: Why | None = None) -> Observation[Any]:
    """A reading of an instance's log, ``t`` seconds into the window, its last line just written by a host on UTC."""
    at = START + timedelta(seconds=t)
    answer = Answer(name, Fact.LOG, f"tail {name}.log", t, at, 0.01, error=error, body=None if error else text.encode())
    return read(answer, CLUSTER.instance(name))


def window_of(*observations: Observation[Any], seconds: float = 60.0) -> Window:
    return Window(START, START + timedelta(seconds=seconds), observations)
