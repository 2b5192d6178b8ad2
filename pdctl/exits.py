"""The exit status of what was judged. The other numbers, for a run that could not judge, are those of errors.py."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pdctl.model.finding import Status

# By the value of model.finding.Status, which is not imported: options name FailOn, and help must come at once.
OF_STATUS: Mapping[str, int] = {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}


class FailOn(StrEnum):
    """From which status on the exit status is not 0."""

    WARNING = "warning"
    CRITICAL = "critical"


def exit_of(status: Status, fail_on: FailOn = FailOn.WARNING) -> int:
    """The exit status of a judged run. A run that could not see enough is 3 whatever ``fail_on`` says: who asks to
    hear of critical faults alone must not take blindness for health.

    >>> from pdctl.model.finding import Status
    >>> exit_of(Status.WARNING), exit_of(Status.WARNING, FailOn.CRITICAL), exit_of(Status.UNKNOWN, FailOn.CRITICAL)
    (1, 0, 3)
    """
    if status.value == "warning" and fail_on is FailOn.CRITICAL:
        return 0
    return OF_STATUS[status.value]
