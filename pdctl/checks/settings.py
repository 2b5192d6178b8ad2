"""What two scripts, or a script and a process, set differently."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pdctl.model.secrets import is_masked

_BARE_MASK = re.compile(r"\*+$|<\w+>$|\[?REDACTED\]?$", re.I)
_LINE = re.compile(r"(?<=of )line \d+|(?<=\()line \d+")  # of a condition: it moves with what is written above
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
NO_LIST = re.compile(r"[*?\[]|^~")  # a pattern or a home the shell fills in


@dataclass(frozen=True, slots=True)
class Change:
    """One option or variable with its two values; None where it is not set."""

    kind: str  # "flag" | "variable"
    name: str
    before: str | None
    after: str | None

    @property
    def words(self) -> str:
        """ "--page-size 32 -> 64", "FOO=1 added", "--x removed"."""
        if self.before is None:
            return f"{self._with(self.after)} added"
        if self.after is None:
            return f"{self._with(self.before)} removed"
        return f"{self.name} {self.before or '(set)'} -> {self.after or '(set)'}"

    def _with(self, value: str | None) -> str:
        return f"{self.name}{'=' if self.kind == 'variable' else ' '}{value}".strip() if value else self.name


def differences(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    """What changed between two sets of flags or of variables, in the order of the newer one."""
    for name in (*after, *(n for n in before if n not in after)):
        old, new = before.get(name), after.get(name)
        if old is None or new is None or not same(old, new):
            yield Change(kind, name, old, new)


def same(one: str, other: str) -> bool:
    """Whether two values mean the same: equal text, equal numbers; a bare mask says nothing and counts as equal."""
    one, other = _LINE.sub("", one), _LINE.sub("", other)
    if one == other or _BARE_MASK.match(one) or _BARE_MASK.match(other):
        return True
    if is_masked(one) or is_masked(other):
        return False
    if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other):
        return float(one) == float(other)
    return False


def listed(changes: tuple[Change, ...], most: int = 6) -> str:
    shown = ", ".join(c.words for c in changes[:most])
    return shown + (f" and {len(changes) - most} more" if len(changes) > most else "")
