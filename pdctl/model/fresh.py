"""Whether the counts of ``/v1/loads`` were true when they were answered: one rule, for verdicts and tables."""

from __future__ import annotations

from pdctl.model.engine import LoadRow

Release = tuple[int, ...]
FRESH_S = 2.5  # a live snapshot is re-published every 50 ms from 0.5.19 on; a forward pass of seconds may hold it up
# Releases in which the scheduler itself is asked: its counts have no time of their own and need none.
ASKED_FROM, ASKED_BEFORE = (0, 5, 8, 0), (0, 5, 13, 0)


def is_asked(release: Release | None) -> bool:
    """Whether this release asks its scheduler for the counts, so that they are exact (0.5.8.post1 to 0.5.12.post1)."""
    return release is not None and ASKED_FROM <= release < ASKED_BEFORE


def is_fresh(row: LoadRow, age: float | None, release: Release | None) -> bool:
    """Whether a row's counts of each queue were true at its answer: asked of the scheduler, or a snapshot whose own
    time is no more than ``FRESH_S`` before it (``age`` seconds; 0.5.16 and later). Undated ones of 0.5.13 to 0.5.15 may
    be of any age; the sums of ``/get_load`` are of no one queue."""
    if row.summed:
        return False
    if row.timestamp is not None:
        return age is not None and age <= FRESH_S
    return is_asked(release)


def age_of(row: LoadRow, answered: float | None) -> float | None:
    """How old a row's snapshot was when it was answered, in seconds by the server's own clock; None where it, or the
    answer, has no time."""
    if row.timestamp is None or answered is None:
        return None
    return abs(answered - row.timestamp)
