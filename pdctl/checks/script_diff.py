"""Two scripts side by side: first what they mean differently, then whatever else differs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff

from pdctl.checks.settings import Change, differences
from pdctl.model.host import ScriptFile

_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?[-=](.*)\}", re.S)


@dataclass(frozen=True, slots=True)
class ScriptDiff:
    """``flags`` and ``variables`` with another value, set or gone; ``exports`` handed to the engine or no longer;
    ``program`` the words before the engine's own arguments, where they differ; ``commands`` the other commands, ``+``
    or ``-`` before each; ``comments`` how many comment lines differ. ``unsure`` is what of either cannot be known,
    ``doubtful`` the names it is about. Values are masked."""

    before: ScriptFile
    after: ScriptFile
    flags: tuple[Change, ...] = ()
    variables: tuple[Change, ...] = ()
    exports: tuple[Change, ...] = ()
    program: tuple[str, str] | None = None
    commands: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    comments: int = 0
    unsure: tuple[str, ...] = ()
    doubtful: frozenset[str] = frozenset()

    @property
    def differs(self) -> bool:
        """Whether anything differs that has a meaning."""
        return bool(
            self.flags or self.variables or self.exports or self.program or self.commands or self.sources
        )  # fmt: skip

    @property
    def is_same_text(self) -> bool:
        return self.before.text == self.after.text


def compared(before: ScriptFile, after: ScriptFile) -> ScriptDiff:
    """What ``after`` has differently."""
    program = (_words(before.program), _words(after.program))
    return ScriptDiff(
        before,
        after,
        tuple(differences("flag", before.flags, after.flags)),
        tuple(differences("variable", before.variables, after.variables)),
        tuple(_exports(before, after)),
        program if program[0] != program[1] else None,
        tuple(_signed(before.others, after.others)),
        tuple(_signed(before.sources, after.sources)),
        len(tuple(_signed(comments(before), comments(after)))),
        tuple(dict.fromkeys((*after.unsure, *before.unsure))),
        before.doubtful | after.doubtful,
    )


def _words(words: Sequence[str]) -> str:
    return " ".join(words)


def _exports(before: ScriptFile, after: ScriptFile) -> Iterator[Change]:
    """Variables that both set and only one hands to the engine."""
    for name in after.variables:
        if name in before.variables and (name in before.exported) != (name in after.exported):
            yield Change("export", name, *("yes" if name in s.exported else None for s in (before, after)))


def _signed(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """What only one of the two has, in order, each with its sign."""
    yield from (f"-{item}" for item in dict.fromkeys(before) if item not in after)
    yield from (f"+{item}" for item in dict.fromkeys(after) if item not in before)


def comments(script: ScriptFile) -> list[str]:
    """The lines of a script that are comments."""
    lines = (" ".join(line.split()) for line in script.text.splitlines())
    return [line for line in lines if line.startswith("#")]


def text_diff(before: ScriptFile, after: ScriptFile, names: tuple[str, str], context: int = 3) -> Iterator[str]:
    """The unified diff of both texts, secrets masked, without line ends."""
    old, new = before.text.splitlines(), after.text.splitlines()
    yield from unified_diff(old, new, *names, n=context, lineterm="")


def default_of(value: str | None) -> tuple[str, str] | None:
    """The variable and the default of ``${X:-y}``, None for any other value."""
    found = _DEFAULT.fullmatch(value) if value is not None else None
    return (found[1], found[2]) if found else None
