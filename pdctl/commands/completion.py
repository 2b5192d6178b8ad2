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
    shell: Annotated[Shell, typer.Argument(help="The shell to complete in.", show_default=False)],
    install: Annotated[bool, typer.Option("--install", help="Write it to the shell's own place instead.")] = False,
) -> None:
    """Prints the script that completes commands, options, instances and findings in your shell.

    For this shell alone: eval "$(pdctl completion bash)"
    """
    from typer.completion import get_completion_script
    from typer.completion import install as install_script

    from pdctl import outlet

    if install:
        _, path = install_script(shell=shell.value, prog_name="pdctl", complete_var="_PDCTL_COMPLETE")
        outlet.write(f"{shell} completion written to {path}; it works from the next shell on\n")
        return
    script = get_completion_script(prog_name="pdctl", complete_var="_PDCTL_COMPLETE", shell=shell.value)
    outlet.write(script + "\n")
