"""``pdctl logs``: events of engine and router logs, shown, filtered and summed up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from enum import StrEnum
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
from pdctl.errors import UsageError
from pdctl.exits import OF_STATUS
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.events import Kind
from pdctl.model.log_filter import Moment, Wanted, read_kinds, read_moment, read_rank
from pdctl.model.rank import WHOLE, Rank

if TYPE_CHECKING:
    from pdctl.logbook.entries import Entry
    from pdctl.logbook.remote import LogHosts
    from pdctl.logbook.sources import Source

SCHEMA = "pdctl.logs/1"
NEWEST = 200
NO_LOG = """Name the files: pdctl logs --file PATH
or say in the inventory where they are: log = "/var/log/sglang/prefill.log" in [[instance]]."""


class Form(StrEnum):
    """The forms of the output."""

    HUMAN = "human"
    JSON = "json"
    JSONL = "jsonl"


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
        page = _Page(sources, each, form, ascii_only, hosts)
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


# --- the output --------------------------------------------------------------------------------------------------


class _Page:
    """Writes what the logs hold, in the form asked for."""

    def __init__(
        self, sources: list[Source], wanted: list[Wanted], form: Form, ascii_only: bool, hosts: LogHosts | None = None
    ) -> None:
        from pdctl.render.look import look

        self._hosts = hosts

        self._sources, self._wanted, self._form = sources, wanted, form
        self._look = look(ascii_only)
        self._name_width = max(len(s.name) for s in sources) if len(sources) > 1 else 0

    def events(self, limit: int) -> None:
        from pdctl.logbook.entries import newest

        kept, before = newest(self._all(), limit)
        self._write("events", (self._event(entry) for entry in kept), omitted=before)

    def follow(self) -> None:
        from pdctl.logbook.entries import followed
        from pdctl.reach.clock import SystemClock

        fresh_of = None
        if self._hosts is not None and any(source.follow_by for source in self._sources):
            self._hosts.follow(self._sources)
            fresh_of = self._fresh
        with closing(followed(self._sources, self._wanted, SystemClock(), fresh_of)) as stream:
            self._lines(self._event(entry) for entry in stream)

    def _fresh(self) -> dict[str, list[bytes]] | None:
        """What came from hosts; what there is to say about them is said at once."""
        from pdctl import outlet

        assert self._hosts is not None
        lines = self._hosts.fresh()
        while self._hosts.notes:
            outlet.say(f"pdctl: {self._hosts.notes.pop(0)}")
        return lines

    def failures(self, limit: int) -> None:
        from pdctl.logbook.sums import failures
        from pdctl.render.events import failure_line, failure_value

        found = failures(self._all())
        kept = found[-limit:] if limit else found
        rows = (
            (failure_line(self._look, f.failure, f.sources), failure_value(f.failure, f.sources, f.entry.utc))
            for f in kept
        )
        self._write("failures", rows, omitted=len(found) - len(kept), none="no failed request in the log")

    def slow(self, count: int) -> None:
        from pdctl.logbook.sums import slow_entries
        from pdctl.render.events import event_value, slow_line

        rows = (
            (slow_line(self._look, e.event, e.clock, e.source), event_value(e.event, e.source, e.utc))
            for e in slow_entries(self._all(), count)
        )
        self._write("slow", rows, none="no request with a latency in the log")

    def latency(self) -> None:
        from pdctl.logbook.sums import Tally
        from pdctl.render.events import ends_line, ends_value, latency_lines, spread_value

        tally = Tally()
        for entry in self._all():
            tally.add(entry)
        spreads = [(s.source, s.path, s.latencies) for s in tally.spreads()]
        ends = [(name, tally.ends(name), tally.endless(name)) for name in tally.routers()]
        lines = [*latency_lines(spreads, self._look), *(ends_line(self._look, *row) for row in ends)]
        values = [*(spread_value(*row) for row in spreads), *(ends_value(*row) for row in ends)]
        if self._form is Form.HUMAN:
            self._lines((line, {}) for line in lines)
        else:
            self._write("latency", (("", value) for value in values))

    def _all(self) -> Iterator[Entry]:
        from pdctl.logbook.entries import entries, on_one_line

        return on_one_line(entries(s, w) for s, w in zip(self._sources, self._wanted, strict=True))

    def _event(self, entry: Entry) -> tuple[str, dict[str, Any]]:
        from pdctl.facts.log_lines import message_of
        from pdctl.render.events import event_line, event_value

        name = entry.source.ljust(self._name_width) if self._name_width else ""
        if self._form is Form.HUMAN:
            return event_line(self._look, entry.event, message_of(entry.event.text), entry.clock, name), {}
        return "", event_value(entry.event, entry.source, entry.utc)

    def _write(
        self, view: str, rows: Iterator[tuple[str, dict[str, Any]]], *, omitted: int = 0, none: str = ""
    ) -> None:
        from pdctl import outlet
        from pdctl.render.wire import dumps

        if self._form is Form.JSON:
            values = [value for _, value in rows]
            document = {"schema": SCHEMA, "view": view, "sources": self._told(), "omitted": omitted, "rows": values}
            outlet.write_lines([dumps(document, indent=2)])
            return
        written = self._lines(rows)
        if self._form is Form.HUMAN and not written and none:
            outlet.say(none)
        if omitted:
            outlet.say(f"pdctl: {omitted} earlier ones not shown; --limit 0 shows all")
        for source in self._sources:
            if source.scanner.dropped:
                outlet.say(f"pdctl: {source.name}: {source.scanner.dropped} records were cut short and left out")

    def _lines(self, rows: Iterator[tuple[str, dict[str, Any]]]) -> int:
        from pdctl import outlet
        from pdctl.render.wire import dumps

        count = 0
        for line, value in rows:
            count += 1
            if not outlet.write((dumps(value) if self._form is Form.JSONL else line) + "\n"):
                break
        return count

    def _told(self) -> list[dict[str, Any]]:
        from pdctl.render.events import source_value

        return [source_value(s.name, s.role, s.scanner.lines, s.scanner.dropped, s.offset) for s in self._sources]
