"""``pdctl findings``: every finding there is, by group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from pdctl.commands.common import AsciiOpt, Output, OutputOpt, entry_value
from pdctl.errors import UsageError
from pdctl.model.registry import REGISTRY, Entry

GROUPS = tuple(dict.fromkeys(entry.group for entry in REGISTRY.values()))


def _groups(incomplete: str) -> list[str]:
    return [group for group in GROUPS if group.lower().startswith(incomplete.lower())]


GroupOpt = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Only this group (part of it will do).", autocompletion=_groups),
]


def findings(group: GroupOpt = None, output: OutputOpt = Output.HUMAN, ascii_only: AsciiOpt = False) -> None:
    """Lists every finding pdctl can come to, with its severity and what it says. Needs no cluster.

    The names are stable: scripts, mutes and dashboards may depend on them. More of one: pdctl explain NAME.
    """
    from pdctl import outlet

    entries = [entry for entry in REGISTRY.values() if group is None or group.lower() in entry.group.lower()]
    if not entries:
        raise UsageError(f'no group of findings is called "{group}"', f"Groups: {', '.join(GROUPS)}.")
    outlet.write_lines(_lines(entries, output, ascii_only))


def _lines(entries: list[Entry], output: Output, ascii_only: bool) -> Iterator[str]:
    if output is Output.HUMAN:
        yield from _table(entries, ascii_only)
    elif output is Output.SHORT:
        yield from (entry.name for entry in entries)
    else:
        yield from _documents([entry_value(entry) for entry in entries], output)


def _documents(rows: list[dict[str, str]], output: Output) -> Iterator[str]:
    from pdctl import __version__
    from pdctl.render.wire import dumps

    if output is Output.JSONL:
        yield from (dumps(row) for row in rows)
    else:
        yield dumps({"schema": "pdctl.findings/1", "pdctl": __version__, "findings": rows}, indent=2)


def _table(entries: list[Entry], ascii_only: bool) -> Iterator[str]:
    from pdctl.render.look import look
    from pdctl.render.text import wrap

    shown = look(ascii_only)
    name_width = max(len(entry.name) for entry in entries) + 2
    for group in dict.fromkeys(entry.group for entry in entries):
        yield shown.paint(group, "bold")
        for entry in (entry for entry in entries if entry.group == group):
            head = f"  {entry.name:<{name_width}}{entry.severity.value:<10}"
            yield from wrap(entry.says, shown.width, head, " " * len(head))
