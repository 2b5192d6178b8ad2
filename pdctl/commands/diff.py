"""``pdctl diff``: a serve script against its backups, another one, the running process, the other role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pdctl.commands.aim import handed_out
from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    FailOnOpt,
    FromOpt,
    Output,
    OutputOpt,
    RecordOpt,
    Target,
    TimeoutOpt,
    inventory_names,
    target,
)
from pdctl.commands.hosting import chosen, judged, refuse_record_of_recording
from pdctl.errors import UsageError
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from pdctl.looks.scripts import Options, Seen
    from pdctl.model.cluster import Cluster, Instance
    from pdctl.model.finding import Report
    from pdctl.model.script_view import Shown

FINDINGS = ("script-drift", "live-drift", "role-mismatch")
NO_SCRIPT = 'script = "/opt/serve/prefill.sh" in its [[instance]], or compare files: pdctl diff HOST:PATH HOST:PATH.'
TROUBLE = 2  # diff's own exit status where a file cannot be read

WhatArg = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[INSTANCE | FILE]...",
        help="One or two instances, or two files: PATH or HOST:PATH.",
        autocompletion=inventory_names,
    ),
]
ListOpt = Annotated[bool, typer.Option("--list", help="List the backups with the time each stands for.")]
AtOpt = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help='Against the newest backup before: 12:00, "yesterday 18:00", RFC 3339.'),
]
AgainstOpt = Annotated[str | None, typer.Option("--against", metavar="BACKUP", help="Against this backup, by name.")]
TextOpt = Annotated[bool, typer.Option("--text", help="The text itself as well, as a unified diff.")]
LiveOpt = Annotated[bool, typer.Option("--live/--no-live", help="Compare the running process as well.")]
ExitOpt = Annotated[
    bool, typer.Option("--exit-code", help="Exit as diff does: 0 the same, 1 different, 2 could not be read.")
]


def diff(
    what: WhatArg = None,
    config: ConfigOpt = None,
    capture: FromOpt = None,
    listing: ListOpt = False,
    at: AtOpt = None,
    against: AgainstOpt = None,
    text: TextOpt = False,
    live: LiveOpt = True,
    exit_code: ExitOpt = False,
    timeout: TimeoutOpt = 20.0,
    record: RecordOpt = None,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Compare serve scripts: with their backups, with what runs now, with one another.

    Without a name: every instance's script against its backup and its process, and prefill against decode where they
    must agree. With two instances: one against the other. With two files, PATH or HOST:PATH: these. Differences are
    those of meaning: variables and flags; order, quoting and comments do not count."""
    from pdctl.looks.scripts import Options

    options = Options(at, against, text, live, listing)
    names = what or []
    if len(names) == 2 and any(_is_file(name) for name in names):
        _files(names, config, options, timeout, exit_code, output, ascii_only)
    with target(config=config, capture=capture) as looked:
        refuse_record_of_recording(looked, record)
        wanted = chosen(looked.cluster, names)
        if len(names) > 2:
            raise UsageError("diff compares one instance with its backups, or two with each other")
        wanted = _with_script(looked, wanted, names)
        seen = _seen(looked, wanted, options, timeout, record)
        _refuse_nothing(looked, seen)
        report = _report(seen, looked.cluster, wanted, options)
        report = report if names else _with_left_out(report, looked, wanted)
        if len(names) == 2:
            from pdctl.looks.scripts import pair_shown

            shown = pair_shown(seen, looked.cluster, wanted, options)
        else:
            from pdctl.looks.scripts import own_shown

            shown = own_shown(seen, looked.cluster, wanted, options)
    _out(report, shown, seen, exit_code, output, fail_on, ascii_only)


def _with_script(looked: Target, wanted: Sequence[Instance], names: Sequence[str]) -> tuple[Instance, ...]:
    """The instances whose script the inventory names. Raises UsageError where one that was asked for has none, or
    none has; a recording holds what it holds."""
    if looked.capture is not None:
        return tuple(wanted)
    without = [i.name for i in wanted if not i.script]
    if without and (names or len(without) == len(wanted)):
        raise UsageError(f"the inventory names no script of {', '.join(without)}", NO_SCRIPT)
    return tuple(i for i in wanted if i.script)


def _refuse_nothing(looked: Target, seen: Seen) -> None:
    from pdctl.model.answer import Fact

    if looked.capture is not None and not seen.window.subjects(Fact.SCRIPT):
        raise UsageError(f"{looked.capture.source}: the recording holds no serve script")


def _is_file(name: str) -> bool:
    return "/" in name or ":" in name or Path(name).is_file()


def _seen(
    looked: Target, wanted: Sequence[Instance], options: Options, timeout: float, record: Path | None
) -> Seen:  # fmt: skip
    from pdctl.looks.scripts import look_now, look_recorded

    if looked.capture is not None:
        return look_recorded(looked.capture, wanted)
    return look_now(looked.cluster, wanted, options, timeout, record)


def _report(seen: Seen, cluster: Cluster, wanted: Sequence[Instance], options: Options) -> Report:
    """What is judged of it. The baseline that was asked for is the one the script is judged against."""
    from pdctl.looks.scripts import judged_against
    from pdctl.model.answer import Fact

    with_script = [i for i in wanted if i.script or seen.window.asked(i.name, Fact.SCRIPT)]
    report = judged(
        seen.window, cluster, with_script, only=FINDINGS, needs=(Fact.SCRIPT,), why=_why(seen, with_script)
    )  # fmt: skip
    return judged_against(report, seen, cluster, wanted, options)


def _with_left_out(report: Report, looked: Target, wanted: Sequence[Instance]) -> Report:
    """In a whole look, the instances whose script is not named are among what was not checked."""
    from pdctl.model.finding import Unchecked

    names = {i.name for i in wanted}
    left = [i.name for i in looked.cluster.instances if i.name not in names and not i.script]
    if looked.capture is not None:
        return report
    rows = (Unchecked("its serve script", name, "the inventory names none") for name in left)
    return replace(report, unchecked=(*report.unchecked, *rows))


def _why(seen: Seen, wanted: Sequence[Instance]) -> dict[str, str]:
    """Why a script was not read, in the words of its host."""
    from pdctl.model.answer import Fact

    out = {}
    for instance in wanted:
        missed = seen.window.missed(instance.name, Fact.SCRIPT)
        if missed and (why := missed[-1].missed) is not None:
            out[instance.name] = why.detail or str(why.why)
    return {**out, **seen.unplaced}


def _files(
    names: Sequence[str], config: Path | None, options: Options, timeout: float, exit_code: bool, output: Output,
    ascii_only: bool,
) -> NoReturn:  # fmt: skip
    """Two files anywhere. An inventory is only needed for the hosts it names."""
    from pdctl.commands.common import find_inventory
    from pdctl.inventory.toml import read_cluster
    from pdctl.looks.scripts import files_shown
    from pdctl.model.cluster import Cluster

    try:
        cluster = read_cluster(*find_inventory(config))
    except UsageError:
        if config is not None:
            raise
        cluster = Cluster("files", ())
    shown = files_shown(cluster, names, options, timeout)
    _write(shown, None, output, ascii_only)
    raise typer.Exit(1 if exit_code and _differs(shown, options) else 0)


def _differs(shown: Shown, options: Options) -> bool:
    """Whether anything differs: in meaning, or in the text where that was asked for."""
    return any(d.rows or (options.text and not d.is_same_text) for d in shown.diffs) or any(
        row.agrees is False for rows in shown.settings.values() for row in rows
    )


def _out(
    report: Report, shown: Shown, seen: Seen, exit_code: bool, output: Output, fail_on: FailOn, ascii_only: bool
) -> NoReturn:  # fmt: skip
    from pdctl import exits, outlet
    from pdctl.model.finding import Status

    for note in seen.notes:
        outlet.say(f"pdctl: {note}")
    report = handed_out(report)
    _write(shown, report, output, ascii_only)
    if not exit_code:
        raise typer.Exit(exits.exit_of(report.status, fail_on))
    if report.status is Status.UNKNOWN:
        raise typer.Exit(TROUBLE)
    raise typer.Exit(1 if any(d.rows for d in shown.diffs) or report.findings else 0)


def _write(shown: Shown, report: Report | None, output: Output, ascii_only: bool) -> None:
    from pdctl import outlet
    from pdctl.render.diff import shown_value
    from pdctl.render.look import look
    from pdctl.render.short import short_line
    from pdctl.render.wire import dumps, report_value

    if output is Output.HUMAN:
        outlet.write_lines(_lines(shown, report, ascii_only))
    elif output is Output.SHORT:
        as_shown = look(ascii_only)
        outlet.write_lines([short_line(report, as_shown)] if report else _short(shown))
    else:
        value = {**(report_value(report) if report else {"schema": "pdctl.diff/1"}), **shown_value(shown)}
        outlet.write_lines([dumps(value, indent=None if output is Output.JSONL else 2)])


def _short(shown: Shown) -> Iterator[str]:
    for row in shown.diffs:
        yield f"{'differs' if row.rows else 'same'}: {len(row.rows)} differences of meaning"


def _lines(shown: Shown, report: Report | None, ascii_only: bool) -> Iterator[str]:
    from pdctl.model.finding import by_weight
    from pdctl.render.diff import shown_lines
    from pdctl.render.human import finding_lines
    from pdctl.render.look import look
    from pdctl.render.scope import ruled_out_lines, unchecked_lines

    as_shown = look(ascii_only)
    empty = True
    for line in shown_lines(shown, as_shown):
        empty = False
        yield line
    if report is None:
        return
    for finding in by_weight(f for f in report.findings if f.muted is None):
        if not empty:
            yield ""
        empty = False
        yield from finding_lines(finding, as_shown)
    yield from ruled_out_lines(report.ruled_out, as_shown)
    yield from unchecked_lines(report.unchecked, as_shown)
