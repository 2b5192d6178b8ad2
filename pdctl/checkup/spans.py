"""What a run judges: its own look joined with more or less of what earlier ones saw."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pdctl.checks.lately import LATELY_S
from pdctl.checkup.remember import Instant, Memory, joined
from pdctl.model.packed import BAD
from pdctl.model.window import Window

LATELY = 3  # looks: what a rule needs at least, and no less time than LATELY_S
TOGETHER_S = 30.0  # runs no further apart, as lines of one crontab start them, are parts of one look
RECENT_S = 150.0  # what moved before a run that is older may have stopped since


def spans(memory: Memory, seen: Window, start: Instant) -> list[Window]:
    """All that is remembered with what was seen now; the last few looks; this look, where it was a long one. Raises one
    of ``BAD`` for a memory that is damaged."""
    windows = [joined(memory, seen, start)]
    late = sum(1 for run in memory.runs if start.boot - run.start.boot <= LATELY_S)
    late = max(late, LATELY - 1)
    if len(memory.runs) > late:
        windows.append(joined(replace(memory, runs=memory.runs[-late:]), seen, start))
    if memory.runs and seen.samples() >= LATELY:
        windows.append(seen)
    return windows


def recent(memory: Memory, seen: Window, start: Instant) -> Window:
    """What was seen now and in the run before, where that is not long ago; or in all of the last half minute."""
    runs = [run for run in memory.runs[-1:] if start.boot - run.start.boot <= RECENT_S]
    runs = [run for run in memory.runs if start.boot - run.start.boot <= TOGETHER_S] or runs
    with suppress(*BAD):  # damage is said where all that is remembered is judged
        return joined(replace(memory, runs=tuple(runs)), seen, start)
    return seen
