"""What a run is told: what it looks at, how to run, and where the operator sits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pdctl.runbook.did import CutOff


@dataclass(frozen=True, slots=True)
class Target:
    """What a run looks at. ``options`` name it on every command line, ``named`` are those that a person gave;
    ``recording``: nothing changes in it, however long one waits; ``shown`` is how to call it."""

    options: tuple[tuple[str, str], ...]
    cluster: str
    instances: tuple[str, ...]
    shown: str
    recording: bool = False
    demo: bool = False
    named: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """How to run: ``attended`` whether somebody is there to ask; ``unattended`` that questions are answered as the
    playbook says for when nobody is; what the run was given; ``look_s`` the longest a look or wait may take; ``rounds``
    how often each way back is taken at most; ``record`` where each look's raw answers are kept; ``cut_off`` the
    change that was agreed to before and then cut off."""

    target: Target
    attended: bool = True
    unattended: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    look_s: float | None = None
    rounds: int | None = None
    record: Path | None = None
    ascii: bool = False
    cut_off: CutOff | None = None


class Desk(Protocol):
    """The operator's: where a run is shown, and who answers."""

    def show(self, lines: Sequence[str]) -> None:
        """Shows lines of the run."""

    def output(self, line: str) -> None:
        """Shows a line that a command printed."""

    def ask(self, question: str) -> str | None:
        """The answer to a question, None where nobody answers."""
