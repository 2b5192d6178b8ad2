"""What is known while a shell script is read: variables and what may have become of them, functions, commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tree_sitter import Node

_LONGEST = 100_000  # characters a variable may hold: text that doubles itself must end somewhere


class Word(NamedTuple):
    """A word of a command. ``why`` says under which condition it is there, None where it always is."""

    text: str
    why: str | None = None


class Maybe(NamedTuple):
    """What a variable may become: ``value`` if ``why`` holds, in place of what it was or added to it."""

    value: str | tuple[Word, ...]
    why: str
    added: bool


@dataclass(frozen=True, slots=True)
class Held:
    """What a variable holds: text or the words of an array, None where only conditions give it a value."""

    value: str | tuple[Word, ...] | None
    maybe: tuple[Maybe, ...] = ()

    @property
    def text(self) -> str | None:
        """The text, where it is certain and no array."""
        return self.value if isinstance(self.value, str) and not self.maybe else None

    def shown(self) -> str:
        """For people: the certain value, then each other one with its condition."""
        parts = [] if self.value is None else [joined(self.value)]
        parts += [f"{'+' if m.added else ''}{joined(m.value)} ({m.why})" for m in self.maybe]
        return " | ".join(parts)


def joined(value: str | tuple[Word, ...]) -> str:
    return value if isinstance(value, str) else " ".join(word.text for word in value)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command as the script runs it, with the variables and exports of that moment."""

    words: tuple[Word, ...]
    line: int
    why: str | None
    variables: Mapping[str, Held]
    exported: frozenset[str]


@dataclass
class Scope:
    """The state of one reading. ``files`` are the texts of files that may be read in or run, by path; ``written`` those
    the script writes itself; ``outer`` what the script around this one holds and does not hand on."""

    files: Mapping[str, str] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Node] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    outer: dict[str, Held] = field(default_factory=dict)
    exports_all: bool = False
    depth: int = 0

    def assign(self, name: str, value: str | tuple[Word, ...], why: str | None, added: bool = False) -> None:
        """A variable's new value. Under a condition the old one stays beside it."""
        old = self.held.get(name)
        if why is not None:
            before = old if old is not None else Held(None)
            self.held[name] = Held(before.value, (*before.maybe, Maybe(value, why, added)))
        elif added and old is not None:
            self.held[name] = Held(_sum(old.value, value), old.maybe)
        elif len(joined(value)) > _LONGEST:
            self.doubt(name, "too long to be followed")
        else:
            self.held[name] = Held(value)
        if self.exports_all:
            self.exported.add(name)

    def forget(self, name: str, why: str | None) -> None:
        """``unset``: under a condition the variable may be empty."""
        if why is None:
            self.held.pop(name, None)
            self.exported.discard(name)
        elif name in self.held:
            self.assign(name, "", why)

    def doubt(self, name: str, why: str) -> None:
        """The variable got a value that is not in the text (``read``, a loop)."""
        self.held[name] = Held(None, (Maybe(f"${name}", why, False),))

    def set_options(self, options: list[str]) -> None:
        """``set -a``, ``set -o allexport`` and their opposites: whether every assignment is exported."""
        for option, following in zip(options, [*options[1:], ""], strict=True):
            named = option[1:].endswith("o") and following == "allexport"
            if option[:1] in ("-", "+") and ("a" in option[1:] or named):
                self.exports_all = option[0] == "-"

    def text_of(self, path: str) -> str | None:
        """The text of a file that is read in or run, None where it is not at hand. Files from outside are listed."""
        if path in self.written:
            return self.written[path]
        if path not in self.sources:
            self.sources.append(path)
        return self.files.get(path)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def record(self, words: tuple[Word, ...], line: int, why: str | None, own: Mapping[str, str]) -> None:
        """A command that ran, with the assignments before it (``X=1 command``) in its environment."""
        variables = {**self.outer, **self.held, **{name: Held(value) for name, value in own.items()}}
        self.ran.append(Ran(words, line, why, variables, frozenset(self.exported | own.keys())))


def _sum(old: str | tuple[Word, ...] | None, new: str | tuple[Word, ...]) -> str | tuple[Word, ...]:
    if old is None:
        return new
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    return (*_as_words(old), *_as_words(new))


def _as_words(value: str | tuple[Word, ...]) -> tuple[Word, ...]:
    return (Word(value),) if isinstance(value, str) else value
