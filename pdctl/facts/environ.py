"""A process's environment at its start, as ``/proc/PID/environ`` has it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import body_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Environ
from pdctl.model.secrets import mask_value


def read(answer: Answer, instance: Instance | None) -> Environ:
    """NUL-separated or newline-separated assignments; secret values come out masked. Raises ``Unreadable`` where there
    is none: a zombie has no environment, and a router since 0.2.0 writes its title over it (seen on 0.3.2)."""
    text = body_of(answer).decode("utf-8", "replace")
    entries = text.split("\0") if "\0" in text else _lines(text)
    pairs = (entry.partition("=") for entry in entries if "=" in entry)
    values = {key: mask_value(key, value) for key, _, value in pairs if key}
    if not values:
        raise Unreadable(Why.EMPTY, "no variable in it (a zombie, or a process that wrote its title over it)")
    return Environ(values)


def _lines(text: str) -> Iterator[str]:
    """Entries of a newline-separated environment: a line that assigns nothing belongs to the value before it."""
    entry = ""
    for line in text.splitlines():
        name = line.partition("=")[0]
        if "=" in line and name.replace("_", "a").isalnum():
            if entry:
                yield entry
            entry = line
        elif entry:
            entry += "\n" + line
    if entry:
        yield entry
