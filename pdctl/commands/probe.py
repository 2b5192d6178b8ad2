"""``pdctl probe``: real requests, judged by their differences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    DemoOpt,
    FailOnOpt,
    FromOpt,
    InstanceArg,
    IntervalOpt,
    Output,
    OutputOpt,
    PrefillOpt,
    ProxyOpt,
    RecordOpt,
    ReleaseOpt,
    RouterOpt,
    Target,
    TimeoutOpt,
    parse_duration,
    target,
)
from pdctl.errors import UsageError
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from pdctl.commands.probe_out import Result
    from pdctl.model.cluster import Cluster, Instance
    from pdctl.model.probe import Trial
    from pdctl.model.probe_plan import ProbePlan
    from pdctl.plans.probe import Wish
    from pdctl.probing.run import Probed, Probing

GENTLE_S, LOADED_S = 90.0, 300.0  # the deadline unless given,
SPARE_S = 45.0  # and so much more than what is planned takes, a long gap say: time for a hang or two


class Kind(StrEnum):
    """The kinds of a probe; the names are those of model.probe.Trial, which help need not import."""

    HEALTH = "health"
    ONE = "one"
    MANY = "many"
    ROUNDS = "rounds"
    IDLE = "idle"
    ABORTS = "aborts"
    ALL = "all"


KindOpt = Annotated[
    list[Kind] | None, typer.Option("--kind", "-k", help="Only this kind (repeatable). Not given: the cheap ones.")
]
LoadOpt = Annotated[bool, typer.Option("--load", help="Allow what loads the cluster: idle gaps, rounds, many at once.")]
PlanOpt = Annotated[bool, typer.Option("--plan", help="Only show what would be sent.")]
AtOnceOpt = Annotated[int, typer.Option("--at-once", min=1, max=64, metavar="N", help="many, aborts: so many at once.")]
AgentsOpt = Annotated[int, typer.Option("--agents", min=1, max=64, metavar="N", help="rounds: so many conversations.")]
RoundsOpt = Annotated[int, typer.Option("--rounds", min=1, max=64, metavar="N", help="rounds: so many in each.")]
GapOpt = Annotated[
    list[float] | None,
    typer.Option(
        "--gap", metavar="TIME", parser=parse_duration, help="idle: such a gap (repeatable). With --load 1 to 30 s."
    ),
]
RepeatOpt = Annotated[
    int,
    typer.Option("--repeat", min=1, max=100, metavar="N", help="one, many: so many times; for --compare 6 and more."),
]
TokensOpt = Annotated[int, typer.Option("--tokens", min=1, max=1024, metavar="N", help="New tokens of an answer.")]
HangOpt = Annotated[
    float, typer.Option("--hang-after", metavar="TIME", parser=parse_duration, help="Silence that counts as a hang.")
]
DeadlineOpt = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        parser=parse_duration,
        help="For it all: else 90 s, with --load 300 s, more for long gaps.",
    ),
]
ModelOpt = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Else the first that is listed.")]
ExpectOpt = Annotated[str | None, typer.Option("--expect", metavar="REGEX", help="What each answer must match.")]
SaveOpt = Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Keep every attempt, for --compare.")]
NoteOpt = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="With --save: what this run is.")]
CompareOpt = Annotated[
    tuple[Path, Path] | None, typer.Option("--compare", metavar="A B", help="Compare two saved probes.")
]
NoRecordOpt = Annotated[bool, typer.Option("--no-record", help="Keep no raw answers.")]


def probe(
    instances: InstanceArg = None,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    from_: FromOpt = None,
    demo: DemoOpt = None,
    release: ReleaseOpt = None,
    kind: KindOpt = None,
    load: LoadOpt = False,
    plan: PlanOpt = False,
    at_once: AtOnceOpt = 16,
    agents: AgentsOpt = 4,
    rounds: RoundsOpt = 6,
    gap: GapOpt = None,
    repeat: RepeatOpt = 1,
    tokens: TokensOpt = 32,
    hang_after: HangOpt = 25.0,
    model: ModelOpt = None,
    expect: ExpectOpt = None,
    save: SaveOpt = None,
    note: NoteOpt = None,
    compare: CompareOpt = None,
    interval: IntervalOpt = 1.0,
    timeout: TimeoutOpt = 5.0,
    deadline: DeadlineOpt = None,
    record: RecordOpt = None,
    no_record: NoRecordOpt = False,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Sends real requests and judges by their differences: engines, routers and proxies; fresh and used connections;
    one and many.

    As it is: a health check of each router, and at each router and proxy three short generations, one of them over a
    used connection. --load adds idle gaps, growing conversations and N at once, at engines too; its load is stated
    first, and it stops when the cluster suffers. --compare ends with 0 where B is no worse than A, 1 where it is
    slower, 2 where it fails more, 3 where there are too few attempts to tell."""
    from pdctl.commands.probe_out import check_place, emit_comparison, emit_plan, emit_probe
    from pdctl.commands.probe_out import save as save_probe
    from pdctl.plans.probe import Wish
    from pdctl.probing.run import How, Probing

    if compare is not None:
        emit_comparison(*compare, output, ascii_only=ascii_only, fail_on=fail_on)
    if note is not None and save is None:
        raise UsageError("--note says what a saved probe is, so it needs --save")
    if save is not None:
        check_place(save)
    gaps = tuple(gap) if gap else None
    wish = Wish(tuple(instances or ()), _trials(kind), load, at_once, agents, rounds, gaps, repeat, tokens)
    with target(
        config=config,
        prefill=prefill,
        decode=decode,
        router=router,
        proxy=proxy,
        capture=from_,
        demo=demo,
        release=release,
    ) as what:
        if what.capture is not None:
            result, interrupted = _recorded(what), False
        else:
            _known(what.cluster, wish.names)
            least = LOADED_S if load else GENTLE_S
            kept = None if plan else _record(what, record, no_record)
            how = How(hang_after, _pattern(expect), model, interval, timeout, deadline or least, kept)
            with Probing(what.cluster, how) as probing:
                made = _planned(probing, wish)
                probing.how = replace(how, deadline_s=deadline or max(least, ceil(made.load.seconds) + SPARE_S))
                if plan:
                    emit_plan(made, probing.how.deadline_s, output, ascii_only=ascii_only)
                result, interrupted = _run(probing, made, wish)
    if save is not None:
        save_probe(save, result, note)
    emit_probe(result, output, ascii_only=ascii_only, fail_on=fail_on, interrupted=interrupted)


# --- options ----------------------------------------------------------------------------------------------------------


def _trials(kinds: Sequence[Kind] | None) -> tuple[Trial, ...] | None:
    """The kinds wished for; None where none was named."""
    from pdctl.model.probe import Trial

    if not kinds:
        return None
    return tuple(Trial) if Kind.ALL in kinds else tuple(Trial(kind.value) for kind in dict.fromkeys(kinds))


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        raise UsageError(f"--expect: {text!r} is no regular expression: {error}") from None


def _known(cluster: Cluster, names: Sequence[str]) -> None:
    known = [instance.name for instance in cluster.instances if instance.url]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"no instance with a URL is called {', '.join(unknown)}", f"There are: {', '.join(known)}.")


def _record(what: Target, record: Path | None, no_record: bool) -> Path | None:
    """Where the raw answers are kept."""
    from pdctl.keep import default_record
    from pdctl.reach.clock import SystemClock

    if record is not None or no_record or what.demo is not None:
        return record
    return default_record(what.cluster, SystemClock().wall())


# --- the run ----------------------------------------------------------------------------------------------------------


def _recorded(what: Target) -> Result:
    """A recording's probes, judged as if they were made now."""
    from pdctl import outlet
    from pdctl.commands.probe_out import Result
    from pdctl.replay import read_window

    assert what.capture is not None
    window = read_window(what.capture)
    if window.note:
        outlet.say(window.note)
    return Result(window, what.cluster, None, 0.0, None)


def _planned(probing: Probing, wish: Wish) -> ProbePlan:
    """The plan, the engines' releases asked for where engines are to be asked to generate. Raises UsageError for what
    loads the cluster without leave, and for a plan without a request."""
    from pdctl.plans.probe import loads, plan_probe
    from pdctl.render.probe import load_line

    remote = probing.remote
    plan = plan_probe(probing.cluster, wish, remote=remote)
    engines = [way.instance for way in plan.ways if way.half] + _silent(probing, plan)
    if engines:
        plan = plan_probe(probing.cluster, wish, versions=probing.releases(engines), remote=remote)
    if not plan.stages:
        raise UsageError("nothing to probe: no instance with a URL is asked any of these kinds")
    if loads(plan) and not wish.load:
        said = load_line(plan.load, probing.how.deadline_s)
        raise UsageError(f"this would load the cluster: {said}", "Allow it with --load; see what is sent with --plan.")
    return plan


def _silent(probing: Probing, plan: ProbePlan) -> list[Instance]:
    """Engines the plan leaves out for want of their release."""
    names = {row.to for row in plan.left_out} - {way.name for way in plan.ways}
    return [i for i in probing.cluster.engines if i.name in names and i.engine == "sglang"]


def _run(probing: Probing, plan: ProbePlan, wish: Wish) -> tuple[Result, bool]:
    """Carries the plan out; says its load before, and after where the evidence is and why it ended early if it did."""
    from pdctl import outlet
    from pdctl.commands.probe_out import Result
    from pdctl.render.probe import load_line
    from pdctl.watch import progress

    deadline = probing.how.deadline_s
    outlet.say(f"{'load' if wish.load else 'sends'}: {load_line(plan.load, deadline)}")
    with progress() as tell:
        probed = probing.run(plan, tell)
    for line in said(probed):
        outlet.say(line)
    stopped = "interrupted" if probed.interrupted else probed.stopped
    plan = replace(plan, left_out=(*plan.left_out, *probed.skipped))
    return Result(probed.window, probing.cluster, plan, deadline, stopped), probed.interrupted


def said(probed: Probed) -> Iterator[str]:
    """What people should know of how the probe went."""
    yield from probed.notes
    cut = f"; {probed.cut} requests under way were cut" if probed.cut else ""
    if probed.interrupted:
        yield f"interrupted after {len(probed.attempts)} requests{cut}; this is judged from what was seen by then"
    elif probed.stopped is not None:
        yield f"stopped after {len(probed.attempts)} requests: {probed.stopped}{cut}"
    if probed.kept is not None:
        yield f"evidence kept: {probed.kept}"
