"""``pdctl playbook``: runbooks as data: list, show, check and run them."""

from __future__ import annotations

import typer

from pdctl.commands.playbook_reading import check, list_, show
from pdctl.commands.playbook_running import run

playbook = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Runbooks as data: steps that run pdctl's own commands, what is expected, where it leads.",
)
playbook.command("list")(list_)
playbook.command("show")(show)
playbook.command("check")(check)
playbook.command("run")(run)
