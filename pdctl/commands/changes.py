"""``pdctl changes``: everything that changed since a moment, over all hosts, on one time line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.aim import handed_out
from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    FailOnOpt,
    FromOpt,
    InstanceArg,
    Output,
    OutputOpt,
    RecordOpt,
    Target,
    TimeoutOpt,
    target,
)
from pdctl.commands.hosting import chosen, judged, refuse_record_of_recording
from pdctl.errors import UsageError
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from pdctl.looks.changes import Looked
    from pdctl.model.answer import Fact, Observation
    from pdctl.model.change_view import Timeline
    from pdctl.model.cluster import Instance
    from pdctl.model.finding import Finding, Report
    from pdctl.model.window import Window

FINDINGS = ("changed-since", "unit-flapping", "engine-crashed")

SinceOpt = Annotated[
    str, typer.Option("--since", metavar="TIME", help='From then on: 12:00, "today 12:00", "yesterday 18:00", 2h.')
]
LogsOpt = Annotated[bool, typer.Option("--logs/--no-logs", help="Look for crashes in the logs as well.")]


def changes(
    instances: InstanceArg = None,
    since: SinceOpt = "24h",
    config: ConfigOpt = None,
    capture: FromOpt = None,
    logs: LogsOpt = True,
    timeout: TimeoutOpt = 30.0,
    record: RecordOpt = None,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Show what changed since a moment, on one time line over all hosts: the suspects on top, what is ruled out below.

    Scripts and backups, watched files and folders, git heads and uncommitted changes, starts of units and processes,
    Python packages of the engines, kernel and drivers, crashes. Times are those of the hosts' own zone."""
    with target(config=config, capture=capture) as what:
        refuse_record_of_recording(what, record)
        wanted = chosen(what.cluster, instances)
        looked = _looked(what, wanted, since, timeout, record, logs)
        line = _timeline(looked, what, wanted)
        report = _report(looked, what, wanted)
    _out(report, line, looked, output, fail_on, ascii_only)


def _looked(
    what: Target, wanted: Sequence[Instance], since: str, timeout: float, record: Path | None, logs: bool
) -> Looked:
    from pdctl.looks.changes import look_recorded, look_since
    from pdctl.model.when import SAID

    try:
        if what.capture is not None:
            return look_recorded(what.capture, since)
        return look_since(what.cluster, wanted, since, timeout, record, logs=logs)
    except ValueError as error:
        raise UsageError(f"--since {since!r}: {error}", f"Write {SAID}.") from None


def _timeline(looked: Looked, what: Target, wanted: Sequence[Instance]) -> Timeline:
    """The time line of these instances and their hosts."""
    from pdctl.checks.changes import timeline_of
    from pdctl.looks.changes import skews

    cluster = replace(what.cluster, instances=tuple(wanted))
    one = looked.clocks.get("")  # a recording's only clock
    clocks = {i.name: looked.clocks.get(i.host or "local", one) for i in wanted}
    zones = {name: clock.zone for name, clock in clocks.items() if clock is not None}
    ahead = dict(skews(looked.clocks))
    line = timeline_of(looked.window, cluster, zones=zones, ahead=ahead)
    names = {i.name for i in wanted}
    events = tuple(e for e in line.events if e.subject in names or e.subject.startswith("host:"))
    unplaced = tuple((name, "its host", why) for name, why in _nothing_of(looked, what, wanted))
    unnamed = tuple(_unnamed(what, wanted))
    unseen = (*line.unseen, *unplaced, *unnamed)
    return replace(line, events=events, unseen=unseen, notes=tuple(_notes(looked, ahead)))


def _unnamed(what: Target, wanted: Sequence[Instance]) -> Iterator[tuple[str, str, str]]:
    """What the inventory does not name cannot be looked at; a recording holds what it holds."""
    for instance in wanted if what.capture is None else ():
        keys = (("script", instance.script), ("unit", instance.unit), ("watch", instance.watch))
        missing = [key for key, value in keys if not value]
        if missing:
            yield instance.name, ", ".join(missing), "the inventory names none"


def _notes(looked: Looked, ahead: dict[str, float]) -> Iterator[str]:
    for name, seconds in ahead.items():
        side = "ahead of" if seconds > 0 else "behind"
        yield f"the clock of {name} is {abs(seconds):.1f} s {side} this machine's: its times are set right by that"
    yield from looked.truncated
    yield from looked.notes


def _report(looked: Looked, what: Target, wanted: Sequence[Instance]) -> Report:
    from pdctl.model.answer import Fact

    blind = tuple(_blind(looked, what, wanted))
    report = judged(looked.window, what.cluster, (), only=FINDINGS, needs=(Fact.PROCESSES,), why={}, also=blind)
    names = {i.name for i in wanted}
    mine = tuple(f for f in report.findings if f.subject in names or f.subject.startswith("host:"))
    ruled_out = tuple(r for r in report.ruled_out if r.what != "changed-since" and r.subject in names)
    return replace(report, findings=mine, ruled_out=ruled_out)


def _blind(looked: Looked, what: Target, wanted: Sequence[Instance]) -> Iterator[Finding]:
    """A finding for each instance of which what the inventory names could not be looked at, or nothing at all."""
    from pdctl.checks.host_seeing import not_read, words

    nothing = dict(_nothing_of(looked, what, wanted))
    for instance in wanted:
        whole = f"what changed on {instance.name}"
        missed = _named_and_missed(looked.window, instance)
        why: dict[str, list[str]] = {}
        for row in missed:
            detail = row.missed.detail if row.missed is not None else None
            why.setdefault(detail or words(row), []).append(row.fact.value)
        if instance.name in nothing:
            yield not_read(instance, whole, nothing[instance.name])
        elif missed:
            said = [f"{', '.join(dict.fromkeys(facts))}: {reason}" for reason, facts in why.items()]
            yield not_read(instance, whole, "; ".join(said), missed[0])


def _nothing_of(looked: Looked, what: Target, wanted: Sequence[Instance]) -> Iterator[tuple[str, str]]:
    """Instances of which nothing was seen that tells what changed, and why."""
    from pdctl.checks.host_seeing import was_seen

    absence = "the recording holds nothing that tells" if what.capture is not None else "nothing was seen of it"
    for instance in wanted:
        rows = [row for fact in told_by() for row in looked.window.timeline(instance.name, fact)]
        if instance.name in looked.unplaced:
            yield instance.name, looked.unplaced[instance.name]
        elif not rows and not any(was_seen(looked.window, instance, fact) for fact in told_by()):
            yield instance.name, absence


def told_by() -> tuple[Fact, ...]:
    """What changes are told by."""
    from pdctl.model.answer import Fact

    return (Fact.SCRIPT, Fact.UNIT, Fact.FILE, Fact.LOG, Fact.PROCESSES)


def _named_and_missed(window: Window, instance: Instance) -> list[Observation[object]]:
    """What the inventory names of the instance and was not read at last. Backups, checkouts and packages are a help."""
    named = (None, instance.script, instance.log, *instance.watch)
    rows = (row for fact in told_by() for row in window.timeline(instance.name, fact))
    newest = {(row.fact, row.more.get("path")): row for row in rows}
    return [row for (_, path), row in newest.items() if path in named and row.missed is not None]


def _zone(looked: Looked) -> tuple[tzinfo, str]:
    """The zone that all hosts share; UTC where they do not."""
    zones = {clock.name: clock.zone for clock in looked.clocks.values()}
    if len(zones) == 1:
        name, zone = next(iter(zones.items()))
        return zone, name
    return UTC, "UTC"


def _out(
    report: Report, line: Timeline, looked: Looked, output: Output, fail_on: FailOn, ascii_only: bool
) -> None:  # fmt: skip
    from pdctl import exits, outlet

    report = handed_out(report)
    outlet.write_lines(_lines(report, line, looked, output, ascii_only))
    raise typer.Exit(exits.exit_of(report.status, fail_on))


def _lines(report: Report, line: Timeline, looked: Looked, output: Output, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.changes import change_lines, change_value, event_rows, short_change_line
    from pdctl.render.look import look
    from pdctl.render.wire import dumps, report_jsonl, report_value

    if output is Output.HUMAN:
        yield from change_lines(line, look(ascii_only), *_zone(looked))
        yield from _findings(report, ascii_only)
    elif output is Output.SHORT:
        yield short_change_line(line, look(ascii_only), *_zone(looked))
    elif output is Output.JSONL:
        yield from (dumps(row) for row in event_rows(line))
        yield report_jsonl(report)
    else:
        yield dumps({**report_value(report), "changes": change_value(line)}, indent=2)


def _findings(report: Report, ascii_only: bool) -> Iterator[str]:
    """What is wrong by itself, not only changed: a unit that flaps, an engine that crashed."""
    from pdctl.render.human import finding_lines
    from pdctl.render.look import look

    for finding in report.findings:
        if finding.name != "changed-since":
            yield ""
            yield from finding_lines(finding, look(ascii_only))
