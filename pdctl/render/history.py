"""The journal for people and programs: one line a run, and one run act by act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pdctl import __version__
from pdctl.render.grid import grid
from pdctl.render.look import Look, Mark
from pdctl.render.text import moment, rfc3339, wrap
from pdctl.render.wire import plain, text

SCHEMA = "pdctl.history/1"
NOT_SHOWN = ("run", "cluster", "plan", "result", "pid")


@dataclass(frozen=True, slots=True)
class Past:
    """One run: ``kind`` is what it was (restart, script), ``what`` it was about, ``end`` how it ended ("cut off" for
    one without an end: killed, or still under way), ``forced`` the rules it overrode."""

    run: str
    kind: str
    at: datetime
    who: str
    cluster: str | None
    what: str
    end: str
    why: str | None = None
    forced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a run."""

    at: datetime
    who: str
    kind: str
    fields: Mapping[str, object]


def history_lines(runs: Sequence[Past], unread: int, look: Look) -> Iterator[str]:
    """The runs, newest first."""
    if not runs:
        yield from wrap("Nothing was changed from this machine by this user, as far as its journal says.", look.width)
    rows = [
        (
            moment(r.at), look.say(r.run), look.say(r.who), look.say(r.cluster or ""), look.say(_ended(r)),
            look.say(r.what),
        )
        for r in runs
    ]  # fmt: skip
    if rows:
        yield from grid(("when", "run", "who", "cluster", "end", "what"), rows, look, indent="")
    yield from _unread(unread, look)


def _ended(run: Past) -> str:
    return f"{run.end}, forced" if run.forced else run.end


def run_lines(run: Past, rows: Sequence[Row], unread: int, look: Look) -> Iterator[str]:
    """One run, act by act."""
    where = f" of {run.cluster}" if run.cluster else ""
    yield from wrap(look.say(f"{run.kind}{where}, run {run.run}, by {run.who}: {run.end}"), look.width)
    yield from wrap(look.say(run.what), look.width, "  ")
    if run.why:
        yield from wrap(look.say(run.why), look.width, "  ")
    for forced in run.forced:
        yield from wrap(look.say(f"overridden: {forced}"), look.width, f"  {look.mark(Mark.WARN)} ", "    ")
    yield ""
    for row in rows:
        head = f"{moment(row.at)}  {row.kind}  "
        yield from wrap(look.say(_told(row)), look.width, look.say(head), "    ")
    yield from _unread(unread, look)


def _told(row: Row) -> str:
    parts = [
        f"{key}={_value(value)}" for key, value in row.fields.items() if key not in NOT_SHOWN and value not in _EMPTY
    ]
    result = row.fields.get("result")
    if isinstance(result, Mapping):
        parts += [f"{key}={_value(result[key])}" for key in ("state", "took", "detail", "after") if result.get(key)]
    return " ".join(parts)


_EMPTY: tuple[object, ...] = (None, "", [], {})


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{k}:{_value(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list | tuple):
        return "; ".join(_value(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unread(unread: int, look: Look) -> Iterator[str]:
    if unread:
        yield from wrap(
            f"{unread} lines of the journal could not be read", look.width, f"{look.mark(Mark.WARN)} ", "  "
        )


def history_value(runs: Sequence[Past], unread: int) -> dict[str, Any]:
    """All runs as one document."""
    return {"schema": SCHEMA, "pdctl": __version__, "runs": [past_value(r) for r in runs], "unread": unread}


def past_value(run: Past) -> dict[str, Any]:
    return {
        "run": text(run.run),
        "kind": text(run.kind),
        "at": rfc3339(run.at),
        "who": text(run.who),
        "cluster": None if run.cluster is None else text(run.cluster),
        "what": text(run.what),
        "end": text(run.end),
        "why": None if run.why is None else text(run.why),
        "forced": [text(row) for row in run.forced],
    }


def row_value(row: Row) -> dict[str, Any]:
    """One entry."""
    return {"at": rfc3339(row.at), "who": text(row.who), "kind": text(row.kind), **plain(row.fields)}
