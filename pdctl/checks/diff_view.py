"""Comparisons of scripts as they are shown: rows with signs, lists of backups, tables of settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from pdctl.checks.backups import Backup
from pdctl.checks.role_table import Setting
from pdctl.checks.script_diff import ScriptDiff, default_of, text_diff
from pdctl.checks.scripts import Scripts
from pdctl.checks.settings import Change
from pdctl.model.script_view import BackupView, DiffView, Row, SettingView

MOST_UNSURE = 8  # the rest is in -o json


def diff_view(
    diff: ScriptDiff, title: str, names: tuple[str, str], *, warnings: Iterable[str] = (), with_text: bool = False
) -> DiffView:  # fmt: skip
    """A comparison to show. ``names`` are those of the older and the newer side."""
    return DiffView(
        title,
        *names,
        rows=tuple(_rows(diff)),
        comments=diff.comments,
        is_same_text=diff.is_same_text,
        unsure=diff.unsure,
        warnings=tuple(warnings),
        text=tuple(text_diff(diff.before, diff.after, names)) if with_text else None,
    )


def _rows(diff: ScriptDiff) -> Iterator[Row]:
    for change in (*diff.variables, *diff.exports, *diff.flags):
        yield _row(change, diff)
    if diff.program is not None:
        yield Row("program", "", "~", *diff.program)
    for kind, items in (("command", diff.commands), ("source", diff.sources)):
        for item in items:
            yield Row(kind, "", item[0], *((item[1:], None) if item[0] == "-" else (None, item[1:])))


def _row(change: Change, diff: ScriptDiff) -> Row:
    sign = "+" if change.before is None else "-" if change.after is None else "~"
    default = default_of(change.after) or default_of(change.before)
    note = ""
    if default is not None:
        note = f"default, unless the caller sets {default[0]}"
    elif change.name in diff.doubtful:
        note = "not known without running it"
    return Row(change.kind, change.name, sign, change.before, change.after, note)


def backup_views(scripts: Scripts, kept: Backup | None) -> tuple[BackupView, ...]:
    """The backups of a script, oldest first; ``kept`` is the baseline."""
    return tuple(_backup_view(b, scripts.main.value.text, kept) for b in scripts.backups)


def _backup_view(backup: Backup, text: str, kept: Backup | None) -> BackupView:
    return BackupView(
        backup.name,
        backup.file.path,
        backup.when,
        backup.by,
        backup.file.mtime,
        backup.disagrees,
        backup.file.text == text,
        kept is not None and kept.file.path == backup.file.path,
    )


def setting_views(rows: Iterable[Setting]) -> tuple[SettingView, ...]:
    """Settings that two roles must share, those that differ first, those that cannot be told next."""
    order = {False: 0, None: 1, True: 2}
    ranked = sorted(rows, key=lambda row: order[row.agrees])
    return tuple(SettingView(r.flag, r.why, (r.prefill, r.decode), r.agrees, r.source) for r in ranked)


def warnings_of(scripts: Scripts, kept: Backup) -> Iterator[str]:
    """What to know of the baseline before believing it."""
    if kept.disagrees:
        yield (
            f"{kept.name}: its name and its mtime ({kept.file.mtime:%Y-%m-%d %H:%M:%S}Z) tell different times; "
            "the name is believed"
        )
    if scripts.backups and scripts.backups[-1] is not kept:
        same = [b.name for b in scripts.backups if b.file.text == scripts.main.value.text]
        if same:
            yield f"{same[-1]} has the script's own bytes: it was copied after the edit"


def short_name(path: str) -> str:
    return PurePosixPath(path).name
