"""What is muted, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pdctl.model.mute import Lifted, Mute
from pdctl.render.look import Look, Mark
from pdctl.render.text import moment, rfc3339, span, wrap
from pdctl.render.wire import dumps, number, text

SCHEMA = "pdctl.mutes/1"


def mutes_lines(
    rows: Sequence[Mute], cluster: str, now: datetime, look: Look, lifted: Sequence[Lifted] = ()
) -> Iterator[str]:
    """Each mute: of what, for how long yet, by whom and why, what would lift it; then what lifted itself, and why."""
    if not rows:
        yield f"Nothing is muted on {look.say(cluster)}."
    for row in rows:
        left = span((row.until - now).total_seconds())
        head = f"{row.finding} on {row.on}: for {left} yet, until {moment(row.until)}"
        yield from wrap(look.say(head), look.width, f"{look.mark(Mark.UNCHECKED)} ")
        yield from wrap(look.say(f"by {row.who}: {row.why}"), look.width, "    ")
        yield from wrap(look.say(_lifts(row)), look.width, "    ")
    for each in lifted:
        yield from wrap(look.say(str(each)), look.width, f"{look.mark(Mark.WARN)} ")


def _lifts(row: Mute) -> str:
    where = " (shared, beside the inventory)" if row.shared else ""
    if row.sticky:
        return f"stays when it gets worse{where}"
    if row.was is None:
        return f"not seen yet since{where}"
    counts = [p.count for p in row.was if p.count is not None]
    more = f", counting {max(counts):g}" if counts else ""
    return f"lifts when it gets worse than {row.was[0].severity}{more}{where}"


def mutes_json(rows: Sequence[Mute], cluster: str, lifted: Sequence[Lifted] = ()) -> str:
    """One JSON document, schema ``pdctl.mutes/1``. ``lifted`` are those that lifted themselves before their time."""
    value = {
        "schema": SCHEMA,
        "cluster": text(cluster),
        "mutes": [_value(row) for row in rows],
        "lifted": [{**_value(each.mute), "lifted": text(each.why)} for each in lifted],
    }
    return dumps(value, indent=2)


def mutes_jsonl(rows: Sequence[Mute]) -> str:
    """One mute a line."""
    return "\n".join(dumps(_value(row)) for row in rows)


def _value(row: Mute) -> dict[str, Any]:
    return {
        "finding": row.finding,
        "on": text(row.on),
        "who": text(row.who),
        "why": text(row.why),
        "made": rfc3339(row.made),
        "until": rfc3339(row.until),
        "sticky": row.sticky,
        "shared": row.shared,
        "was": None if row.was is None else [
            {"severity": p.severity, "confidence": p.confidence, "rank": p.rank,
             "count": None if p.count is None else number(p.count)} for p in row.was
        ],
    }  # fmt: skip
