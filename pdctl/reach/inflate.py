"""Compressed bodies, undone a piece at a time: no piece, whatever its ratio, becomes more than STEP bytes at once."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

STEP = 64 * 1024  # bytes
ENCODINGS = ("gzip", "deflate")
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


class Damaged(Exception):
    """The compressed body is not what its Content-Encoding says."""


class CutShort(Exception):
    """The compressed body ends before its own end mark."""


class UnknownEncoding(Exception):
    """A Content-Encoding nobody asked for."""


def decoded(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The body as it was before ``encoding`` (the Content-Encoding header, "" for none), in pieces of at most STEP
    bytes when it was compressed. Raises Damaged, CutShort or UnknownEncoding."""
    names = [word for word in (part.strip().lower() for part in encoding.split(",")) if word not in ("", "identity")]
    for name in reversed(names):
        chunks = _one(chunks, name)
    return iter(chunks)


def _one(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    if name in ("gzip", "x-gzip"):
        return _inflated(chunks, _GZIP)
    if name == "deflate":
        return _deflated(chunks)
    raise UnknownEncoding(f"body is encoded as {name!r}, which was not asked for")


def _deflated(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """What servers call deflate is zlib's wrapping (RFC 9110) or, from some, the bare stream; the first byte tells."""
    source = iter(chunks)
    first = next((chunk for chunk in source if chunk), b"")
    wrapped = bool(first) and first[0] & 0x0F == 8
    yield from _inflated(_again(first, source), _ZLIB if wrapped else _RAW)


def _again(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _inflated(chunks: Iterable[bytes], wbits: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(wbits)
    any_bytes = False
    for chunk in chunks:
        data = chunk
        while data:
            any_bytes = True
            if stream.eof:
                stream = zlib.decompressobj(wbits)  # a gzip file may hold several members, one after the other
            try:
                yield stream.decompress(data, STEP)
            except zlib.error as error:
                raise Damaged(f"compressed body is damaged: {error}") from None
            data = stream.unconsumed_tail or stream.unused_data
    if any_bytes and not stream.eof:
        raise CutShort("compressed body ends before its end mark")
