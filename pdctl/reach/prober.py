"""Real requests over connections of their own: what each brought, how long it took, and over which socket it went.

generate_pair(instance)            # one fresh generation, then one on the same connection
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pdctl.model.answer import Why
from pdctl.model.cluster import Instance, Role
from pdctl.model.probe import Attempt
from pdctl.model.probe_plan import Way
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.echo import veil_of
from pdctl.reach.generation import Dialect, Wanted, body_of, model_of, question_of
from pdctl.reach.http import AGENT
from pdctl.reach.keys import KeyUnreadable, read_key
from pdctl.reach.probe_answer import LEFT, Nonces, Question, explained, judged
from pdctl.reach.probe_exchange import Heard, Sent, exchange
from pdctl.reach.probe_wire import LOOK, CalledOff, Wire, Wires

if TYPE_CHECKING:
    from pdctl.reach.wire import Dial

HANG_AFTER = 25.0  # seconds of silence that count as a hang: rules need 20 of them to tell what stands still meanwhile
ENGINE_SAYS_S = 20.0  # by then an engine says whether it is well, and a little later that is heard
PATIENCE = 5.0  # seconds for what only prepares an attempt
# Answers that say that the endpoint is not spoken here: another one is tried.
NOT_SPOKEN = frozenset({400, 404, 405, 415, 422, 501})


@dataclass(frozen=True, slots=True)
class Got:
    """An attempt, the text it brought, and the connection it went over (None where none could be made)."""

    attempt: Attempt
    text: str = ""
    wire: Wire | None = None


class Prober:
    """Makes attempts. Safe to use from several threads; each connection carries one request at a time.

    ``hang_after``: seconds of silence, before the answer or within it, that count as a hang. ``expect``: what each
    answer's text must match. ``begun_s`` of attempts counts from ``started`` by the clock."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        dial: Dial | None = None,
        hang_after: float = HANG_AFTER,
        expect: re.Pattern[str] | None = None,
        model: str | None = None,
        started: float | None = None,
    ) -> None:
        self.hang_after = hang_after
        self._clock = clock or SystemClock()
        self._off = threading.Event()
        self._wires = Wires(self._clock, dial, self._off)
        self._expect = expect
        self._model = model
        self.started = self._clock.now() if started is None else started
        self._lock = threading.Lock()
        self._nonces = Nonces()
        self._spoken: dict[str, Dialect] = {}
        self._models: dict[str, str | None] = {}
        self._rooms: dict[str, int] = {}

    # --- attempts -----------------------------------------------------------------------------------------------------

    def question(self, *, most_tokens: int = 16, stream: bool = False, words: int = 0) -> Question:
        """A question with a nonce that no other request of this run has, ``words`` of filling before it."""
        nonce = self._nonces.new()
        return Question((question_of(nonce, words),), nonce, most_tokens, stream)

    def health(self, way: Way, label: Attempt, path: str = "/health") -> Got:
        """One health check on a new connection. An engine gives up on its own after 20 s and says so, which is waited
        for unless silence counts as a hang sooner. Raises CalledOff."""
        wire = self._open(way)
        if isinstance(wire, Attempt):
            return Got(_labelled(wire, label))
        patience = HANG_AFTER if way.instance.is_engine and self.hang_after >= ENGINE_SAYS_S else None
        label = replace(label, kind="health", endpoint=path)
        heard, attempt = self._asked(way, wire, label, "GET", path, patience=patience)
        return Got(explained(attempt, heard), wire=wire)

    def fresh(self, way: Way, question: Question, label: Attempt) -> Got:
        """One generation on a new connection. The first one of a way finds out which endpoint it speaks: where one is
        not spoken, the next is tried. Raises CalledOff."""
        known = self._spoken.get(way.name)
        got = Got(label)
        for dialect in (known,) if known is not None else _dialects(way):
            if got.wire is not None:
                got.wire.close()
            wire = self._open(way)
            if isinstance(wire, Attempt):
                return Got(_labelled(wire, label))
            got = self._generated(way, wire, question, label, dialect)
            if got.attempt.status not in NOT_SPOKEN:
                self._spoken.setdefault(way.name, dialect)
                break
        return got

    def again(self, way: Way, wire: Wire, question: Question, label: Attempt) -> Got:
        """One generation on a connection that carried one before, whatever the other end did to it meanwhile. Raises
        CalledOff."""
        return self._generated(way, wire, question, label, self._spoken.get(way.name) or next(_dialects(way)))

    def idle(self, wire: Wire, seconds: float) -> float | None:
        """Lets a connection sit idle. Returns after how many seconds the other end was seen to close it, None where it
        did not. Raises CalledOff."""
        begun, closed = self._clock.now(), None
        while (waited := self._clock.now() - begun) < seconds:
            if self._off.is_set():
                raise CalledOff
            if closed is None and wire.was_closed:
                closed = waited
            self._clock.sleep(min(LOOK, seconds - waited))
        return seconds if closed is None and wire.was_closed else closed

    def pause(self, seconds: float) -> None:
        """Waits. Raises CalledOff."""
        if self._off.wait(seconds):
            raise CalledOff

    def call_off(self) -> None:
        """Ends every request under way: who asked gets CalledOff."""
        self._off.set()

    @property
    def is_off(self) -> bool:
        return self._off.is_set()

    # --- one request --------------------------------------------------------------------------------------------------

    def _open(self, way: Way) -> Wire | Attempt:
        """A new connection, opened by its first request; the failed attempt where there can't be one."""
        try:
            return self._wires.new(way)
        except Exception as error:  # noqa: BLE001 - the carrier is another's: whatever it raises is the answer
            why = Why.SSH if way.host else Why.TLS if isinstance(error, OSError) else Why.OTHER
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            place = f"CA file {way.instance.ca_file}: " if why is Why.TLS else ""
            begun = self._clock.now() - self.started
            return Attempt(way.name, way.via, error=why.value, detail=f"{place}{said}", begun_s=begun)

    def _generated(self, way: Way, wire: Wire, question: Question, label: Attempt, dialect: Dialect) -> Got:
        room = self._room_of(way) if way.half else 0
        wanted = Wanted(question.turns, question.most_tokens, question.stream, self._model_of(way), way.half, room)
        label = replace(label, endpoint=dialect.value, stream=question.stream)
        body = body_of(dialect, wanted)
        heard, attempt = self._asked(way, wire, label, "POST", dialect.value, body, question.leave_after)
        if heard.left:
            wire.close()
            return Got(replace(attempt, kind="abort", detail=LEFT), wire=wire)
        expect = None if way.half else self._expect
        attempt, text = judged(explained(attempt, heard), heard, question, self._nonces, expect, means=not way.half)
        return Got(attempt, text, wire)

    def _asked(
        self,
        way: Way,
        wire: Wire,
        label: Attempt,
        method: str,
        path: str,
        content: bytes | None = None,
        leave_after: float | None = None,
        patience: float | None = None,
    ) -> tuple[Heard, Attempt]:
        """What a request brought, and the attempt with all that is known of times and connection."""
        connection = "reused" if wire.sent else "fresh"
        try:
            target = self._wires.target(way, path)
            headers = (("Host", target.host_header), *_headers(way, target.basic, content))
            veil = veil_of(way.instance.url or "", dict(headers).get("Authorization"))
            sent = Sent(method, target.path, headers, content, bool(label.stream), leave_after, veil)
            heard = exchange(wire, sent, self._clock, patience or self.hang_after)
        except KeyUnreadable as error:
            now = self._clock.now()
            heard = Heard(now, ended=now, why=Why.AUTH, detail=error.message)
        why = Why.SSH if way.host and heard.why is Why.OTHER and heard.status is None else heard.why
        return heard, replace(
            label,
            to=way.name,
            via=way.via,
            connection=connection,
            status=heard.status,
            error=why.value if why else None,
            detail=heard.detail,
            begun_s=heard.begun - self.started,
            took=heard.ended - heard.begun,
            first_byte_s=heard.first_byte_s,
            first_token_s=heard.first_token_s,
            between_s=heard.between_s,
            longest_gap_s=heard.longest_gap_s,
            line=wire.number,
            nth=wire.sent,
            local=wire.local,
        )

    def _room_of(self, way: Way) -> int:
        """Another number with each request, so that they go round the DP ranks of a prefill and not all to one."""
        with self._lock:
            room = self._rooms[way.name] = self._rooms.get(way.name, -1) + 1
        return room

    def _model_of(self, way: Way) -> str | None:
        """The model to ask for: the one given, else the first that the way lists (asked once)."""
        if self._model is not None or way.half:
            return self._model
        with self._lock:
            if way.name in self._models:
                return self._models[way.name]
        found = self._first_model(way)
        with self._lock:
            return self._models.setdefault(way.name, found)

    def _first_model(self, way: Way) -> str | None:
        wire = self._open(way)
        if isinstance(wire, Attempt):
            return None
        heard, _ = self._asked(way, wire, Attempt(way.name), "GET", "/v1/models", patience=PATIENCE)
        wire.close()
        return model_of(bytes(heard.body)) if heard.status == 200 and heard.why is None else None


def _headers(way: Way, basic: str | None, content: bytes | None) -> Iterator[tuple[str, str]]:
    """Raises KeyUnreadable."""
    yield from (("User-Agent", AGENT), ("Accept", "*/*"), ("Accept-Encoding", "identity"))
    if content is not None:
        yield from (("Content-Type", "application/json"), ("Content-Length", str(len(content))))
    if way.instance.api_key is not None:
        yield "Authorization", f"Bearer {read_key(way.instance.api_key).value}"
    elif basic is not None:
        yield "Authorization", basic


def _labelled(failed: Attempt, label: Attempt) -> Attempt:
    """A failed attempt with the label of what it was for."""
    return replace(
        label, to=failed.to, via=failed.via, error=failed.error, detail=failed.detail, begun_s=failed.begun_s
    )


def _dialects(way: Way) -> Iterator[Dialect]:
    """The endpoints to try. An engine directly is asked by its own: what it needs of a pair stands in its request."""
    if way.half:
        yield Dialect.NATIVE
    elif way.instance.is_engine and way.instance.engine == "vllm":
        yield Dialect.TEXT
    else:
        yield from Dialect


# --- for others -------------------------------------------------------------------------------------------------------


def generate_pair(
    at: Instance | str,
    *,
    timeout: float = 30.0,
    host: str | None = None,
    dial: Dial | None = None,
    model: str | None = None,
    clock: Clock | None = None,
    most_tokens: int = 8,
    idle_s: float = 1.0,
    reuse: bool = True,
) -> tuple[Attempt, ...]:
    """Two generations on one connection: a fresh one, and after ``idle_s`` seconds one on the connection kept alive.
    Only the first where it failed, where the other end does not keep connections, and unless ``reuse``. Through a
    router or proxy (an instance, or its URL), or at an engine as its health request does it, with no peer. Never raises
    for what the other end does: an attempt's ``error`` and ``status`` say it, ``good`` whether it worked. ``timeout``
    in seconds bounds the silence. ``host`` is the host whose network ``dial`` gives, for an instance that is reached
    through it."""
    instance = Instance("router", Role.ROUTER, at) if isinstance(at, str) else at
    way = Way(instance, host, half=instance.is_engine and instance.engine == "sglang")
    prober = Prober(clock=clock, dial=dial, hang_after=timeout, model=model)
    first = prober.fresh(way, prober.question(most_tokens=most_tokens), Attempt(way.name))
    if first.wire is None:
        return (first.attempt,)
    try:
        if not (reuse and first.attempt.good and first.wire.can_go_on):
            return (first.attempt,)
        label = Attempt(way.name, idle_s=idle_s, closed_after_s=prober.idle(first.wire, idle_s))
        return first.attempt, prober.again(way, first.wire, prober.question(most_tokens=most_tokens), label).attempt
    finally:
        first.wire.close()
