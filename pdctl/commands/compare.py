"""``pdctl compare``: this is how it looked when it was well."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DeadlineOpt,
    DecodeOpt,
    DemoOpt,
    IntervalOpt,
    Output,
    PrefillOpt,
    ProxyOpt,
    ReleaseOpt,
    RouterOpt,
    TimeoutOpt,
    parse_duration,
    target,
)
from pdctl.errors import UNKNOWN, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pdctl.commands.common import Target
    from pdctl.model.cluster import Cluster
    from pdctl.model.comparison import Comparison, Side
    from pdctl.model.window import Window

NOW = "now"
DIFFERS = 1  # with --exit-code, as diff has it

BeforeArg = Annotated[str, typer.Argument(metavar="A", help="A capture: how it was.")]
AfterArg = Annotated[str, typer.Argument(metavar="[B]", help="Another capture, or now.")]
ForOpt = Annotated[float, typer.Option("--for", metavar="TIME", parser=parse_duration, help="How long to look at now.")]
NoHostsOpt = Annotated[bool, typer.Option("--no-hosts", help="Of now, ask over HTTP alone; look at no host.")]
ExitOpt = Annotated[bool, typer.Option("--exit-code", help="Exit 1 when something differs, as diff does.")]
FormOpt = Annotated[Output, typer.Option("--output", "-o", metavar="FORM", help="human or json.")]


def compare(
    before: BeforeArg,
    after: AfterArg = NOW,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    demo: DemoOpt = None,
    release: ReleaseOpt = None,
    interval: IntervalOpt = 2.0,
    seconds: ForOpt = 30.0,
    timeout: TimeoutOpt = 5.0,
    deadline: DeadlineOpt = None,
    no_hosts: NoHostsOpt = False,
    exit_code: ExitOpt = False,
    output: FormOpt = Output.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """What differs between two captures, or between a capture and now: findings, instances, restarts, releases,
    settings, scripts, sockets; gauges and rates beyond their own noise.

    Two medians differ when they are more than 4 standard errors apart, by each gauge's own spread in its own window,
    and by a tenth at least. Take a capture while all is well (pdctl sample --record well), and compare with it when it
    is not."""
    from pdctl import outlet
    from pdctl.checks.compare import compare as compared

    if output not in (Output.HUMAN, Output.JSON):
        raise UsageError(f"-o {output.value} is no form of a comparison", "Use human or json.")
    if before == NOW:
        raise UsageError("the first of the two is a capture", "pdctl compare CAPTURE now")
    with ExitStack() as stack:
        old, window, cluster = _read(Path(before), stack)
        if after == NOW:
            live = target(
                config=config, prefill=prefill, decode=decode, router=router, proxy=proxy, demo=demo, release=release
            )  # fmt: skip
            new, now, other = _look(stack.enter_context(live), interval, seconds, timeout, deadline, not no_hosts)
        else:
            _refuse_live(config, prefill, decode, router, proxy, demo)
            new, now, other = _read(Path(after), stack)
        comparison = compared(window, now, cluster, other, (old, new))
    outlet.write_lines(_lines(comparison, output, ascii_only))
    raise typer.Exit(_status(comparison, exit_code))


def _refuse_live(*given: object) -> None:
    if any(given):
        raise UsageError("two captures are compared, so no cluster is looked at", "For now: pdctl compare CAPTURE now")


def _read(path: Path, stack: ExitStack) -> tuple[Side, Window, Cluster]:
    from pdctl.reach.capture import open_capture
    from pdctl.replay import read_window

    capture = stack.enter_context(open_capture(path))
    window = read_window(capture)
    return _side(str(path), window, capture.cluster), window, capture.cluster


def _look(
    what: Target, interval: float, seconds: float, timeout: float, deadline: float | None, hosts: bool
) -> tuple[Side, Window, Cluster]:
    from pdctl.commands.looking import look_at

    seen = look_at(
        what,
        stop=lambda _: False,
        interval=interval,
        seconds=seconds,
        timeout=timeout,
        deadline=deadline,
        record=None,
        keep=True,
        hosts=hosts,
    )
    seen.tell()
    if seen.interrupted:
        raise KeyboardInterrupt
    return _side(NOW, seen.window, what.cluster), seen.window, what.cluster


def _side(source: str, window: Window, cluster: Cluster) -> Side:
    from pdctl.checks import judge
    from pdctl.checkup.mutes import applied
    from pdctl.model.comparison import Side

    report, _ = applied(judge(window, cluster), cluster)
    return Side(source, window.start, window.end, window.samples(), report)


def _status(comparison: Comparison, exit_code: bool) -> int:
    """0, or 1 with ``--exit-code`` when something differs; unknown when there was nothing to compare."""
    if not comparison.compared and not comparison.differences:
        return UNKNOWN
    return DIFFERS if exit_code and comparison.differences else 0


def _lines(comparison: Comparison, output: Output, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.compare import compare_json, compare_lines
    from pdctl.render.look import look

    if output is Output.JSON:
        yield compare_json(comparison)
    else:
        yield from compare_lines(comparison, look(ascii_only))
