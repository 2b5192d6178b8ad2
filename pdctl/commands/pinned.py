"""``pdctl pinned``: one question, answered with yes, no or what would settle it."""

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
from pdctl.exits import FailOn

NoRecordOpt = Annotated[bool, typer.Option("--no-record", help="Keep no raw answers.")]


def pinned(
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    capture: FromOpt = None,
    demo: DemoOpt = None,
    release: ReleaseOpt = None,
    interval: IntervalOpt = 2.0,
    seconds: ForOpt = 60.0,
    timeout: TimeoutOpt = 5.0,
    deadline: DeadlineOpt = None,
    record: RecordOpt = None,
    no_record: NoRecordOpt = False,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Is a request stuck between prefill and decode: where, how many, since when at least, how sure?

    Reads what the release can prove (live queue counts, HTTP requests under way, gauges, counters, logs) and stops as
    soon as it is sure: some ten seconds where counts are live, up to --for where only gauges tell."""
    from pdctl.checks.only_pinned import judge_only_pinned
    from pdctl.checks.settled import pinned_settled

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
            stop=lambda window: pinned_settled(window, what.cluster),
            interval=interval,
            seconds=seconds,
            timeout=timeout,
            deadline=deadline,
            record=record,
            keep=not no_record,
        )
        report = muted(judge_only_pinned(looked.window, what.cluster), what, looked.lines)
    looked.tell()
    emit(report, output, ascii_only=ascii_only, fail_on=fail_on, pinned=True, interrupted=looked.interrupted)
