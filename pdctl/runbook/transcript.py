"""What a run leaves behind: one JSON line an event, flushed and synced as it happens, and the same as text to read.

Whatever ends a run, Ctrl-C, SIGKILL or a full disk, what happened before is there: a line cut short at the end is left
out when it is read, and the run goes on from the last step that was done.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

from pdctl.errors import PdctlError, UsageError
from pdctl.model.finding import Status
from pdctl.model.playbook import Found, Playbook, Result
from pdctl.plans.playbook_course import Course, Way, begun
from pdctl.reach.state import state_folder
from pdctl.render.wire import dumps, plain, text
from pdctl.runbook.did import CutOff

SCHEMA = "pdctl.playbook/1"
Event = dict[str, Any]


def default_folder() -> Path:
    """The folder for transcripts in the user's state folder (``reach.state.state_folder``), or the working directory
    where there is none: a home that is not there is not for us to make."""
    try:
        return state_folder("playbooks")
    except OSError:
        return Path()


def text_path(path: Path) -> Path:
    """Where the text to read stands beside the events."""
    return path.with_suffix(".txt")


def events_path(path: Path) -> Path:
    """The events' path for a path that a person gave."""
    return path if path.suffix == ".jsonl" else path.with_name(path.name + ".jsonl")


def newest(name: str) -> Path | None:
    """The newest run of a playbook that has not come to its end."""
    with suppress(OSError):
        runs = sorted(default_folder().glob(f"{escape(name)}-2*.jsonl"), key=lambda p: p.stat().st_mtime, reverse=True)
        for path in runs:
            events = read_events(path)
            if events and events[0].get("playbook") == name and not has_ended(events):
                return path
    return None


class Transcript:
    """Writes events. A disk that takes no more is told once; the run goes on."""

    def __init__(self, path: Path, *, fresh: bool, needed: bool = True) -> None:
        """Opens ``path`` for a new run (raises UsageError when it is there) or to go on with one. Where it cannot be
        written that is an error if it is ``needed``, else it is told at the end: looking goes before keeping."""
        self.path = path
        self.failed: str | None = None
        self._events: IO[str] | None = None
        self._text: IO[str] | None = None
        if fresh and (taken := next((p for p in (path, text_path(path)) if p.exists()), None)):
            raise UsageError(f"{taken} is there already", "Name another file, or go on with --resume.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._events = _opened(path, fresh, claimed=True)
            self._text = _opened(text_path(path), fresh)
        except OSError as error:
            if needed:
                raise PdctlError(f"{path}: cannot be written: {error.strerror}") from None
            self.failed = f"{path}: {error.strerror}"

    def add(self, event: Mapping[str, object], lines: Sequence[str] = ()) -> Event:
        """Writes one event and its lines of text, masked; returns it as it was written."""
        row: Event = {key: _masked(value) for key, value in event.items()}
        self._write(self._events, [dumps(row)], sync=True)
        self._write(self._text, lines)
        return row

    def add_lines(self, lines: Iterable[str]) -> None:
        """Writes lines of text that belong to no event."""
        self._write(self._text, lines)

    @property
    def held(self) -> tuple[int, ...]:
        """The open file with the lock that keeps others from going on with this run."""
        return (self._events.fileno(),) if self._events is not None else ()

    def close(self) -> None:
        for file in (self._events, self._text):
            with suppress(OSError):
                if file is not None:
                    file.close()

    def _write(self, file: IO[str] | None, lines: Iterable[str], sync: bool = False) -> None:
        if self.failed is not None or file is None:
            return
        try:
            file.writelines(line + "\n" for line in lines)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        except OSError as error:
            self.failed = f"{self.path}: {error.strerror}"


def _opened(path: Path, fresh: bool, claimed: bool = False) -> IO[str]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if fresh else os.O_APPEND)
    number = os.open(path, flags, 0o600)
    if claimed:
        _claim(number, path)
    file = os.fdopen(number, "w" if fresh else "a", encoding="utf-8", errors="backslashreplace")
    if not fresh and _ends_mid_line(path):
        file.write("\n")
    return file


def _claim(number: int, path: Path) -> None:
    """Takes the transcript for this process while it has it open. Raises UsageError where another run has it: two that
    go on with the same steps would each do them."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        raise UsageError(
            f"{path}: that run is still under way", "It, or a change that it began, still runs: wait for its end."
        ) from None
    except OSError:  # a file system without locks
        return


def _ends_mid_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return False
        file.seek(size - 1)
        return file.read(1) != b"\n"


def _masked(value: object) -> Any:
    return text(value) if isinstance(value, str) else plain(value)


# --- reading it back --------------------------------------------------------------------------------------------------


def read_events(path: Path) -> list[Event]:
    """The events of a transcript, whatever was cut short left out. Raises UsageError where it cannot be read."""
    try:
        raw = path.read_text("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return list(_rows(raw))


def _rows(raw: str) -> Iterator[Event]:
    for line in raw.split("\n"):
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("event"), str):
                yield row


def has_ended(events: Sequence[Event]) -> bool:
    """Whether a run came to its end, rather than being stopped or cut short."""
    return any(event["event"] == "end" and not event.get("stopped") for event in events)


def course_of(playbook: Playbook, events: Sequence[Event]) -> Course:
    """Where a run stands after its events. A step that was stopped at, or that was interrupted, comes again."""
    course = begun(playbook)
    for event in events:
        if event["event"] != "step" or event.get("done") == "interrupted":
            continue
        if event.get("go") is None:
            continue
        step = playbook.step(str(event["step"]))
        way = Way(event["go"], event.get("case"), subjects=tuple(event.get("subjects") or ()))
        course = course.visited(step, _result(event) if step.run else None, way)
    return course


def _result(event: Event) -> Result:
    status = event.get("status")
    found = tuple(Found(**{key: row.get(key) for key in Found.__slots__}) for row in event.get("findings") or ())
    return Result(
        event.get("exit"),
        Status(status) if status else None,
        found,
        str(event.get("not_run") or ""),
        ruled_out=tuple(event.get("ruled_out") or ()),
    )


def unfinished(events: Sequence[Event]) -> Event | None:
    """The step that was begun and of whose end nothing is known."""
    last: Event | None = None
    for event in events:
        if event["event"] == "begin":
            last = event
        elif event["event"] in ("step", "end"):
            last = None
    return last


def cut_off(events: Sequence[Event]) -> CutOff | None:
    """The change that a person agreed to, and that did not come to an end of its own, as far as is known."""
    left: CutOff | None = None
    for event in events:
        kind, step = event["event"], str(event.get("step"))
        over = kind == "step" and event.get("done") in ("as-expected", "otherwise")
        if kind == "consent" and event.get("agreed"):
            left = CutOff(step, str(event.get("at")))
        elif left is not None and (over or (kind == "begin" and step != left.step)):
            left = None
    return left
