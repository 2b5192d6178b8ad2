"""``pdctl completion``: the script that teaches a shell to complete pdctl's commands, options and names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="The shell to complete in: bash, zsh or fish.", show_default=False)
    ],
) -> None:
    """Prints the script that completes commands, options, instances and findings in a shell.

    For this shell alone: eval "$(pdctl completion bash)". For good: pdctl --install-completion.
    """
    from contextlib import redirect_stdout
    from io import StringIO

    from typer.completion import shell_complete

    from pdctl import outlet

    with redirect_stdout(StringIO()) as script:
        shell_complete(context.find_root().command, {}, "pdctl", "_PDCTL_COMPLETE", f"source_{shell}")
    outlet.write(script.getvalue().lstrip())  # zsh looks for #compdef on the first line
