"""What is asked of an instance or host: a value that can be shown, repeated by hand, and carried by any transport."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from pdctl.model.answer import Fact
from pdctl.model.cluster import KeySource

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """A word that is used but never shown."""

    value: str

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class HttpAsk:
    """One HTTP request. ``timeout`` in seconds over the whole answer, ``cap`` in bytes of the decoded body.
    ``via`` names the host whose SSH connection carries it, None for a direct connection."""

    subject: str
    fact: Fact
    url: str
    timeout: float = 5.0
    cap: int = 64 * MEGABYTE
    api_key: KeySource | None = None
    ca_file: str | None = None
    via: str | None = None
    method: str = "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.url}"


@dataclass(frozen=True, slots=True)
class CommandAsk:
    """One command on a host, as a list of arguments: quoted at one door, secrets shown masked. ``timeout`` in
    seconds over the whole run, ``cap`` in bytes of each output stream. ``become`` asks for the host's sudo. ``about``
    are further keys of its answer (pid, title, path); ``shown`` is what to show in place of a long script."""

    subject: str
    fact: Fact
    host: str
    argv: tuple[str | Secret, ...]
    timeout: float = 10.0
    cap: int = 64 * MEGABYTE
    become: bool = False
    stdin: bytes | None = None
    about: tuple[tuple[str, object], ...] = ()
    shown: str | None = None

    def __str__(self) -> str:
        if self.shown is not None:
            return self.shown
        return " ".join("***" if isinstance(word, Secret) else shlex.quote(word) for word in self.argv)


Ask = HttpAsk | CommandAsk
