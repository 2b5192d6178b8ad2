"""``pdctl check``: triage for machines: cron, Nagios, Prometheus, CI."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pdctl.commands.aim import handed_out
from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    DemoOpt,
    FailOnOpt,
    FromOpt,
    IntervalOpt,
    PrefillOpt,
    ProxyOpt,
    ReleaseOpt,
    RouterOpt,
    Target,
    TimeoutOpt,
    parse_duration,
    target,
)
from pdctl.errors import OutOfTime, PdctlError, UsageError
from pdctl.exits import FailOn, exit_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pdctl.checks.stages import Chosen
    from pdctl.checkup.order import Order
    from pdctl.model.checkrun import CheckRun

DEADLINE_S = 20.0
ROOM_S = 10.0  # of the deadline beyond the window that was asked for


class Form(StrEnum):
    """The forms of a check's outcome. What is judged and the exit status are the same in all of them."""

    HUMAN = "human"
    SHORT = "short"
    JSON = "json"
    JSONL = "jsonl"
    NAGIOS = "nagios"
    PROM = "prom"
    JUNIT = "junit"


def stage_names(incomplete: str) -> list[str]:
    """Stages and findings, for the shell."""
    from pdctl.checks.stages import NAMES
    from pdctl.model.registry import REGISTRY

    return [name for name in (*NAMES, *REGISTRY) if name.startswith(incomplete)]


FormOpt = Annotated[
    Form, typer.Option("--output", "-o", metavar="FORM", help="human, short, json, jsonl, nagios, prom or junit.")
]
ForOpt = Annotated[
    float | None,
    typer.Option("--for", metavar="TIME", parser=parse_duration, help="Look for so long, not for as long as it takes."),
]
LimitOpt = Annotated[
    float | None,
    typer.Option(
        "--deadline", metavar="TIME", parser=parse_duration, help="For the whole run, whatever hangs.  [default: 20]"
    ),
]
StageOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--stage", metavar="STAGE", help="Run this stage as well: logs, probes, stacks.", autocompletion=stage_names
    ),
]
OnlyOpt = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Only this stage or finding.", autocompletion=stage_names),
]
SkipOpt = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="NAME", help="Not this stage or finding.", autocompletion=stage_names),
]
OutOpt = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Put the output there, whole or not at all.")
]
OnFailOpt = Annotated[
    Path | None,
    typer.Option("--record-on-fail", metavar="DIR", help="Keep the evidence of a failing moment there, for --from."),
]
RememberOpt = Annotated[
    float,
    typer.Option("--remember", metavar="TIME", parser=parse_duration, help="How far back earlier runs count."),
]
FreshOpt = Annotated[bool, typer.Option("--fresh", help="Judge this look alone, and forget earlier runs.")]
VerboseOpt = Annotated[bool, typer.Option("--verbose", "-v", help="Tell of everything, also when all is well.")]


def check(
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    capture: FromOpt = None,
    demo: DemoOpt = None,
    release: ReleaseOpt = None,
    stage: StageOpt = None,
    only: OnlyOpt = None,
    skip: SkipOpt = None,
    seconds: ForOpt = None,
    interval: IntervalOpt = 2.0,
    timeout: TimeoutOpt = 5.0,
    deadline: LimitOpt = None,
    remember: RememberOpt = 900.0,
    fresh: FreshOpt = False,
    record_on_fail: OnFailOpt = None,
    output: FormOpt = Form.HUMAN,
    out: OutOpt = None,
    fail_on: FailOnOpt = FailOn.WARNING,
    verbose: VerboseOpt = False,
    ascii_only: AsciiOpt = False,
) -> None:
    """Triage for machines: one look in stages from harmless to intrusive, judged with what earlier runs saw.

    Stages: reach, identity, queues, router; sockets where the inventory names hosts; logs, probes and stacks only when
    asked for. Looks on for up to 10 s where something is under way and was not seen to move. Says nothing and exits 0
    when all is well and nobody looks on. Ends by --deadline, whatever hangs; a run waits most of that for another one
    that is still at it, then exits 3."""
    from pdctl.reach.watchdog import Watchdog

    limit = deadline or max(DEADLINE_S, (seconds or 0.0) + ROOM_S)
    with Watchdog(limit, lambda: _out_of_time(limit, output), OutOfTime.exit_status):
        with target(
            config=config, prefill=prefill, decode=decode, router=router, proxy=proxy, capture=capture, demo=demo,
            release=release,
        ) as what:  # fmt: skip
            chosen = _chosen(what, stage or (), only or (), skip or ())
            order = _order(
                chosen, what, seconds, interval, timeout, limit, None if fresh else remember, record_on_fail, fail_on
            )
            run = _run(what, order)
        _finish(run, output, out, fail_on, verbose, ascii_only)


def _chosen(what: Target, asked: Sequence[str], only: Sequence[str], skip: Sequence[str]) -> Chosen:
    """The stages to run. Raises UsageError for a name there is not, or when nothing is left to run."""
    from pdctl.checks.stages import NAMES, choose, unknown

    for name in unknown([*only, *skip]):
        raise UsageError(
            f"no stage and no finding {name!r}", f"Stages: {', '.join(NAMES)}. `pdctl findings` lists more."
        )
    for name in asked:
        if name not in NAMES:
            raise UsageError(f"no stage {name!r}", f"There are: {', '.join(NAMES)}.")
    chosen = choose(asked, only, skip, hosts=bool(what.cluster.hosts) or what.capture is not None)
    if not chosen.stages:
        raise UsageError("nothing is left to check", "No stage looks for what --only names and --skip leaves.")
    return chosen


def _order(
    chosen: Chosen, what: Target, seconds: float | None, interval: float, timeout: float, deadline: float,
    remember: float | None, evidence: Path | None, fail_on: FailOn,
) -> Order:  # fmt: skip
    from pdctl.checkup.order import Order

    if evidence is not None and what.capture is not None:
        raise UsageError("--record-on-fail makes a recording, and --from is one", "Give one of them.")
    return Order(
        chosen=chosen,
        seconds=seconds,
        interval_s=interval,
        timeout_s=min(timeout, deadline),
        deadline_s=deadline,
        remember_s=remember,
        stateless=what.demo is not None,
        evidence=evidence,
        fails=lambda report: exit_of(report.status, fail_on) != 0,
    )


def _run(what: Target, order: Order) -> CheckRun:
    from pdctl.checkup import run as checkup

    if what.capture is not None:
        from pdctl.replay import read_window

        return checkup.check_recorded(read_window(what.capture), what.cluster, order)
    return checkup.check(what.cluster, order)


# --- the way out -------------------------------------------------------------------------------------------------


def _finish(
    run: CheckRun, output: Form, out: Path | None, fail_on: FailOn, verbose: bool, ascii_only: bool
) -> NoReturn:
    """Writes the outcome and ends the command with the status that was judged."""
    from pdctl import outlet

    run = replace(run, report=handed_out(run.report))
    status = exit_of(run.report.status, fail_on)
    if output is Form.HUMAN and status == 0 and not verbose and out is None and not _someone_looks_on():
        raise typer.Exit(status)
    for note in run.notes:
        outlet.say(note)
    if run.kept is not None:
        outlet.say(f"evidence kept: {run.kept}")
    lines = _lines(run, output, fail_on, verbose, ascii_only)
    if out is None:
        outlet.write_lines(lines)
    else:
        _write_file(out, "".join(line + "\n" for line in lines))
    raise typer.Exit(status)


def _someone_looks_on() -> bool:
    import sys

    return sys.stdout.isatty()


def _lines(run: CheckRun, output: Form, fail_on: FailOn, verbose: bool, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.look import look

    if output is Form.HUMAN:
        from pdctl.render.check import check_lines

        yield from check_lines(run, look(ascii_only), whole=verbose)
    elif output is Form.SHORT:
        from pdctl.render.short import short_line

        yield short_line(run.report, look(ascii_only))
    elif output is Form.NAGIOS:
        from pdctl.render.nagios import nagios_lines

        yield from nagios_lines(run)
    elif output is Form.PROM:
        from pdctl.render.prom import prom_text

        yield prom_text(run).rstrip("\n")
    elif output is Form.JUNIT:
        from pdctl.render.junit import junit_text

        yield junit_text(run, fail_on.value)
    else:
        from pdctl.render.check import check_json, check_jsonl

        yield check_jsonl(run) if output is Form.JSONL else check_json(run)


def _write_file(path: Path, text: str) -> None:
    """Puts the text in the file's place, whole. Raises PdctlError when the disk does not take it: then the old file
    stands, and its age tells."""
    from pdctl.reach.state import replace_whole

    try:
        replace_whole(path, text.encode("utf-8", "backslashreplace"), 0o644)
    except OSError as error:
        raise PdctlError(f"{path}: cannot be written: {error.strerror or error}") from None


def _out_of_time(limit: float, output: Form) -> int:
    """The last words of a run that something made hang."""
    from pdctl import outlet

    error = OutOfTime(
        f"no verdict within {limit:g} s, the deadline of the whole run", "Run it again with a longer --deadline and -v."
    )
    return outlet.failed(error, ["-o", output.value], False)
