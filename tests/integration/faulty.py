"""A small HTTP/1.1 server that generates, echoes what it is asked, and misbehaves as told. With ``upstream`` it is a
proxy in front of another server and misbehaves on the way."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/generate"
NONCE = re.compile(r"Repeat the word (\S+) and nothing else")


@dataclass(frozen=True)
class Manners:
    """What it does to its clients. ``nth`` counts requests on one connection from 1."""

    idle_close_s: float | None = None  # closes a connection that sat idle so long
    idle_deaf_s: float | None = None  # takes a request after that and never answers it, as a forgetful middlebox does
    idle_408_s: float | None = None  # says 408 and closes, as some proxies do
    hang_nth: int | None = None  # the n-th request of each connection is never answered, nor sent on
    hang_all: bool = False  # no POST is ever answered, nor sent on
    hang_from: int | None = None  # so many are answered less one, those after them never
    lose_nth: int | None = None  # the n-th request of each connection is carried out, its answer dropped
    reset_nth: int | None = None
    close_each: bool = False  # Connection: close
    cut_stream: bool = False  # streams break off in the middle
    no_done: bool = False  # streams end without saying that they are complete
    error_event: bool = False  # an error inside a stream that began with 200
    crossed: bool = False  # from two at once on, answers hold another request's nonce
    empty: bool = False
    gives_up: bool = False  # answers end with the reason "abort", as those of an engine that gave the request up
    no_echo: bool = False
    trickle_s: float | None = None  # seconds between single bytes of an answer
    piece_s: float = 0.002  # seconds between pieces of a stream
    think_s: float = 0.0
    slow_above: int | None = None  # with more at once each takes ``slow_s``
    slow_s: float = 0.0
    fail_above: int | None = None  # with more at once they are answered 503
    fail_status: int | None = None
    fail_body: bytes = b'{"error":{"code":"x","message":"no"}}'
    paths: tuple[str, ...] = (CHAT, TEXT, NATIVE)
    hold_streams: bool = False  # a stream is sent when it is complete
    health_status: int = 200
    key: str | None = None


@dataclass
class Faulty:
    """The server. ``served`` are the requests it carried out, ``connections`` those it took."""

    manners: Manners = field(default_factory=Manners)
    upstream: str | None = None
    tls: ssl.SSLContext | None = None
    model: str = "tiny"
    served: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    connections: int = 0
    active: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _nonces: list[str] = field(default_factory=list)
    _socks: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Faulty:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._socks.append(sock)
            self._start(self._connection, sock)

    def _connection(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError, http.client.HTTPException):
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True)
                self._socks.append(sock)
            nth = 0
            while self._request(sock, nth := nth + 1):
                pass
        with contextlib.suppress(OSError):
            sock.close()

    def _request(self, sock: socket.socket, nth: int) -> bool:
        """Reads one request and does to it what the manners say. Returns whether the connection goes on."""
        m, since = self.manners, time.monotonic()
        limit = m.idle_close_s or m.idle_408_s
        sock.settimeout(limit if nth > 1 else None)
        try:
            read = _read(sock)
        except TimeoutError:
            if m.idle_408_s:
                sock.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return False
        if read is None:
            return False
        sock.settimeout(None)
        method, path, headers, body = read
        idle = time.monotonic() - since
        if nth == m.reset_nth:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            return False
        if method == "POST" and (
            m.hang_all
            or (m.hang_from is not None and len(self.served) >= m.hang_from - 1)
            or nth == m.hang_nth
            or (m.idle_deaf_s and nth > 1 and idle > m.idle_deaf_s)
        ):
            self._over.wait(60)
            return False
        with self._lock:
            self.active += 1
            busy = self.active
        try:
            return self._answered(sock, nth, method, path, headers, body, busy)
        finally:
            with self._lock:
                self.active -= 1

    def _answered(
        self, sock: socket.socket, nth: int, method: str, path: str, headers: dict[str, str], body: bytes, busy: int
    ) -> bool:
        m = self.manners
        if m.key is not None and headers.get("authorization") != f"Bearer {m.key}":
            return _send(sock, 401, b'{"error":"Unauthorized"}')
        if self.upstream is not None:
            return self._forwarded(sock, nth, method, path, body)
        if method == "GET":
            models = json.dumps({"data": [{"id": self.model}]}).encode()
            return _send(sock, m.health_status, b"") if path == "/health" else _send(
                sock, 200 if path == "/v1/models" else 404, models if path == "/v1/models" else b"{}"
            )  # fmt: skip
        if path not in m.paths:
            return _send(sock, 404, b'{"detail":"Not Found"}')
        if m.fail_status or (m.fail_above and busy > m.fail_above):
            return _send(sock, m.fail_status or 503, m.fail_body)
        self._over.wait(m.slow_s if m.slow_above and busy > m.slow_above else m.think_s)
        asked = json.loads(body)
        with self._lock:
            self.served.append((path, asked))
        if nth == m.lose_nth:
            self._over.wait(60)
            return False
        return self._generated(sock, path, asked, busy)

    def _generated(self, sock: socket.socket, path: str, asked: dict[str, object], busy: int) -> bool:
        m = self.manners
        text = self._text(asked, busy)
        if not asked.get("stream"):
            answer = json.dumps(_whole(path, text)).encode()
            if m.gives_up:
                answer = answer.replace(b'"finish_reason": "stop"', b'"finish_reason": "abort"')
            if m.trickle_s:
                return self._trickled(sock, answer)
            return _send(sock, 200, answer, close=m.close_each) and not m.close_each
        return self._streamed(sock, path, text)

    def _text(self, asked: dict[str, object], busy: int) -> str:
        if self.manners.empty:
            return ""
        if self.manners.no_echo:
            return "lorem ipsum dolor"
        nonce = [*NONCE.findall(json.dumps(asked)), "0"][-1 if "input_ids" in asked else -2]
        with self._lock:
            others = [n for n in self._nonces if n != nonce]
            self._nonces.append(nonce)
        return others[-1] if self.manners.crossed and busy > 1 and others else f"{nonce} it is"

    def _trickled(self, sock: socket.socket, answer: bytes) -> bool:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer))
        for byte in answer:
            sock.sendall(bytes([byte]))
            if self._over.wait(self.manners.trickle_s):
                return False
        return True

    def _streamed(self, sock: socket.socket, path: str, text: str) -> bool:
        m = self.manners
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        words = re.findall(r"\S+\s*", text)
        pieces = [_event(path, word, text) for word in words]
        for index, piece in enumerate(pieces):
            if m.cut_stream and index == 1:
                return False
            if m.error_event and index == 1:
                _chunk(sock, b'data: {"error":{"message":"prefill gone","code":500}}\n\n')
                break
            _chunk(sock, piece)
            self._over.wait(m.piece_s)
        if not m.no_done:
            _chunk(sock, b"data: [DONE]\n\n")
        sock.sendall(b"0\r\n\r\n")
        return True

    def _forwarded(self, sock: socket.socket, nth: int, method: str, path: str, body: bytes) -> bool:
        """Asks the server behind, over a connection of its own each time, and passes its answer on as it comes."""
        parts = urlsplit(self.upstream or "")
        behind = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=60)
        try:
            behind.request(method, path, body or None, {"Content-Type": "application/json"})
            answer = behind.getresponse()
            pieces = [answer.read()] if self.manners.hold_streams or nth == self.manners.lose_nth else _pieces(answer)
            if nth == self.manners.lose_nth and method == "POST":
                self._over.wait(60)
                return False
            kind = answer.headers.get("Content-Type", "text/plain").encode()
            head = b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % (answer.status, kind)
            sock.sendall(head)
            for index, piece in enumerate(pieces):
                if self.manners.cut_stream and index == 1:
                    return False
                _chunk(sock, piece)
            sock.sendall(b"0\r\n\r\n")
            return True
        finally:
            behind.close()


def _pieces(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while piece := answer.read1(65536):
        yield piece


def _read(sock: socket.socket) -> tuple[str, str, dict[str, str], bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    while len(body) < int(headers.get("content-length", 0)):
        body += sock.recv(65536)
    method, path, _ = lines[0].split(" ")
    return method, path, headers, body


def _send(sock: socket.socket, status: int, body: bytes, *, close: bool = False) -> bool:
    more = b"Connection: close\r\n" if close else b""
    sock.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n" % (
        status, len(body), more) + body)  # fmt: skip
    return True


def _chunk(sock: socket.socket, data: bytes) -> None:
    sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))


def _whole(path: str, text: str) -> dict[str, object]:
    count = {"completion_tokens": len(text.split())}
    if path == NATIVE:
        return {"text": text, "meta_info": {**count, "finish_reason": {"type": "length"}}}
    if path == TEXT:
        return {"choices": [{"text": text, "finish_reason": "length"}], "usage": count}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], "usage": count}


def _event(path: str, word: str, text: str) -> bytes:
    value: dict[str, object]
    if path == NATIVE:
        value = {"text": text[: text.index(word) + len(word)]}
    elif path == TEXT:
        value = {"choices": [{"text": word, "finish_reason": None}]}
    else:
        value = {"choices": [{"delta": {"content": word}, "finish_reason": None}]}
    return b"data: " + json.dumps(value).encode() + b"\n\n"
