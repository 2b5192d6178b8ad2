"""The life of an instance as its unit and its process tell it: starts, ends, restarts nobody asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pdctl.checks.live_drift import main_process
from pdctl.model.answer import Fact
from pdctl.model.change_view import Event
from pdctl.model.host import Processes, Unit
from pdctl.model.window import Window

_MESSAGE = re.compile(r"@(\d+(?:\.\d+)?) (.*)", re.S)
_STARTED = re.compile(r"^Started\b|^Finished\b")
_BY_ITSELF = re.compile(r"Scheduled restart job")
_BAD_END = re.compile(
    r"Main process exited|Failed with result|Killing process|OOM killer|Watchdog timeout|timed out|Failed to start"
)
_ENDED = re.compile(r"^Stopped\b|^Stopping\b|Deactivated successfully")
SAME_START = timedelta(seconds=15)  # a unit is started, and its main process with it


@dataclass(frozen=True, slots=True)
class Life:
    """``started`` is when the process of now started; ``starts`` are all that are known; ``messages`` what systemd
    said, oldest first; ``restarts`` how often systemd restarted the unit by itself."""

    subject: str
    started: datetime | None = None
    starts: tuple[datetime, ...] = ()
    messages: tuple[tuple[datetime, str], ...] = ()
    restarts: int | None = None
    unit: str | None = None
    process: str | None = None
    ask: str = ""

    def first_start_after(self, moment: datetime) -> datetime | None:
        return next((start for start in self.starts if start >= moment), None)

    def events(self, since: datetime, something_changed: bool) -> Iterator[Event]:
        """Starts and ends since then. A start is suspect where systemd made it, or where nothing it could have brought
        into effect is known."""
        by_itself = [when for when, text in self.messages if _BY_ITSELF.search(text)]
        for when, text in self.messages:
            if when >= since and _is_told(text):
                yield self._message(when, text, by_itself, something_changed)
        told = [when for when, text in self.messages if _STARTED.search(text)]
        if self.started is not None and self.started >= since and not _near(self.started, told):
            yield self._start(self.started, by_itself, something_changed)

    def _message(self, when: datetime, text: str, by_itself: list[datetime], something_changed: bool) -> Event:
        event = Event(when, "unit", self.subject, text, ask=self.ask)
        if _BY_ITSELF.search(text) or _BAD_END.search(text):
            return _weighed(event, 2, "nobody asked for this")
        if not _STARTED.search(text):
            return event
        if any(timedelta() <= when - other <= timedelta(minutes=5) for other in by_itself):
            return _weighed(event, 2, "systemd restarted it by itself")
        return (
            event
            if something_changed
            else _weighed(event, 1, "it was restarted; nothing it could have brought is known")
        )

    def _start(self, when: datetime, by_itself: list[datetime], something_changed: bool) -> Event:
        name = self.unit or self.process or "its process"
        event = Event(when, "process", self.subject, f"{name} started", ask=self.ask)
        if self.restarts and not self.messages:
            return _weighed(event, 2, f"systemd has restarted it by itself (NRestarts {self.restarts})")
        return (
            event
            if something_changed
            else _weighed(event, 1, "it was restarted; nothing it could have brought is known")
        )


def _weighed(event: Event, weight: int, why: str) -> Event:
    from dataclasses import replace

    return replace(event, weight=weight, why=why)


def _is_told(text: str) -> bool:
    return bool(_STARTED.search(text) or _BY_ITSELF.search(text) or _BAD_END.search(text) or _ENDED.search(text))


def _near(moment: datetime, others: list[datetime]) -> bool:
    return any(abs(moment - other) <= SAME_START for other in others)


def life_of(window: Window, subject: str) -> Life:
    """What is known of an instance's starts."""
    unit = window.last(subject, Fact.UNIT, Unit)
    processes = window.last(subject, Fact.PROCESSES, Processes)
    main = main_process(processes.value if processes else None)
    messages = messages_of(unit.value) if unit else ()
    starts = [when for when, text in messages if _STARTED.search(text)]
    running = main.started if main is not None else None
    since = unit.value.since if unit is not None and unit.value.active == "active" else None
    starts += [start for start in (running, since) if start is not None]
    ask = unit.seen.ask if unit else processes.seen.ask if processes else ""
    return Life(
        subject,
        running or since,
        tuple(sorted(starts)),
        messages,
        unit.value.restarts if unit else None,
        unit.value.properties.get("Id") if unit else None,
        f"process {main.pid}" if main is not None else None,
        ask,
    )


def messages_of(unit: Unit) -> tuple[tuple[datetime, str], ...]:
    """What systemd said of a unit, oldest first."""
    rows = []
    for name, value in unit.properties.items():
        found = _MESSAGE.fullmatch(value) if name.startswith("SystemdMessage") else None
        if found:
            rows.append((datetime.fromtimestamp(float(found[1]), UTC), found[2]))
    return tuple(sorted(rows))
