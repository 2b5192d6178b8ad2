"""One ask to whatever carries it, and one answer back, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from pdctl.facts.asks import older_name
from pdctl.model.answer import Answer, Why
from pdctl.model.ask import Ask, CommandAsk, HttpAsk
from pdctl.reach.clock import Clock

if TYPE_CHECKING:
    from pdctl.reach.wire import Dial

HOST_LANES = 4  # commands at once on one host: one that hangs must not hold back the rest


class HttpDoor(Protocol):
    """What carries HTTP asks: ``reach.http.HttpReach``."""

    def answer(self, ask: HttpAsk, *, started: float, deadline: float) -> Answer: ...


class CommandDoor(Protocol):
    """What carries commands, to whichever host an ask names. Safe to use from several threads."""

    def run(self, ask: CommandAsk, *, started: float, deadline: float) -> Answer: ...


class Carrier:
    """Carries asks by their kind. An ``HttpReach`` is made for the first HTTP ask unless ``http`` is given; ``via``
    gives it the network of a host."""

    def __init__(self, clock: Clock, http: HttpDoor | None, commands: CommandDoor | None, via: Dial | None) -> None:
        self._clock = clock
        self._http = http
        self._close: Callable[[], None] | None = None
        self._commands = commands
        self._via = via
        self._older: set[tuple[str, str]] = set()  # (subject, fact) known by their older name
        self._absent: set[tuple[str, str]] = set()  # and those that have none

    def ready(self, asks: Iterable[Ask]) -> None:
        """Makes what carries these asks, if it is not there yet. Called by one thread, before lanes use it."""
        if self._http is None and any(isinstance(ask, HttpAsk) for ask in asks):
            from pdctl.reach.http import HttpReach

            made = HttpReach(clock=self._clock, dial=self._via)
            self._http, self._close = made, made.close

    def close(self) -> None:
        """Closes what it made itself."""
        if self._close is not None:
            self._close()

    def asked(self, ask: Ask, started: float, deadline: float) -> Answer:
        """The answer. Never raises: a carrier that does is an answer with an error."""
        begun = self._clock.now()
        try:
            older = older_name(ask) if isinstance(ask, HttpAsk) else None
            if older is None:
                return self._carried(ask, started, deadline)
            return self._by_name(ask, older, started, deadline)
        except Exception as error:  # noqa: BLE001 - a fault of a carrier is an answer too: nothing is ever dropped
            return self.failed(ask, started, begun, Why.OTHER, f"{type(error).__name__}: {str(error)[:200]}")

    def _by_name(self, ask: Ask, older: Ask, started: float, deadline: float) -> Answer:
        """The answer under one of a question's two names, the one that was answered last first. Which it is does not
        change while an engine runs, so an endpoint that is not there is not asked for each round."""
        key = ask.subject, str(ask.fact)
        first, other = (older, ask) if key in self._older else (ask, older)
        answer = self._carried(first, started, deadline)
        if answer.status != 404 or key in self._absent:
            return answer
        second = self._carried(other, started, deadline)
        if second.status == 404:
            self._absent.add(key)
        if second.status != 200:
            return answer
        (self._older.add if other is older else self._older.discard)(key)
        return second

    def failed(self, ask: Ask, started: float, begun: float, why: Why, detail: str) -> Answer:
        """The answer that stands for one that did not come, ``begun`` the moment it was asked."""
        now = self._clock.now()
        return Answer(
            ask.subject, ask.fact, _shown(ask), now - started, self._clock.wall(), now - begun, None, why, detail
        )  # fmt: skip

    def _carried(self, ask: Ask, started: float, deadline: float) -> Answer:
        if isinstance(ask, HttpAsk):
            assert self._http is not None
            return self._http.answer(ask, started=started, deadline=deadline)
        if self._commands is None:
            raise LookupError(f"no way to run commands on {ask.host} was given")
        return self._commands.run(ask, started=started, deadline=deadline)


class Places:
    """Tells asks apart by what must not be asked twice at once: a host and port, as reached; or one of a host's few
    command lanes, taken in turn."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def of(self, ask: Ask) -> str:
        if isinstance(ask, HttpAsk):
            parts = urlsplit(ask.url)
            return f"{ask.via or ''}|{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"
        turn = self._turns[ask.host] = self._turns.get(ask.host, -1) + 1
        return f"{ask.host}#{turn % HOST_LANES}"


def _shown(ask: Ask) -> str:
    from pdctl.reach.url import shown

    return f"{ask.method} {shown(ask.url)}" if isinstance(ask, HttpAsk) else str(ask)
