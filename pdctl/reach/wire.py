"""Connections for HTTP: each operation ends by one deadline, and a connection is used again while it is good.

The only importer of httpcore (what httpx itself speaks HTTP with; httpx adds cookies, auth flows and 25 ms of import,
none of which a probe uses). Imported when the first request is made.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import httpcore

from pdctl.reach.clock import Clock

Dial = Callable[[str], httpcore.NetworkBackend]
HEARD = 16  # bytes


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a connection goes, and what it must be checked against. ``via`` is the host that carries it."""

    scheme: str
    host: str
    port: int
    via: str | None = None
    ca_file: str | None = None


class Timed(httpcore.NetworkBackend):
    """The way to the network of one connection. ``deadline`` bounds whatever is under way, by the clock handed in:
    a peer that sends a byte now and then cannot stretch it, as it can a timeout that starts anew with each read."""

    def __init__(self, clock: Clock, carrier: httpcore.NetworkBackend | None) -> None:
        self._clock = clock
        self._carrier = carrier or Direct(clock)
        self.deadline = 0.0
        self.heard = b""  # the first bytes of the answer under way

    def left(self, late: type[Exception]) -> float:
        """Seconds until the deadline; raises ``late`` when there are none."""
        left = self.deadline - self._clock.now()
        if left <= 0:
            raise late("deadline passed")
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = self.left(httpcore.ConnectTimeout)
        return self.stream_of(self._carrier.connect_tcp(host, port, left, local_address, socket_options))

    def stream_of(self, inner: httpcore.NetworkStream) -> TimedStream:
        """The connection, bound to the deadline."""
        return TimedStream(inner, self)


class TimedStream(httpcore.NetworkStream):
    """A connection whose every operation ends by its way's deadline."""

    def __init__(self, inner: httpcore.NetworkStream, way: Timed) -> None:
        self._inner = inner
        self._way = way

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self.received(max_bytes, self._way.left(httpcore.ReadTimeout))
        if len(self._way.heard) < HEARD:
            self._way.heard += data[:HEARD]
        return data

    def received(self, max_bytes: int, left: float) -> bytes:
        """What comes within ``left`` seconds; raises ReadTimeout when nothing does."""
        return self._inner.read(max_bytes, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._way.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._way.left(httpcore.ConnectTimeout)
        return self._way.stream_of(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Direct(httpcore.SyncBackend):
    """TCP from this machine: the name is looked up and each of its addresses tried within one timeout together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        until = self._clock.now() + (timeout or 0.0)
        addresses = _addresses(host, port, timeout or 0.0)
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for place, address in enumerate(addresses):
            # A dead first address (IPv6 without a route, often) leaves the others their share.
            share = max(0.001, (until - self._clock.now()) / (len(addresses) - place))
            try:
                return super().connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


def _addresses(host: str, port: int, timeout: float) -> list[str]:
    """The host's addresses, numeric. A resolver may hang for tens of seconds and cannot be interrupted, so it is asked
    in a thread that is left behind when time is up."""
    if _is_numeric(host):
        return [host]
    found: list[list[str] | OSError] = []

    def look_up() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.append(list(dict.fromkeys(str(row[4][0]) for row in rows)))
        except (OSError, UnicodeError) as error:
            found.append(error if isinstance(error, OSError) else OSError(str(error)))

    thread = threading.Thread(target=look_up, name="pdctl-resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    if not found:
        raise httpcore.ConnectTimeout(f"name {host} was not resolved in time")
    if isinstance(found[0], OSError):
        raise httpcore.ConnectError(str(found[0])) from found[0]
    return found[0]


def _is_numeric(host: str) -> bool:
    if ":" in host:
        return True
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True


class Line:
    """One connection to an endpoint. Asked one request at a time; ``used`` tells whether it carried one before."""

    def __init__(self, endpoint: Endpoint, way: Timed, tls: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self.used = False
        self._way = way
        self._origin = httpcore.Origin(endpoint.scheme.encode(), endpoint.host.encode("ascii"), endpoint.port)
        self._connection = httpcore.HTTPConnection(self._origin, ssl_context=tls, network_backend=way)

    def send(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        deadline: float,
        content: bytes | None = None,
    ) -> httpcore.Response:
        """Sends a request and returns the response, its body not read yet. Raises httpcore's errors."""
        self.until(deadline)
        self._way.heard = b""
        url = httpcore.URL(
            scheme=self._origin.scheme, host=self._origin.host, port=self._origin.port, target=target.encode("ascii")
        )
        return self._connection.handle_request(httpcore.Request(method, url, headers=headers, content=content))

    def until(self, deadline: float) -> None:
        """Sets the moment by which what is under way must have ended."""
        self._way.deadline = deadline

    def check_time(self) -> None:
        """Raises ReadTimeout when the deadline has passed: a body of very many tiny pieces arrives without waiting."""
        self._way.left(httpcore.ReadTimeout)

    @property
    def heard(self) -> bytes:
        """The first bytes that came in answer to the last request; empty when none did."""
        return self._way.heard

    @property
    def is_good(self) -> bool:
        """Whether it can carry another request: idle, and not closed by the other end as far as is known."""
        return self._connection.is_idle() and not self._connection.has_expired()

    def close(self) -> None:
        self._connection.close()


class Ground:
    """What connections are opened on: the network of the host that carries them, and what their certificates are
    checked against. Safe to use from several threads."""

    def __init__(self, dial: Dial | None) -> None:
        self._dial = dial
        self._lock = threading.Lock()
        self._tls: dict[str | None, ssl.SSLContext] = {}

    def carrier(self, endpoint: Endpoint) -> httpcore.NetworkBackend | None:
        """None for this machine's own network. Raises whatever ``dial`` raises."""
        if endpoint.via is None:
            return None
        if self._dial is None:
            raise ConnectionError(f"no way to host {endpoint.via} was given")
        return self._dial(endpoint.via)

    def tls(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """One TLS context for each CA file: making one reads and parses every certificate (10 ms and more). Raises
        OSError for a CA file that can't be read."""
        if endpoint.scheme != "https":
            return None
        with self._lock:
            if endpoint.ca_file not in self._tls:
                self._tls[endpoint.ca_file] = ssl.create_default_context(cafile=endpoint.ca_file)
            return self._tls[endpoint.ca_file]


class Lines:
    """The connections that are open and idle, by endpoint. Safe to use from several threads."""

    def __init__(self, clock: Clock, dial: Dial | None) -> None:
        self._clock = clock
        self._ground = Ground(dial)
        self._lock = threading.Lock()
        self._idle: dict[Endpoint, list[Line]] = {}
        self._closed = False

    def take(self, endpoint: Endpoint, *, fresh: bool = False) -> Line:
        """An idle good connection to the endpoint, else (or when ``fresh``) a new one, opened by its first request.
        Raises OSError for an unreadable CA file, and whatever ``dial`` raises."""
        while not fresh:
            with self._lock:
                idle = self._idle.get(endpoint)
                line = idle.pop() if idle else None
            if line is None:
                break
            if line.is_good:
                return line
            line.close()
        return Line(endpoint, Timed(self._clock, self._ground.carrier(endpoint)), self._ground.tls(endpoint))

    def give(self, line: Line) -> None:
        """Puts a connection back; one that cannot carry another request is closed."""
        line.used = True
        with self._lock:
            keep = not self._closed and line.is_good
            if keep:
                self._idle.setdefault(line.endpoint, []).append(line)
        if not keep:
            line.close()

    def close(self) -> None:
        """Closes every idle connection; those in use are closed when they come back."""
        with self._lock:
            self._closed = True
            lines = [line for idle in self._idle.values() for line in idle]
            self._idle.clear()
        for line in lines:
            line.close()
