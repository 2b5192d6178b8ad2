"""A loopback server that does to a client whatever a test scripts: drip, hang, lie, break off."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\n"


@dataclass
class Peer:
    """One connection as the script sees it. ``number`` counts connections from 0, ``asked`` this one's requests."""

    sock: socket.socket
    number: int
    over: threading.Event
    asked: int = 0
    request: bytes = b""

    @property
    def path(self) -> str:
        return self.request.split(b" ")[1].decode()

    def header(self, name: str) -> str | None:
        for line in self.request.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.decode().lower() == name.lower():
                return value.strip().decode()
        return None

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def reply(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        self.say("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def drip(self, data: bytes, every: float) -> None:
        """A byte each ``every`` seconds, until the test is over or the client gone."""
        for byte in data:
            self.say(bytes([byte]))
            if self.over.wait(every):
                return

    def hang(self) -> None:
        """Nothing more until the test is over."""
        self.over.wait(30)

    def reset(self) -> None:
        """Breaks the connection so that the client gets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()


Script = Callable[[Peer], bool | None]


@dataclass
class Nasty:
    """Serves each request by ``script(peer)``; a script that returns True keeps the connection for the next one."""

    script: Script
    tls: ssl.SSLContext | None = None
    family: socket.AddressFamily = socket.AF_INET
    peers: list[Peer] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Nasty:
        self._listener = socket.socket(self.family, socket.SOCK_STREAM)
        self._listener.bind(("::1" if self.family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(512)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def url(self, path: str = "/metrics", scheme: str = "http") -> str:
        host = "[::1]" if self.family == socket.AF_INET6 else "127.0.0.1"
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def asked(self) -> int:
        return sum(peer.asked for peer in self.peers)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, sock, len(self.peers))
            self.peers.append(Peer(sock, len(self.peers), self._over))

    def _serve(self, sock: socket.socket, number: int) -> None:
        while len(self.peers) <= number:
            self._over.wait(0.001)
        peer = self.peers[number]
        with contextlib.suppress(OSError, ssl.SSLError):
            if self.tls is not None:
                peer.sock = self.tls.wrap_socket(sock, server_side=True)
            while self._request(peer) and self.script(peer):
                pass
        with contextlib.suppress(OSError):
            peer.sock.close()
        sock.close()

    def _request(self, peer: Peer) -> bool:
        data = b""
        while b"\r\n\r\n" not in data and not data.startswith(b"\x16"):  # a TLS hello has no blank line
            more = peer.sock.recv(65536)
            if not more:
                return False
            data += more
        peer.request = data
        peer.asked += 1
        return True


def free_port() -> int:
    """A loopback port on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
