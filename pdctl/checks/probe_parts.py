"""The parts of a window in which requests of a probe waited: what the cluster held then, before pdctl gave them up.

A request that pdctl gives up is aborted by the router in its engines: at the end of the window they are empty, wherever
it was stuck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise

from pdctl.checks.probe_paths import Path
from pdctl.model.answer import Fact
from pdctl.model.probe import Attempt
from pdctl.model.window import Window

HUNG = "read-timeout"
SETTLED_S = 2.0  # seconds after a request within which an engine that serves it may not have counted it yet
MOST = 3  # parts looked at
PASSING = frozenset({Fact.PROBE, Fact.METRICS, Fact.LOADS, Fact.HEALTH, Fact.SOCKETS})  # hold for their moment alone


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds of the window between which requests waited, the first to be given up last."""

    start: float
    end: float
    waited: float  # seconds that the first of them was waited for
    count: int


def base_of(path: Path) -> float:
    """The moment of the window at which the probe's own count of seconds began: an answer is complete when the last of
    its attempts has ended. (A probe may be one part of a longer window.)"""
    last = max((end_of(a) for a in path.seen.value.rows if a.begun_s is not None), default=path.seen.t)
    return path.seen.t - last


def begun_of(attempt: Attempt) -> float:
    return attempt.begun_s or 0.0


def end_of(attempt: Attempt) -> float:
    return begun_of(attempt) + (attempt.took or 0.0)


def waits_of(path: Path, attempts: Iterable[Attempt] | None = None) -> tuple[Wait, ...]:
    """When those of a path's requests that hang waited, one wait for all that waited at the same time."""
    rows = (*path.fresh, *path.reused) if attempts is None else tuple(attempts)
    hung = sorted((a for a in rows if a.error == HUNG and a.begun_s is not None), key=begun_of)
    base, found = base_of(path), list[Wait]()
    while hung and len(found) < MOST:
        end = min(end_of(a) for a in hung)
        together = [a for a in hung if begun_of(a) < end]
        start = begun_of(hung[0]) + SETTLED_S
        found.append(Wait(base + start, base + end, hung[0].took or 0.0, len(together)))
        hung = [a for a in hung if begun_of(a) >= end]
    return tuple(wait for wait in found if wait.start < wait.end)


def joined(waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """The waits, and where they follow on each other (a request that hangs, then the second try) the whole of them:
    a longer look than each."""
    run = [wait for early, wait in pairwise(waits) if wait.start - early.end <= 2 * SETTLED_S]
    if not run or len(run) < len(waits) - 1:
        return waits
    whole = Wait(waits[0].start, waits[-1].end, waits[0].waited, max(wait.count for wait in waits))
    return (*waits, whole)


def part_of(window: Window, wait: Wait) -> Window:
    """What was seen while requests waited. Settings, scripts and logs of before that were not asked again meanwhile
    still hold, with a ``t`` below 0; counts do not. The probe's own requests are not in it."""
    inside = [o for o in window.observations if wait.start <= o.t < wait.end and o.fact is not Fact.PROBE]
    seen = {(o.subject, o.fact) for o in inside}
    before = (o for o in window.observations if o.t < wait.start and o.fact not in PASSING)
    held = {(o.subject, o.fact): o for o in before if (o.subject, o.fact) not in seen}
    rows = tuple(replace(o, t=o.t - wait.start) for o in (*held.values(), *inside))
    start = window.start + timedelta(seconds=wait.start)
    return replace(window, start=start, end=start + timedelta(seconds=wait.end - wait.start), observations=rows)


def parts_of(window: Window, path: Path, attempts: Iterable[Attempt] | None = None) -> Iterator[tuple[Wait, Window]]:
    """Each wait of a path's requests with what was seen meanwhile, where anything of the cluster was."""
    yield from seen_in(window, waits_of(path, attempts))


def seen_in(window: Window, waits: Iterable[Wait]) -> Iterator[tuple[Wait, Window]]:
    """Each wait with what was seen meanwhile, where anything of the cluster was."""
    for wait in waits:
        part = part_of(window, wait)
        if any(o.t >= 0 and o.fact in (Fact.METRICS, Fact.LOADS) for o in part.observations):
            yield wait, part
