"""A process's environment at its start, as ``/proc/PID/environ`` has it."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.facts.documents import body_of
from pdctl.model.answer import Answer
from pdctl.model.cluster import Instance
from pdctl.model.host import Environ
from pdctl.model.secrets import mask_value


def read(answer: Answer, instance: Instance | None) -> Environ:
    """NUL-separated or newline-separated assignments; secret values come out masked. An empty environment is an
    answer. Raises ``Unreadable`` where nothing came."""
    text = body_of(answer).decode("utf-8", "replace")
    entries = text.split("\0") if "\0" in text else _lines(text)
    pairs = (entry.partition("=") for entry in entries if "=" in entry)
    return Environ({key: mask_value(key, value) for key, _, value in pairs if key})


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
