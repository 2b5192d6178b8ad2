"""A command line whose commands are imported when they are invoked, not when they are listed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

HELP = """Finds out, with evidence, what is wrong with a live prefill/decode-disaggregated SGLang cluster.

Start with `pdctl triage` (or, with no cluster at hand, `pdctl triage --demo pinned`)."""
EPILOG = "Exit status: 0 ok, 1 warning, 2 critical, 3 cannot tell, 64 wrong usage, 70 fault of pdctl, 75 step failed."
PLAIN: Mapping[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}

Rows = Mapping[str, tuple[str, str]]


class WholeGroup(TyperGroup):
    """A group that lists its commands with the whole first sentence of their help, wrapped and not cut short."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_line(command.help or "")) for name, command in commands if command])


class LazyGroup(WholeGroup):
    """Holds a stub for each row of the table: enough to list, complete and suggest it. ``resolve_command``, which runs
    only for the command that was asked for, puts the real one in its place."""

    rows: ClassVar[Rows] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.rows:
            self.commands[cmd_name] = TyperCommand(cmd_name, help=self.rows[cmd_name][1], rich_markup_mode=None)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        self.commands.update({name: self.get_command(ctx, name) for name in self.rows})  # for "did you mean"
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(name, *self.rows[name]) if name else None, rest


def first_line(text: str) -> str:
    """The first paragraph of a help text on one line, without its full stop."""
    return " ".join(text.strip().partition("\n\n")[0].split()).removesuffix(".")


def load(name: str, where: str, help_line: str) -> Any:
    """The command at ``module:attribute``: a function becomes one command, a typer app a group of them."""
    module, _, attribute = where.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False, **PLAIN)
        app.command(name, help=target.__doc__ or help_line)(target)
        target = app
    else:
        target.info.cls = WholeGroup
    command = get_command(target)
    command.name = name
    return command


def group_of(rows: Rows) -> LazyGroup:
    """The group that offers ``rows``: name -> (module:attribute, one line of help)."""
    app = typer.Typer(
        cls=type("Commands", (LazyGroup,), {"rows": rows}),
        help=HELP,
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
        **PLAIN,
    )
    app.callback()(_options)
    group = get_command(app)
    assert isinstance(group, LazyGroup)
    return group


def _options(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
) -> None:
    """Both are answered before the command line is read; they stand here to be listed."""
