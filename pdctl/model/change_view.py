"""What `pdctl changes` shows, as values that any form of output can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Event:
    """Something that changed. ``kind``: script, backup, file, folder, package, git, unit, process, boot, driver or
    crash. ``subject`` is an instance, or ``host:NAME``. ``effect`` says whether it works already. ``weight`` above 0
    makes it a suspect, the heavier the likelier, and ``why`` says for what reason; at 0 ``why`` says why it is none.
    ``touched``: a new time and the same bytes. ``ask`` is how to see it again."""

    when: datetime
    kind: str
    subject: str
    what: str
    effect: str = ""
    weight: int = 0
    why: str = ""
    touched: bool = False
    ask: str = ""
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Steady:
    """Something that was looked at and did not change, and by what that is known."""

    subject: str
    what: str
    by: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of it: events oldest first, what stayed as it was, what could not be looked at (subject, what, why)."""

    since: datetime
    until: datetime
    events: tuple[Event, ...] = ()
    steady: tuple[Steady, ...] = ()
    unseen: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def suspects(self) -> tuple[Event, ...]:
        """The likeliest first, of equals the newest."""
        heavy = [e for e in self.events if e.weight > 0]
        return tuple(sorted(heavy, key=lambda e: (-e.weight, -e.when.timestamp())))

    @property
    def ruled_out(self) -> tuple[Event, ...]:
        """Events that are no suspects and say why."""
        return tuple(e for e in self.events if e.weight == 0 and e.why)
