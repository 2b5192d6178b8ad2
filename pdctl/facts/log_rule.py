"""What log readers share: a rule that knows a record by how its message begins, and events made from records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pdctl.facts.log_lines import Record
from pdctl.model.events import Event, Kind

HEAD = 300  # characters of a message in which a record's telling words are looked for, if it does not begin with them


class Rule(NamedTuple):
    """``start``: how a message of this kind begins; ``read`` makes the event, None for a record cut short."""

    start: str
    kind: Kind
    read: Callable[[Record], Event | None]


class Rules:
    """Finds the rule for a message. ``starts`` are known by how a message begins; ``inner`` by words that stand within
    its head; ``strong`` are those of the first that count within its head as well, behind a prefix no reader knows."""

    def __init__(self, starts: Iterable[Rule], strong: Iterable[Rule] = (), inner: Iterable[Rule] = ()) -> None:
        self._by_word: dict[str, list[Rule]] = {}
        for rule in starts:
            self._by_word.setdefault(_first_word(rule.start), []).append(rule)
        self._strong = {rule.start: rule for rule in strong}
        self._inner = {rule.start: rule for rule in inner}
        words = sorted({**self._strong, **self._inner}, key=len, reverse=True)
        self._within = re.compile("|".join(map(re.escape, words)) or "(?!)")

    def find(self, record: Record) -> tuple[Rule, Record] | None:
        """The rule for a record, and the record with its message beginning where a strong rule's words do; None for
        one that no rule knows."""
        message = record.message
        for rule in self._by_word.get(_first_word(message), ()):
            if message.startswith(rule.start):
                return rule, record
        found = self._within.search(message, 0, HEAD)
        if found is None:
            return None
        if (rule_inside := self._inner.get(found[0])) is not None:
            return rule_inside, record
        return self._strong[found[0]], record._replace(message=message[found.start() :])


def _first_word(text: str) -> str:
    return text[:24].split(" ", 1)[0]


def event(
    kind: Kind, record: Record, numbers: Mapping[str, float] | None = None, words: Mapping[str, str] | None = None
) -> Event:
    """The event of a record. ``words`` and ``numbers`` hold only what the record says."""
    return Event(kind, record.text, record.when, record.rank, numbers or {}, words or {}, record.line)


def words_of(pattern: re.Pattern[str], text: str) -> dict[str, str]:
    """The named groups of the pattern's first match that took part; empty without a match."""
    found = pattern.search(text)
    return {key: value for key, value in found.groupdict().items() if value is not None} if found else {}


def split(found: Mapping[str, str], numeric: Iterable[str]) -> tuple[dict[str, float], dict[str, str]]:
    """Found fields as (numbers, words): those named in ``numeric`` are numbers, where they are any."""
    names = frozenset(numeric)
    numbers = {key: number for key, text in found.items() if key in names and (number := number_of(text)) is not None}
    return numbers, {key: text for key, text in found.items() if key not in names}


def number_of(text: str) -> float | None:
    """A number as engines write it; None for anything else."""
    try:
        return float(text)
    except ValueError:
        return None
