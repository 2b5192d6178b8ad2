"""A watched file: when it changed and what it holds."""

from __future__ import annotations

from hashlib import sha256

from pdctl.facts.base import Unreadable
from pdctl.facts.stamps import read_stamp, text_of, whole_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import WatchedFile
from pdctl.model.secrets import mask_text

SMALL = 4096  # bytes


def read(answer: Answer, instance: Instance | None) -> WatchedFile:
    """The file's path and mtime, with the digest and size of its bytes where they came. Raises ``Unreadable`` for an
    answer that names no file."""
    path = text_of(answer.more, "path")
    if path is None:
        raise Unreadable(Why.OTHER, "the answer names no file")
    mtime, same = read_stamp(answer.more.get("mtime")), text_of(answer.more, "same_as")
    if answer.body is None:
        digest, size = text_of(answer.more, "sha256"), whole_of(answer.more.get("size"))
        return WatchedFile(path, mtime, digest, size, same)
    return WatchedFile(path, mtime, sha256(answer.body).hexdigest(), len(answer.body), same, _line_of(answer.body))


def _line_of(body: bytes) -> str | None:
    """The first line of a small text, None for anything else."""
    if len(body) > SMALL or b"\0" in body:
        return None
    lines = body.decode("utf-8", "replace").splitlines()
    return mask_text(lines[0].strip()) if lines else None
