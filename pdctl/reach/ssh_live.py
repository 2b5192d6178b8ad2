"""One live SSH connection: its channels, how many at once, and whether the host at its other end is still there.

paramiko's ``is_active`` stays true after a power cut: nothing arrives any more, and nothing says so. Here a host that
has not answered a pulse for ``SILENCE`` seconds counts as gone.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

from paramiko import Channel, ChannelException, SSHException, Transport

from pdctl.reach.ssh_reaper import Reaper

PULSE = 3.0  # seconds between questions to the host whether it is there
SILENCE = 10.0  # seconds without a byte from it after which it is not
SESSIONS = 9  # commands at once; sshd's MaxSessions is 10 by default, and one is kept for ending commands
REAPED = 2.0  # seconds that closing waits for commands to be ended on the host
OPENING = 5.0  # seconds for the host to open a session
PROHIBITED, CONNECT_FAILED = 1, 2  # reasons for not opening a channel, RFC 4254 section 5.1
UNTOLD = 5  # times a channel is asked for while the reason for its refusal gets lost
RETRIES = (0.02, 0.1, 0.3)  # seconds; a session that just ended may still be counted by the server

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else Python prints its errors on stderr itself


class Lost(Exception):
    """The connection is of no use any more; the message says what was seen."""


class Refused(Exception):
    """The host is there and opens no channel. ``by_far_end``: it tried, and what it tried to reach refused."""

    def __init__(self, message: str, by_far_end: bool = False) -> None:
        super().__init__(message)
        self.by_far_end = by_far_end


class _Untold(Exception):
    """A channel was refused, and the reason went to another thread: paramiko keeps one for all of them."""


class HeardSocket:
    """A socket that remembers when something last came in. What paramiko needs of one, no more."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._closed = False
        self.heard = time.monotonic()

    def recv(self, size: int) -> bytes:
        data: bytes = self._inner.recv(size)
        self.heard = time.monotonic()
        return data

    def send(self, data: bytes) -> int:
        return int(self._inner.send(data))

    def settimeout(self, seconds: float | None) -> None:
        self._inner.settimeout(seconds)

    def close(self) -> None:
        self._closed = True
        self._inner.close()

    def getpeername(self) -> Any:
        return self._inner.getpeername()


class Slots:
    """How many sessions may be open at once: learned from the server where it allows fewer than it is asked for."""

    def __init__(self, limit: int = SESSIONS) -> None:
        self._free = threading.Condition()
        self._limit = limit
        self._busy = 0

    def take(self, until: float) -> bool:
        """Waits for a free slot until that time of the monotonic clock; whether there was one."""
        with self._free:
            ready = self._free.wait_for(lambda: self._busy < self._limit, max(0.0, until - time.monotonic()))
            self._busy += 1 if ready else 0
            return ready

    def give(self) -> None:
        with self._free:
            self._busy -= 1
            self._free.notify()

    def shrink(self) -> bool:
        """Called by the holder of a slot whom the server refused: from now on there is one slot less, as long as
        others are held. False when no other is, so that waiting for one is of no use."""
        with self._free:
            others = self._busy - 1
            self._limit = max(1, min(self._limit, others))
            return others > 0


class Connection:
    """A connection that is open and logged in. Safe to use from several threads."""

    def __init__(self, transport: Transport, socket: HeardSocket, name: str) -> None:
        self.name = name
        self.transport = transport
        self.slots = Slots()
        self.reaper = Reaper(self)
        self._socket = socket
        self._pulse = threading.Thread(target=self._ask_for_life, name=f"pdctl-pulse-{name}", daemon=True)
        self._over = threading.Event()
        self._pulse.start()

    @property
    def silent(self) -> float:
        """Seconds since anything came from the host."""
        return time.monotonic() - self._socket.heard

    @property
    def is_alive(self) -> bool:
        return self.transport.is_active() and self.silent < SILENCE

    def why_dead(self) -> str:
        """What there is to say about a connection that is not alive."""
        if self.transport.is_active():
            return f"nothing heard from {self.name} for {self.silent:.0f} s"
        return f"the connection to {self.name} broke"

    def session(self, until: float) -> Channel | None:
        """A new session in a slot of its own (to be given back), None when there was no slot in time. Raises Lost or
        Refused."""
        while self.slots.take(until):
            channel = None
            try:
                channel = self._session(until)
                return channel
            except Refused:
                if time.monotonic() >= until or not self.slots.shrink():
                    raise
            finally:
                if channel is None:
                    self.slots.give()
        return None

    def _session(self, until: float) -> Channel:
        for pause in RETRIES:
            try:
                return self.open("session", None, until)
            except Refused:
                if time.monotonic() + pause >= until:
                    raise
                time.sleep(pause)
        return self.open("session", None, until)

    def open(self, kind: str, to: tuple[str, int] | None, until: float) -> Channel:
        """A channel of that kind. Raises Lost when nothing is heard from the host, Refused when it is there and does
        not open one."""
        for _ in range(UNTOLD):
            if not self.is_alive:
                raise Lost(self.why_dead())
            with contextlib.suppress(_Untold):
                return self._opened(kind, to, until - time.monotonic())
        raise Refused(f"{self.name} did not open a channel")

    def _opened(self, kind: str, to: tuple[str, int] | None, left: float) -> Channel:
        if left <= 0:
            raise Refused(f"no time left to open a channel to {self.name}")
        origin = ("127.0.0.1", 0) if to else None
        try:
            return self.transport.open_channel(kind, to, origin, timeout=left if to else min(left, OPENING))
        except ChannelException as error:
            raise self._refused(error.code, to) from None
        except (SSHException, EOFError, OSError) as error:
            if not self.is_alive or self.silent > 1.5 * PULSE:
                raise Lost(f"{self.name} did not open a channel: {error or self.why_dead()}") from None
            if "imeout" in str(error):
                raise Refused(f"{self.name} did not open a channel in time") from None
            raise _Untold from None

    def _refused(self, code: int, to: tuple[str, int] | None) -> Refused:
        what = f"a connection to {to[0]}:{to[1]}" if to else "another session"
        if code == PROHIBITED:
            why = " (AllowTcpForwarding no?)" if to else ""
            return Refused(f"sshd of {self.name} does not allow {what}{why}")
        if code == CONNECT_FAILED and to:
            return Refused(f"refused, as seen from {self.name}", by_far_end=True)
        return Refused(f"sshd of {self.name} refused {what}")

    def close(self) -> None:
        """Closes the connection and all its channels, after what is to be ended on the host has been."""
        self._over.set()
        if self.is_alive:
            self.reaper.finish(REAPED)
        self.transport.close()
        with contextlib.suppress(OSError, EOFError):
            self._socket.close()

    def _ask_for_life(self) -> None:
        """Asks for something the server does not know: its refusal is the pulse. Blocks while there is none."""
        while not self._over.wait(PULSE) and self.transport.is_active():
            with contextlib.suppress(SSHException, EOFError, OSError):
                self.transport.global_request("keepalive@openssh.com", wait=True)
