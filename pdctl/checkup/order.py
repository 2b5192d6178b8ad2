"""What a check is to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pdctl.checks.stages import Chosen
from pdctl.model.finding import Report, Status


@dataclass(frozen=True, slots=True)
class Order:
    """What a check is to do. ``seconds`` None: one look, and a few seconds more where something is under way and was
    not seen to move since the last run; else looks ``interval_s`` apart for so long. ``deadline_s`` is for everything.
    ``remember_s``: how far back earlier runs count, None: not at all, and they are forgotten. ``stateless``: no memory
    and no lock (a simulation). ``evidence``: where to keep that of a run of which ``fails`` says that it failed."""

    chosen: Chosen
    seconds: float | None = None
    interval_s: float = 2.0
    timeout_s: float = 5.0
    deadline_s: float = 20.0
    remember_s: float | None = 900.0
    stateless: bool = False
    evidence: Path | None = None
    fails: Callable[[Report], bool] = lambda report: report.status is not Status.OK
