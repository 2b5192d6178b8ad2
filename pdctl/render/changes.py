"""The time line of what changed, for people and for programs: suspects on top, what is ruled out below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from itertools import groupby
from typing import Any

from pdctl.model.change_view import Event, Timeline
from pdctl.render.look import Look, Mark
from pdctl.render.text import columns, counted, pad, rfc3339, wrap
from pdctl.render.wire import text

MOST_SUSPECTS = 8


def change_lines(line: Timeline, look: Look, zone: tzinfo, zone_name: str) -> Iterator[str]:
    """Everything on one screen: the headline, the suspects, the time line, what is ruled out and by what."""
    yield from _headline(line, look, zone, zone_name)
    yield from _suspects(line, look, zone)
    yield from _events(line, look, zone, zone_name)
    yield from _ruled_out(line, look)
    yield from _unseen(line, look)
    for note in line.notes:
        yield from wrap(look.say(note), look.width, f"{look.mark(Mark.INFO)} ")


def _headline(line: Timeline, look: Look, zone: tzinfo, zone_name: str) -> Iterator[str]:
    since = f"{_when(line.since, zone)} {zone_name}"
    said = f"Since {since}: {counted(len(line.events), 'event')}, {counted(len(line.suspects), 'suspect')}"
    if not line.events:
        said = f"Since {since}: nothing changed in what was looked at"
    mark = Mark.WARN if line.suspects else Mark.UNKNOWN if line.unseen else Mark.OK
    yield from wrap(said, look.width, f"{look.mark(mark)} ")


def _suspects(line: Timeline, look: Look, zone: tzinfo) -> Iterator[str]:
    if not line.suspects:
        return
    yield ""
    yield "Suspects, the likeliest first"
    for number, event in enumerate(line.suspects[:MOST_SUSPECTS], 1):
        head = f"{_when(event.when, zone)}  {look.paint(_subject(event, look), 'bold')}: {look.say(event.what)}"
        yield from wrap(head, look.width, f"  {number}. ", "     ")
        yield from wrap(look.say(_because(event)), look.width, "     ")
        if event.ask:
            yield look.paint(f"     {look.say(event.ask)}", "dim")
    if len(line.suspects) > MOST_SUSPECTS:
        yield f"  and {len(line.suspects) - MOST_SUSPECTS} more, marked below"


def short_change_line(line: Timeline, look: Look, zone: tzinfo, zone_name: str) -> str:
    """One line: how many events and suspects since when, what could not be looked at, and the first suspect."""
    unseen = f", {len(line.unseen)} not looked at" if line.unseen else ""
    counts = f"{counted(len(line.events), 'event')}, {counted(len(line.suspects), 'suspect')}{unseen}"
    first = line.suspects[0] if line.suspects else None
    said = f": {_subject(first, look)}: {look.say(first.what)}" if first else ""
    return f"{counts} since {_when(line.since, zone)} {zone_name}{said}"


def _because(event: Event) -> str:
    return "; ".join(part for part in (event.why, event.effect) if part)


def _events(line: Timeline, look: Look, zone: tzinfo, zone_name: str) -> Iterator[str]:
    if not line.events:
        return
    yield ""
    yield f"Time line ({zone_name})"
    width = max(columns(_subject(event, look)) for event in line.events)
    for day, events in groupby(line.events, key=lambda e: e.when.astimezone(zone).date()):
        yield f"  {day}"
        for event in events:
            mark = look.mark(Mark.WARN) if event.weight else look.mark(Mark.UNCHECKED) if event.touched else " "
            head = f"  {mark} {event.when.astimezone(zone):%H:%M:%S}  {pad(_subject(event, look), width)}  "
            yield from wrap(look.say(event.what), look.width, head)


def _ruled_out(line: Timeline, look: Look) -> Iterator[str]:
    rows = [(f"{_subject(e, look)}: {look.say(e.what)}", e.why) for e in line.ruled_out]
    rows += [(f"{look.say(s.subject)}: {look.say(s.what)} unchanged", s.by) for s in line.steady]
    if rows:
        yield ""
        yield f"Ruled out: {len(rows)}"
    for what, why in rows:
        yield from wrap(f"{what}: {look.say(why)}", look.width, f"  {look.mark(Mark.OK)} ", "    ")


def _unseen(line: Timeline, look: Look) -> Iterator[str]:
    if line.unseen:
        yield ""
        yield f"Not looked at: {len(line.unseen)}"
    for subject, what, why in line.unseen:
        yield from wrap(
            f"{look.say(subject)}: {look.say(what)}: {look.say(why)}",
            look.width,
            f"  {look.mark(Mark.UNCHECKED)} ",
            "    ",
        )


def _subject(event: Event, look: Look) -> str:
    return look.say(event.subject.removeprefix("host:"))


def _when(moment: datetime, zone: tzinfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def change_value(line: Timeline) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "since": rfc3339(line.since),
        "until": rfc3339(line.until),
        "suspects": [_event(e) for e in line.suspects],
        "events": [_event(e) for e in line.events],
        "unchanged": [{"subject": text(s.subject), "what": text(s.what), "by": text(s.by)} for s in line.steady],
        "not_looked_at": [dict(zip(("subject", "what", "why"), map(text, row), strict=True)) for row in line.unseen],
        "notes": [text(note) for note in line.notes],
    }


def event_rows(line: Timeline) -> Iterable[dict[str, Any]]:
    """Each event as a row of JSON lines."""
    return ({"row": "event", **_event(e)} for e in line.events)


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": rfc3339(event.when),
        "kind": event.kind,
        "subject": text(event.subject),
        "host": None if event.host is None else text(event.host),
        "what": text(event.what),
        "effect": text(event.effect) or None,
        "suspect": event.weight > 0,
        "weight": event.weight,
        "why": text(event.why) or None,
        "touched_only": event.touched,
        "ask": text(event.ask) or None,
    }
