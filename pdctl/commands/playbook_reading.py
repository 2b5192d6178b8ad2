"""``pdctl playbook list``, ``show`` and ``check``: what there is, what it would do, what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import AsciiOpt
from pdctl.commands.playbook_shared import NameArg, consents, playbook_names, problems_in, read
from pdctl.errors import USAGE, UsageError

if TYPE_CHECKING:
    from pdctl.commands.command_line import CommandLine
    from pdctl.model.playbook import Problem
    from pdctl.runbook.shelf import Shelved


class Form(StrEnum):
    HUMAN = "human"
    JSON = "json"
    SHORT = "short"


FormOpt = Annotated[Form, typer.Option("--output", "-o", metavar="FORM", help="human, json or short.")]
NamesArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Names or files; all there are if none.", autocompletion=playbook_names),
]


def list_(output: FormOpt = Form.HUMAN, ascii_only: AsciiOpt = False) -> None:
    """Lists the playbooks there are, the user's own (~/.config/pdctl/playbooks) among them."""
    from pdctl import outlet
    from pdctl.runbook.shelf import shelved

    outlet.write_lines(_list(shelved(), output, ascii_only))


def _list(rows: tuple[Shelved, ...], output: Form, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.look import look
    from pdctl.render.text import wrap
    from pdctl.render.wire import dumps, plain

    about = {row.name: _about(row) for row in rows}
    if output is Form.SHORT:
        yield from (row.name for row in rows)
    elif output is Form.JSON:
        values = [{"name": r.name, "about": about[r.name], "source": str(r.path), "own": r.own} for r in rows]
        yield dumps({"schema": "pdctl.playbooks/1", "playbooks": plain(values)}, indent=2)
    else:
        shown = look(ascii_only)
        width = max((len(row.name) for row in rows), default=0) + 2
        for row in rows:
            whose = " (yours, in place of the shipped one)" if row.hides else " (yours)" if row.own else ""
            yield from wrap(shown.say(about[row.name] + whose), shown.width, shown.say(f"{row.name:<{width}}"))


def _about(row: Shelved) -> str:
    from pdctl.runbook.shelf import opened

    try:
        return opened(row.path).about
    except UsageError as error:
        return f"cannot be used: {error.message}"


def show(context: typer.Context, name: NameArg, output: FormOpt = Form.HUMAN, ascii_only: AsciiOpt = False) -> None:
    """Shows a playbook's steps, what each runs and expects, and where it leads. Runs nothing."""
    from pdctl import outlet
    from pdctl.commands.command_line import CommandLine
    from pdctl.render.look import look
    from pdctl.render.playbook import playbook_lines, playbook_value
    from pdctl.render.wire import dumps

    playbook = read(name, CommandLine(context))
    agreed = consents(playbook)
    if output is Form.JSON:
        outlet.write(dumps(playbook_value(playbook, agreed), indent=2) + "\n")
    elif output is Form.SHORT:
        outlet.write_lines(step.name for step in playbook.steps)
    else:
        outlet.write_lines(playbook_lines(playbook, look(ascii_only), agreed))


def check(
    context: typer.Context, names: NamesArg = None, output: FormOpt = Form.HUMAN, ascii_only: AsciiOpt = False
) -> None:
    """Says everything that is wrong with playbooks: file, line, key and what would be right. Runs nothing.

    Exit status 0 when nothing is, 64 otherwise."""
    from pdctl import outlet
    from pdctl.commands.command_line import CommandLine
    from pdctl.runbook.shelf import find, shelved

    line = CommandLine(context)
    paths = [find(name) for name in names] if names else [row.path for row in shelved()]
    found = {str(path): _problems(str(path), line) for path in paths}
    outlet.write_lines(_checked(found, output, ascii_only))
    raise typer.Exit(USAGE if any(found.values()) else 0)


def _problems(path: str, line: CommandLine) -> tuple[Problem, ...]:
    from pathlib import Path

    from pdctl.model.playbook import Problem

    try:
        return problems_in(Path(path), line)
    except UsageError as error:
        return (Problem(1, "", error.message.removeprefix(f"{path}: "), error.hint),)


def _checked(found: dict[str, tuple[Problem, ...]], output: Form, ascii_only: bool) -> Iterator[str]:
    from dataclasses import asdict

    from pdctl.render.look import Mark, look
    from pdctl.render.playbook import problem_lines
    from pdctl.render.wire import dumps, plain

    if output is Form.JSON:
        files = [{"file": path, "problems": [asdict(p) for p in problems]} for path, problems in found.items()]
        yield dumps({"schema": "pdctl.playbook-check/1", "files": plain(files)}, indent=2)
        return
    shown = look(ascii_only)
    for path, problems in found.items():
        if output is Form.SHORT:
            yield shown.say(f"{path}: {len(problems)} problem(s)")
        elif problems:
            yield from problem_lines(path, problems, shown)
        else:
            yield f"{shown.mark(Mark.OK)} {shown.say(path)}"
