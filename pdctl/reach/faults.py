"""What went wrong with a request, as one of the capture format's words and one line for people."""

from __future__ import annotations

import socket
import ssl

import httpcore

from pdctl.model.answer import Why
from pdctl.reach.inflate import CutShort, Damaged, UnknownEncoding

_INCOMPLETE = "without sending complete message body"
_NO_RESPONSE = ("Server disconnected", "closed connection")


def fault_of(error: Exception, heard: bytes) -> tuple[Why, str]:
    """The word and the line for an error raised while a request was sent or its answer read; ``heard`` is how the
    answer began."""
    cause = _root(error)
    if isinstance(cause, ssl.SSLError):
        return Why.TLS, _tls(cause)
    if isinstance(error, httpcore.ConnectTimeout):
        return Why.CONNECT_TIMEOUT, str(error)
    if isinstance(error, httpcore.TimeoutException):
        return Why.READ_TIMEOUT, str(error)
    if isinstance(error, httpcore.ConnectError):
        return _connecting(cause)
    if isinstance(error, httpcore.NetworkError):
        return Why.RESET, f"connection broke: {_words(cause)}"
    if isinstance(error, httpcore.RemoteProtocolError):
        return _protocol(str(error), heard)
    if isinstance(error, CutShort):
        return Why.TRUNCATED, str(error)
    if isinstance(error, (Damaged, UnknownEncoding)):
        return Why.OTHER, str(error)
    return Why.OTHER, f"{type(error).__name__}: {error}"


def _connecting(cause: BaseException) -> tuple[Why, str]:
    if isinstance(cause, ConnectionRefusedError):
        return Why.CONNECT_REFUSED, "connection refused"
    if isinstance(cause, ConnectionResetError):
        return Why.RESET, "connection reset while connecting"
    if isinstance(cause, socket.gaierror):
        return Why.OTHER, f"name not resolved: {_words(cause)}"
    return Why.OTHER, f"cannot connect: {_words(cause)}"


def _protocol(said: str, heard: bytes) -> tuple[Why, str]:
    if _INCOMPLETE in said:
        return Why.TRUNCATED, f"body ended early {said[said.index('(') :] if '(' in said else ''}".strip()
    if heard and not heard.startswith(b"HTTP/"):
        return Why.OTHER, f"no HTTP answer: it begins with {heard!r}"
    if not any(words in said for words in _NO_RESPONSE):
        return Why.OTHER, f"no HTTP answer: {said}"
    if heard:
        return Why.TRUNCATED, "connection closed inside the header"
    return Why.RESET, "connection closed without an answer"


def _tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    hint = " (does this port speak TLS?)" if "wrong version" in reason or "record layer" in reason else ""
    return f"TLS failed: {reason}{hint}"


def _words(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
