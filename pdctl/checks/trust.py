"""What an engine of a given release can prove about its own queues, and what it can't.

Sources: the releases' scheduler and metrics code (disaggregation/prefill.py, managers/scheduler.py,
managers/scheduler_components/metrics_reporter.py and their predecessors) read release by release, and runs of real
engines of 0.5.6, 0.5.9, 0.5.10.post1, 0.5.12.post1, 0.5.15, 0.5.19 and 0.5.23. A boundary is the first release in
which a behaviour was found; releases between two that were read are given the older one's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from pdctl.model.fresh import ASKED_BEFORE, ASKED_FROM

Release = tuple[int, ...]
T = TypeVar("T")


class Counts(StrEnum):
    """What the queue counts of ``/v1/loads`` are worth."""

    NONE = "none"  # no such endpoint (before 0.5.8.post1)
    ASKED = "asked"  # the scheduler itself is asked: exact, hangs when it hangs (0.5.8.post1 to 0.5.12.post1)
    UNDATED = "undated"  # a snapshot of unknown age, frozen while something is stuck (0.5.13.post1 to 0.5.15)
    DATED = "dated"  # the same snapshot, carrying its time (0.5.16 to 0.5.18)
    LIVE = "live"  # re-published every 50 ms while the loop turns (0.5.19 and later)


class Inflight(StrEnum):
    """What prefill's inflight gauge holds."""

    DEAD = "dead"  # never assigned (to 0.5.1), or written only when empty (0.5.9)
    REPUBLISHED = "republished"  # the idle report repeats the last batch's number (0.5.1.post3, 0.5.2)
    OTHERS = "others"  # written at batch creation, a batch does not count itself (0.5.3 to 0.5.8.post1)
    OWN_30S = "own-30s"  # each batch counts itself, put right 30 s after the last batch (0.5.10.post1 to 0.5.15)
    OWN_AT_ONCE = "own-at-once"  # each batch counts itself, put right when fully idle (0.5.16 and later)


@dataclass(frozen=True, slots=True)
class Traits:
    """``http_active``: the page counts HTTP requests under way, to the end of the body. ``idle_counter``: per-rank idle
    and CPU seconds. ``fully_idle_gate``: any non-empty queue stops the idle report. ``bootstrap_timeout_s`` and
    ``waiting_timeout_s``: the defaults (None: no such timeout). ``decode_tells_prefill``: decode's own timeout or abort
    reaches the prefill. ``fake_transfers_left_out``: the transfer counters leave health probes out. ``stages``: the
    counters of request stages are there; ``stage_failures_apart``: they leave failed transfers out."""

    counts: Counts
    inflight: Inflight
    http_active: bool
    http_active_streams: bool
    idle_counter: bool
    fully_idle_gate: bool
    health_generates: bool
    bootstrap_timeout_s: float | None
    waiting_timeout_s: float | None
    decode_tells_prefill: bool
    fake_transfers_left_out: bool
    known: bool = True
    stages: bool = False
    stage_failures_apart: bool = False
    release: Release | None = None


_COUNTS = (
    ((0, 5, 19, 0), Counts.LIVE),
    ((0, 5, 16, 0), Counts.DATED),
    (ASKED_BEFORE, Counts.UNDATED),
    (ASKED_FROM, Counts.ASKED),
)
_INFLIGHT = (
    ((0, 5, 16, 0), Inflight.OWN_AT_ONCE),
    ((0, 5, 10, 0), Inflight.OWN_30S),
    ((0, 5, 9, 0), Inflight.DEAD),
    ((0, 5, 3, 0), Inflight.OTHERS),
    ((0, 5, 1, 3), Inflight.REPUBLISHED),
)


_UNKNOWN = Traits(Counts.NONE, Inflight.DEAD, False, False, False, False, True, None, None, False, False, known=False)


def traits_of(release: Release | None) -> Traits:
    """The traits of a release; of an unknown one, those that claim least."""
    if release is None:
        return _UNKNOWN
    return Traits(
        counts=_since(release, _COUNTS, Counts.NONE),
        inflight=_since(release, _INFLIGHT, Inflight.DEAD),
        http_active=release >= (0, 5, 8, 0),
        http_active_streams=release >= (0, 5, 10, 0),
        idle_counter=release >= (0, 5, 20, 0),
        fully_idle_gate=release >= (0, 5, 11, 0),
        health_generates=release >= (0, 4, 10, 2),
        bootstrap_timeout_s=_bootstrap_timeout(release),
        waiting_timeout_s=300.0 if release >= (0, 5, 3, 0) else None,
        decode_tells_prefill=release >= (0, 5, 13, 0),
        fake_transfers_left_out=release >= (0, 5, 15, 0),
        stages=release >= (0, 5, 3, 0),
        stage_failures_apart=release >= (0, 5, 10, 0),
        release=release,
    )


def _bootstrap_timeout(release: Release) -> float | None:
    """SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT: none in 0.4.6, 120 s in 0.4.9, 300 s from 0.5.3 (mooncake)."""
    if release >= (0, 5, 3, 0):
        return 300.0
    return 120.0 if release >= (0, 4, 9, 0) else None


def _since(release: Release, table: tuple[tuple[Release, T], ...], before: T) -> T:
    return next((value for first, value in table if release >= first), before)
