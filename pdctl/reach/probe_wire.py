"""The connections a probe sends over: each request knows its own, none is opened or used again behind its back.

The home of a probe's sockets. HTTP/1.1 alone: how a connection is kept and closed is what is probed, and one HTTP/2
connection would carry all requests at once.
"""

from __future__ import annotations

import ssl
import threading

import httpcore

from pdctl.model.probe_plan import Way
from pdctl.reach.clock import Clock
from pdctl.reach.url import Target, target_of
from pdctl.reach.wire import Dial, Endpoint, Ground, Line, Timed, TimedStream

SLICE = 0.25  # seconds: how soon a read notices that it was called off
LOOK = 0.05  # seconds between looks whether an idle connection was closed


class CalledOff(Exception):
    """The probe was ended while this request was under way."""


class Watched(Timed):
    """The way to the network of one connection, whose reads can be called off."""

    def __init__(self, clock: Clock, carrier: httpcore.NetworkBackend | None, off: threading.Event) -> None:
        super().__init__(clock, carrier)
        self.off = off
        self.local: str | None = None  # pdctl's end of the connection

    def stream_of(self, inner: httpcore.NetworkStream) -> WatchedStream:
        self.local = _place(inner.get_extra_info("client_addr"))
        return WatchedStream(inner, self)


class WatchedStream(TimedStream):
    """A connection whose reads end when they are called off."""

    def __init__(self, inner: httpcore.NetworkStream, way: Watched) -> None:
        super().__init__(inner, way)
        self._off = way.off

    def received(self, max_bytes: int, left: float) -> bytes:
        while True:
            if self._off.is_set():
                raise CalledOff
            left = self._way.left(httpcore.ReadTimeout)
            try:
                return super().received(max_bytes, min(left, SLICE))
            except httpcore.ReadTimeout:
                if left <= SLICE:
                    raise


class Wire(Line):
    """One connection of a probe, opened by its first request. ``number`` tells it from the others, ``sent`` counts its
    requests."""

    def __init__(self, number: int, endpoint: Endpoint, way: Watched, tls: ssl.SSLContext | None) -> None:
        super().__init__(endpoint, way, tls)
        self.number = number
        self.sent = 0
        self._watched = way

    @property
    def local(self) -> str | None:
        """pdctl's end of the connection, ``address:port``; None before it is open and for one carried by SSH."""
        return self._watched.local

    def send(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        deadline: float,
        content: bytes | None = None,
    ) -> httpcore.Response:
        self.sent += 1
        return super().send(method, target, headers, deadline, content)

    @property
    def can_go_on(self) -> bool:
        """Whether another request can be written to it, whatever the other end has done meanwhile."""
        return self._connection.is_idle() and self.sent > 0

    @property
    def was_closed(self) -> bool:
        """Whether the other end is seen to have closed it while it was idle."""
        return self.can_go_on and self._connection.has_expired()


class Wires:
    """Opens connections, each a new one."""

    def __init__(self, clock: Clock, dial: Dial | None, off: threading.Event) -> None:
        self._clock = clock
        self._off = off
        self._ground = Ground(dial)
        self._lock = threading.Lock()
        self._count = 0

    def new(self, way: Way) -> Wire:
        """A connection to the instance of a way. Raises ValueError for a URL that is none, OSError for a CA file that
        can't be read, and whatever ``dial`` raises."""
        target = self.target(way)
        endpoint = Endpoint(target.scheme, target.host, target.port, way.host, way.instance.ca_file)
        watched = Watched(self._clock, self._ground.carrier(endpoint), self._off)
        return Wire(self._number(), endpoint, watched, self._ground.tls(endpoint))

    @staticmethod
    def target(way: Way, path: str = "") -> Target:
        """Where a request for ``path`` goes. Raises ValueError for a URL that is none."""
        return target_of(f"{(way.instance.url or '').rstrip('/')}{path}")

    def _number(self) -> int:
        with self._lock:
            self._count += 1
            return self._count


def _place(address: object) -> str | None:
    if not isinstance(address, tuple) or len(address) < 2:
        return None
    host = f"[{address[0]}]" if ":" in str(address[0]) else address[0]
    return f"{host}:{address[1]}"
