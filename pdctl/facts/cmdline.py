"""A process's command line, as ``/proc/PID/cmdline`` has it."""

from __future__ import annotations

import shlex

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import body_of
from pdctl.facts.flags import read_launch
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Cmdline
from pdctl.model.secrets import mask_argv


def read(answer: Answer, instance: Instance | None) -> Cmdline:
    """NUL-separated words, or text with spaces. A retitled process (``sglang::scheduler_TP0`` and NUL padding) is one
    word and no launcher. Raises ``Unreadable`` for an empty command line: a kernel thread or a zombie has none."""
    argv = mask_argv(words_of(body_of(answer)))
    if not argv:
        raise Unreadable(Why.EMPTY, "the command line is empty (a zombie, or the process is gone)")
    launcher, flags = read_launch(argv)
    return Cmdline(argv, launcher, flags)


def words_of(body: bytes) -> tuple[str, ...]:
    """The words of a command line."""
    text = body.decode("utf-8", "replace").rstrip("\0\n ")
    if "\0" in text:
        return tuple(text.split("\0"))
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an open quote: text that was no shell line
        return tuple(text.split())
