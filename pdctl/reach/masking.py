"""Secrets masked in large bodies: the lines that may hold one are found first, by a search ten times cheaper than
masking (an engine writes "token" on every other line, and means something else)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.model.secrets import mask_text

SMALL = 16 * 1024  # characters that are masked whole: not worth a search
# In lower-cased text: whatever model/secrets.py goes by. A test holds the two together.
_HINT = re.compile(
    r"key|secret|passw|_pwd|-u[\s\x00\"',]|-user|passphrase|credential|authorization|bearer|basic|@|-----begin|sk-|hf_|gh[opsur]_|github_pat_"
    r"|glpat-|xox|akia|asia|nvapi-|aiza|eyj|token(?! usage:|/s\)|: [\d.]{1,12}[,\s])"
)
_NEXT_LINE = re.compile(r"\s*[^\n]*\n?")  # the next line that is not blank


def masked(body: bytes) -> bytes:
    """The body with its secrets masked, every other byte as it was."""
    text = body.decode("utf-8", "surrogateescape")
    return _masked_text(text).encode("utf-8", "surrogateescape")


def _masked_text(text: str) -> str:
    lower = text.lower()
    if len(text) < SMALL or len(lower) != len(text) or "-----begin" in lower:
        return mask_text(text)
    done, out = 0, []
    for start, end in _stretches(text, lower):
        out += [text[done:start], mask_text(text[start:end])]
        done = end
    return "".join([*out, text[done:]]) if out else text


def _stretches(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """The stretches of whole lines that may hold a secret: a line with a hint and the one after it, where the value may
    stand."""
    start = end = -1
    for hint in _HINT.finditer(lower):
        if hint.start() >= end:
            if end > 0:
                yield start, end
            start = text.rfind("\n", 0, hint.start()) + 1
        line = text.find("\n", hint.end())
        after = _NEXT_LINE.match(text, line + 1) if line >= 0 else None
        end = after.end() if after else len(text)
    if end > 0:
        yield start, end
