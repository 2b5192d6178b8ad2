"""``pdctl sample``: the gauges that matter over time, live or from a recording."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    DemoOpt,
    FromOpt,
    InstanceArg,
    IntervalOpt,
    PrefillOpt,
    RecordOpt,
    ReleaseOpt,
    RouterOpt,
    Target,
    parse_duration,
    target,
)
from pdctl.errors import INTERRUPTED, UsageError
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.registry import REGISTRY

if TYPE_CHECKING:
    from pdctl.model.answer import Observation
    from pdctl.model.finding import Finding
    from pdctl.model.window import Window
    from pdctl.render.look import Look
    from pdctl.render.series import Sample
    from pdctl.render.table import History
    from pdctl.sample import SamplePlan

Round = list["Observation[Any]"]
SAMPLED = (Fact.METRICS, Fact.LOADS)


class Form(StrEnum):
    """The forms of samples."""

    HUMAN = "human"
    JSONL = "jsonl"
    CSV = "csv"


def _findings(incomplete: str) -> list[str]:
    return [name for name in REGISTRY if name.startswith(incomplete)]


FormOpt = Annotated[
    Form, typer.Option("--output", "-o", help="A table (a line a sample in a pipe), or rows for programs.")
]
MaybeForOpt = Annotated[
    float | None,
    typer.Option("--for", metavar="TIME", parser=parse_duration, help="How long: 60, 60s, 2m. Else until Ctrl-C."),
]
CountOpt = Annotated[int | None, typer.Option("--count", "-n", min=1, metavar="N", help="How many samples at most.")]
UntilOpt = Annotated[
    str | None,
    typer.Option("--until", metavar="FINDING", help="Stop when it is found: exit 0; else 3.", autocompletion=_findings),
]
RanksOpt = Annotated[bool, typer.Option("--ranks", help="A row for each data-parallel rank as well.")]


def sample(
    instances: InstanceArg = None,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    from_: FromOpt = None,
    demo: DemoOpt = None,
    release: ReleaseOpt = None,
    interval: IntervalOpt = 2.0,
    for_: MaybeForOpt = None,
    count: CountOpt = None,
    until: UntilOpt = None,
    ranks: RanksOpt = False,
    record: RecordOpt = None,
    output: FormOpt = Form.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Shows the gauges that matter over time: queues, KV usage, requests under way, rates.

    Live counts are marked as such, other queue numbers are the gauges' last reports. `-` is a number that was not seen;
    `?` in a sparkline a missed answer, `|` a restart. Ctrl-C ends it and keeps what there is.
    """
    _refuse(until, from_, record)
    with target(
        config=config, prefill=prefill, decode=decode, router=router, capture=from_, demo=demo, release=release
    ) as what:
        plan = Plan(_only(what.cluster, instances or ()), interval, for_, count, until, ranks, record)
        raise typer.Exit(_shown(Sampler(what, plan), output, ascii_only))


def _refuse(until: str | None, recording: Path | None, record: Path | None) -> None:
    if until is not None and until not in REGISTRY:
        from difflib import get_close_matches

        near = get_close_matches(until, REGISTRY, n=3)
        raise UsageError(f'there is no finding "{until}"', f"Did you mean {', '.join(near)}?" if near else "")
    if recording is not None and record is not None:
        raise UsageError("--record makes a recording, and --from is one", "Give one of them.")


def _only(cluster: Cluster, names: Iterable[str]) -> Cluster:
    """The cluster with these instances alone; with all where none is named."""
    wanted = tuple(names)
    known = [instance.name for instance in cluster.instances]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"no instance is called {', '.join(unknown)}", f"There are: {', '.join(known)}.")
    return replace(cluster, instances=tuple(i for i in cluster.instances if not wanted or i.name in wanted))


# --- taking samples -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What to sample, how often and until when; ``until`` names a finding."""

    cluster: Cluster
    interval: float
    seconds: float | None
    count: int | None
    until: str | None
    ranks: bool
    record: Path | None


@dataclass(slots=True)
class Sampler:
    """Takes samples of a cluster or of a recording, and says how it ended: ``found`` is what ``until`` waited for,
    ``taken`` and ``read`` how many samples there were and how many held a number."""

    what: Target
    plan: Plan
    found: Finding | None = None
    taken: int = 0
    read: int = 0
    interrupted: bool = False
    notes: list[str] = field(default_factory=list)
    _sure: Until | None = field(default=None, init=False)

    def samples(self) -> Generator[Sample]:
        """Each sample as it is complete. Ctrl-C ends them; a capture that is recorded is whole afterwards."""
        from pdctl.render.series import Tally, step

        self._sure = Until(self.plan.until, self.plan.cluster) if self.plan.until else None
        tally = Tally()
        rounds = self._recorded() if self.what.capture is not None else self._live()
        with closing(rounds):
            for seen in rounds:
                tally, sample = step(tally, seen, self.plan.cluster, self.plan.ranks)
                self.taken += 1
                self.read += any(c.best is not None for row in sample.rows for c in row.cells.values())
                yield sample
                if self.found is not None:
                    return

    def status(self) -> int:
        """The exit status: 0 when it ended as asked, 3 when what was waited for did not come or nothing was read."""
        if self.interrupted:
            return INTERRUPTED
        if self.plan.until is not None:
            return 0 if self.found is not None else 3
        return 0 if self.read else 3

    def _live(self) -> Generator[Round]:
        """The rounds of a live cluster."""
        from pdctl.gather import Gatherer
        from pdctl.reach.clock import SystemClock
        from pdctl.reach.hosts import Hosts
        from pdctl.sample import sample as sampling
        from pdctl.watch import keeping, with_local

        cluster, clock = self.plan.cluster, SystemClock()
        fresh: Round = []
        with ExitStack() as stack:
            hosts = stack.enter_context(Hosts(with_local(cluster), clock=clock))
            keeper = stack.enter_context(keeping(self.plan.record, cluster))
            self.notes = keeper.notes
            asked = Gatherer(cluster, clock=clock, commands=hosts, via=hosts.dial, on_answer=keeper.add)
            gatherer = stack.enter_context(asked)
            run = sampling(gatherer, self._asked(), clock=clock, stop=self._judged, on_round=fresh.extend)
            for _ in run:
                seen, fresh[:] = [o for o in fresh if o.fact in SAMPLED], []
                if seen:
                    yield seen
            self.interrupted = run.interrupted
            if self.found is None:
                self._judged(run.window)  # with what was asked last: logs

    def _asked(self) -> SamplePlan:
        """Pages and live counts each round. What a judgement needs besides is asked once, and only if there is to be
        one, now or of the recording: settings make the scheduler work."""
        from pdctl.watch import Look, plan_of

        plan = self.plan
        judged = plan.until is not None or plan.record is not None
        asks = plan_of(plan.cluster, Look(plan.interval))
        if not judged:
            asks = replace(asks, first={}, last={}, last_asks=())
        return replace(asks, seconds=plan.seconds, count=plan.count)

    def _judged(self, window: Window) -> bool:
        if self._sure is not None:
            self.found = self._sure.found(window)
        return self.found is not None

    def _recorded(self) -> Generator[Round]:
        """The rounds of a recording, one held at a time. With ``until`` every fact is read, and the window so far is
        judged as a live one would be."""
        from pdctl.recent import Recent
        from pdctl.render.series import rounds

        assert self.what.capture is not None
        recent = Recent(self.what.capture.started, live=False)
        for number, seen in enumerate(rounds(self._observed(recent)), start=1):
            if self.plan.count is not None and number > self.plan.count:
                return
            self._judged_at(seen[-1], recent)
            yield seen

    def _judged_at(self, last: Observation[Any], recent: Any) -> None:
        if self._sure is not None and self._sure.is_due(last.t):
            self._judged(recent.window(last.at))

    def _observed(self, recent: Any) -> Iterator[Observation[Any]]:
        from pdctl.facts import read

        capture = self.what.capture
        assert capture is not None
        for placed in capture.rows():
            if self.plan.seconds is not None and placed.t > self.plan.seconds:
                return
            if self._sure is None and placed.row.fact not in SAMPLED:
                continue
            answer = capture.answer_of(placed)
            seen = read(answer, capture.cluster.instance(answer.subject))
            if self._sure is not None:
                recent.add((seen,))
            yield seen


class Until:
    """Whether a finding is there yet. A long window is judged less often: no more than a fiftieth of it apart."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self._cluster = cluster
        self._next = 0.0

    def is_due(self, t: float) -> bool:
        """Whether the window that ends at ``t`` seconds is worth judging."""
        if t < self._next:
            return False
        self._next = t + t / 50.0
        return True

    def found(self, window: Window) -> Finding | None:
        """The finding in the report on this window, None where it is not in it."""
        from pdctl.checks import judge

        return next((f for f in judge(window, self._cluster).findings if f.name == self.name), None)


# --- showing them -------------------------------------------------------------------------------------------------


def _shown(sampler: Sampler, form: Form, ascii_only: bool) -> int:
    """Shows the samples as they come; returns the exit status. However it ends, what was recorded is kept."""
    from pdctl.render.look import look

    seen = look(ascii_only)
    with closing(sampler.samples()) as samples:
        try:
            if form is Form.HUMAN and seen.live:
                _on_screen(samples, sampler, seen)
            else:
                _as_lines(samples, form, seen)
        except KeyboardInterrupt:
            sampler.interrupted = True
    _told(sampler)
    return sampler.status()


def _as_lines(samples: Iterator[Sample], form: Form, look: Look) -> None:
    from pdctl import outlet

    lines = _lines(samples, form, look)
    with closing(lines):
        outlet.write_lines(lines)


def _lines(samples: Iterator[Sample], form: Form, look: Look) -> Generator[str]:
    from pdctl.render.csv import csv_header, csv_lines, jsonl_lines
    from pdctl.render.table import sample_line

    if form is Form.CSV:
        yield csv_header()
    for sample in samples:
        if form is Form.HUMAN:
            yield sample_line(sample, look)
        else:
            yield from (csv_lines(sample) if form is Form.CSV else jsonl_lines(sample))


def _on_screen(samples: Iterator[Sample], sampler: Sampler, look: Look) -> None:
    """A table that is repainted with each sample; the last one stays on the terminal when the screen is given back."""
    from pdctl import outlet
    from pdctl.render.screen import live_screen
    from pdctl.render.table import History, table_lines

    history = History()
    title = look.say(sampler.plan.cluster.name)
    live = f"{title}  every {sampler.plan.interval:g} s, Ctrl-C ends" if sampler.what.capture is None else title
    try:
        with live_screen(look.colour) as paint:
            for sample in samples:
                history.add(sample)
                paint(_drawn(history, look, live))
    finally:
        outlet.write_lines(table_lines(history, look, title))


def _drawn(history: History, look: Look, title: str) -> Callable[[int, int], list[str]]:
    from pdctl.render.table import table_lines

    return lambda width, height: table_lines(history, replace(look, width=width), title, height)


def _told(sampler: Sampler) -> None:
    """What happened, for people: on stderr, so that rows stay rows."""
    from pdctl import outlet

    for line in _sayings(sampler):
        outlet.say(line)


def _sayings(sampler: Sampler) -> Iterator[str]:
    plan, found = sampler.plan, sampler.found
    yield from sampler.notes
    if sampler.interrupted:
        yield f"interrupted after {sampler.taken} samples"
    if found is not None:
        yield f"{found.name} at {found.subject}: {found.summary}"
    elif plan.until is not None and not sampler.interrupted:
        yield f"{plan.until} was not found in {sampler.taken} samples"
    if plan.record is not None:
        yield f"recorded in {plan.record}; judge it with: pdctl triage --from {shlex.quote(str(plan.record))}"
    if not sampler.read:
        yield "no number could be read of any instance"
