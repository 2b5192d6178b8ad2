"""Opening an SSH connection: socket, key exchange, host key, login. Each step ends by the time given."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from paramiko import SSHException, Transport

from pdctl.reach.ssh_auth import KeyRing, log_in
from pdctl.reach.ssh_config import SshFailure, Target
from pdctl.reach.ssh_hostkeys import HostKey, KnownHosts
from pdctl.reach.ssh_live import Connection, HeardSocket, Lost, Refused

Step = Callable[[str], None]
# Linux gives a connection up after 15 s without an acknowledgement; a kernel that lacks an option does without it.
TCP_OPTIONS = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}


def connect(target: Target, keys: KeyRing, via: Connection | None, until: float, step: Step) -> Connection:
    """A connection to the target, through ``via`` where given. ``step`` is told what is under way, for messages.
    Raises SshFailure."""
    step("reaching its SSH port")
    heard = HeardSocket(_way(target, via, until))
    transport = None
    try:
        known = KnownHosts(target)
        transport = _transport(heard, known)
        step("exchanging keys")
        _exchange_keys(transport, target, until)
        shown = transport.get_remote_server_key()
        known.check(HostKey(shown.get_name(), shown.asbytes()))
        step("logging in")
        transport.auth_timeout = max(0.1, until - time.monotonic())
        log_in(transport, target, keys)
        return Connection(transport, heard, target.name)
    except BaseException:
        if transport is not None:
            transport.close()
        with contextlib.suppress(OSError, EOFError):
            heard.close()
        raise


def _transport(heard: HeardSocket, known: KnownHosts) -> Transport:
    transport = Transport(heard)  # type: ignore[arg-type]
    options = transport.get_security_options()
    first = tuple(name for name in known.algorithms if name in options.key_types)
    options.key_types = (*first, *(name for name in options.key_types if name not in first))
    return transport


def _exchange_keys(transport: Transport, target: Target, until: float) -> None:
    left = until - time.monotonic()
    transport.banner_timeout = max(0.1, left)
    transport.handshake_timeout = max(0.1, left)
    try:
        transport.start_client(timeout=max(0.1, left))
        transport.get_remote_server_key()  # start_client returns without a word when its time is up
    except (SSHException, EOFError, OSError) as error:
        late = "; it took too long" if time.monotonic() >= until else ""
        raise SshFailure(f"{target.name}: no SSH key exchange: {error or 'connection closed'}{late}") from None


# --- the socket --------------------------------------------------------------------------------------------------


def _way(target: Target, via: Connection | None, until: float) -> Any:
    """What carries the bytes: a channel of the jump host, a proxy command, or a socket of our own."""
    if via is not None:
        try:
            return via.open("direct-tcpip", (target.hostname, target.port), until)
        except (Lost, Refused) as error:
            raise SshFailure(f"{target.name} through {via.name}: {error}") from None
    if target.proxy_command:
        return ProxySocket(_filled_in(target.proxy_command, target), target.name)
    return _socket(target, until)


def _socket(target: Target, until: float) -> socket.socket:
    left = max(0.1, until - time.monotonic())
    try:
        connected = socket.create_connection((target.hostname, target.port), min(left, target.connect_timeout or left))
    except TimeoutError:
        raise SshFailure(f"{target.name}: port {target.port} of {target.hostname} does not answer") from None
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise SshFailure(f"{target.name}: port {target.port} of {target.hostname}: {said}") from None
    _tune(connected)
    return connected


def _tune(connected: socket.socket) -> None:
    """Small packets leave at once, and a host that is gone is noticed (paramiko sets neither)."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP_OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def _filled_in(command: str, target: Target) -> str:
    """paramiko fills in %h, %p and %r; what is left of a % stands for itself."""
    return command.replace("%%", "%").replace("%n", target.name)


class ProxySocket:
    """A proxy command's standard input and output as a socket. The command ends with it."""

    def __init__(self, command: str, name: str) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._name = name

    def recv(self, size: int) -> bytes:
        return self._ours.recv(size)

    def send(self, data: bytes) -> int:
        return self._ours.send(data)

    def settimeout(self, seconds: float | None) -> None:
        self._ours.settimeout(seconds)

    def getpeername(self) -> tuple[str, int]:
        return (self._name, 0)

    def close(self) -> None:
        self._ours.close()
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1.0)
