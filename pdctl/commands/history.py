"""``pdctl history``: what was changed from this machine, by whom, when, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import AsciiOpt, Output, OutputOpt
from pdctl.errors import UsageError

if TYPE_CHECKING:
    from pdctl.execute.journal import Entry
    from pdctl.render.history import Past, Row


def _runs(incomplete: str) -> list[str]:
    from pdctl.errors import PdctlError
    from pdctl.execute import journal

    try:
        return [name for e in journal.read().entries if (name := e.text("run") or "").startswith(incomplete) and name]
    except PdctlError:
        return []


RunArg = Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run, act by act.", autocompletion=_runs)]
ClusterOpt = Annotated[str | None, typer.Option("--cluster", metavar="NAME", help="Only runs of this cluster.")]
CountOpt = Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, help="The newest so many.")]


def history(
    run: RunArg = None,
    cluster: ClusterOpt = None,
    count: CountOpt = 20,
    output: OutputOpt = Output.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Show what pdctl changed from this machine: restarts and script edits, by whom, when, how each ended.

    The journal is ~/.local/state/pdctl/journal.jsonl; each host's syslog has one line for each act as well."""
    from pdctl.execute import journal

    read = journal.read()
    groups = _groups(read.entries)
    runs = [past for entries in groups.values() if (past := _past(entries)) and cluster in (None, past.cluster)]
    if run is not None:
        _one(run, runs, groups, read.unread, output, ascii_only)
    else:
        _all(runs[::-1][:count], read.unread, output, ascii_only)


def _groups(entries: tuple[Entry, ...]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault(entry.text("run") or f"#{number}", []).append(entry)
    return groups


def _past(entries: list[Entry]) -> Past:
    """A run from its entries: a restart's by its own record, any other by its first and last entry."""
    from pdctl.execute.record import runs_of
    from pdctl.render.history import Past

    first, last = entries[0], entries[-1]
    name = first.text("run") or ""
    restarts = runs_of(entries)
    if restarts:
        found = restarts[0]
        end = found.end.value if found.end is not None else "cut off"
        return Past(name, "restart", found.at, found.who, found.cluster, _about(entries), end, found.why, found.forced)
    kind, _, end = last.kind.rpartition("-")
    what = " ".join(t for key in ("act", "subject", "host", "path") if (t := first.text(key)))
    ended = end if end in ("done", "failed", "interrupted") else "cut off"
    return Past(name, kind or last.kind, first.at, first.who, first.text("cluster"), what, ended, last.text("why"))


def _about(entries: list[Entry]) -> str:
    """What a restart was to restart, and how far it came."""
    from pdctl.execute.record import runs_of
    from pdctl.model.plan import State

    run = runs_of(entries)[0]
    if run.plan is None:
        return run.unreadable or ""
    steps = run.plan.restarts
    done = sum(1 for s in steps if s.id in run.results and run.results[s.id].state is State.DONE)
    return f"{done} of {len(steps)} restarted: {', '.join(s.instance or '' for s in steps)}"


def _all(runs: list[Past], unread: int, output: Output, ascii_only: bool) -> None:
    from pdctl import outlet
    from pdctl.render.history import history_lines, history_value, past_value
    from pdctl.render.look import look
    from pdctl.render.wire import dumps

    if output is Output.JSON:
        outlet.write_lines([dumps(history_value(runs, unread), indent=2)])
    elif output is Output.JSONL:
        outlet.write_lines(dumps(past_value(r)) for r in runs)
    elif output is Output.SHORT:
        outlet.write_lines(look(ascii_only).say(f"{r.run} {r.kind} {r.cluster or '-'} {r.end}") for r in runs)
    else:
        outlet.write_lines(history_lines(runs, unread, look(ascii_only)))


def _one(
    name: str, runs: list[Past], groups: dict[str, list[Entry]], unread: int, output: Output, ascii_only: bool
) -> None:
    from pdctl import outlet
    from pdctl.render.history import history_value, row_value, run_lines
    from pdctl.render.look import look
    from pdctl.render.wire import dumps

    past = next((r for r in runs if r.run == name), None)
    if past is None:
        known = ", ".join(r.run for r in runs[::-1][:5]) or "none"
        raise UsageError(f"the journal has no run {name!r}", f"The newest are: {known}.")
    rows = list(_rows(groups[name]))
    if output is Output.JSON:
        value = {**history_value([past], unread), "entries": [row_value(r) for r in rows]}
        outlet.write_lines([dumps(value, indent=2)])
    elif output is Output.JSONL:
        outlet.write_lines(dumps(row_value(r)) for r in rows)
    else:
        outlet.write_lines(run_lines(past, rows, unread, look(ascii_only)))


def _rows(entries: list[Entry]) -> Iterator[Row]:
    from pdctl.render.history import Row

    yield from (Row(e.at, e.who, e.kind, e.fields) for e in entries)
