"""``pdctl logs``: events of engine and router logs, shown, filtered and summed up."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    FromOpt,
    InstanceArg,
    PrefillOpt,
    RouterOpt,
    Target,
    target,
)
from pdctl.commands.logs_page import Form, Page
from pdctl.errors import UsageError
from pdctl.exits import OF_STATUS
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.events import Kind
from pdctl.model.log_filter import Moment, Wanted, read_kinds, read_moment, read_rank
from pdctl.model.rank import WHOLE, Rank

if TYPE_CHECKING:
    from pdctl.logbook.remote import LogHosts
    from pdctl.logbook.sources import Source

NEWEST = 200
NO_LOG = """Name the files: pdctl logs --file PATH
or say in the inventory where they are: log = "/var/log/sglang/prefill.log" in [[instance]]."""


def _moment(value: str) -> Moment:
    try:
        return read_moment(value)
    except ValueError:
        raise typer.BadParameter(f"{value!r} is no time; write 10m, 12:00, 2026-11-12 03:14 or RFC 3339") from None


def _rank(value: str) -> Rank:
    try:
        return read_rank(value)
    except ValueError:
        raise typer.BadParameter(f"{value!r} is no rank; write dp2, tp0 or dp1,tp3") from None


def _kinds(values: Sequence[str] | None) -> frozenset[Kind]:
    try:
        return read_kinds(values or ())
    except ValueError as error:
        raise UsageError(f"no event is of kind {error}", "Kinds: " + ", ".join(kind.value for kind in Kind)) from None


FileOpt = Annotated[list[Path] | None, typer.Option("--file", metavar="PATH", help="A log file; repeatable, .gz too.")]
RoleOpt = Annotated[Role | None, typer.Option("--role", help="With --file: whose log it is; told by its shape if not.")]
KindOpt = Annotated[list[str] | None, typer.Option("--kind", metavar="KIND,...", help="Only events of these kinds.")]
RankOpt = Annotated[
    Rank | None, typer.Option("--rank", metavar="RANK", parser=_rank, help="Only this rank: dp2 or dp1,tp3.")
]
GrepOpt = Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only records that hold the text, in any case.")]
SinceOpt = Annotated[
    Any, typer.Option("--since", metavar="TIME", parser=_moment, help="From then on: 10m (ago), 12:00, RFC 3339.")
]
UntilOpt = Annotated[Any, typer.Option("--until", metavar="TIME", parser=_moment, help="Up to then, written alike.")]
RidOpt = Annotated[str | None, typer.Option("--rid", metavar="ID", help="Only records about this request.")]
RoomOpt = Annotated[str | None, typer.Option("--room", metavar="ROOM", help="Only records about this bootstrap room.")]
FailuresOpt = Annotated[bool, typer.Option("--failures", help="Failed requests: by room, not by line.")]
SlowOpt = Annotated[int, typer.Option("--slow", metavar="N", min=0, help="The N requests that took longest.")]
LatencyOpt = Annotated[bool, typer.Option("--latency", help="Percentiles of the router's completed requests.")]
FollowOpt = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, over all hosts.")]
LimitOpt = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="The newest N at most; 0 for all.")]
FormOpt = Annotated[Form, typer.Option("--output", "-o", help="The form of the output.")]


def logs(
    instances: InstanceArg = None,
    files: FileOpt = None,
    role: RoleOpt = None,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    capture: FromOpt = None,
    kinds: KindOpt = None,
    rank: RankOpt = None,
    grep: GrepOpt = "",
    since: SinceOpt = None,
    until: UntilOpt = None,
    rid: RidOpt = None,
    room: RoomOpt = None,
    failures: FailuresOpt = False,
    slow: SlowOpt = 0,
    latency: LatencyOpt = False,
    follow: FollowOpt = False,
    limit: LimitOpt = NEWEST,
    form: FormOpt = Form.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Show events of engine and router logs on one time line, or sum them up.

    Reads the `log` of each instance in the inventory, here or on its host over SSH, else the journal of its `unit`; or
    the files given, or a recording's logs. Batch lines, failures,
    crashes, watchdogs, HTTP accesses, and the router's requests are told apart whatever the release's wording."""
    from pdctl.logbook.entries import wanted_of

    _check_views(failures, slow, latency, follow, form, capture)
    wanted = Wanted(_kinds(kinds), rank or WHOLE, grep, rid, room)
    with ExitStack() as stack:
        hosts = None
        if files:
            sources = _of_files(files, role, instances, follow)
        else:
            named = {"config": config, "prefill": prefill, "decode": decode, "router": router, "capture": capture}
            what = stack.enter_context(target(**named))  # type: ignore[arg-type]
            hosts = None if what.capture is not None else _hosts_of(what.cluster, stack)
            sources = _of_cluster(what, instances or (), follow, since, hosts)
        each = [wanted_of(source, wanted, since, until) for source in sources]
        page = Page(sources, each, form, ascii_only, hosts)
        if failures:
            page.failures(limit)
        elif slow:
            page.slow(slow)
        elif latency:
            page.latency()
        else:
            page.events(limit)
            if follow:
                page.follow()
        if hosts is not None and hosts.unknown:
            raise typer.Exit(OF_STATUS["unknown"])


def _check_views(failures: bool, slow: int, latency: bool, follow: bool, form: Form, capture: Path | None) -> None:
    views = (("--failures", failures), ("--slow", slow), ("--latency", latency))
    given = [name for name, is_given in views if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are views of their own", "Ask for one at a time.")
    if follow and capture is not None:
        raise UsageError("a recording does not grow: --follow and --from do not go together")
    if follow and (given or form is Form.JSON):
        raise UsageError("--follow shows events as they come", "Use -o human or -o jsonl, and no summary.")


def _of_files(files: Sequence[Path], role: Role | None, names: Sequence[str] | None, follow: bool) -> list[Source]:
    from pdctl.logbook.sources import of_files
    from pdctl.reach.clock import SystemClock

    if names:
        raise UsageError(f"{names[0]!r} names an instance of the inventory, and --file a file", "Give one of them.")
    return of_files(files, role, SystemClock(), following=follow)


def _hosts_of(cluster: Cluster, stack: ExitStack) -> LogHosts:
    from pdctl.logbook.remote import LogHosts
    from pdctl.reach.clock import SystemClock

    return stack.enter_context(LogHosts(cluster, SystemClock()))


def _of_cluster(
    what: Target, names: Sequence[str], follow: bool, since: Moment | None, hosts: LogHosts | None
) -> list[Source]:
    from pdctl import outlet
    from pdctl.logbook.sources import of_capture, of_instances
    from pdctl.reach.clock import SystemClock

    chosen = _chosen(what.cluster, names)
    if what.capture is not None:
        sources, notes = of_capture(what.capture.answers(), chosen), list[str]()
    else:
        assert hosts is not None
        away = [i for i in chosen if (i.host or i.unit) and not hosts.is_here(i)]
        sources, notes = of_instances([i for i in chosen if i not in away], SystemClock(), following=follow)
        sources += hosts.sources(away, since)
        notes += [*hosts.notes, *(f"{name}: unknown: {why}" for name, why in hosts.unknown.items())]
        hosts.notes.clear()
    for note in notes:
        outlet.say(f"pdctl: {note}")
    if not sources and hosts is not None and hosts.unknown:
        raise typer.Exit(OF_STATUS["unknown"])
    if not sources:
        raise UsageError("no log to read", NO_LOG)
    return sources


def _chosen(cluster: Cluster, names: Sequence[str]) -> list[Instance]:
    known = [instance.name for instance in cluster.instances]
    for name in names:
        if name not in known:
            raise UsageError(f"{cluster.name} has no instance {name!r}", f"It has: {', '.join(known)}.")
    return [i for i in cluster.instances if not names or i.name in names]
