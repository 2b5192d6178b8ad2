"""A recording read back as the window it was: answers are read one at a time, and only what they say is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pdctl.facts import read
from pdctl.model.answer import Observation
from pdctl.model.window import Window
from pdctl.reach.capture import Capture
from pdctl.reach.capture_index import Placed
from pdctl.reach.capture_line import moment
from pdctl.recent import KEEP_MOST, KEEP_S, Key, key_of, left_out


def read_window(capture: Capture, *, last_s: float | None = None, keep_most: int = KEEP_MOST) -> Window:
    """The capture's observations, judged as if live. Of a long recording only the last ``last_s`` seconds are read (an
    hour, unless given), at most ``keep_most`` observations, and ``Window.note`` says what was left out; earlier answers
    whose like did not come again (settings, scripts) are kept, with a ``t`` below 0."""
    cut = _cut(capture, KEEP_S if last_s is None else last_s, keep_most)
    if cut is None:
        rows = tuple(_observed(capture, capture.rows(), 0.0))
        return Window(capture.started, capture.ended, rows, note=_note(capture, None))
    held = _held(capture, cut)
    rows = tuple(_observed(capture, _chained(held, capture.rows(cut)), cut))
    said = left_out(len(capture) - len(rows), capture.seconds - cut)
    return Window(moment(capture.started, cut), capture.ended, rows, note=_note(capture, said))


def _cut(capture: Capture, last_s: float, keep_most: int) -> float | None:
    """The ``t`` before which answers are left out, None to leave out none."""
    cut = capture.seconds - last_s
    if len(capture) > keep_most:
        cut = max(cut, capture.t_of(len(capture) - keep_most))
    return cut if cut > capture.first_t else None


def _held(capture: Capture, cut: float) -> list[Placed]:
    """The last row of each kind before the cut that has no like after it; one with an answer rather than an error."""
    held: dict[Key, Placed] = {}
    for placed in capture.rows():
        row = placed.row
        key = key_of(row.instance, row.fact, row.more)
        if placed.t >= cut:
            held.pop(key, None)
        elif key not in held or row.error is None or held[key].row.error is not None:
            held[key] = placed
    return list(held.values())


def _chained(held: list[Placed], later: Iterator[Placed]) -> Iterator[Placed]:
    yield from sorted(held, key=lambda placed: placed.t)
    yield from later


def _observed(capture: Capture, rows: Iterator[Placed], shift: float) -> Iterator[Observation[Any]]:
    for placed in rows:
        answer = capture.answer_of(placed)
        seen = read(answer, capture.cluster.instance(answer.subject))
        yield replace(seen, t=seen.t - shift) if shift else seen


def _note(capture: Capture, said: str | None) -> str | None:
    short = ("the recording was cut short",) if capture.cut_short else ()
    return "; ".join((*((said,) if said else ()), *short, *capture.notes)) or None
