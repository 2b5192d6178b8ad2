"""``pdctl sockets``: the connections of each instance."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    FailOnOpt,
    FromOpt,
    InstanceArg,
    IntervalOpt,
    Output,
    OutputOpt,
    PrefillOpt,
    ProxyOpt,
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

    from pdctl.looks.hosts import HostLook
    from pdctl.model.cluster import Instance
    from pdctl.model.host_view import SocketView
    from pdctl.model.window import Window

FINDINGS = ("accept-queue-full", "connection-leak", "half-open", "responses-lost", "router-holds-requests")

ForOpt = Annotated[
    float | None,
    typer.Option("--for", metavar="TIME", parser=parse_duration, help="Look again and again for so long: growth."),
]


def sockets(
    instances: InstanceArg = None,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    capture: FromOpt = None,
    seconds: ForOpt = None,
    interval: IntervalOpt = 5.0,
    timeout: TimeoutOpt = 30.0,
    record: RecordOpt = None,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Show each instance's sockets by peer and condition: accept queues, active, idle, waiting, CLOSE-WAIT and whose.

    Beside what router and engines count as active, so idle kept-alive connections are called that. With both ends'
    hosts in the inventory, connections that only one end still has are found. Uses ss, or /proc/net/tcp without it."""
    from pdctl.checks.host_seeing import not_read
    from pdctl.checks.socket_view import sockets_of
    from pdctl.model.answer import Fact
    from pdctl.render.sockets import sockets_lines, sockets_value

    with target(config=config, prefill=prefill, decode=decode, router=router, proxy=proxy, capture=capture) as what:
        refuse_record_of_recording(what, record)
        wanted = chosen(what.cluster, instances)
        window, why, lost, notes = _seen(what, wanted, seconds, interval, timeout, record)
    views = [sockets_of(window, what.cluster, instance) for instance in wanted]
    nowhere = {view.name: lost[view.name] for view in views if _is_bare(view) and view.name in lost}
    views = [replace(view, why=nowhere.get(view.name, view.why)) for view in views]
    gone = [not_read(i, f"the sockets of {i.name}", nowhere[i.name]) for i in wanted if i.name in nowhere]
    report = judged(window, what.cluster, wanted, only=FINDINGS, needs=(Fact.SOCKETS,), why=why, also=gone)
    report = with_details(report, {view.name: sockets_value(view) for view in views})
    finish(
        report,
        lambda look: sockets_lines(views, look),
        output,
        ascii_only=ascii_only,
        fail_on=fail_on,
        notes=notes,
    )


def _seen(
    what: Target, wanted: Sequence[Instance], seconds: float | None, interval: float, timeout: float,
    record: Path | None,
) -> tuple[Window, dict[str, str], dict[str, str], list[str]]:  # fmt: skip
    """The window, why instances could not be looked at, why no process of them was found, and what else to say."""
    if what.capture is not None:
        from pdctl.replay import read_window

        window = read_window(what.capture)
        return window, {}, {}, [window.note] if window.note else []
    from pdctl.looks.hosts import HostPlan, looking

    with looking(what.cluster, wanted, HostPlan(timeout, record)) as look:
        _first(look)
        until = look.clock.now() + (seconds or 0.0)
        while seconds and look.clock.now() + interval <= until + 0.5 * interval:
            look.clock.sleep(interval)
            _again(look)
        return look.window(), look.unplaced, look.why, look.notes


def _is_bare(view: SocketView) -> bool:
    """Whether a listing was read and shows nothing of the instance."""
    return not (view.why or view.listeners or view.peers)


def _first(look: HostLook) -> None:
    """The first listing before the processes: it tells whose they are."""
    _again(look)
    look.processes()
    look.limits(("main", "router"))


def _again(look: HostLook) -> None:
    from pdctl.model.answer import Fact

    look.sockets(http=(Fact.METRICS, Fact.LOADS))
