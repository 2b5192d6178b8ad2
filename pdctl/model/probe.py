"""Attempts of real requests, as a probe makes them, and the matrix of path by kind they fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum


class Trial(StrEnum):
    """The kinds of a probe."""

    HEALTH = "health"
    ONE = "one"  # one generation on a fresh connection
    MANY = "many"  # N at once, each on a connection of its own
    ROUNDS = "rounds"  # agents with one growing conversation each, on one kept-alive connection, streamed
    IDLE = "idle"  # a connection that is used again after it sat idle
    ABORTS = "aborts"  # requests whose client leaves


class Told(StrEnum):
    """What an answer's text says of whether it is the right one."""

    ECHOED = "echoed"  # its own nonce came back
    OTHER = "other"  # text without the nonce: wrong only where the endpoint is known to echo
    CROSSED = "crossed"  # the nonce of another request came back
    EMPTY = "empty"  # a finished answer without text and without tokens
    EXPECTED = "expected"  # what --expect asks for
    UNEXPECTED = "unexpected"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request. Times in seconds; ``error`` is one of the capture format's errors or None. ``kind`` "abort" is a
    request whose client left on purpose: neither good nor bad.

    ``line`` numbers the connection it went over, ``nth`` its place on it (from 1), ``local`` is pdctl's end of it.
    ``first_byte_s`` is the answer's header, ``first_token_s`` the first text of a stream, ``between_s`` the median gap
    between pieces of a stream and ``longest_gap_s`` the longest. ``closed_after_s``: the other end was seen to close
    the connection after so many idle seconds. ``control``: made on a fresh connection right after a failure."""

    to: str
    via: str = "direct"  # direct | proxy
    kind: str = "generate"  # health | generate | abort
    connection: str = "fresh"  # fresh | reused
    idle_s: float | None = None
    round: int | None = None
    concurrency: int | None = None
    stream: bool | None = None
    status: int | None = None
    error: str | None = None
    detail: str | None = None
    first_byte_s: float | None = None
    took: float | None = None
    tokens: int | None = None
    trial: str | None = None
    control: bool = False
    begun_s: float | None = None
    line: int | None = None
    nth: int | None = None
    local: str | None = None
    agent: int | None = None
    endpoint: str | None = None
    first_token_s: float | None = None
    between_s: float | None = None
    longest_gap_s: float | None = None
    closed_after_s: float | None = None
    told: str | None = None

    @property
    def good(self) -> bool:
        return self.error is None and self.status is not None and 200 <= self.status < 300

    @property
    def first_s(self) -> float | None:
        """Seconds to the first token of a stream, else to the first byte."""
        return self.first_token_s if self.first_token_s is not None else self.first_byte_s


# Written for every attempt, as the capture format names them; the rest only where there is something to say.
_ALWAYS = (
    "to", "via", "kind", "connection", "idle_s", "round", "concurrency", "stream", "status", "error", "detail",
    "first_byte_s", "took", "tokens",
)  # fmt: skip


def row_of(attempt: Attempt) -> dict[str, object]:
    """The attempt as the capture format writes it, times to the microsecond."""
    row: dict[str, object] = {}
    for field in fields(attempt):
        value = getattr(attempt, field.name)
        if field.name in _ALWAYS or value not in (None, False):
            row[field.name] = round(value, 6) if isinstance(value, float) else value
    return row


@dataclass(frozen=True, slots=True)
class Attempts:
    rows: tuple[Attempt, ...]


# --- the matrix -------------------------------------------------------------------------------------------------------


class Fate(StrEnum):
    """What became of a path's attempts of one kind, best first."""

    GOOD = "good"
    NOT_RUN = "not run"
    CLOSED = "closed"  # reused connections found closed after some idle time, all else good
    WRONG = "wrong"  # answers that are not those asked for
    FAILED = "failed"  # refused, reset, an HTTP error
    CUT = "cut"  # broken off in the middle of an answer
    HUNG = "hung"  # no answer, or no more of it, in time


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of several attempts: how many, their median, the 95th percentile (the greatest below 20) and the
    greatest."""

    count: int
    median: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One path, one kind. ``errors`` counts what went wrong by word; ``why`` says why nothing was run."""

    fate: Fate
    tried: int = 0
    good: int = 0
    errors: Mapping[str, int] | None = None
    first: Spread | None = None
    between: Spread | None = None
    took: Spread | None = None
    idle_ok_s: float | None = None
    idle_fails_s: float | None = None
    closed_after_s: float | None = None
    hung_at: tuple[int, ...] = ()  # places on their connections of the requests that hung
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One path: ``opened`` connections carried its requests, ``reused`` of which went over a used one."""

    to: str
    via: str
    role: str | None
    cells: Mapping[Trial, Cell]
    opened: int = 0
    reused: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """A count of an instance while the probe ran. ``live`` is False for the last report of a gauge."""

    instance: str
    name: str
    readings: int
    least: float
    most: float
    last: float
    live: bool = True


@dataclass(frozen=True, slots=True)
class Matrix:
    """Paths from the inside out: engines, routers, proxies. ``remarks`` are what the paths tell by difference that is
    no fault by a name of its own, ``courses`` what the cluster counted meanwhile."""

    rows: tuple[Row, ...]
    trials: tuple[Trial, ...]
    remarks: tuple[str, ...] = ()
    courses: tuple[Course, ...] = ()
