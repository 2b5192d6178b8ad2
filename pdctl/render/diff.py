"""Differences of scripts for people and for programs: first what they mean, then the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from pdctl.model.script_view import BackupView, DiffView, Row, SettingView, Shown
from pdctl.render.look import Look, Mark
from pdctl.render.text import columns, counted, moment, pad, rfc3339, wrap
from pdctl.render.wire import text

_TITLES = {
    "variable": "variables",
    "export": "handed to the engine",
    "flag": "flags",
    "program": "how it is started",
    "command": "other commands",
    "source": "files read in",
}
_STYLES = {"+": Mark.OK, "-": Mark.BAD, "~": Mark.WARN}
_NAME_WIDTH = 42


def shown_lines(shown: Shown, look: Look) -> Iterator[str]:
    """Everything, each comparison under its title."""
    first = True
    for part in (
        *(list_lines(name, path, rows, look) for name, (path, rows) in shown.lists.items()),
        *(setting_lines(pair, rows, look) for pair, rows in shown.settings.items()),
        *(diff_lines(diff, look) for diff in shown.diffs),
    ):
        if not first:
            yield ""
        first = False
        yield from part


# --- one comparison ------------------------------------------------------------------------------------------------


def diff_lines(diff: DiffView, look: Look) -> Iterator[str]:
    """What two scripts mean differently; then the text, where it was asked for."""
    yield from wrap(f"{look.say(diff.title)}: {look.say(diff.old)} -> {look.say(diff.new)}", look.width, "", "  ")
    for warning in diff.warnings:
        yield from wrap(look.say(warning), look.width, f"  {look.mark(Mark.WARN)} ")
    for kind, rows in groupby(diff.rows, key=lambda row: row.kind):
        yield f"  {_TITLES[kind]}"
        for row in rows:
            yield from row_lines(row, look)
    yield from _rest(diff, look)
    for note in diff.unsure:
        yield from wrap(f"not known without running it: {look.say(note)}", look.width, f"  {look.mark(Mark.UNKNOWN)} ")
    if diff.text is not None:
        yield from text_lines(diff.text, look)


def _rest(diff: DiffView, look: Look) -> Iterator[str]:
    if diff.rows:
        if diff.comments:
            yield f"  {counted(diff.comments, 'comment line')} differ{'s' if diff.comments == 1 else ''} as well"
    elif diff.is_same_text:
        yield f"  {look.mark(Mark.OK)} the same text"
    else:
        yield f"  {look.mark(Mark.OK)} the same meaning: only comments or layout differ"


def row_lines(row: Row, look: Look) -> Iterator[str]:
    """One difference: a sign, a name, the old and the new value."""
    sign = look.paint(row.sign, _STYLES[row.sign])
    note = f"  ({look.say(row.note)})" if row.note else ""
    said = f"{_values(row, look)}{note}".strip()
    if row.kind in ("program", "command", "source"):
        yield from wrap(said, look.width, f"    {sign} ", "        ")
        return
    name = pad(look.say(row.name), _NAME_WIDTH if columns(row.name) <= _NAME_WIDTH else 0)
    yield from wrap(said, look.width, f"    {sign} {name}  " if said else f"    {sign} {name.rstrip()}", "        ")


def _values(row: Row, look: Look) -> str:
    before, after = (None if v is None else look.say(v) for v in (row.before, row.after))
    if row.kind == "export":
        return ""
    if row.sign == "+":
        return after or ""
    if row.sign == "-":
        return f"(was {before})" if before and row.kind not in ("command", "source") else before or ""
    return f"{before or '(bare)'} -> {after or '(bare)'}"


def text_lines(rows: Sequence[str], look: Look) -> Iterator[str]:
    """A unified diff, as it stands; no line is broken, so that it can be copied."""
    yield ""
    for row in rows:
        said = look.say(row)
        style = "bold" if row[:3] in ("+++", "---") else {"+": Mark.OK, "-": Mark.BAD, "@": "dim"}.get(row[:1])
        yield look.paint(said, style) if style else said


# --- backups and settings ------------------------------------------------------------------------------------------


def list_lines(name: str, path: str, rows: Sequence[BackupView], look: Look) -> Iterator[str]:
    """The backups of a script, oldest first."""
    yield from wrap(f"{look.say(name)}: {counted(len(rows), 'backup')} of {look.say(path)}", look.width, "", "  ")
    width = max((columns(look.say(row.name)) for row in rows), default=0)
    for row in rows:
        when = moment(row.when) if row.when is not None else "time not known"
        notes = [f"by its {row.by}"]
        if row.disagrees and row.mtime is not None:
            notes.append(f"its mtime says {moment(row.mtime)}")
        notes += ["same bytes as the script"] if row.is_same else []
        notes += ["the baseline"] if row.is_baseline else []
        mark = look.mark(Mark.WARN) if row.disagrees else "*" if row.is_baseline else " "
        head = f"  {mark} {when}  {pad(look.say(row.name), width)}  "
        if columns(head) + columns(", ".join(notes)) <= look.width:
            yield head + ", ".join(notes)
        else:
            yield head.rstrip()
            yield from wrap(", ".join(notes), look.width, " " * 8)


def setting_lines(pair: str, rows: Sequence[SettingView], look: Look) -> Iterator[str]:
    """What two roles must agree on, each with its reason."""
    yield f"{look.say(pair)}: settings that must agree"
    if not rows:
        yield f"  {look.mark(Mark.UNKNOWN)} none is named by either side"
    for row in rows:
        mark = {True: Mark.OK, False: Mark.BAD, None: Mark.UNKNOWN}[row.agrees]
        word = {True: "agree", False: "differ", None: "cannot tell"}[row.agrees]
        told = ["not named" if v is None else look.say(v) or "(bare)" for v in row.values]
        values = told[0] if row.agrees and told[0] == told[1] else " / ".join(told)
        source = f", by {row.source}" if row.source else ""
        said = f"{word}: {values}{source}; {row.why}"
        yield from wrap(said, look.width, f"  {look.mark(mark)} {pad(row.flag, 34)} ", "        ")


# --- programs ------------------------------------------------------------------------------------------------------


def shown_value(shown: Shown) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "diffs": [diff_value(diff) for diff in shown.diffs],
        "backups": {text(name): [_backup(row) for row in rows] for name, (_, rows) in shown.lists.items()},
        "settings": {text(pair): [_setting(row) for row in rows] for pair, rows in shown.settings.items()},
    }


def diff_value(diff: DiffView) -> dict[str, Any]:
    return {
        "title": text(diff.title),
        "old": text(diff.old),
        "new": text(diff.new),
        "differs": bool(diff.rows),
        "same_text": diff.is_same_text,
        "changes": [_row(row) for row in diff.rows],
        "comment_lines": diff.comments,
        "unsure": [text(note) for note in diff.unsure],
        "warnings": [text(note) for note in diff.warnings],
        "text": None if diff.text is None else [text(line) for line in diff.text],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "name": text(row.name),
        "change": {"+": "added", "-": "removed", "~": "changed"}[row.sign],
        "before": None if row.before is None else text(row.before),
        "after": None if row.after is None else text(row.after),
        "note": text(row.note) or None,
    }


def _backup(row: BackupView) -> dict[str, Any]:
    return {
        "name": text(row.name),
        "path": text(row.path),
        "when": rfc3339(row.when) if row.when else None,
        "time_from": row.by,
        "mtime": rfc3339(row.mtime) if row.mtime else None,
        "disagrees": row.disagrees,
        "same_as_script": row.is_same,
        "baseline": row.is_baseline,
    }


def _setting(row: SettingView) -> dict[str, Any]:
    values = [None if v is None else text(v) for v in row.values]
    return {"flag": row.flag, "why": row.why, "values": values, "agrees": row.agrees, "source": row.source}
