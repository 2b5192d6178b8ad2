"""pdctl's own command line as a value: which options a command knows, and whether words fit it, without running it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer


class CommandLine:
    """The commands of the running pdctl. ``context`` is that of the command that asks."""

    def __init__(self, context: typer.Context) -> None:
        root = context.find_root()
        self._group: Any = root.command
        self._context: Any = root

    def options(self, name: str) -> frozenset[str]:
        """Every option that the command, or one below it, knows; empty where there is no such command."""
        try:
            command = self._resolved([name])[1]
        except typer.TyperException:
            return frozenset()
        return frozenset(option for param in _params(command) for option in param.opts)

    def problem(self, words: Sequence[str]) -> str | None:
        """Why these words are no command line of pdctl; None where they are one."""
        try:
            name, command, rest = self._resolved(list(words))
            with command.make_context(name, rest, parent=self._context) as context:
                left = getattr(context, "protected_args", None) or getattr(context, "_protected_args", [])
                if _is_group(command):
                    _, below, args = command.resolve_command(context, [*left, *context.args])
                    below.make_context(name, args, parent=context).close()
        except typer.TyperException as error:
            return error.format_message()
        except typer.Exit:
            return "it would only print help"
        return None

    def _resolved(self, words: list[str]) -> tuple[str, Any, list[str]]:
        name, command, rest = self._group.resolve_command(self._context, words)
        return str(name), command, rest


def _is_group(command: Any) -> bool:
    return hasattr(command, "resolve_command")


def _params(command: Any) -> Iterator[Any]:
    yield from command.params
    if _is_group(command):
        for below in command.commands.values():
            yield from _params(below)
