"""``pdctl sample``: the gauges that matter over time, live or from a recording."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    parse_duration,
    target,
)
from pdctl.errors import UsageError

if TYPE_CHECKING:
    from pdctl.commands.sampler import Sampler
    from pdctl.model.cluster import Cluster
    from pdctl.render.look import Look
    from pdctl.render.series import Sample
    from pdctl.render.table import History


class Form(StrEnum):
    """The forms of samples."""

    HUMAN = "human"
    JSONL = "jsonl"
    CSV = "csv"


def _findings(incomplete: str) -> list[str]:
    from pdctl.model.registry import REGISTRY

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
    from pdctl.commands.sampler import Plan, Sampler

    _refuse(until, from_, record)
    with target(
        config=config, prefill=prefill, decode=decode, router=router, capture=from_, demo=demo, release=release
    ) as what:
        plan = Plan(_only(what.cluster, instances or ()), interval, for_, count, until, ranks, record)
        raise typer.Exit(_shown(Sampler(what, plan), output, ascii_only))


def _refuse(until: str | None, recording: Path | None, record: Path | None) -> None:
    from pdctl.model.registry import REGISTRY

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
        kept = "what was recorded until then is" if sampler.notes else "recorded"
        yield f"{kept} in {plan.record}; judge it with: pdctl triage --from {shlex.quote(str(plan.record))}"
    if not sampler.read:
        yield "no number could be read of any instance"
