"""Observations as values that JSON knows, and back: what is remembered from one run to the next.

Only what is seen over HTTP, and socket tables, are packed; the rest is asked anew in each run. Unpacking trusts the
shape of what it is given (its keeper checks a digest), and raises one of ``BAD`` for any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow, Loads, ServerInfo
from pdctl.model.rank import Rank
from pdctl.model.router import AgeBucket, RouterMetrics, Worker, Workers
from pdctl.model.secrets import is_masked

BAD = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
MISSED = "missed"
SUBJECT, FACT, KIND = 0, 1, 7  # places in a row
SOCKETS = "Sockets"
RANKED = "by rank"  # no gauge and no stage is called that


@dataclass(frozen=True, slots=True)
class Packer:
    """How the fields of one kind of value are packed that JSON does not know as they are, by field name: a pair of
    functions, there and back."""

    kind: type
    special: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.kind.__dataclass_fields__)  # type: ignore[attr-defined]


def pack(seen: Observation[Any]) -> list[Any] | None:
    """The observation as a row of JSON values; None for a kind that is not remembered. A secret that a value holds in
    masked form is left out: it could be compared within the run that masked it, and never after."""
    head = [seen.subject, seen.fact.value, seen.t, seen.at.timestamp(), seen.took, seen.ask, seen.status]
    if isinstance(seen.got, Missed):
        return [*head, MISSED, [seen.got.why.value, seen.got.detail]]
    packer = _packer(type(seen.got.value).__name__)
    if packer is None:
        return None
    return [*head, packer.kind.__name__, _packed(packer, seen.got.value)]


def unpack(row: list[Any]) -> Observation[Any]:
    """The observation of a row. Raises one of ``BAD`` for a row that ``pack`` did not make."""
    subject, fact, t, at, took, ask, status, kind, value = row
    got: Seen[Any] | Missed
    got = Missed(Why(value[0]), str(value[1])) if kind == MISSED else Seen(_unpacked(_known(kind), value))
    when = datetime.fromtimestamp(at, UTC)
    return Observation(str(subject), Fact(fact), float(t), when, float(took), str(ask), got, status)


def kinds_of(rows: Iterable[list[Any]]) -> list[str]:
    """The kinds of values that rows hold."""
    return sorted({row[KIND] for row in rows} - {MISSED})


def shape(kinds: Iterable[str]) -> str:
    """What packed values of these kinds look like: other fields, another shape, and what was packed is not to be
    unpacked. Raises KeyError for a kind there is not."""
    return ";".join(f"{kind}:{','.join(_known(kind).fields)}" for kind in kinds)


def _known(kind: str) -> Packer:
    packer = _packer(kind)
    if packer is None:
        raise KeyError(kind)
    return packer


def _packed(packer: Packer, value: object) -> list[Any]:
    out = []
    for name in packer.fields:
        there = packer.special.get(name)
        field = getattr(value, name)
        out.append(there[0](field) if there else _plain(field) if isinstance(field, Mapping) else field)
    return out


def _plain(field: Mapping[Any, Any]) -> dict[str, Any]:
    """A mapping as JSON has it; one by name and rank gets an envelope that tells it from others."""
    if any(isinstance(value, Mapping) for value in field.values()):
        return {RANKED: {str(name): _by_word(ranks) for name, ranks in field.items()}}
    return dict(field)


def _back(value: Any) -> Any:
    if isinstance(value, dict) and RANKED in value:
        return {name: _by_rank(words) for name, words in value[RANKED].items()}
    return value


def _unpacked(packer: Packer, values: list[Any]) -> Any:
    if len(values) != len(packer.fields):
        raise ValueError(f"{len(values)} values for {packer.kind.__name__}")
    return packer.kind(
        *(
            packer.special[name][1](value) if name in packer.special else _back(value)
            for name, value in zip(packer.fields, values, strict=True)
        )
    )


@cache
def _packer(kind: str) -> Packer | None:
    """How values of a kind are packed. What hosts say is imported when there is some of it."""
    if kind == EngineMetrics.__name__:
        return Packer(EngineMetrics, {"values": (_ranked, _unranked)})
    if kind == Loads.__name__:
        return Packer(Loads, {"rows": _rows_of(LoadRow)})
    if kind == ServerInfo.__name__:
        special = {"args": (_unmasked, dict), "env": (_unmasked, dict), "internal": (_nothing, tuple)}
        return Packer(ServerInfo, special)
    if kind == RouterMetrics.__name__:
        return Packer(RouterMetrics, {"ages": _rows_of(AgeBucket)})
    if kind == Workers.__name__:
        return Packer(Workers, {"rows": _rows_of(Worker)})
    return _sockets() if kind == SOCKETS else None


def _sockets() -> Packer:
    from pdctl.model.host import SocketRow, Sockets

    return Packer(Sockets, {"rows": _rows_of(SocketRow)})


def _rows_of(kind: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    packer = Packer(kind, {})

    def there(rows: tuple[Any, ...]) -> list[list[Any]]:
        return [_packed(packer, row) for row in rows]

    def back(rows: list[list[Any]]) -> tuple[Any, ...]:
        return tuple(_unpacked(packer, row) for row in rows)

    return there, back


def _ranked(values: Mapping[Gauge, Mapping[Rank, float]]) -> dict[str, dict[str, float]]:
    return {name.value: _by_word(ranks) for name, ranks in values.items()}


def _unranked(values: dict[str, dict[str, float]]) -> dict[Gauge, dict[Rank, float]]:
    return {Gauge(name): _by_rank(words) for name, words in values.items()}


def _by_word(ranks: Mapping[Rank, float]) -> dict[str, float]:
    return {_word(rank): value for rank, value in ranks.items()}


def _by_rank(words: Mapping[str, float]) -> dict[Rank, float]:
    return {_rank(word): value for word, value in words.items()}


@cache
def _word(rank: Rank) -> str:
    """A rank as a word: its dimensions in order, an absent one empty."""
    return ".".join("" if n is None else str(n) for n in (rank.dp, rank.pp, rank.tp, rank.ep, rank.cp))


@cache
def _rank(word: str) -> Rank:
    return Rank(*(int(n) if n else None for n in word.split(".")))


def _unmasked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not (isinstance(value, str) and is_masked(value))}


def _nothing(_: object) -> list[Any]:
    """Per-rank state is large, and nothing is judged by an earlier one."""
    return []
