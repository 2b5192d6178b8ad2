"""The kernel's network counters since boot."""

from __future__ import annotations

import json
from itertools import pairwise

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Nstat


def read(answer: Answer, instance: Instance | None) -> Nstat:
    """``nstat -az`` as text or JSON (``-j``), or the text of ``/proc/net/netstat`` and ``/proc/net/snmp``. Raises
    ``Unreadable`` where no counter was found."""
    text = text_of(answer)
    counters = _json(text) if text.lstrip().startswith("{") else (_proc(text) or _table(text))
    if not counters:
        raise Unreadable(Why.OTHER, "no counter in nstat's output")
    return Nstat(counters)


def _table(text: str) -> dict[str, float]:
    counters = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and not line.startswith("#") and _is_number(words[1]):
            counters[words[0]] = float(words[1])
    return counters


def _proc(text: str) -> dict[str, float]:
    """``TcpExt: SyncookiesSent ...`` over ``TcpExt: 0 ...``; the kernel's names joined as nstat joins them."""
    counters = {}
    for names, values in pairwise(text.splitlines()):
        head, _, rest = names.partition(":")
        other, _, numbers = values.partition(":")
        if head and head == other and not _is_number((rest.split() or ["0"])[0]):
            figures = numbers.split()
            counters.update({head + n: float(v) for n, v in zip(rest.split(), figures, strict=False) if _is_number(v)})
    return counters


def _json(text: str) -> dict[str, float]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    kernel = value.get("kernel", value) if isinstance(value, dict) else {}
    return {str(k): float(v) for k, v in kernel.items() if isinstance(v, int | float)}


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdecimal()
