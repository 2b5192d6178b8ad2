"""HTTP through a host's SSH connection: each TCP connection is a channel that the host opens from where it stands.

So an engine that listens on 127.0.0.1 of its host is reached as that host reaches it. ``SshBackend`` is what
``http.HttpReach`` takes as the network of a host.
"""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import httpcore
from paramiko import Channel, SSHException

from pdctl.reach.ssh_config import SshFailure
from pdctl.reach.ssh_link import Link
from pdctl.reach.ssh_live import Connection, Lost, Refused

T = TypeVar("T")
PATIENCE = 30.0  # seconds for an operation that comes without a limit
RECORDS = 64 * 1024  # bytes of TLS records read at once


class SshBackend(httpcore.NetworkBackend):
    """The network as seen from the host at the other end of a link."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to ``host`` and ``port`` as the link's host resolves and reaches them. Raises httpcore's errors;
        a refusal has ConnectionRefusedError as its cause, trouble with SSH itself ConnectionError."""
        until = time.monotonic() + (PATIENCE if timeout is None else timeout)
        try:
            return ChannelStream(*self._opened(host, port, until))
        except Refused as refused:
            if time.monotonic() >= until:
                raise httpcore.ConnectTimeout(str(refused)) from refused
            cause = ConnectionRefusedError(str(refused)) if refused.by_far_end else ConnectionError(str(refused))
            raise httpcore.ConnectError(str(refused)) from cause
        except Lost as lost:
            raise httpcore.ConnectError(str(lost)) from ConnectionError(str(lost))
        except SshFailure as failure:
            raise httpcore.ConnectError(failure.message) from ConnectionError(failure.message)

    def _opened(self, host: str, port: int, until: float) -> tuple[Channel, Connection]:
        connection, _ = self._link.get(until)
        try:
            return connection.open("direct-tcpip", (host, port), until), connection
        except Lost:
            self._link.drop(connection)
        connection, _ = self._link.get(until)  # it died while idle: once more over a new one
        return connection.open("direct-tcpip", (host, port), until), connection


class ChannelStream(httpcore.NetworkStream):
    """One TCP connection, carried by a channel."""

    def __init__(self, channel: Channel, connection: Connection) -> None:
        self._channel = channel
        self._connection = connection

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._channel.settimeout(timeout)
        try:
            return self._channel.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(self._silence() or "timed out") from error
        except (OSError, EOFError, SSHException) as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._channel.settimeout(timeout)
        try:
            self._channel.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(self._silence() or "timed out") from error
        except (OSError, EOFError, SSHException) as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError, SSHException):
            self._channel.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return TlsStream(self, ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> Any:
        """``is_readable``: whether something came (or the end did) on a connection that should be idle."""
        if info == "is_readable":
            channel = self._channel
            return channel.recv_ready() or channel.eof_received or channel.closed or not self._connection.is_alive
        return None

    def _silence(self) -> str:
        return "" if self._connection.is_alive else self._connection.why_dead()


class TlsStream(httpcore.NetworkStream):
    """TLS over any stream: a channel is no socket, so the records are moved by hand."""

    def __init__(
        self,
        inner: httpcore.NetworkStream,
        context: ssl.SSLContext,
        hostname: str | None,
        timeout: float | None,
    ) -> None:
        self._inner = inner
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=hostname)
        try:
            self._move(self._tls.do_handshake, timeout)
        except ssl.SSLError as error:
            raise httpcore.ConnectError(str(error)) from error

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return self._move(lambda: self._tls.read(max_bytes), timeout) or b""
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""  # a body that was cut short shows by its length
        except ssl.SSLError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = memoryview(buffer)
        try:
            while left:
                taken = self._move(lambda piece=left: self._tls.write(piece), timeout)  # type: ignore[misc]
                left = left[taken or 0 :]
        except ssl.SSLError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return TlsStream(self, ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> Any:
        return self._tls if info == "ssl_object" else self._inner.get_extra_info(info)

    def _move(self, step: Callable[[], T], timeout: float | None) -> T:
        """The step's result; records are sent and fetched as it asks for them."""
        while True:
            wants = None
            try:
                result = step()
            except ssl.SSLWantReadError as error:
                wants = error
            if self._out.pending:
                self._inner.write(self._out.read(), timeout)
            if wants is None:
                return result
            data = self._inner.read(RECORDS, timeout)
            self._in.write(data) if data else self._in.write_eof()
