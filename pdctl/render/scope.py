"""What a verdict rests on and what it does not cover: faults ruled out, things not checked. Grouped, never hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.model.finding import RuledOut, Unchecked
from pdctl.render.look import Look, Mark
from pdctl.render.text import listed, wrap

MOST_NAMES = 8  # of one group; the rest is counted and in -o json

Row = tuple[str, str, str]  # what, subject, reason


def ruled_out_lines(rows: Iterable[RuledOut], look: Look) -> Iterator[str]:
    """Faults that what was seen speaks against, those with the same reason together."""
    plain = [(r.what, r.subject, r.by) for r in rows]
    if plain:
        yield ""
        yield f"Ruled out: {len(plain)}"
    for reason, things in _by_reason(plain):
        yield from wrap(f"{look.say(things)}: {look.say(reason)}", look.width, f"  {look.mark(Mark.OK)} ", "    ")


def unchecked_lines(rows: Iterable[Unchecked], look: Look) -> Iterator[str]:
    """Things not checked, those with the same reason together, with their count."""
    plain = [(r.what, r.subject, r.why) for r in rows]
    if plain:
        yield ""
        yield f"Not checked: {len(plain)}"
    for reason, things in _by_reason(plain):
        yield from wrap(
            f"{look.say(things)}: {look.say(reason)}", look.width, f"  {look.mark(Mark.UNCHECKED)} ", "    "
        )


def _by_reason(rows: list[Row]) -> Iterator[tuple[str, str]]:
    """(reason, things) in the order first met; things are told with where, once for all that share the place."""
    for reason in dict.fromkeys(row[2] for row in rows):
        places: dict[str, list[str]] = {}
        for what, subject, why in rows:
            if why == reason and subject not in places.setdefault(what, []):
                places[what].append(subject)
        yield reason, "; ".join(_things(places))


def _things(places: dict[str, list[str]]) -> Iterator[str]:
    shared: dict[tuple[str, ...], list[str]] = {}
    for what, subjects in places.items():
        shared.setdefault(tuple(s for s in subjects if s), []).append(what)
    for subjects_of, whats in shared.items():
        where = f" at {listed(subjects_of, MOST_NAMES)}" if subjects_of else ""
        yield f"{listed(whats, MOST_NAMES)}{where}"
