"""What was asked, what came back, and what could be read from it.

A failure is a value of its own (``Missed``) all the way up: it never becomes 0, empty or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)
NOTHING: Mapping[str, object] = MappingProxyType({})


class Fact(StrEnum):
    """The facts pdctl asks for; the names are those of the capture format."""

    METRICS = "metrics"
    LOADS = "loads"
    HEALTH = "health"
    SERVER_INFO = "server-info"
    WORKERS = "workers"
    PROCESSES = "processes"
    CMDLINE = "cmdline"
    ENVIRON = "environ"
    UNIT = "unit"
    LOG = "log"
    SOCKETS = "sockets"
    NSTAT = "nstat"
    LIMITS = "limits"
    STACKS = "stacks"
    GPU = "gpu"
    SCRIPT = "script"
    FILE = "file"
    GIT = "git"
    PROBE = "probe"


class Why(StrEnum):
    """Why an answer is missing. The first block are errors of the ask, as captures spell them;
    the second are answers that came but were not what was asked for."""

    CONNECT_REFUSED = "connect-refused"
    CONNECT_TIMEOUT = "connect-timeout"
    READ_TIMEOUT = "read-timeout"
    RESET = "reset"
    TRUNCATED = "truncated"
    TOO_LARGE = "too-large"
    REDIRECT_LOOP = "redirect-loop"
    TLS = "tls"
    AUTH = "auth"
    NOT_FOUND = "not-found"
    PERMISSION = "permission"
    NO_SUCH_TOOL = "no-such-tool"
    SSH = "ssh"
    OTHER = "other"

    METRICS_DISABLED = "metrics-disabled"
    EMPTY = "empty"
    NOT_METRICS = "not-metrics"
    NOT_JSON = "not-json"
    HTTP_ERROR = "http-error"
    REDIRECT = "redirect"
    NOT_ASKED = "not-asked"


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """An answer that could be read."""

    value: T


@dataclass(frozen=True, slots=True)
class Missed:
    """An answer that did not come, or was not an answer. ``detail`` is one line for people."""

    why: Why
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One raw answer, live or read back from a capture. Times: ``t`` seconds since the window's start when the
    answer was complete, ``took`` seconds it took. ``body`` is None when nothing came. ``more`` holds the capture
    line's further keys (path, mtime, pid, title)."""

    subject: str
    fact: Fact
    ask: str
    t: float
    at: datetime
    took: float
    status: int | None = None
    error: Why | None = None
    detail: str | None = None
    body: bytes | None = None
    content_type: str | None = None
    more: Mapping[str, object] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class Observation(Generic[T]):
    """An answer that was read: what it says (``Seen``) or why it says nothing (``Missed``)."""

    subject: str
    fact: Fact
    t: float
    at: datetime
    took: float
    ask: str
    got: Seen[T] | Missed
    status: int | None = None
    more: Mapping[str, object] = field(default_factory=lambda: NOTHING)

    @property
    def missed(self) -> Missed | None:
        return self.got if isinstance(self.got, Missed) else None
