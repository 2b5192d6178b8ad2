"""A series of numbers as one character each. What was not seen is drawn as such, never as 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

GAP = "?"  # no answer for this sample
RESTART = "|"  # the engine started anew: what was before does not go on
_UNICODE = "▁▂▃▄▅▆▇█"
_ASCII = "_.:-=+*#"

Point = float | None | Literal["restart", "absent"]


def spark(points: Sequence[Point], ascii_only: bool = False, top: float | None = None) -> str:
    """One character a point: the lowest level is 0 and nothing else, the highest ``top`` (the greatest point unless
    given); ``None`` is a gap, ``"restart"`` a break, ``"absent"`` nothing (there is no such number). Values below 0 are
    drawn as 0.

    >>> spark([0, 1, None, 4], ascii_only=True)
    '_:?#'
    """
    seen = [p for p in points if isinstance(p, int | float) and math.isfinite(p)]
    highest = max([*seen, 0.0]) if top is None else top
    return "".join(_level(p, highest, _ASCII if ascii_only else _UNICODE) for p in points)


def _level(point: Point, highest: float, levels: str) -> str:
    if point == "restart":
        return RESTART
    if point == "absent":
        return " "
    if not isinstance(point, int | float) or not math.isfinite(point):
        return GAP
    if point <= 0 or highest <= 0:
        return levels[0]
    steps = len(levels) - 1
    return levels[min(steps, max(1, math.ceil(point / highest * steps)))]
