"""What pdctl changed, by whom and when: one JSON object a line, on the operator's machine, on disk before the next act.

    journal.append("restart-begun", run="...", instance="prefill-0")
    journal.read().entries

The file is only ever added to. A line that a power cut tore is passed over in reading, and the next entry begins a line
of its own. Secrets are masked before they are written.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pdctl.errors import USAGE, PdctlError
from pdctl.model.secrets import mask_value
from pdctl.reach.state import state_folder

VERSION = 1
OWN_KEYS = ("v", "at", "who", "kind")  # what each entry has: no field may be called so


class JournalError(PdctlError):
    """The journal cannot be written or read. An act that cannot be written down is not done."""

    kind = "journal"


class NoPlace(JournalError):
    """There is no folder for the journal: where it is to be is the user's to say, and no fault of pdctl's."""

    exit_status = USAGE


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``who`` is user@machine (who called sudo, where one did)."""

    at: datetime
    who: str
    kind: str
    fields: Mapping[str, object]

    def text(self, key: str) -> str | None:
        """A field that is text; None for any other."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Journal:
    """Every entry, oldest first. ``unread`` counts lines that are none (torn by a power cut, or not ours)."""

    entries: tuple[Entry, ...]
    unread: int = 0


def default_path() -> Path:
    """``journal.jsonl`` in the user's state folder (``reach.state.state_folder``). Raises NoPlace where there is
    none: a home that is not there is not for us to make."""
    try:
        return state_folder("journal.jsonl")
    except OSError as error:
        said = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        raise NoPlace(f"there is no place for the journal: {said}", "Set XDG_STATE_HOME to one.") from None


def append(kind: str, /, *, journal_file: Path | None = None, **fields: object) -> Entry:
    """Writes an entry and returns it once it is on the disk. Raises JournalError where it cannot be."""
    taken = [key for key in fields if key in OWN_KEYS]
    if taken:
        raise ValueError(f"a field cannot be called {taken[0]!r}")
    entry = Entry(datetime.now(UTC), who(), kind, {key: _masked(value, key) for key, value in fields.items()})
    file = journal_file or default_path()
    try:
        _write(file, _line(entry))
    except OSError as error:
        raise JournalError(
            f"{file}: cannot be written: {error.strerror or error}", "Nothing is done that is not written down."
        ) from None
    return entry


def read(journal_file: Path | None = None) -> Journal:
    """The whole journal; an empty one where nothing was ever written. Raises JournalError where it cannot be read."""
    file = journal_file or default_path()
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return Journal(())
    except OSError as error:
        raise JournalError(f"{file}: cannot be read: {error.strerror or error}") from None
    rows = [_entry(line) for line in lines if line.strip()]
    return Journal(tuple(row for row in rows if row is not None), rows.count(None))


def who() -> str:
    """Who acts: user@machine; the user behind sudo where there is one."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):  # a number without a name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _masked(value: object, key: str = "") -> object:
    """The value with every secret in it masked, as JSON knows it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(k): _masked(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item, key) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return mask_value(key, str(value))


def _line(entry: Entry) -> bytes:
    head = {"v": VERSION, "at": entry.at.astimezone(UTC).isoformat(), "who": entry.who, "kind": entry.kind}
    return json.dumps({**head, **entry.fields}, separators=(",", ":")).encode() + b"\n"


def _entry(line: bytes) -> Entry | None:
    try:
        value = json.loads(line)
        at = datetime.fromisoformat(value["at"])
        who_, kind = value["who"], value["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not (isinstance(who_, str) and isinstance(kind, str)) or at.tzinfo is None:
        return None
    return Entry(at, who_, kind, {key: item for key, item in value.items() if key not in OWN_KEYS})


def _write(file: Path, line: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = not file.exists()
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        _alone(handle)
        line = b"\n" + line if _is_torn(handle) else line
        while line:
            line = line[os.write(handle, line) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    if fresh:
        _sync_folder(file.parent)


def _alone(handle: int) -> None:
    """Waits until nobody else appends; a file system without locks has appends that are whole all the same."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        return


def _is_torn(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size > 0 and os.pread(handle, 1, size - 1) != b"\n"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
