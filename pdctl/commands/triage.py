"""``pdctl triage``: every check there is, in one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DeadlineOpt,
    DecodeOpt,
    DemoOpt,
    FailOnOpt,
    ForOpt,
    FromOpt,
    IntervalOpt,
    Output,
    OutputOpt,
    PrefillOpt,
    ProxyOpt,
    RecordOpt,
    ReleaseOpt,
    RouterOpt,
    TimeoutOpt,
    emit,
    target,
)
from pdctl.commands.looking import look_at, muted
from pdctl.errors import UsageError
from pdctl.exits import FailOn

OnlyOpt = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this check or finding.")]
SkipOpt = Annotated[list[str] | None, typer.Option("--skip", metavar="NAME", help="Not this check or finding.")]
NoRecordOpt = Annotated[bool, typer.Option("--no-record", help="Keep no raw answers.")]

NoHostsOpt = Annotated[bool, typer.Option("--no-hosts", help="Ask over HTTP alone; look at no host.")]


def triage(
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    capture: FromOpt = None,
    demo: DemoOpt = None,
    release: ReleaseOpt = None,
    interval: IntervalOpt = 2.0,
    seconds: ForOpt = 30.0,
    timeout: TimeoutOpt = 5.0,
    deadline: DeadlineOpt = None,
    record: RecordOpt = None,
    no_record: NoRecordOpt = False,
    no_hosts: NoHostsOpt = False,
    only: OnlyOpt = None,
    skip: SkipOpt = None,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Run every check: which part of the cluster the fault sits in, how sure, what is ruled out and by what.

    Looks for a few seconds where all is clear, up to --for where it is not. Asks gently: metrics, live queue counts,
    settings, logs; no health check, because that is a request of its own."""
    from pdctl.checks import judge
    from pdctl.checks.over_time import judge_over_time
    from pdctl.checks.settled import triage_settled

    _refuse_unknown([*(only or ()), *(skip or ())])
    with target(
        config=config,
        prefill=prefill,
        decode=decode,
        router=router,
        proxy=proxy,
        capture=capture,
        demo=demo,
        release=release,
    ) as what:
        looked = look_at(
            what,
            stop=lambda window: triage_settled(judge(window, what.cluster), window, what.cluster),
            interval=interval,
            seconds=seconds,
            timeout=timeout,
            deadline=deadline,
            record=record,
            keep=not no_record,
            hosts=not no_hosts,
        )
        report = judge_over_time(looked.window, what.cluster, only=only or (), skip=skip or ())
        report = muted(report, what, looked.lines)
    looked.tell()
    emit(report, output, ascii_only=ascii_only, fail_on=fail_on, interrupted=looked.interrupted)


def _refuse_unknown(names: list[str]) -> None:
    """A name there is not would leave every check out, and what is left would look fine."""
    if not names:
        return
    from pdctl.checks import all_checks
    from pdctl.model.registry import REGISTRY

    known = {*REGISTRY, *(check.name for check in all_checks())}
    for name in names:
        if name not in known:
            raise UsageError(f"no check and no finding {name!r}", "`pdctl findings` lists them.")
