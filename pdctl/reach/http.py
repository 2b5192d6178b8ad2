"""HTTP requests: one ask in, one answer out, whatever the other end does, within its time and size.

httpcore, and with it all of HTTP, is imported when an ``HttpReach`` is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pdctl import __version__
from pdctl.model.answer import Answer, Why
from pdctl.model.ask import HttpAsk
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.echo import Veil, veil_of
from pdctl.reach.inflate import ENCODINGS, decoded
from pdctl.reach.keys import KeyUnreadable, read_key
from pdctl.reach.url import Target, joined, shown, target_of

if TYPE_CHECKING:
    import httpcore

    from pdctl.reach.wire import Dial, Line

HOPS = 5  # redirects looked at before they count as a loop
AGENT = f"pdctl/{__version__}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request brought. ``body`` is None when no response came, partial when ``error`` is set."""

    status: int | None = None
    error: Why | None = None
    detail: str | None = None
    body: bytes | None = None
    content_type: str | None = None
    location: str | None = None


class TooLarge(Exception):
    """The body is larger than the ask's cap."""


class HttpReach:
    """Asks over HTTP/1.1. Safe to use from several threads; connections stay open and are used again.

    Redirects to another origin are never followed, TLS is always verified, no proxy is taken from the environment.
    ``dial`` gives the network of the host an ask goes ``via`` (its SSH connection)."""

    def __init__(self, *, clock: Clock | None = None, dial: Dial | None = None) -> None:
        from pdctl.reach import faults, wire

        self._clock = clock or SystemClock()
        self._wire = wire
        self._fault_of = faults.fault_of
        self._lines = wire.Lines(self._clock, dial)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are idle, and those in use when they are done."""
        self._lines.close()

    def answer(self, ask: HttpAsk, *, started: float, deadline: float) -> Answer:
        """The answer, or the error that stands for it; never raises for what the other end does. ``started`` (the
        window's start) and ``deadline`` are this clock's seconds. The ask's timeout bounds connecting, headers and
        body together, and so does the deadline. A status of 300 and more is no error here: what it means is the
        reader's to say."""
        began = self._clock.now()
        allowed = min(ask.timeout, deadline - began)
        reply = self._reply(ask, began + allowed)
        ended = self._clock.now()
        detail = _with_time(reply, max(0.0, allowed), allowed < ask.timeout)
        return Answer(
            ask.subject, ask.fact, f"{ask.method} {shown(ask.url)}", ended - started, self._clock.wall(),
            ended - began, reply.status, reply.error, detail, reply.body, reply.content_type,
        )  # fmt: skip

    def _reply(self, ask: HttpAsk, until: float) -> Reply:
        try:
            target = target_of(ask.url)
            headers = _headers(ask)
        except ValueError as error:
            return Reply(error=Why.OTHER, detail=str(error))
        except KeyUnreadable as error:
            return Reply(error=Why.AUTH, detail=error.message)
        veil = veil_of(ask.url, headers.get("Authorization", target.basic))
        return _veiled(self._redirected(ask, target, headers, until), veil)

    def _redirected(self, ask: HttpAsk, target: Target, headers: Mapping[str, str], until: float) -> Reply:
        """The reply to the ask, redirects looked into. Only the same path with or without its last slash counts as the
        same page; other redirects on the same origin are followed to tell a loop, and the first is the answer."""
        first = reply = self._again(ask, target, headers, until)
        seen = [target]
        while reply.location is not None and ask.method == "GET":
            here = _next(seen[-1], reply.location)
            if here is None or not here.same_origin(target):
                break
            if here in seen or len(seen) > HOPS:
                return replace(first, error=Why.REDIRECT_LOOP, detail=f"redirects in a loop: {_trail(seen, here)}")
            seen.append(here)
            reply = self._again(ask, here, headers, until)
        if first.location is None:
            return first
        if reply.status is not None and reply.location is None and seen[-1].path.rstrip("/") == target.path.rstrip("/"):
            return replace(reply, detail=_both(f"redirected to {seen[-1].path}", reply.detail))
        return replace(first, detail=f"redirects to {_where(target, first.location)}")

    def _again(self, ask: HttpAsk, target: Target, headers: Mapping[str, str], until: float) -> Reply:
        """One request; asked a second time on a fresh connection if a reused one turned out to be closed, which is
        what a server's keep-alive timeout looks like and says nothing about the server."""
        reply, reused = self._once(ask, target, headers, until, fresh=False)
        if not (reused and reply.error is Why.RESET and reply.status is None and ask.method == "GET"):
            return reply
        reply, _ = self._once(ask, target, headers, until, fresh=True)
        return replace(
            reply, detail=_both("the kept-alive connection had been closed; asked on a new one", reply.detail)
        )

    def _once(
        self, ask: HttpAsk, target: Target, headers: Mapping[str, str], until: float, *, fresh: bool
    ) -> tuple[Reply, bool]:
        endpoint = self._wire.Endpoint(target.scheme, target.host, target.port, ask.via, ask.ca_file)
        try:
            line = self._lines.take(endpoint, fresh=fresh)
        except Exception as error:  # noqa: BLE001 - the carrier is another's: whatever it raises is the answer
            return _not_opened(ask, error), False
        reused = line.used
        try:
            return self._exchange(ask, target, headers, line, until), reused
        finally:
            self._lines.give(line)

    def _exchange(self, ask: HttpAsk, target: Target, headers: Mapping[str, str], line: Line, until: float) -> Reply:
        named = {"Host": target.host_header, **({"Authorization": target.basic} if target.basic else {}), **headers}
        try:
            response = line.send(ask.method, target.path, list(named.items()), until)
        except Exception as error:  # noqa: BLE001 - a carrier's own errors come through httpcore unchanged
            why, detail = self._fault_of(error, line.heard)
            return Reply(error=Why.SSH if ask.via and why is Why.OTHER else why, detail=detail)
        with closing(response):
            return self._received(ask, response, line)

    def _received(self, ask: HttpAsk, response: httpcore.Response, line: Line) -> Reply:
        header = _Header(response)
        sink = BytesIO()
        why: Why | None = None
        detail: str | None = None
        try:
            _refuse_announced(header, ask.cap)
            for piece in decoded(_timed(response, line), header.get("content-encoding")):
                sink.write(piece)
                if sink.tell() > ask.cap:
                    raise TooLarge(f"body is larger than {ask.cap} bytes")
        except TooLarge as error:
            why, detail, sink = Why.TOO_LARGE, str(error), BytesIO()
        except Exception as error:  # noqa: BLE001 - as above; what came so far is kept
            why, detail = self._fault_of(error, line.heard)
            detail = f"after {sink.tell()} bytes of body: {detail}"
        location = header.get("location") if 300 <= response.status < 400 else ""
        body = None if why is Why.TOO_LARGE else sink.getvalue()
        return Reply(response.status, why, detail, body, header.get("content-type") or None, location or None)


class _Header:
    """A response's header fields, by lower-case name."""

    def __init__(self, response: httpcore.Response) -> None:
        self._fields = response.headers

    def get(self, name: str) -> str:
        """The field's value ("" when absent); several are joined by commas."""
        wanted = name.encode()
        return ", ".join(value.decode("latin-1") for key, value in self._fields if key.lower() == wanted)


def _timed(response: httpcore.Response, line: Line) -> Iterator[bytes]:
    for chunk in response.iter_stream():
        line.check_time()
        yield chunk


def _refuse_announced(header: _Header, cap: int) -> None:
    length = header.get("content-length")
    if length.isdigit() and int(length) > cap:
        raise TooLarge(f"body of {length} bytes announced, more than {cap}")


def _headers(ask: HttpAsk) -> dict[str, str]:
    """A body is asked for uncompressed where it comes straight: compressing a page costs its engine more time (in the
    process that also relays tokens) than sending it does. Through SSH, often a long way, it is asked for compressed."""
    headers = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": ", ".join(ENCODINGS) if ask.via else "identity"}
    if ask.api_key is not None:
        headers["Authorization"] = f"Bearer {read_key(ask.api_key).value}"
    return headers


def _veiled(reply: Reply, veil: Veil) -> Reply:
    """The reply without the secrets that were sent to get it, should it repeat them."""
    if not veil.forms:
        return reply
    return replace(
        reply,
        body=None if reply.body is None else veil.body(reply.body, broken_off=reply.error is not None),
        detail=reply.detail and veil.text(reply.detail),
        content_type=reply.content_type and veil.text(reply.content_type),
        location=reply.location and veil.text(reply.location),
    )


def _not_opened(ask: HttpAsk, error: Exception) -> Reply:
    if ask.via is None:
        return Reply(error=Why.TLS, detail=f"CA file {ask.ca_file}: {getattr(error, 'strerror', None) or error}")
    return Reply(error=Why.SSH, detail=str(error) or type(error).__name__)


def _with_time(reply: Reply, allowed: float, by_deadline: bool) -> str | None:
    """The reply's detail; a timeout says how long was waited, and for whose sake it ended."""
    if reply.error not in (Why.CONNECT_TIMEOUT, Why.READ_TIMEOUT):
        return reply.detail
    end = " (deadline of the whole run)" if by_deadline else ""
    if reply.error is Why.CONNECT_TIMEOUT:
        return f"no connection in {allowed:.3g} s{end}"
    if reply.status is None:
        return f"no answer in {allowed:.3g} s{end}"
    return f"answer not complete in {allowed:.3g} s: {len(reply.body or b'')} bytes of body came{end}"


def _next(base: Target, location: str) -> Target | None:
    try:
        return joined(base, location)
    except ValueError:
        return None


def _where(base: Target, location: str) -> str:
    there = _next(base, location)
    if there is None:
        return repr(location)
    return there.path if there.same_origin(base) else there.shown


def _trail(seen: list[Target], last: Target) -> str:
    return " -> ".join(target.path for target in [*seen, last])


def _both(first: str, second: str | None) -> str:
    return f"{first}; {second}" if second else first
