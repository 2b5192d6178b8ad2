"""Text made safe to show: hostile characters as visible escapes, secrets as a short digest.

Everything that came from a label, a log line, a file or a peer passes through ``safe`` before it reaches a terminal and
through ``mask`` before it leaves pdctl in any form.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import cache

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


# --- secrets -----------------------------------------------------------------------------------------------------

_KEY = (
    r"(?:api|access|secret|private|admin|account|signing|encryption)[_-]?key|secret|token|passwd|password|passphrase"
    r"|credentials?|authorization"
)
_BARE = r"""[^\s"'&,;(){}\[\]<>\\\x00]+"""
_VALUE = rf"""(?:(?P<scheme>Bearer|Basic|Token|Digest)\s+)?(?P<value>{_BARE})"""
# key=value, key: value, "key": "value", \"key\": \"value\", KEY='value with spaces'
_PAIR = re.compile(
    rf"""(?P<key>{_KEY})(?P<sep>\\*["']?\s*[:=]\s*)(?:(?P<quote>\\*["'])(?P<quoted>.*?)(?P=quote)|{_VALUE})""", re.I
)
# --api-key VALUE, '--api-key', 'VALUE', and the same with NUL between
_FLAG = re.compile(
    rf"""(?P<key>--[a-z0-9_-]*(?:{_KEY}))(?P<sep>[\s\x00]+(?!-)["']?|["']\s*,\s*["'])(?P<value>{_BARE})""", re.I
)
_SCHEME = re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9+/_.~=-]{8,})", re.I)
_URL = re.compile(r"(?P<keep>://[^\s/:@?#]{0,256}:)(?P<value>[^\s/@]{1,512})(?=@)")
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.S)
_SHAPES = re.compile(
    r"""\b(?:
        sk-(?=[A-Za-z_-]*\d|[\w-]{16})[\w-]{8,} | hf_[A-Za-z0-9]{8,} | gh[opsur]_[A-Za-z0-9]{16,}
        | github_pat_\w{16,} | glpat-[\w-]{16,} | xox[abprs]-[\w-]{10,} | (?:AKIA|ASIA)[A-Z0-9]{12,}
        | AIza[\w-]{30,} | eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*
    )""",
    re.X,
)
_ANY_HINT = re.compile(
    rf"{_KEY}|Bearer|Basic|://|-----BEGIN|sk-|hf_|gh[opsur]_|github_pat_|glpat-|xox|AKIA|ASIA|AIza|eyJ", re.I
)
_SECRET_KEY = re.compile(rf"(?:{_KEY})$", re.I)
# What a tokenizer calls a token is no secret: #new-token, cached_token, eos_token.
_TOKEN_WORDS = re.compile(
    r"(?:new|cached|pending|replay|full|swa|bos|eos|pad|unk|sep|cls|stop|image|special|per)[_-]$", re.I
)
_NO_SECRET = re.compile(r"(?:None|null|true|false|\*+\w*|<\w+>|\$\w+|\$\{\w+\})$", re.I)
_NUMBER = re.compile(r"[-+]?[\d.,]{1,15}(?:/s)?$")


def mask(text: str) -> str:
    """The text with every secret replaced by ``***`` and six hex digits: known by its key (api_key, token, password,
    authorization, ...) or by its shape (sk-, hf_, ghp_, AKIA, a JWT, a PEM private key, user:password@ in a URL).

    Equal secrets give equal digits within one run and others in the next, so that they can be compared and not
    guessed. Masking twice changes nothing.
    """
    if not _ANY_HINT.search(text):
        return text
    text = _PEM.sub(lambda m: f"[{m[1]} {digest(m[0])}]", text)
    text = _FLAG.sub(_mask_flag, text)
    text = _PAIR.sub(_mask_pair, text)
    text = _SCHEME.sub(_mask_kept, text)
    text = _URL.sub(_mask_kept, text)
    return _SHAPES.sub(lambda m: digest(m[0]), text)


def mask_value(key: str, value: str) -> str:
    """The value of a named field: masked whole if the name says it is a secret, else as ``mask`` does."""
    if _SECRET_KEY.search(key) and not _harmless(key, value):
        return digest(value)
    return mask(value)


def digest(secret: str) -> str:
    """What stands in for a secret: ``***`` and six hex digits, keyed anew in each run."""
    from hashlib import blake2b

    return "***" + blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=3, key=_run_key()).hexdigest()


@cache
def _run_key() -> bytes:
    return os.urandom(16)


def _mask_flag(m: re.Match[str]) -> str:
    return m[0] if _harmless(m["key"], m["value"]) else m["key"] + m["sep"] + digest(m["value"])


def _mask_pair(m: re.Match[str]) -> str:
    key = m.string[max(0, m.start() - 8) : m.start()] + m["key"]
    if m["quote"] is not None:
        quoted = m["quoted"]
        masked = quoted if not quoted or _harmless(key, quoted) else digest(quoted)
        return f"{m['key']}{m['sep']}{m['quote']}{masked}{m['quote']}"
    if _harmless(key, m["value"]):
        return m[0]
    scheme = m["scheme"] + " " if m["scheme"] else ""
    return m["key"] + m["sep"] + scheme + digest(m["value"])


def _mask_kept(m: re.Match[str]) -> str:
    return m[0] if _NO_SECRET.match(m["value"]) else m["keep"] + digest(m["value"])


def _harmless(key: str, value: str) -> bool:
    if not value or _NO_SECRET.match(value):
        return True
    if not key.lower().endswith("token"):
        return False
    return bool(_NUMBER.match(value) or _TOKEN_WORDS.search(key[:-5]))
