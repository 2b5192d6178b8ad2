"""A router's ``/workers`` -> Workers (sglang-router 0.2.4 and 0.3.2, smg; 0.1.9 knows only ``/list_workers``)."""

from __future__ import annotations

from pdctl.facts.base import Unreadable
from pdctl.facts.json_body import count_of, flag_of, number_of, object_of, read_json, text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.router import Worker, Workers


def read(answer: Answer, instance: Instance | None) -> Workers:
    """The rows; an empty list is an answer: a router without workers. Raises Unreadable: EMPTY, NOT_JSON, TRUNCATED."""
    body = read_json(answer)
    rows = body if isinstance(body, list) else object_of(body).get("workers", object_of(body).get("urls"))
    if not isinstance(rows, list):
        raise Unreadable(Why.NOT_JSON, "JSON without a list of workers")
    return Workers(tuple(_row(row) for row in rows))


def _row(row: object) -> Worker:
    fields = {"url": row} if isinstance(row, str) else object_of(row)
    url = text_of(fields.get("url"))
    if url is None:
        raise Unreadable(Why.NOT_JSON, "a worker without a URL")
    return Worker(
        url=url,
        kind=_kind(fields.get("worker_type")),
        healthy=flag_of(fields.get("is_healthy")),
        load=number_of(fields.get("load")),
        bootstrap_port=count_of(fields.get("bootstrap_port")),
    )


def _kind(value: object) -> str | None:
    """ "prefill", "decode" or "regular"; some builds write it as an object with the kind for its only key."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value))
    text = text_of(value)
    return text.lower() if text else None
