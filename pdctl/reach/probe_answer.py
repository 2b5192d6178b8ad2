"""What an answer's text tells: whether it is the one that was asked for."""

from __future__ import annotations

import re
import secrets
import threading
from dataclasses import dataclass, replace

from pdctl.model.answer import Why
from pdctl.model.probe import Attempt, Told
from pdctl.reach.generation import Said, read_whole, told_error
from pdctl.reach.probe_exchange import Heard
from pdctl.reach.url import shown

LEFT = "left on purpose"
LETTERS = "bcdfghjkmnpqrstvwxz23456789"
SHOWN = 40  # characters of a wrong answer
LENGTH = 7  # letters: two requests of a run have the same word once in 10^10


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask. ``turns`` is the conversation up to now, ``nonce`` the word that should come back. ``leave_after``:
    the client leaves that many seconds after the request, or at the first token, whichever comes first."""

    turns: tuple[str, ...]
    nonce: str
    most_tokens: int = 16
    stream: bool = False
    leave_after: float | None = None


class Nonces:
    """The words given out, to know one that comes back to another request. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: set[str] = set()

    def new(self) -> str:
        word = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        with self._lock:
            self._given.add(word)
        return word

    def foreign(self, text: str, own: str) -> bool:
        """Whether the text holds a word that was given out and stands nowhere in ``own``."""
        with self._lock:
            return any(word in text and word not in own for word in self._given)


def explained(attempt: Attempt, heard: Heard) -> Attempt:
    """The attempt with what an error answer says of itself."""
    if attempt.error is not None or attempt.status is None or attempt.status < 300:
        return attempt
    if attempt.status < 400 and heard.location is not None:
        return replace(attempt, detail=f"redirects to {shown(heard.location)}")
    return replace(attempt, detail=told_error(bytes(heard.body)) or attempt.detail)


def judged(
    attempt: Attempt,
    heard: Heard,
    question: Question,
    nonces: Nonces,
    expect: re.Pattern[str] | None,
    *,
    means: bool = True,
) -> tuple[Attempt, str]:
    """The attempt with what its text tells, and the text. ``means`` is False where the text means nothing (one half of
    a pair was asked): then only that there is an answer counts."""
    if attempt.status is None or attempt.status >= 300:
        return attempt, ""
    said = _said(heard)
    attempt = replace(attempt, tokens=said.tokens)
    if attempt.error is not None:
        return attempt, said.text
    if said.error is not None:
        return replace(attempt, error=Why.OTHER.value, detail=f"no answer but an error: {said.error}"), ""
    if not said.ended:
        detail = f"the stream ended without saying that it is complete, after {len(said.text)} characters"
        return replace(attempt, error=Why.TRUNCATED.value, detail=detail), said.text
    told = _told(said, question, nonces, expect, means)
    if told in (Told.UNEXPECTED, Told.CROSSED):
        attempt = replace(attempt, detail=f"it says {said.text[:SHOWN]!r}{' ..' if len(said.text) > SHOWN else ''}")
    return replace(attempt, told=told.value if told else None), said.text


def _said(heard: Heard) -> Said:
    """What an answer says, with no secret in it that was sent for it."""
    said = _read(heard)
    return replace(said, text=heard.veil.text(said.text), error=said.error and heard.veil.text(said.error))


def _read(heard: Heard) -> Said:
    """An answer streamed or not; some endpoints do not stream although they were asked to."""
    if heard.events is None:
        return read_whole(bytes(heard.body))
    said = heard.events.end()
    if not said.ended and not heard.events.pieces and heard.body:
        whole = read_whole(bytes(heard.body))
        return whole if whole.error is None else said
    return said


def _told(said: Said, question: Question, nonces: Nonces, expect: re.Pattern[str] | None, means: bool) -> Told | None:
    if expect is not None:
        return Told.EXPECTED if expect.search(said.text) else Told.UNEXPECTED
    if not said.text.strip() and not said.tokens:
        return Told.EMPTY
    if not means:
        return None
    if question.nonce in said.text:
        return Told.ECHOED
    return Told.CROSSED if nonces.foreign(said.text, "".join(question.turns)) else Told.OTHER
