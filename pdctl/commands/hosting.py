"""What the commands that look at hosts share: which instances, how they are judged, and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from pdctl.commands.aim import handed_out
from pdctl.commands.common import Output, Target
from pdctl.errors import UsageError

if TYPE_CHECKING:
    from pdctl.exits import FailOn
    from pdctl.model.answer import Fact
    from pdctl.model.cluster import Cluster, Instance
    from pdctl.model.finding import Finding, Report
    from pdctl.model.window import Window
    from pdctl.render.look import Look

LEFT_OUT = "left out by --only or --skip"


def chosen(cluster: Cluster, names: Sequence[str] | None) -> tuple[Instance, ...]:
    """The instances named, all where none is. Raises UsageError for a name there is not."""
    known = [instance.name for instance in cluster.instances]
    for name in names or ():
        if name not in known:
            raise UsageError(f"{cluster.name} has no instance {name!r}", f"It has: {', '.join(known)}.")
    return tuple(i for i in cluster.instances if not names or i.name in names)


def refuse_record_of_recording(what: Target, record: object) -> None:
    if what.capture is not None and record is not None:
        raise UsageError("--record makes a recording, and --from is one", "Give one of them.")


def judged(
    window: Window,
    cluster: Cluster,
    instances: Sequence[Instance],
    *,
    only: Iterable[str],
    needs: Sequence[Fact],
    why: Mapping[str, str],
    also: Iterable[Finding] = (),
) -> Report:
    """The report on what this command looks at: its own findings, and one for each instance it could not see. What
    other commands look at is not listed as unchecked; an instance of which a recording holds nothing is, and where it
    holds nothing of any, nothing can be told. ``also`` are findings of the command's own."""
    from pdctl import outlet
    from pdctl.checks import judge
    from pdctl.checks.host_seeing import not_read, unseen, was_seen
    from pdctl.checkup.mutes import applied
    from pdctl.model.finding import Unchecked, by_weight

    report = judge(window, cluster, only=tuple(only))
    missing = [*unseen(window, instances, needs, dict(why)), *also]
    absence = "none was seen" if window.live else "the recording holds none"
    told = {finding.subject for finding in missing}
    absent = {i: fact for i in instances for fact in needs if i.name not in told and not was_seen(window, i, fact)}
    if absent and len(absent) == len(instances):
        missing = [not_read(i, f"the {fact.value} of {i.name}", absence) for i, fact in absent.items()]
        absent = {}
    names = {instance.name for instance in instances}
    report = replace(
        report,
        findings=tuple(by_weight([*report.findings, *missing])),
        unchecked=(
            *(u for u in report.unchecked if u.why != LEFT_OUT),
            *(Unchecked(fact.value, i.name, absence) for i, fact in absent.items()),
        ),
        instances=tuple(i for i in report.instances if i.name in names),
    )
    report, said = applied(report, cluster)
    for note in said:
        outlet.say(f"pdctl: {note}")
    return report


def with_details(report: Report, details: Mapping[str, Mapping[str, Any]]) -> Report:
    """The report with what was seen of each instance beside it, for JSON. Whether it was seen is whether its host was:
    HTTP is not what these commands ask."""
    rows = (replace(i, details={**i.details, **details.get(i.name, {})}) for i in report.instances)
    return replace(report, instances=tuple(rows))


def finish(
    report: Report,
    lines: Callable[[Look], Iterator[str]],
    output: Output,
    *,
    ascii_only: bool,
    fail_on: FailOn,
    notes: Iterable[str] = (),
    alone: bool = False,
) -> NoReturn:
    """Writes what was seen and then what is wrong with it, and ends with the status that was judged. ``alone``: what
    was seen is for another program, so what is wrong goes to stderr, a line a finding."""
    from pdctl import exits, outlet
    from pdctl.commands.common import emit
    from pdctl.render.look import look

    for note in notes:
        outlet.say(f"pdctl: {note}")
    if output is not Output.HUMAN:
        emit(report, output, ascii_only=ascii_only, fail_on=fail_on)
    report = handed_out(report)
    as_shown = look(ascii_only)
    if alone:
        outlet.write_lines(lines(as_shown))
        for finding in report.findings:
            outlet.say(f"pdctl: {finding.name} at {finding.subject}: {finding.summary}")
    else:
        outlet.write_lines(_all_lines(report, lines, as_shown))
    raise typer.Exit(exits.exit_of(report.status, fail_on))


def _all_lines(report: Report, lines: Callable[[Look], Iterator[str]], look: Look) -> Iterator[str]:
    from pdctl.model.finding import by_weight
    from pdctl.render.human import finding_lines, muted_lines
    from pdctl.render.scope import ruled_out_lines, unchecked_lines

    yield from lines(look)
    for finding in by_weight(f for f in report.findings if f.muted is None):
        yield ""
        yield from finding_lines(finding, look)
    yield from muted_lines(report, look)
    yield from ruled_out_lines(report.ruled_out, look)
    yield from unchecked_lines(report.unchecked, look)
