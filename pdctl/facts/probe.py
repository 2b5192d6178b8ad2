"""Attempts of real requests, as a probe recorded them."""

from __future__ import annotations

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import rows_of
from pdctl.facts.stamps import number_of, text_of, whole_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.probe import Attempt, Attempts
from pdctl.model.secrets import mask_text


def read(answer: Answer, instance: Instance | None) -> Attempts:
    """A JSON list of attempts. Raises ``Unreadable`` for anything else and for an attempt that does not say whom it
    was made to, or that has neither a status nor an error (nothing is known of how it ended)."""
    return Attempts(tuple(attempt_of(row) for row in rows_of(answer)))


def attempt_of(row: dict[str, object]) -> Attempt:
    """One attempt of a list. Raises ``Unreadable`` for one that does not say whom it was made to."""
    to, status, error = text_of(row, "to"), whole_of(row.get("status")), text_of(row, "error")
    if to is None:
        raise Unreadable(Why.OTHER, "an attempt that does not say to whom")
    detail, stream = text_of(row, "detail"), row.get("stream")
    kind = text_of(row, "kind") or "generate"
    return Attempt(
        to=to,
        via=text_of(row, "via") or "direct",
        kind=kind,
        connection=text_of(row, "connection") or "fresh",
        idle_s=number_of(row.get("idle_s")),
        round=whole_of(row.get("round")),
        concurrency=whole_of(row.get("concurrency")),
        stream=stream if isinstance(stream, bool) else None,
        status=status,
        error=error or (None if status is not None or kind == "abort" else "other"),
        detail=mask_text(detail) if detail else None,
        first_byte_s=number_of(row.get("first_byte_s")),
        took=number_of(row.get("took")),
        tokens=whole_of(row.get("tokens")),
        trial=text_of(row, "trial"),
        control=row.get("control") is True,
        begun_s=number_of(row.get("begun_s")),
        line=whole_of(row.get("line")),
        nth=whole_of(row.get("nth")),
        local=text_of(row, "local"),
        agent=whole_of(row.get("agent")),
        endpoint=text_of(row, "endpoint"),
        first_token_s=number_of(row.get("first_token_s")),
        between_s=number_of(row.get("between_s")),
        longest_gap_s=number_of(row.get("longest_gap_s")),
        closed_after_s=number_of(row.get("closed_after_s")),
        told=text_of(row, "told"),
    )
