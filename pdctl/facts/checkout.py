"""A watched git checkout: where its head is and what is not committed."""

from __future__ import annotations

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import json_of
from pdctl.facts.stamps import read_stamp, text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Checkout, Move


def read(answer: Answer, instance: Instance | None) -> Checkout:
    """JSON ``{head, branch, dirty: [..], committed: RFC 3339}``; a detached head has no branch. Newer captures add
    ``path`` and ``moves``: ``[{at, head, what}]``, newest first. Raises ``Unreadable``."""
    value = json_of(answer)
    if not isinstance(value, dict):
        raise Unreadable(Why.OTHER, "not a JSON object")
    dirty = value.get("dirty")
    names = tuple(str(name) for name in dirty) if isinstance(dirty, list) else ()
    path = text_of(value, "path") or text_of(answer.more, "path")
    committed = read_stamp(value.get("committed"))
    return Checkout(
        text_of(value, "head"), text_of(value, "branch"), names, committed, path, _moves(value.get("moves"))
    )  # fmt: skip


def _moves(rows: object) -> tuple[Move, ...]:
    out = []
    for row in rows if isinstance(rows, list) else []:
        at = read_stamp(row.get("at")) if isinstance(row, dict) else None
        if at is not None:
            out.append(Move(at, text_of(row, "head") or "", text_of(row, "what") or ""))
    return tuple(out)
