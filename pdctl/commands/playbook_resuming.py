"""The run that ``pdctl playbook run --resume`` goes on with: which it is, what it looked at, how far it got."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pdctl.errors import UsageError
from pdctl.model.secrets import mask_text

if TYPE_CHECKING:
    from pathlib import Path

    from pdctl.model.playbook import Playbook
    from pdctl.plans.playbook_course import Course
    from pdctl.runbook.transcript import Event

Pairs = tuple[tuple[str, str], ...]
MASKED = "***"  # how a secret begins in what is written down


class Before:
    """The run that is gone on with."""

    def __init__(self, path: Path, events: list[Event], course: Course) -> None:
        self.path = path
        self.events = events
        self.course = course

    def target_of(self, pairs: Pairs) -> Pairs:
        """What the run looks at. Raises UsageError where ``pairs`` say something else, because what was found on one
        cluster decides nothing on another; and where a secret in it must be given again, because no transcript holds
        one."""
        own = tuple((str(k), str(v)) for k, v in self.events[0].get("options") or ())
        if pairs and tuple((option, mask_text(value)) for option, value in pairs) != own:
            raise UsageError(
                f"{self.path}: that run looks at {self.events[0].get('target')}",
                "Leave out what to look at, or begin anew, without --resume.",
            )
        if not pairs and any(MASKED in value for _, value in own):
            raise UsageError(f"{self.path}: a secret in what it looks at is not kept", "Name what to look at again.")
        return pairs or own

    def given(self, again: Collection[str]) -> dict[str, str]:
        """The values that the run was given, less those given ``again``. Raises UsageError for a secret among them."""
        values = {str(k): str(v) for k, v in (self.events[0].get("given") or {}).items() if k not in again}
        for name, value in values.items():
            if MASKED in value:
                raise UsageError(
                    f"{self.path}: {name} holds a secret and is not kept", f"Give it again: --set {name}=..."
                )
        return values

    @property
    def limits(self) -> Mapping[str, Any]:
        """How long its looks may take, how often it goes round, where it keeps raw answers: as it was begun."""
        limits = self.events[0].get("limits")
        return limits if isinstance(limits, dict) else {}


def before_this(playbook: Playbook, wanted: Path | None) -> Before:
    """The run to go on with. Raises UsageError where there is none, or the playbook is no longer the same."""
    from pdctl.runbook.transcript import course_of, events_path, has_ended, newest, read_events

    path = events_path(wanted) if wanted else newest(playbook.name)
    if path is None:
        raise UsageError(f"no run of {playbook.name} is left to go on with", "Name its transcript: --transcript FILE")
    events = read_events(path)
    if not events or events[0].get("event") != "start" or events[0].get("playbook") != playbook.name:
        raise UsageError(f"{path}: no transcript of a run of {playbook.name}")
    if events[0].get("digest") != playbook.digest:
        raise UsageError(f"{playbook.source} has changed since that run began", "Begin anew, without --resume.")
    if has_ended(events):
        raise UsageError(f"{path}: that run came to its end", "Begin anew, without --resume.")
    return Before(path, events, course_of(playbook, events))
