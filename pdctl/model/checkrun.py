"""What a run of ``pdctl check`` was beside its report: its stages, how long it took, what it remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pdctl.model.finding import Report


@dataclass(frozen=True, slots=True)
class StageRun:
    """A stage of a check. ``why`` says why it was not run, None where it was. ``findings`` are the names that belong
    to it; ``open`` says of those that could not be told everywhere why."""

    name: str
    title: str
    findings: tuple[str, ...]
    why: str | None = None
    open: Mapping[str, str] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        return self.why is None


@dataclass(frozen=True, slots=True)
class CheckRun:
    """A check that was made. ``took_s`` and ``deadline_s`` in seconds; ``ended`` aware; ``runs`` and ``seconds`` say
    how many earlier runs were judged with this one and how far they reach back; ``last_success`` is when a run last
    could see all it asked for (this one included). ``kept`` is where its evidence is, ``notes`` what people should
    know."""

    report: Report
    stages: tuple[StageRun, ...]
    took_s: float
    deadline_s: float
    ended: datetime
    runs: int = 0
    seconds: float = 0.0
    last_success: datetime | None = None
    kept: str | None = None
    notes: tuple[str, ...] = ()

    def stage_of(self, finding: str) -> str | None:
        """The first stage a finding belongs to."""
        return next((stage.name for stage in self.stages if finding in stage.findings), None)
