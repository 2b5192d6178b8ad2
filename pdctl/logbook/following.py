"""Following one log on a host for as long as it is wanted, also over the loss of its connection."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from io import BytesIO

from pdctl.facts.asks_logs import AGAIN_LINES, FOLLOWED_S
from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk
from pdctl.reach.clock import Clock
from pdctl.reach.command import Stop
from pdctl.reach.hosts import Hosts
from pdctl.reach.log_file import LONGEST_LINE

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds before each try to go on; the last for all that follow
TRIED_S = 900.0  # seconds without a connection after which a log is given up: a host that reboots is back by then


class Lines:
    """Whole lines out of pieces of text. After ``again``, those that were handed on before are left out: what a log is
    asked for anew begins with lines that came already."""

    def __init__(self, put: Callable[[list[bytes]], None]) -> None:
        self._put = put
        self._part = bytearray()
        self._last: deque[bytes] = deque(maxlen=AGAIN_LINES)
        self._known: Counter[bytes] = Counter()

    def seen(self, lines: Iterable[bytes]) -> None:
        """Takes these lines as handed on."""
        self._last.extend(lines)

    def add(self, data: bytes) -> None:
        self._part.extend(data)
        whole = self._part.rfind(b"\n") + 1 or (len(self._part) if len(self._part) > LONGEST_LINE else 0)
        if not whole:
            return
        fresh = [line for line in BytesIO(bytes(self._part[:whole])) if not self._is_known(line)]
        del self._part[:whole]
        self._last.extend(fresh)
        if fresh:
            self._put(fresh)

    def again(self) -> None:
        """The log is asked for once more; half a line that had come comes whole then."""
        self._part.clear()
        self._known = Counter(self._last)

    def _is_known(self, line: bytes) -> bool:
        if self._known.get(line, 0) <= 0:
            return False
        self._known[line] -= 1
        return True


def follow(
    hosts: Hosts, clock: Clock, first: CommandAsk, again: CommandAsk, lines: Lines,
    over: threading.Event, say: Callable[[str], None],
) -> str:  # fmt: skip
    """Hands on what the log grows by until ``over`` is set, or the command ends by itself, or stays cut off. Returns
    why it is followed no longer."""

    def sink(data: bytes) -> None:
        if over.is_set():
            raise Stop
        lines.add(data)

    ask, tries, lost_at = first, 0, clock.now()
    while True:
        began = clock.now()
        answer = hosts.follow(ask, sink, started=began, deadline=began + FOLLOWED_S)
        why = _why(answer, ask)
        if over.is_set() or not _was_cut_off(answer):
            return why
        if clock.now() - began > PAUSES[-1] or tries == 0:
            tries, lost_at = 0, clock.now()
            say(f"cut off, and tried again: {why}")
        if clock.now() - lost_at > TRIED_S or over.wait(PAUSES[min(tries, len(PAUSES) - 1)]):
            return f"it stays cut off: {why}"
        tries += 1
        lines.again()
        ask = again


def _was_cut_off(answer: Answer) -> bool:
    """Whether the connection was lost, or the command killed: a host that goes down ends what runs there first."""
    return answer.error is Why.SSH or (answer.error is Why.OTHER and answer.status is None)


def _why(answer: Answer, ask: CommandAsk) -> str:
    return answer.detail or str(answer.error or f"{ask} ended with exit status {answer.status}")
