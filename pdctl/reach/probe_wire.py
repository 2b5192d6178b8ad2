"""The connections a probe sends over: each request knows its own, none is opened or used again behind its back.

The home of a probe's sockets. HTTP/1.1 alone: how a connection is kept and closed is what is probed, and one HTTP/2
connection would carry all requests at once.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable
from typing import Any

import httpcore

from pdctl.model.probe_plan import Way
from pdctl.reach.clock import Clock
from pdctl.reach.url import Target, target_of
from pdctl.reach.wire import HEARD, Dial, Endpoint, Line, Timed

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

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = self.left(httpcore.ConnectTimeout)
        stream = self._carrier.connect_tcp(host, port, left, local_address, socket_options)
        self.local = _place(stream.get_extra_info("client_addr"))
        return WatchedStream(stream, self)


class WatchedStream(httpcore.NetworkStream):
    """A connection whose operations end by its way's deadline, its reads also when they are called off."""

    def __init__(self, inner: httpcore.NetworkStream, way: Watched) -> None:
        self._inner = inner
        self._way = way

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            if self._way.off.is_set():
                raise CalledOff
            left = self._way.left(httpcore.ReadTimeout)
            try:
                data = self._inner.read(max_bytes, min(left, SLICE))
            except httpcore.ReadTimeout:
                if left <= SLICE:
                    raise
                continue
            self._way.heard += data[: HEARD - len(self._way.heard)]
            return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._way.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._way.left(httpcore.ConnectTimeout)
        return WatchedStream(self._inner.start_tls(ssl_context, server_hostname, left), self._way)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


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

    def ask(
        self, method: str, target: str, headers: list[tuple[str, str]], content: bytes | None, deadline: float
    ) -> httpcore.Response:
        """Sends a request and returns the response, its body not read yet. Raises httpcore's errors."""
        self.sent += 1
        self.until(deadline)
        self._watched.heard = b""
        url = httpcore.URL(
            scheme=self._origin.scheme, host=self._origin.host, port=self._origin.port, target=target.encode("ascii")
        )
        return self._connection.handle_request(httpcore.Request(method, url, headers=headers, content=content))

    def until(self, deadline: float) -> None:
        """Sets the moment by which what is under way must have ended."""
        self._watched.deadline = deadline

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
        self._dial = dial
        self._off = off
        self._lock = threading.Lock()
        self._count = 0
        self._tls: dict[str | None, ssl.SSLContext] = {}

    def new(self, way: Way) -> Wire:
        """A connection to the instance of a way. Raises ValueError for a URL that is none, OSError for a CA file that
        can't be read, and whatever ``dial`` raises."""
        target = self.target(way)
        endpoint = Endpoint(target.scheme, target.host, target.port, way.host, way.instance.ca_file)
        return Wire(
            self._number(), endpoint, Watched(self._clock, self._carrier(way), self._off), self._context(endpoint)
        )

    @staticmethod
    def target(way: Way, path: str = "") -> Target:
        """Where a request for ``path`` goes. Raises ValueError for a URL that is none."""
        return target_of(f"{(way.instance.url or '').rstrip('/')}{path}")

    def _number(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def _carrier(self, way: Way) -> httpcore.NetworkBackend | None:
        if way.host is None:
            return None
        if self._dial is None:
            raise ConnectionError(f"no way to host {way.host} was given")
        return self._dial(way.host)

    def _context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if endpoint.scheme != "https":
            return None
        with self._lock:
            if endpoint.ca_file not in self._tls:
                self._tls[endpoint.ca_file] = ssl.create_default_context(cafile=endpoint.ca_file)
            return self._tls[endpoint.ca_file]


def _place(address: object) -> str | None:
    if not isinstance(address, tuple) or len(address) < 2:
        return None
    host = f"[{address[0]}]" if ":" in str(address[0]) else address[0]
    return f"{host}:{address[1]}"
