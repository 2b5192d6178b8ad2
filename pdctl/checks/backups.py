"""Backups of a serve script, by the ways people name them, and the time each stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import PurePosixPath

from pdctl.model.host import ScriptFile

_WORDS = "bak|back|backup|orig|old|save|saved|prev|copy|rollback|before"
_MARK = re.compile(rf"(?:^|[._~-])(?:{_WORDS})(?:[._~-]|\d|$)|~$", re.I)
_NUMBERED = re.compile(r"\.\d{1,4}$")
_DAY = r"(20\d\d)[-_.]?([01]\d)[-_.]?([0-3]\d)"
_TIME = r"[T_\-. ]?([0-2]\d)[:_\-.h]?([0-5]\d)(?:[:_\-.m]?([0-5]\d))?"
_DATE = re.compile(rf"(?<!\d){_DAY}(?:{_TIME})?(?!\d)")
_EPOCH = re.compile(r"(?<!\d)(1[6-9]\d{8}|2\d{9})(?!\d)")
_CLOCK = re.compile(r"(?<![\d-])([0-2]\d)[:]?([0-5]\d)[:]?([0-5]\d)(?!\d)")
HALF_HOUR_S = 1800
ODD_ZONES_S = (20700, 31500, 45900)  # +05:45, +08:45, +12:45
ZONES_S = 14 * 3600
SAME_S = 90
NEAR = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup. ``when`` is the time it stands for, ``disagrees`` whether name and mtime tell two different ones;
    ``by`` says where the time is from: ``name``, ``mtime``, or both where they tell the same."""

    file: ScriptFile
    when: datetime | None
    disagrees: bool = False
    by: str = "mtime"

    @property
    def name(self) -> str:
        return PurePosixPath(self.file.path).name


def is_backup_of(path: str, candidate: str) -> bool:
    """Whether a file is by its name a backup of a script: serve.sh.bak, serve.sh.TAG_132203.bak, serve.sh~, serve.sh.1,
    serve.sh.20261110-2201, serve_20261110.sh, serve.bak.sh; in a folder of backups also serve.sh itself."""
    script, other = PurePosixPath(path), PurePosixPath(candidate)
    if script == other:
        return False
    if other.name == script.name:
        return _looks_kept(other.parent.name)
    rest = _rest(script, other.name)
    return rest is not None and _looks_kept(rest)


def _rest(script: PurePosixPath, name: str) -> str | None:
    """What a name adds to the script's: after it, or between its stem and its suffix; None where it is another's."""
    if name.startswith(script.name):
        return name[len(script.name) :]
    if script.suffix and name.startswith(script.stem) and name.endswith(script.suffix):
        rest = name[len(script.stem) : -len(script.suffix)]
        return rest if rest[:1] in "._-~" else None
    return None


def _looks_kept(rest: str) -> bool:
    return bool(_MARK.search(rest) or _NUMBERED.search(rest) or _DATE.search(rest) or _EPOCH.search(rest))


def backup_of(file: ScriptFile, path: str, zone: tzinfo | None = None) -> Backup:
    """A backup with its time: from the name where it holds one, completed from mtime; else mtime. ``zone`` is the
    host's, in which names are meant; where it is not known, any that fits mtime is."""
    rest = _rest(PurePosixPath(path), PurePosixPath(file.path).name) or file.path
    named = named_time(rest, file.mtime, zone or UTC)
    if named is None:
        return Backup(file, file.mtime)
    if file.mtime is None:
        return Backup(file, named, by="name")
    apart = abs((file.mtime - named).total_seconds())
    if apart <= SAME_S or (zone is None and _is_zone(apart)) or _is_utc(rest, file.mtime):
        return Backup(file, file.mtime, by="name and mtime")  # the same moment: mtime knows its seconds
    return Backup(file, named, apart > NEAR.total_seconds(), "name")


def _is_utc(rest: str, mtime: datetime) -> bool:
    """Whether the name is in UTC, whatever the host's zone: ``date -u`` was used."""
    named = named_time(rest, mtime.astimezone(UTC), UTC)
    return named is not None and abs((mtime - named).total_seconds()) <= SAME_S


def _is_zone(apart: float) -> bool:
    """Whether two times differ by what zones differ by."""
    drift = min(apart % HALF_HOUR_S, HALF_HOUR_S - apart % HALF_HOUR_S)
    odd = min(abs(apart - zone) for zone in ODD_ZONES_S)
    return apart <= ZONES_S and min(drift, odd) <= SAME_S


def named_time(rest: str, mtime: datetime | None, zone: tzinfo = UTC) -> datetime | None:
    """The time a name tells: date and time of day, a date alone (its end), seconds since 1970, or a time of day alone
    on mtime's day. Taken in ``zone`` unless it ends in Z; None where it tells none."""
    epoch = _EPOCH.search(rest)
    if epoch:
        return datetime.fromtimestamp(int(epoch[1]), UTC)
    found = _DATE.search(rest)
    if found:
        return _dated(found, mtime, UTC if rest[found.end() : found.end() + 1] == "Z" else zone)
    clock = _CLOCK.search(rest)
    return _clocked(clock[1], clock[2], clock[3], mtime, zone) if clock else None


def _clocked(first: str, second: str, third: str, mtime: datetime | None, zone: tzinfo) -> datetime | None:
    """Six digits: a time of day on mtime's day; where they are that day itself (261112), or no time of day, a date."""
    local = mtime.astimezone(zone) if mtime is not None else None
    if local is not None and f"{local:%y%m%d}" == first + second + third:
        return mtime
    if int(first) > 23:
        return _day_of(2000 + int(first), int(second), int(third), zone)
    if local is None:
        return None
    return local.replace(hour=int(first), minute=int(second), second=int(third), microsecond=0)


def _day_of(year: int, month: int, day: int, zone: tzinfo) -> datetime | None:
    try:
        return datetime(year, month, day, 23, 59, tzinfo=zone)
    except ValueError:
        return None


def _dated(found: re.Match[str], mtime: datetime | None, zone: tzinfo) -> datetime | None:
    try:
        day = datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=zone)
        if found[4] is None:
            same_day = mtime is not None and abs((mtime - day).total_seconds()) < 2 * 86400
            return mtime if same_day else day.replace(hour=23, minute=59)
        return day.replace(hour=int(found[4]), minute=int(found[5]), second=int(found[6] or 0))
    except ValueError:
        return None


def backups_of(script: ScriptFile, files: Iterable[ScriptFile], zone: tzinfo | None = None) -> tuple[Backup, ...]:
    """The backups of a script among files, oldest first; those without any time come first."""
    kept = [backup_of(f, script.path, zone) for f in files if is_backup_of(script.path, f.path)]
    return tuple(sorted(kept, key=lambda b: (b.when is not None, b.when or datetime.min.replace(tzinfo=UTC))))


def baseline(script: ScriptFile, backups: tuple[Backup, ...], before: datetime | None = None) -> Backup | None:
    """The newest backup before a moment, else before the script's own mtime; where all are younger (a restored script
    keeps an old mtime) the newest of all."""
    moment = before or script.mtime
    older = [b for b in backups if b.when is not None and moment is not None and b.when <= moment]
    if older:
        return older[-1]
    return backups[-1] if backups and before is None else None
