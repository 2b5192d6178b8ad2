"""What `pdctl diff` shows, as values that any form of output can be made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class BackupView:
    """A backup in the list: its file name and path, the time it stands for and where that is from (its ``name``,
    its ``mtime``, or both), its mtime where that tells another time, whether its bytes are the script's."""

    name: str
    path: str
    when: datetime | None
    by: str
    mtime: datetime | None = None
    disagrees: bool = False
    is_same: bool = False
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One difference: ``sign`` is + (new), - (gone) or ~ (another value)."""

    kind: str  # flag | variable | export | program | command | source
    name: str
    sign: str
    before: str | None
    after: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DiffView:
    """Two scripts compared. ``title`` says whose; ``old`` and ``new`` name the two sides; ``text`` is the unified diff,
    where it was asked for."""

    title: str
    old: str
    new: str
    rows: tuple[Row, ...] = ()
    comments: int = 0
    is_same_text: bool = False
    unsure: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    text: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SettingView:
    """A setting that must agree between two instances. ``agrees`` is None where that is not known."""

    flag: str
    why: str
    values: tuple[str | None, str | None]
    agrees: bool | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """All of one look."""

    diffs: tuple[DiffView, ...] = ()
    lists: dict[str, tuple[str, tuple[BackupView, ...]]] = field(default_factory=dict)
    settings: dict[str, tuple[SettingView, ...]] = field(default_factory=dict)
