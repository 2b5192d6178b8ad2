"""How many files a process has open, and how many it may."""

from __future__ import annotations

import re

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Limits

_SOFT = re.compile(r"^Max open files\s+(\d+|unlimited)", re.M)
_COUNT = re.compile(r"^fd_count\s+(\d+)", re.M)


def read(answer: Answer, instance: Instance | None) -> Limits:
    """``/proc/PID/limits`` with a line ``fd_count N``. "unlimited" is no limit (None). Raises ``Unreadable`` where the
    limit is not there; a count that was not taken is None."""
    text = text_of(answer)
    soft, count = _SOFT.search(text), _COUNT.search(text)
    if soft is None:
        raise Unreadable(Why.OTHER, "no 'Max open files' line")
    return Limits(int(count[1]) if count else None, None if soft[1] == "unlimited" else int(soft[1]))
