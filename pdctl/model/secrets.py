"""Secrets, and the one masked form that stands for them.

A secret is known by the name of its field (api_key, token, password, authorization, ...) or by its own shape (sk-,
hf_, ghp_, AKIA, a JWT, a PEM private key, user:password@ in a URL). In its place stands ``***`` and six hex digits:
equal secrets give equal digits within one run and others in the next, so they can be compared and not guessed.
Masking twice changes nothing.
"""

from __future__ import annotations

import os
import re
from functools import cache
from hashlib import blake2b

_KEY = (
    r"(?:api|access|secret|private|admin|account|signing|encryption|master|license)[_-]?keys?|secret|token|passwd"
    r"|password|passphrase|credentials?|authorization|(?<=_)pwd"
)
_BARE = r"""[^\s"'&,;(){}\[\]<>\\\x00]+"""
_VALUE = rf"""(?:(?P<scheme>Bearer|Basic|Token|Digest)\s+)?(?P<value>{_BARE})"""
# key=value, key: value, "key": "value", \"key\": \"value\", KEY='value with spaces', ${KEY:-value}
_PAIR = re.compile(
    rf"""(?P<key>{_KEY})(?P<sep>\\*["']?\s*(?::[-=]|[:=])\s*)(?:(?P<quote>\\*["'])(?P<quoted>.*?)(?P=quote)|{_VALUE})""",
    re.I,
)
# --api-key VALUE, '--api-key', 'VALUE', and the same with NUL between
_FLAG = re.compile(
    rf"""(?P<key>--[a-z0-9_-]*(?:{_KEY}))(?P<sep>[\s\x00]+(?!-)["']?|["']\s*,\s*["'])(?P<value>{_BARE})""", re.I
)
_SCHEME = re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9+/_.~=-]{8,})", re.I)
# Not the port of http://10.0.0.1:30000@3: that names a data-parallel rank, as routers of that kind list workers.
_URL = re.compile(r"(?P<keep>://[^\s/:@?#]{0,256}:)(?!\d{1,5}@\d{1,4}(?![\w.:-]))(?P<value>[^\s/@]{1,512})(?=@)")
# curl -u NAME:VALUE; -u 1000:1000 is a user and a group
_LOGIN = re.compile(
    r"""(?P<keep>(?<![\w-])(?:-u|--user|--proxy-user)(?:[\s=\x00]+|["']\s*,\s*)["']?[^\s:"'=,/\x00]{1,64}:)"""
    r"""(?P<value>(?!\d+(?![\w]))[^\s"'\x00]+)"""
)
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.S)
_SHAPES = re.compile(
    r"""\b(?:
        sk-(?=[A-Za-z_-]*\d|[\w-]{16})[\w-]{8,} | hf_[A-Za-z0-9]{8,} | gh[opsur]_[A-Za-z0-9]{16,}
        | github_pat_\w{16,} | glpat-[\w-]{16,} | xox[abprs]-[\w-]{10,} | (?:AKIA|ASIA)[A-Z0-9]{12,}
        | nvapi-[\w-]{16,} | AIza[\w-]{30,} | eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*
    )""",
    re.X,
)
_ANY_HINT = re.compile(
    rf"{_KEY}|Bearer|Basic|://|-u[\s\x00\"',]|-user|-----BEGIN|sk-|hf_|gh[opsur]_|github_pat_|glpat-|xox|AKIA|ASIA|nvapi-|AIza|eyJ",
    re.I,
)
_SECRET_KEY = re.compile(rf"(?:{_KEY})$", re.I)
# What a tokenizer calls a token is no secret: #new-token, cached_token, eos_token.
_TOKEN_WORDS = re.compile(
    r"(?:new|cached|pending|replay|full|swa|bos|eos|pad|unk|sep|cls|stop|image|special|per)[_-]$", re.I
)
_MASKED = re.compile(r"\*{3}[0-9a-f]{6}$")
_NO_SECRET = re.compile(r"(?:None|null|true|false|\*+\w*|<\w+>|\$|\$\w+|\$\{\w+\}?|\$\(.*\))$", re.I)
_NUMBER = re.compile(r"[-+]?[\d.,]{1,15}(?:/s)?$")


def mask_text(text: str) -> str:
    """The text with every secret in it replaced by its masked form."""
    if not _ANY_HINT.search(text):
        return text
    text = _PEM.sub(lambda m: f"[{m[1]} {digest(m[0])}]", text)
    text = _FLAG.sub(_mask_flag, text)
    text = _PAIR.sub(_mask_pair, text)
    text = _SCHEME.sub(_mask_kept, text)
    text = _URL.sub(_mask_kept, text)
    text = _LOGIN.sub(_mask_kept, text)
    return _SHAPES.sub(lambda m: digest(m[0]), text)


def mask_value(key: str, value: str) -> str:
    """The value of a named field: masked whole if the name says it is a secret, else as ``mask_text`` does."""
    if _SECRET_KEY.search(key) and not _harmless(key, value):
        return digest(value)
    return mask_text(value)


def mask_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Command-line words with the values of secret options (``--api-key X``, ``--api-key=X``, ``KEY=X``) masked."""
    out: list[str] = []
    before = ""
    for word in argv:
        key, equals, value = word.partition("=")
        if before.startswith("-") and "=" not in before and not word.startswith("-"):
            out.append(mask_value(before, word))
        elif equals and value:
            out.append(f"{key}={mask_value(key, value)}")
        else:
            out.append(mask_text(word))
        before = word
    return tuple(out)


def is_masked(value: str) -> bool:
    """Whether the value is a masked form that can be compared (a bare ``***`` cannot)."""
    return _MASKED.match(value) is not None


def digest(secret: str) -> str:
    """What stands in for a secret: ``***`` and six hex digits, keyed anew in each run."""
    if is_masked(secret):
        return secret
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
