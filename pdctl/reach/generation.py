"""The bodies of generate requests in the three forms endpoints speak, and what their answers say, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

# The bootstrap host that stands for no peer: an engine's own health requests and warm-up use it (read in releases
# 0.4.9 to 0.5.23, disaggregation/utils.py FAKE_BOOTSTRAP_HOST). Nothing is transferred, no other engine is involved.
NO_PEER = "2.2.2.2"
# And their prompt. A longer one may be prefilled in chunks, and a chunk of a request without a peer ends it: 0.5.15
# then finds its KV memory leaked, and its scheduler ends (seen: one request of 3000 tokens; 0.5.23 bears it).
ONE_TOKEN = (0,)
MOST_LINE = 1024 * 1024  # characters of one event; beyond it is no token
FILLER = "The quick brown fox jumps over the lazy dog while the small boat drifts slowly past the quiet harbour wall."


class Dialect(StrEnum):
    """The endpoints a path may answer, in the order they are tried."""

    CHAT = "/v1/chat/completions"
    TEXT = "/v1/completions"
    NATIVE = "/generate"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: ``turns`` of a conversation (the user's first, the model's answers between), at most so many
    new tokens. ``half`` names the bootstrap host that stands for no peer; ``room`` is a number to go with it, by
    which a prefill with DP ranks chooses one (the remainder; data_parallel_controller.py, read in 0.5.15 and 0.5.23;
    its own warm-up asks each rank so)."""

    turns: tuple[str, ...]
    most_tokens: int = 16
    stream: bool = False
    model: str | None = None
    half: bool = False
    room: int = 0


def question_of(nonce: str, words: int = 0) -> str:
    """A turn that asks for a word to be said back; chat models do as told, others go on with what they see. ``words``
    of filling go before."""
    filling = " ".join((FILLER.split() * (words // 20 + 1))[:words])
    return f"{filling}\nRepeat the word {nonce} and nothing else.\n{nonce}\n{nonce}\n".lstrip("\n")


def body_of(dialect: Dialect, wanted: Wanted) -> bytes:
    """The request's JSON. The temperature is 0: the same question has the same answer, as far as an engine can."""
    value: dict[str, object]
    if dialect is Dialect.NATIVE:
        sampling = {"temperature": 0, "max_new_tokens": wanted.most_tokens}
        prompt: dict[str, object] = {"input_ids": ONE_TOKEN} if wanted.half else {"text": "".join(wanted.turns)}
        value = {**prompt, "sampling_params": sampling, "stream": wanted.stream}
    else:
        value = {"model": wanted.model or "default", "max_tokens": wanted.most_tokens, "temperature": 0}
        value |= {"stream": wanted.stream, **_asked(dialect, wanted.turns)}
        if wanted.stream:
            value["stream_options"] = {"include_usage": True}  # else nothing tells an empty answer from one token
    if wanted.half:
        value |= {"bootstrap_host": NO_PEER, "bootstrap_room": wanted.room}
    return json.dumps(value, separators=(",", ":")).encode()


def _asked(dialect: Dialect, turns: tuple[str, ...]) -> dict[str, object]:
    if dialect is Dialect.TEXT:
        return {"prompt": "".join(turns)}
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": turn or "-"} for i, turn in enumerate(turns)]}


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Said:
    """What an answer says. ``tokens`` as the server counts them, else as pieces came; None when nothing tells.
    ``ended``: it says itself that it is complete. ``error``: an error in place of an answer, in one line."""

    text: str = ""
    tokens: int | None = None
    ended: bool = False
    error: str | None = None


def read_whole(body: bytes) -> Said:
    """What a body that was not streamed says; an error in it where it is no answer."""
    value = _object(body)
    if value is None:
        return Said(error=f"no JSON object: it begins with {body[:40]!r}" if body.strip() else "the answer is empty")
    said = Said(error=_error_of(value) or _broken_off(value), ended=True)
    texts = [_whole_text(choice) for choice in _choices(value)]
    said.text = "".join(text for text in texts if text)
    said.tokens = _count_of(value)
    if said.error is None and not texts and "text" not in value and "output_ids" not in value:
        said.error = f"neither choices nor text: it has {', '.join(sorted(value)[:6])}"
    return said


@dataclass(slots=True)
class Stream:
    """A stream of server-sent events, fed as it comes. ``pieces`` are the times at which text arrived."""

    said: Said = field(default_factory=Said)
    pieces: list[float] = field(default_factory=list)
    _rest: str = ""

    def feed(self, data: bytes, at: float) -> None:
        """Takes what arrived at that moment."""
        self._rest += data.decode("utf-8", "replace")
        *lines, self._rest = self._rest.split("\n")
        self._rest = self._rest[-MOST_LINE:]
        for line in lines:
            if line.startswith("data:"):
                self._event(line[5:].strip(), at)

    def _event(self, text: str, at: float) -> None:
        if text == "[DONE]":
            self.said.ended = True
            return
        value = _object(text.encode())
        if value is None:
            self.said.error = self.said.error or f"an event that is no JSON object: {text[:40]!r}"
            return
        self.said.error = self.said.error or _error_of(value) or _broken_off(value)
        piece = self._piece(value)
        if piece:
            self.said.text += piece
            self.pieces.append(at)
        count = _count_of(value)
        if count is not None:
            self.said.tokens = count
        if any(choice.get("finish_reason") for choice in _choices(value)) or _finished(value):
            self.said.ended = True

    def _piece(self, value: dict[str, object]) -> str:
        """The text that is new in an event. ``/generate`` repeats all text in each, unless told to send increments."""
        text = value.get("text")
        if isinstance(text, str):
            return text[len(self.said.text) :] if text.startswith(self.said.text) else text
        return "".join(_piece_text(choice) for choice in _choices(value))

    def end(self) -> Said:
        """What it said; tokens are counted as pieces where the server did not count them."""
        if self.said.tokens is None and self.pieces:
            self.said.tokens = len(self.pieces)
        return self.said


def model_of(body: bytes) -> str | None:
    """The first model that ``/v1/models`` lists."""
    value = _object(body)
    rows = value.get("data") if value else None
    first = rows[0] if isinstance(rows, list) and rows else None
    name = first.get("id") if isinstance(first, dict) else None
    return name if isinstance(name, str) and name else None


def told_error(body: bytes) -> str | None:
    """The message of an error answer, in one line; None where there is none to read."""
    value = _object(body)
    if value is not None:
        return _error_of(value) or _message(value)
    text = body[:300].decode("utf-8", "replace").strip()
    return " ".join(text.split())[:160] if text and not text.startswith("<") else None


def _object(body: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _choices(value: dict[str, object]) -> Iterator[dict[str, object]]:
    rows = value.get("choices")
    if isinstance(rows, list):
        yield from (row for row in rows if isinstance(row, dict))
    elif isinstance(value.get("text"), str):
        yield {"text": value["text"]}


def _whole_text(choice: dict[str, object]) -> str:
    message = choice.get("message")
    if isinstance(message, dict):
        return _first_text(message, "reasoning_content") + _first_text(message, "content")
    return _first_text(choice, "text")


def _piece_text(choice: dict[str, object]) -> str:
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return _first_text(delta, "reasoning_content") + _first_text(delta, "content")
    return _first_text(choice, "text")


def _first_text(value: dict[str, object], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""


def _count_of(value: dict[str, object]) -> int | None:
    for key in ("usage", "meta_info"):
        part = value.get(key)
        count = part.get("completion_tokens") if isinstance(part, dict) else None
        if isinstance(count, int):
            return count
    return None


def _finished(value: dict[str, object]) -> bool:
    meta = value.get("meta_info")
    return isinstance(meta, dict) and bool(meta.get("finish_reason"))


def _broken_off(value: dict[str, object]) -> str | None:
    """What an engine says of a request that it gave up: an answer like any other, status 200 and all, but for the
    reason it ended by ("abort" of SGLang with or without a message, "error" and "abort" of vLLM)."""
    meta = value.get("meta_info")
    reasons = [choice.get("finish_reason") for choice in _choices(value)]
    reasons += [meta.get("finish_reason")] if isinstance(meta, dict) else []
    for reason in reasons:
        kind = reason.get("type") if isinstance(reason, dict) else reason
        if kind in ("abort", "error"):
            told = _first_text(reason, "message") if isinstance(reason, dict) else ""
            return " ".join(f"the engine gave it up (finish_reason {kind}) {told}".split())[:160]
    return None


def _error_of(value: dict[str, object]) -> str | None:
    error = value.get("error")
    if isinstance(error, dict):
        return _message(error) or "an error without a message"
    if isinstance(error, str):
        return " ".join(error.split())[:160]
    return _message(value) or "an error" if value.get("object") == "error" else None


def _message(value: dict[str, object]) -> str | None:
    text = next((value[key] for key in ("message", "detail") if isinstance(value.get(key), str)), None)
    code = value.get("code")
    said = " ".join(str(text).split())[:160] if text is not None else None
    return f"{code}: {said}" if said and isinstance(code, str) else said
