"""A URL taken apart into what a connection and a request need."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

PORTS = {"http": 80, "https": 443}
_KEPT = "/%:@!$&'()*+,;=~-._?"


@dataclass(frozen=True, slots=True)
class Target:
    """``host`` is bare (IPv6 without brackets); ``path`` is what the request line asks for; ``basic`` the value of
    an Authorization header if the URL names a user; ``shown`` the URL without its password."""

    scheme: str
    host: str
    port: int
    path: str
    host_header: str
    shown: str
    basic: str | None = None

    def same_origin(self, other: Target) -> bool:
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)


@lru_cache(1024)
def target_of(url: str) -> Target:
    """The parts of an http or https URL. Raises ValueError saying what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS:
        raise ValueError(f"URL is not http:// or https:// but {parts.scheme or 'without a scheme'}")
    if not parts.hostname:
        raise ValueError("URL names no host")
    host = _ascii(unquote(parts.hostname))
    port = parts.port if parts.port is not None else PORTS[parts.scheme]
    path = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
    bracketed = f"[{host.partition('%')[0]}]" if ":" in host else host
    netloc = bracketed if port == PORTS[parts.scheme] else f"{bracketed}:{port}"
    return Target(parts.scheme, host, port, path, netloc, shown(url), _basic(parts.username, parts.password))


def joined(base: Target, location: str) -> Target:
    """Where a redirect from ``base`` leads. Raises ValueError for what is no URL."""
    return target_of(urljoin(f"{base.scheme}://{base.host_header}{base.path}", location))


def shown(url: str) -> str:
    """The URL as it may be shown: a password in it is masked, a fragment dropped."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    netloc = f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}"
    return urlunsplit((parts.scheme, netloc, parts.path, parts.query, ""))


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"host name {host!r} cannot be looked up") from None


def _basic(user: str | None, password: str | None) -> str | None:
    if user is None:
        return None
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return "Basic " + b64encode(pair.encode()).decode("ascii")
