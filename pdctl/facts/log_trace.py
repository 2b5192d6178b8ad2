"""Tracebacks: which exception a crash or a dead thread ended in, many lines below the line that tells of it."""

from __future__ import annotations

import re

from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import Rule
from pdctl.model.events import Kind

LONGEST_TRACE = 400  # lines; what is longer is no traceback any more
_OPENERS = (
    "Traceback (most recent call last):",
    "):",
)  # "... exception: Traceback (...):", "Exception in thread X (f):"
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Abort|Failure|Warning)(?:: .*)?$", re.S
)


class Found:
    """A record with its rule, not read yet. ``reason`` is the exception its traceback ended in, once that was seen."""

    __slots__ = ("reason", "record", "rule")

    def __init__(self, rule: Rule, record: Record) -> None:
        self.rule = rule
        self.record = record
        self.reason: str | None = None


class Tracebacks:
    """Watches the records go by. A traceback ends at the next record that has a time of its own or a rule; several
    processes' tracebacks may be mixed on one stream, then the exception goes to the one that opened last."""

    def __init__(self) -> None:
        self._open: Found | None = None
        self._since = 0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def see(self, found: Found) -> Found:
        """The record itself; notes the reason of the one whose traceback it belongs to."""
        if found.rule.kind is not Kind.OTHER:
            self._open = found if _opens(found) else None
            self._since = found.record.line
        elif self._open is not None:
            self._go_on(found.record)
        return found

    def _go_on(self, record: Record) -> None:
        ended = record.text.startswith("[20") or record.line - self._since > LONGEST_TRACE
        if ended:
            self._open = None
        elif self._open is not None and _EXCEPTION.match(record.message):
            self._open.reason = record.message.strip()


def _opens(found: Found) -> bool:
    telling = found.rule.kind in (Kind.CRASH, Kind.TRANSFER_THREAD_FAILED)
    return telling and found.record.message.rstrip().endswith(_OPENERS)
