"""A small HTTP/1.1 server on asyncio: keep-alive, chunked bodies both ways, and the ways of going wrong."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pdctl.demo.core.answers import Reply

BACKLOG = 512
HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 32 * 1024 * 1024
KEEP_ALIVE = 75.0  # seconds an idle connection is kept
REASONS = {
    200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
    405: "Method Not Allowed", 413: "Content Too Large", 500: "Internal Server Error", 502: "Bad Gateway",
    503: "Service Unavailable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``gone`` says whether its client has closed the connection by now."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    gone: Callable[[], bool]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def json(self) -> dict[str, object] | None:
        """The body as a JSON object, None when it is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


@dataclass(slots=True)
class Stream:
    """A streamed answer: server-sent events until the iterator ends."""

    pieces: AsyncIterator[bytes]
    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Reply | Stream
Handler = Callable[[Request], Awaitable[Answer]]


class BadRequest(Exception):
    """What came is no request."""


class Listener:
    """One listening port. ``pause`` closes it, so that connections are refused; ``resume`` opens it again."""

    def __init__(self, handler: Handler, sock: socket.socket) -> None:
        self._handler = handler
        self._sock: socket.socket | None = sock
        self.port: int = sock.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def resume(self) -> None:
        if self._server is None:
            sock = self._sock or bound(self.port)
            self._sock = None
            self._server = await asyncio.start_server(self._talk, sock=sock, backlog=BACKLOG, limit=HEAD_LIMIT)

    async def pause(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Reads a request and answers it. False ends the connection."""
        try:
            request = await read_request(reader)
        except BadRequest as error:
            await write_reply(writer, Reply(400, str(error).encode(), "text/plain; charset=utf-8"), keep=False)
            return False
        if request is None:
            return False
        answer = await self._handler(request)
        keep = request.headers.get("connection", "").lower() != "close" and request.method != "PRI"
        if isinstance(answer, Stream):
            await write_stream(writer, answer, keep=keep)
            return keep
        return await _deliver(writer, answer, request, keep=keep) and keep


def bound(port: int = 0) -> socket.socket:
    """A socket bound to a loopback port (a free one for 0), to listen on."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.setblocking(False)
    return sock


# -- reading ---------------------------------------------------------------------------------------------------
async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request, None at the end of the connection. Raises BadRequest."""
    try:
        async with asyncio.timeout(KEEP_ALIVE):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise BadRequest("Invalid HTTP request received.") from None
        return None
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequest("Invalid HTTP request received.")
    headers = {
        key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:] if line)
    }
    body = await _read_body(reader, headers)
    return Request(words[0], words[1], headers, body, reader.at_eof)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    try:
        length = int(headers.get("content-length", "0"))
    except ValueError:
        raise BadRequest("Invalid Content-Length.") from None
    if not 0 <= length <= BODY_LIMIT:
        raise BadRequest("Body too large.")
    return await reader.readexactly(length) if length else b""


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        line = await reader.readline()
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            raise BadRequest("Invalid chunk.") from None
        if len(body) + size > BODY_LIMIT:
            raise BadRequest("Body too large.")
        if size == 0:
            while (await reader.readline()).strip():
                pass
            return bytes(body)
        body += await reader.readexactly(size)
        await reader.readexactly(2)


# -- writing ---------------------------------------------------------------------------------------------------
def _head(status: int, content_type: str, more: Mapping[str, str], *, keep: bool) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", "server: uvicorn", f"content-type: {content_type}"]
    lines += [f"{key}: {value}" for key, value in more.items()]
    if not keep:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def write_reply(writer: asyncio.StreamWriter, reply: Reply, *, keep: bool) -> None:
    more = {"content-length": str(len(reply.body))}
    if reply.location is not None:
        more["location"] = reply.location
    writer.write(_head(reply.status, reply.content_type, more, keep=keep) + reply.body)
    await writer.drain()


async def write_stream(writer: asyncio.StreamWriter, stream: Stream, *, keep: bool) -> None:
    more = {"transfer-encoding": "chunked", **stream.headers}
    writer.write(_head(200, stream.content_type, more, keep=keep))
    async for piece in stream.pieces:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _deliver(writer: asyncio.StreamWriter, reply: Reply, request: Request, *, keep: bool) -> bool:
    """Sends a reply in its manner; True when it went out whole."""
    if reply.never:
        await until_gone(request)
        return False
    if reply.delay:
        await asyncio.sleep(reply.delay)
    if reply.manner is None:
        await write_reply(writer, reply, keep=keep)
        return True
    if reply.manner in ("reset", "refuse"):
        writer.transport.abort()
    elif reply.manner == "truncate":
        head = _head(reply.status, reply.content_type, {"content-length": str(len(reply.body))}, keep=keep)
        writer.write(head + reply.body[: len(reply.body) // 2])
        await writer.drain()
    elif reply.manner == "drip":
        await _drip(writer, reply, request)
    elif reply.manner == "huge":
        await _flood(writer, reply, request)
    return False


async def _drip(writer: asyncio.StreamWriter, reply: Reply, request: Request) -> None:
    writer.write(_head(reply.status, reply.content_type, {"content-length": str(len(reply.body))}, keep=True))
    for byte in reply.body:
        if request.gone():
            return
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.5)


async def _flood(writer: asyncio.StreamWriter, reply: Reply, request: Request) -> None:
    """The page again and again, as one body without a length: at most 1 GB."""
    writer.write(_head(reply.status, reply.content_type, {"transfer-encoding": "chunked"}, keep=True))
    piece = f"{len(reply.body):x}\r\n".encode() + reply.body + b"\r\n"
    for _ in range(1_000_000_000 // max(len(piece), 1)):
        if request.gone():
            return
        writer.write(piece)
        await writer.drain()


async def until_gone(request: Request, every: float = 0.1) -> None:
    while not request.gone():
        await asyncio.sleep(every)
