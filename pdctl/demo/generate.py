"""Real generate requests: the fields of each API in, its answers out, whole or streamed."""

from __future__ import annotations

import json
from dataclasses import dataclass

PATHS = ("/generate", "/v1/completions", "/v1/chat/completions")
FAKE_HOST = "2.2.2.2"  # the bootstrap host of health requests: no peer
DEFAULT_NEW = {"/generate": 128, "/v1/completions": 16, "/v1/chat/completions": 64}
CHARS_PER_TOKEN = 4
TOKEN = " token"
LONGEST_WORD = 40


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client asks for, and how the router pairs it. ``last`` is the last word of the prompt, which the simulated
    model says back before anything else."""

    prompt: int
    max_new: int
    stream: bool
    room: int | None = None
    host: str | None = None
    rid: str | None = None
    dp: int | None = None
    last: str = ""

    def text(self, first: int, count: int) -> str:
        """The ``count`` tokens from number ``first`` on."""
        words = [f" {self.last}" if self.last else TOKEN, *[TOKEN] * (first + count - 1)]
        return "".join(words[first : first + count])


def read_wanted(path: str, body: dict[str, object]) -> Wanted:
    """The fields that matter; what is missing gets the API's default."""
    sampling = body.get("sampling_params")
    sampling = sampling if isinstance(sampling, dict) else {}
    new = sampling.get("max_new_tokens") or body.get("max_completion_tokens") or body.get("max_tokens")
    rid, host = _first(body.get("rid")), _first(body.get("bootstrap_host"))
    return Wanted(
        _prompt_tokens(body), _number(new) or DEFAULT_NEW[path], bool(body.get("stream")),
        _number(_first(body.get("bootstrap_room"))), str(host) if host is not None else None,
        str(rid) if rid is not None else None, _number(body.get("data_parallel_rank")), _last_word(body),
    )  # fmt: skip


def _last_word(body: dict[str, object]) -> str:
    """The last word of the prompt, of the last message of a conversation; empty where it is no plain word."""
    messages = body.get("messages")
    last = (
        messages[-1].get("content")
        if isinstance(messages, list) and messages and isinstance(messages[-1], dict)
        else None
    )
    text = next((t for t in (body.get("text"), body.get("prompt"), last) if isinstance(t, str)), "")
    words = text[-200:].split()
    return words[-1] if words and len(words[-1]) <= LONGEST_WORD and words[-1].isalnum() else ""


def _prompt_tokens(body: dict[str, object]) -> int:
    for key in ("input_ids", "text", "prompt", "messages"):
        value = body.get(key)
        if value is None:
            continue
        if isinstance(value, list) and value and isinstance(value[0], int):
            return len(value)
        return max(len(value if isinstance(value, str) else json.dumps(value)) // CHARS_PER_TOKEN, 1)
    return 1


def _first(value: object) -> object:
    return (value[0] if value else None) if isinstance(value, list) else value


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(path: str, model: str, rid: str, wanted: Wanted, tokens: int) -> bytes:
    """The body of an answer that is not streamed."""
    text = wanted.text(0, tokens)
    usage = {"prompt_tokens": wanted.prompt, "completion_tokens": tokens, "total_tokens": wanted.prompt + tokens}
    value: dict[str, object]
    if path == "/generate":
        value = {"text": text, "output_ids": [1] * tokens, "meta_info": _meta(rid, wanted, tokens)}
    elif path == "/v1/completions":
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "length", "matched_stop": None}
        value = {"id": rid, "object": "text_completion", "created": 1_700_000_000, "model": model,
                 "choices": [choice], "usage": usage}  # fmt: skip
    else:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}
        value = {"id": rid, "object": "chat.completion", "created": 1_700_000_000, "model": model,
                 "choices": [choice], "usage": usage}  # fmt: skip
    return json.dumps(value, separators=(",", ":")).encode()


def event(path: str, model: str, rid: str, wanted: Wanted, fresh: int, total: int, *, last: bool) -> bytes:
    """One server-sent event of a stream: ``fresh`` more tokens, ``total`` so far."""
    reason = "length" if last else None
    value: dict[str, object]
    if path == "/generate":
        value = {"text": wanted.text(0, total), "output_ids": [1] * total, "meta_info": _meta(rid, wanted, total)}
    elif path == "/v1/completions":
        choice: dict[str, object] = {"index": 0, "text": wanted.text(total - fresh, fresh), "finish_reason": reason}
        value = {"id": rid, "object": "text_completion", "model": model, "choices": [choice]}
    else:
        choice = {"index": 0, "delta": {"content": wanted.text(total - fresh, fresh)}, "finish_reason": reason}
        value = {"id": rid, "object": "chat.completion.chunk", "model": model, "choices": [choice]}
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _meta(rid: str, wanted: Wanted, tokens: int) -> dict[str, object]:
    return {
        "id": rid, "finish_reason": {"type": "length", "length": tokens}, "prompt_tokens": wanted.prompt,
        "completion_tokens": tokens, "cached_tokens": 0, "weight_version": "default",
    }  # fmt: skip


def error(status: int, message: str) -> bytes:
    kinds = {400: "BadRequestError", 500: "InternalServerError", 503: "ServiceUnavailable"}
    value = {"object": "error", "message": message, "type": kinds.get(status, "Error"), "param": None, "code": status}
    return json.dumps(value, separators=(",", ":")).encode()
