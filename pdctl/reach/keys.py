"""API keys, read at the moment they are used and shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path

from pdctl.errors import PdctlError
from pdctl.model.ask import Secret
from pdctl.model.cluster import KeySource

LONGEST_KEY = 64 * 1024  # bytes; a file beyond it holds something else


class KeyUnreadable(PdctlError):
    """The key is not where the inventory says it is."""

    kind = "key"
    exit_status = 64


def read_key(source: KeySource) -> Secret:
    """The key, without the white space around it. Raises KeyUnreadable naming the variable or file, never the key."""
    if source.env is not None:
        return _usable(os.environ.get(source.env), f"environment variable {source.env}", "not set")
    if source.file is not None:
        return _usable(_text_of(Path(source.file).expanduser()), f"key file {source.file}", "empty")
    raise KeyUnreadable("the inventory names an API key without saying where it is", "give it an env or a file")


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_KEY + 1)
    except OSError as error:
        raise KeyUnreadable(f"key file {path}: {error.strerror or error}", "check its path and mode") from None
    if len(data) > LONGEST_KEY:
        raise KeyUnreadable(f"key file {path} is over {LONGEST_KEY} bytes long: not a key")
    return data.decode("utf-8", "replace")


def _usable(text: str | None, where: str, absent: str) -> Secret:
    key = (text or "").strip()
    if not key:
        raise KeyUnreadable(f"{where} is {absent if not text else 'empty'}", "the inventory says the API key is there")
    if not (key.isascii() and key.isprintable()):
        raise KeyUnreadable(f"{where} holds characters that no HTTP header can carry", "is it the right one?")
    return Secret(key)
