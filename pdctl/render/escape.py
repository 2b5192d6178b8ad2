"""Text made safe to show: hostile characters as visible escapes, secrets as a short digest.

Everything that came from a label, a log line, a file or a peer passes through ``safe`` before it reaches a terminal and
through ``mask`` before it leaves pdctl in any form.
"""

from __future__ import annotations

import re
import unicodedata

from pdctl.model.secrets import digest, mask_value
from pdctl.model.secrets import mask_text as mask

__all__ = ["digest", "mask", "mask_value", "safe", "visible"]

# Invisible though Unicode files them under letters, marks or symbols, so str.isprintable() lets them pass: fillers,
# the joiner, variation selectors, the empty braille cell.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_TYPOGRAPHY = str.maketrans({
    "→": "->", "←": "<-", "—": "-", "–": "-", "…": "...", "≥": ">=", "≤": "<=", "×": "x", "·": "-", "≈": "~",
    "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ",
})  # fmt: skip


def safe(text: str, ascii_only: bool = False) -> str:
    """The text as it may be shown on one line of a terminal.

    Control characters (C0, C1, DEL, newline), format characters (bidirectional overrides and isolates, zero-width),
    line and paragraph separators, lone surrogates, private-use and unassigned code points become visible escapes;
    a tab becomes a space. Letters of every script stay, unless ``ascii_only``: then they are escaped as well.

    >>> safe("a\\x1b[31mb\\u202e")
    'a\\\\x1b[31mb\\\\u202e'
    """
    text = text.replace("\t", " ")
    if ascii_only:
        text = text.translate(_TYPOGRAPHY)
    if text.isprintable() and (text.isascii() or not (ascii_only or _INVISIBLE.search(text))):
        return text
    return "".join(char if _is_plain(char, ascii_only) else visible(char) for char in text)


def visible(char: str) -> str:
    """One character as the escape Python would write: \\n, \\x1b, \\u202e, \\U000e0001."""
    named = {"\n": "\\n", "\r": "\\r"}.get(char)
    code = ord(char)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


def _is_plain(char: str, ascii_only: bool) -> bool:
    if char.isascii() or ascii_only:
        return char.isascii() and char.isprintable()
    if unicodedata.category(char) == "Zs":
        return True
    return char.isprintable() and not _INVISIBLE.match(char)
