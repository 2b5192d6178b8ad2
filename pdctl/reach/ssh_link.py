"""The connection to a host, whoever wants it: opened once, shared by all, opened anew when it was lost.

Opening happens in a thread of its own: whoever waits for it goes by a deadline of their own, whatever a resolver,
an agent or a person at a prompt does meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pdctl.reach.ssh_auth import KeyRing, terminal_prompt
from pdctl.reach.ssh_config import SshConfig, SshFailure, Target
from pdctl.reach.ssh_connect import connect
from pdctl.reach.ssh_live import Connection

PATIENCE = 15.0  # seconds for opening a connection, where the configuration does not say
REMEMBERED = 3.0  # seconds for which a failure is told again rather than tried again

Opener = Callable[[float, Callable[[str], None]], Connection]


class Attempt:
    """One try at opening a connection, under way or over."""

    def __init__(self, opener: Opener, until: float, name: str) -> None:
        self.connection: Connection | None = None
        self.failure: SshFailure | None = None
        self.ended = 0.0
        self.step = "starting"
        self.over = threading.Event()
        self._opener = opener
        self._until = until
        threading.Thread(target=self._run, name=f"pdctl-ssh-{name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self.connection = self._opener(self._until, self._tell)
        except SshFailure as failure:
            self.failure = failure
        except Exception as error:  # noqa: BLE001 (whatever it is, whoever waits must hear of it)
            self.failure = SshFailure(f"{type(error).__name__}: {error}")
        finally:
            self.ended = time.monotonic()
            self.over.set()

    def _tell(self, step: str) -> None:
        self.step = step

    @property
    def is_usable(self) -> bool:
        """Under way, or a live connection, or a failure so fresh that trying again would find the same."""
        if not self.over.is_set():
            return True
        if self.connection is not None:
            return self.connection.is_alive
        return time.monotonic() - self.ended < REMEMBERED


class Link:
    """One host's connection. Safe to use from several threads."""

    def __init__(self, target: Target, keys: KeyRing, via: Link | None = None) -> None:
        self.target = target
        self._keys = keys
        self._via = via
        self._lock = threading.Lock()
        self._attempt: Attempt | None = None

    def get(self, until: float) -> tuple[Connection, float]:
        """The connection, and how many seconds a person was asked for a passphrase meanwhile (deadlines move by as
        much). Raises SshFailure."""
        asked = self._keys.asked_seconds
        attempt = self._current()
        while not attempt.over.wait(0.05 if self._keys.asked_seconds > asked else self._left(until)):
            if time.monotonic() >= until + self._keys.asked_seconds - asked:
                raise SshFailure(f"{self.target.name}: no connection in time (still {attempt.step})")
        if attempt.failure is not None:
            raise SshFailure(attempt.failure.message, attempt.failure.hint)
        assert attempt.connection is not None
        return attempt.connection, self._keys.asked_seconds - asked

    @staticmethod
    def _left(until: float) -> float:
        return min(0.25, max(0.0, until - time.monotonic()))

    def drop(self, connection: Connection) -> None:
        """Says that a connection got from here is of no use; the next ``get`` opens another."""
        with self._lock:
            if self._attempt is not None and self._attempt.connection is connection:
                self._attempt = None
        connection.close()

    def close(self) -> None:
        with self._lock:
            attempt, self._attempt = self._attempt, None
        if attempt is not None and attempt.over.is_set() and attempt.connection is not None:
            attempt.connection.close()

    def _current(self) -> Attempt:
        stale = None
        with self._lock:
            if self._attempt is not None and not self._attempt.is_usable:
                stale, self._attempt = self._attempt.connection, None
            if self._attempt is None:
                until = time.monotonic() + (self.target.connect_timeout or PATIENCE)
                self._attempt = Attempt(self._open, until, self.target.name)
            attempt = self._attempt
        if stale is not None:
            stale.close()
        return attempt

    def _open(self, until: float, tell: Callable[[str], None]) -> Connection:
        via = None
        if self._via is not None:
            tell(f"connecting to {self._via.target.name} first")
            via, _ = self._via.get(until)
        return connect(self.target, self._keys, via, until, tell)


class Links:
    """The links to all hosts: one for each host and way to it, so that a jump host is connected to once."""

    def __init__(self, config: SshConfig | None = None, keys: KeyRing | None = None) -> None:
        self._config = config
        self._keys = keys or KeyRing(terminal_prompt())
        self._lock = threading.Lock()
        self._links: dict[tuple[str, ...], Link] = {}

    def link(self, spec: str) -> Link:
        """The link to ``[user@]host[:port]``. Nothing is connected yet. Raises SshFailure for a bad configuration."""
        with self._lock:
            self._config = self._config or SshConfig.read()
            return self._link(spec, None, 0)

    def _link(self, spec: str, via: tuple[str, ...] | None, depth: int) -> Link:
        """``via``: the jump hosts given for it, None where its own configuration says."""
        assert self._config is not None
        if depth > 8:
            raise SshFailure(f"{spec}: jump hosts that lead to one another")
        target = self._config.target(spec, jumped=bool(via))
        way = target.jumps if via is None else via
        key = (*way, spec)
        if key not in self._links:
            before = self._link(way[-1], way[:-1] or None, depth + 1) if way else None
            self._links[key] = Link(target, self._keys, before)
        return self._links[key]

    def close(self) -> None:
        """Closes every connection; those to jump hosts last."""
        with self._lock:
            links = list(self._links.values())
            self._links.clear()
        for link in reversed(links):
            link.close()
