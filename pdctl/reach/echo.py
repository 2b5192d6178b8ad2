"""A secret that was sent and comes back in the answer: masked there before anything else sees the answer.

A key of no known shape is known to nobody but who sent it: ``model/secrets.py`` cannot tell it from any other word.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from urllib.parse import quote, unquote, urlsplit

from pdctl.model.secrets import digest

SHORTEST = 6  # characters. A shorter one is met by chance in any page, and what it stood for there would be lost.
# Nor a short plain word or number ("prefill", "sglang", "123456"): pages are made of those, and could not be read any
# more with them masked. A key that guards anything is none.
_PLAIN = re.compile(r"[A-Za-z]?[a-z]{0,10}|[A-Z]{0,11}|[0-9]{0,11}")


@dataclass(frozen=True, slots=True)
class Veil:
    """Masks what was sent. ``forms``: a secret as it may stand in an answer, and what stands there instead; the longest
    first, as one may hold another."""

    forms: tuple[tuple[str, str], ...] = ()

    def text(self, text: str) -> str:
        """The text without them."""
        for form, mask in self.forms:
            text = text.replace(form, mask)
        return text

    def body(self, body: bytes, *, broken_off: bool = False) -> bytes:
        """The bytes without them, nor the first part of one where they are ``broken_off`` in it."""
        for form, mask in self.forms:
            if (sought := form.encode()) in body:
                body = body.replace(sought, mask.encode())
        return self._tail_off(body) if broken_off else body

    def _tail_off(self, body: bytes) -> bytes:
        for form, mask in self.forms:
            sought = form.encode()
            for length in range(len(sought) - 1, SHORTEST - 1, -1):
                if body.endswith(sought[:length]):
                    return body[:-length] + mask.encode()
        return body


NONE = Veil()


def veil_of(url: str, authorization: str | None) -> Veil:
    """The veil for a request to ``url`` with this Authorization header: over its key, and over the URL's password."""
    masks: dict[str, str] = {}
    scheme, _, sent = (authorization or "").partition(" ")
    password, plain = _password(url)
    if scheme == "Bearer" and _is_guarded(sent):
        masks |= dict.fromkeys(_forms(sent), digest(sent))
    if plain and _is_guarded(plain):
        masks |= dict.fromkeys((*_forms(plain), password), digest(plain))
    if plain and scheme == "Basic":
        masks[sent] = digest(sent)
    return Veil(tuple(sorted(masks.items(), key=lambda row: -len(row[0])))) if masks else NONE


def _password(url: str) -> tuple[str, str]:
    """The URL's password as it stands there and as it is meant; "" where it has none."""
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return "", ""
    return password, unquote(password)


def _is_guarded(secret: str) -> bool:
    return len(secret) >= SHORTEST and _PLAIN.fullmatch(secret) is None


def _forms(secret: str) -> tuple[str, ...]:
    """As it is, and as JSON, a URL and HTML write it."""
    plain = json.dumps(secret)[1:-1]
    return secret, plain, plain.replace("/", "\\/"), quote(secret, safe=""), quote(secret), escape(secret)
