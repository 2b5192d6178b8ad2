"""A watched git checkout: where its head is and what is not committed."""

from __future__ import annotations

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import json_of
from pdctl.facts.stamps import read_stamp, text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Checkout


def read(answer: Answer, instance: Instance | None) -> Checkout:
    """JSON ``{head, branch, dirty: [..], committed: RFC 3339}``; a detached head has no branch. Raises
    ``Unreadable``."""
    value = json_of(answer)
    if not isinstance(value, dict):
        raise Unreadable(Why.OTHER, "not a JSON object")
    dirty = value.get("dirty")
    names = tuple(str(name) for name in dirty) if isinstance(dirty, list) else ()
    return Checkout(text_of(value, "head"), text_of(value, "branch"), names, read_stamp(value.get("committed")))
