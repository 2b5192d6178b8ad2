"""What is told while a plan is carried out, as it happens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from pdctl.model.plan import Step


class Kind(StrEnum):
    """What happened."""

    NOTE = "note"  # something to know
    BEGIN = "begin"  # a step begins
    WAIT = "wait"  # how far a wait is
    PASSED = "passed"  # a point of a wait was seen to hold
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened. ``elapsed`` seconds since the step began; ``log`` is what the instance's log said
    last."""

    kind: Kind
    says: str
    step: Step | None = None
    elapsed: float | None = None
    log: str | None = None


Tell = Callable[[Happening], None]


def nobody(happening: Happening) -> None:
    """Tells nobody."""


def unfailing(tell: Tell) -> Tell:
    """Tells as ``tell`` does, and goes on where that fails: a terminal that went away ends no restart half way."""

    def told(happening: Happening) -> None:
        with suppress(OSError, ValueError):
            tell(happening)

    return told
