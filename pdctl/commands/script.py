"""``pdctl script``: back up, restore and edit serve scripts, whole or not at all."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from pdctl.commands.common import AsciiOpt, ConfigOpt, TimeoutOpt, inventory_names
from pdctl.commands.scripting import Form, How, run
from pdctl.errors import UsageError

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    help="Back up, restore and edit serve scripts.\n\nEach command shows what would change first, keeps a backup, "
    "checks the syntax, writes the whole file or nothing, reads it back, and writes down who did it. It asks before it "
    "writes; in a pipe it needs --yes.",
)


WhatArg = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE", help="Whose script; or a file: PATH or HOST:PATH.", autocompletion=inventory_names
    ),
]
YesOpt = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryOpt = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")]
RestartOpt = Annotated[bool, typer.Option("--restart", help="Go on with the co-restart (pdctl restart).")]
FormOpt = Annotated[Form, typer.Option("--output", "-o", help="The form of the output: human or json.")]


@app.command()
def backup(
    context: typer.Context,
    what: WhatArg,
    config: ConfigOpt = None,
    yes: YesOpt = False,
    dry_run: DryOpt = False,
    timeout: TimeoutOpt = 20.0,
    form: FormOpt = Form.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Keep a copy beside the script, named by the time, with its mode and owner. No file is ever overwritten."""
    from pdctl.execute.script_edit import backed_up

    how = How(config, yes, dry_run, False, timeout, form, ascii_only)
    run(context, what, "backup", how, lambda rewriter, bench, now: backed_up(bench, now))


@app.command()
def restore(
    context: typer.Context,
    what: WhatArg,
    kept: Annotated[str | None, typer.Argument(metavar="[BACKUP]", help="By name; the newest unless given.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help='The newest before: 12:00, "yesterday 18:00", RFC 3339.')
    ] = None,
    config: ConfigOpt = None,
    yes: YesOpt = False,
    dry_run: DryOpt = False,
    restart: RestartOpt = False,
    timeout: TimeoutOpt = 20.0,
    form: FormOpt = Form.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Put a backup in the script's place. What is replaced is backed up first."""
    from pdctl.execute.script_edit import restored
    from pdctl.looks.scripts import Options

    if kept is not None and at is not None:
        raise UsageError("a backup is named, or found by --at", "Give one of them.")
    options = Options(at=at, against=kept)
    how = How(config, yes, dry_run, restart, timeout, form, ascii_only)
    run(context, what, "restore", how, lambda rewriter, bench, now: restored(rewriter, bench, options, now))


@app.command(name="set")
def set_(
    context: typer.Context,
    what: WhatArg,
    pair: Annotated[str, typer.Argument(metavar="NAME=VALUE", help="The variable and its value.")],
    config: ConfigOpt = None,
    yes: YesOpt = False,
    dry_run: DryOpt = False,
    restart: RestartOpt = False,
    timeout: TimeoutOpt = 20.0,
    form: FormOpt = Form.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Give a variable a value: where the script sets it, else on a new line before the launch command."""
    name, equals, value = pair.partition("=")
    if not equals:
        raise UsageError(f"{pair!r} gives no value", f"Write {name}=VALUE.")
    how = How(config, yes, dry_run, restart, timeout, form, ascii_only)
    _edit_variable(context, what, f"set {name}", name, value, how)


@app.command()
def unset(
    context: typer.Context,
    what: WhatArg,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The variable.")],
    config: ConfigOpt = None,
    yes: YesOpt = False,
    dry_run: DryOpt = False,
    restart: RestartOpt = False,
    timeout: TimeoutOpt = 20.0,
    form: FormOpt = Form.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Take a variable's assignment out of the script."""
    how = How(config, yes, dry_run, restart, timeout, form, ascii_only)
    _edit_variable(context, what, f"unset {name}", name, None, how)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def flag(
    context: typer.Context,
    what: WhatArg,
    remove: Annotated[bool, typer.Option("--remove", help="Take the option out.")] = False,
    config: ConfigOpt = None,
    yes: YesOpt = False,
    dry_run: DryOpt = False,
    restart: RestartOpt = False,
    timeout: TimeoutOpt = 20.0,
    form: FormOpt = Form.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Set one option of the launch command: pdctl script flag INSTANCE --page-size 64.

    Without a value it is a switch; several values are given one after the other. After -- nothing is taken for an
    option of pdctl: pdctl script flag INSTANCE -- --config serve.yaml."""
    from pdctl.execute.script_edit import edited, flag_edit

    name, values = _option(context.args)
    how = How(config, yes, dry_run, restart, timeout, form, ascii_only)
    edit = flag_edit(name, values, remove)
    act = f"{'remove' if remove else 'flag'} {name}"
    run(context, what, act, how, lambda rewriter, bench, now: edited(bench, edit, now))


def _option(words: list[str]) -> tuple[str, list[str]]:
    """The option and its values, of what is left of the command line."""
    if not words or not words[0].startswith("-"):
        raise UsageError("no option to set", "Write it as the engine takes it: --page-size 64, --enable-metrics.")
    name, equals, joined = words[0].partition("=")
    values = [joined, *words[1:]] if equals else words[1:]
    another = next((word for word in words[1:] if word.startswith("--")), None)
    if another is not None:
        raise UsageError(f"one option at a time: {name} or {another}")
    return name, values


def _edit_variable(
    context: typer.Context, what: str, act: str, name: str, value: str | None, how: How
) -> NoReturn:  # fmt: skip
    from pdctl.execute.script_edit import edited, variable_edit

    edit = variable_edit(name, value)
    run(context, what, act, how, lambda rewriter, bench, now: edited(bench, edit, now))
