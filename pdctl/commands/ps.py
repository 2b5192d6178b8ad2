"""``pdctl ps``: the processes behind each instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    FailOnOpt,
    FromOpt,
    InstanceArg,
    Output,
    OutputOpt,
    PrefillOpt,
    RecordOpt,
    RouterOpt,
    Target,
    TimeoutOpt,
    parse_duration,
    target,
)
from pdctl.commands.hosting import chosen, finish, judged, refuse_record_of_recording, with_details
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pdctl.model.cluster import Instance
    from pdctl.model.window import Window

FINDINGS = ("unit-flapping", "fd-limit-near")
COUNTED = ("main", "scheduler", "router")  # parts whose open files are counted

ForOpt = Annotated[
    float, typer.Option("--for", metavar="TIME", parser=parse_duration, help="Between two looks, for CPU use: 1s.")
]


def ps(
    instances: InstanceArg = None,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    capture: FromOpt = None,
    seconds: ForOpt = 1.0,
    timeout: TimeoutOpt = 20.0,
    record: RecordOpt = None,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Show each instance's processes: the tree, ranks, GPUs, start, CPU, memory, open files, and what its unit says.

    Over SSH where the inventory names a host, else here. Schedulers belong to the engine they descend from."""
    from pdctl.facts.ps_view import ps_of
    from pdctl.model.answer import Fact
    from pdctl.render.ps import ps_lines, ps_value

    with target(config=config, prefill=prefill, decode=decode, router=router, capture=capture) as what:
        refuse_record_of_recording(what, record)
        wanted = chosen(what.cluster, instances)
        window, why, notes = _seen(what, wanted, seconds, timeout, record)
    views = [ps_of(window, instance) for instance in wanted]
    report = judged(window, what.cluster, wanted, only=FINDINGS, needs=(Fact.PROCESSES,), why=why)
    report = with_details(report, {view.name: ps_value(view) for view in views})
    finish(
        report,
        lambda look: ps_lines(views, look),
        output,
        ascii_only=ascii_only,
        fail_on=fail_on,
        notes=notes,
    )


def _seen(
    what: Target, wanted: Sequence[Instance], seconds: float, timeout: float, record: Path | None
) -> tuple[Window, dict[str, str], list[str]]:
    """The window, why instances have no processes, and what else to say."""
    if what.capture is not None:
        from pdctl.replay import read_window

        window = read_window(what.capture)
        return window, {}, [window.note] if window.note else []
    from pdctl.looks.hosts import HostPlan, looking

    with looking(what.cluster, wanted, HostPlan(timeout, record)) as look:
        look.units()
        look.processes()
        if look.unfound:
            look.sockets()  # a router hides its flags: the port it listens on tells it
            look.processes()
        look.limits(COUNTED)
        look.clock.sleep(seconds)
        look.processes()
        return look.window(), look.why, look.notes
