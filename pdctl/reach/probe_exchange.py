"""One request over one connection, timed: when the answer began, how it went on, and how it ended."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import httpcore

from pdctl.model.answer import Why
from pdctl.reach.clock import Clock
from pdctl.reach.echo import NONE, Veil
from pdctl.reach.faults import fault_of
from pdctl.reach.generation import Stream
from pdctl.reach.probe_wire import CalledOff, Wire

WHOLE = 3.0  # times the silence that counts as a hang: an answer that still trickles then is given up
CAP = 2 * 1024 * 1024  # bytes of an answer
KEPT = 64 * 1024  # bytes of a stream that are kept beside what its events say
LOST = (Why.READ_TIMEOUT, Why.CONNECT_TIMEOUT)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. ``leave_after``: the client leaves that many seconds after it, or at the first token."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    content: bytes | None = None
    stream: bool = False
    leave_after: float | None = None
    veil: Veil = NONE


@dataclass(slots=True)
class Heard:
    """What came back. Moments by the clock; ``left``: the client went away on purpose; ``veil``: over the secrets that
    were sent, for text yet to be made of ``events`` (all else has them masked)."""

    begun: float
    status: int | None = None
    first_byte: float | None = None
    ended: float = 0.0
    body: bytearray = field(default_factory=bytearray)
    events: Stream | None = None
    why: Why | None = None
    detail: str | None = None
    left: bool = False
    location: str | None = None
    veil: Veil = NONE

    @property
    def first_byte_s(self) -> float | None:
        return None if self.first_byte is None else self.first_byte - self.begun

    @property
    def first_token_s(self) -> float | None:
        return self.events.pieces[0] - self.begun if self.events is not None and self.events.pieces else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces of text."""
        return [late - early for early, late in pairwise(self.events.pieces)] if self.events is not None else []

    @property
    def between_s(self) -> float | None:
        return median(self.gaps) if self.gaps else None

    @property
    def longest_gap_s(self) -> float | None:
        return max(self.gaps, default=None)


def exchange(wire: Wire, sent: Sent, clock: Clock, hang_after: float) -> Heard:
    """Sends the request and receives its answer. ``hang_after``: seconds of silence after which it counts as hung.
    Never raises for what the other end does; raises CalledOff."""
    heard = Heard(clock.now(), events=Stream() if sent.stream else None, veil=sent.veil)
    leaves = None if sent.leave_after is None else heard.begun + sent.leave_after
    gone = wire.was_closed
    try:
        until = heard.begun + hang_after if leaves is None else leaves
        response = wire.send(sent.method, sent.target, list(sent.headers), until, sent.content)
        heard.status, heard.first_byte = response.status, clock.now()
        heard.location = next((v.decode("latin-1") for k, v in response.headers if k.lower() == b"location"), None)
        with closing(response):
            _receive(wire, response, heard, clock, hang_after, leaves)
    except CalledOff:
        wire.close()
        raise
    except Exception as error:  # noqa: BLE001 - a carrier's own errors come through httpcore unchanged
        heard.why, heard.detail = fault_of(error, wire.heard)
        heard.left = leaves is not None and heard.why in LOST
        wire.close()
    heard.ended = clock.now()
    return _veiled(_put_right(heard, gone, hang_after))


def _receive(
    wire: Wire, response: httpcore.Response, heard: Heard, clock: Clock, hang_after: float, leaves: float | None
) -> None:
    whole = heard.begun + WHOLE * hang_after
    wire.until(min(clock.now() + hang_after, whole) if leaves is None else leaves)
    size = 0
    for chunk in response.iter_stream():
        now = clock.now()
        size += len(chunk)
        chunk = heard.veil.body(chunk)
        if heard.events is None or size <= KEPT:
            heard.body += chunk
        if heard.events is not None:
            heard.events.feed(chunk, now)
        if size > CAP:
            heard.why, heard.detail = Why.TOO_LARGE, f"answer is larger than {CAP} bytes"
            return
        if leaves is not None and (now >= leaves or (heard.events is not None and heard.events.pieces)):
            heard.left = True
            return
        wire.until(min(now + hang_after, whole) if leaves is None else leaves)


def _put_right(heard: Heard, gone: bool, hang_after: float) -> Heard:
    """The words for what happened: a client that left met no fault, a timeout says how long and where it was silent,
    and a 408 on a connection that was being closed is that closing."""
    if heard.left:
        heard.why = heard.detail = None
    elif gone and heard.status == 408:
        heard.status = heard.first_byte = None
        heard.why, heard.detail = Why.RESET, "closed with 408 Request Timeout"
    elif heard.why is Why.READ_TIMEOUT:
        heard.detail = _silence(heard, hang_after)
    return heard


def _veiled(heard: Heard) -> Heard:
    if heard.veil.forms:
        heard.body = bytearray(heard.veil.body(bytes(heard.body), broken_off=heard.why is not None))
        heard.detail = heard.detail and heard.veil.text(heard.detail)
        heard.location = heard.location and heard.veil.text(heard.location)
    return heard


def _silence(heard: Heard, hang_after: float) -> str:
    waited = heard.ended - heard.begun
    if heard.status is None:
        return f"no answer in {waited:.3g} s"
    trickles = waited > (WHOLE - 0.01) * hang_after
    said = "it still came in small pieces" if trickles else f"then silent for {hang_after:.3g} s"
    pieces = len(heard.events.pieces) if heard.events is not None else 0
    what = f"{pieces} pieces of text" if heard.events is not None else f"{len(heard.body)} bytes"
    return f"answer not complete after {waited:.3g} s: {what} came, {said}"
