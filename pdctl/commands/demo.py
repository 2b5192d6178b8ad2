"""``pdctl demo``: a simulated cluster on loopback, in the foreground."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import AsciiOpt, parse_duration
from pdctl.errors import PdctlError

if TYPE_CHECKING:
    from pdctl.demo.core.truth import Truth
    from pdctl.demo.run import Demo


def _faults(incomplete: str) -> list[str]:
    from pdctl.demo.faults import FAULTS

    return [name for name in FAULTS if name.startswith(incomplete)]


def _releases(incomplete: str) -> list[str]:
    from pdctl.demo.core.release import RELEASES

    return [release for release in RELEASES if release.startswith(incomplete)]


FaultArg = Annotated[str, typer.Argument(metavar="[FAULT]", help="What is wrong with it.", autocompletion=_faults)]
ReleaseOpt = Annotated[
    str | None,
    typer.Option("--release", metavar="X.Y.Z", help="The engine release to simulate.", autocompletion=_releases),
]
ListOpt = Annotated[bool, typer.Option("--list", help="The faults there are, and the finding each should lead to.")]
WriteConfigOpt = Annotated[
    Path | None, typer.Option("--write-config", metavar="FILE", help="Write the demo's inventory there as well.")
]
ForOpt = Annotated[
    float | None, typer.Option("--for", metavar="TIME", parser=parse_duration, help="End by itself after this time.")
]
PrefillsOpt = Annotated[int, typer.Option("--prefills", metavar="N", min=1, max=16, help="How many prefill engines.")]
DecodesOpt = Annotated[int, typer.Option("--decodes", metavar="N", min=1, max=16, help="How many decode engines.")]
DpOpt = Annotated[int, typer.Option("--dp", metavar="N", min=1, max=16, help="Data-parallel ranks of each engine.")]
RouterOpt = Annotated[str, typer.Option("--router", metavar="KIND", help="0.3.2, smg or none.")]
SeedOpt = Annotated[int, typer.Option("--seed", metavar="N", help="Another seed, another course of events.")]


def demo(
    fault: FaultArg = "healthy",
    release: ReleaseOpt = None,
    list_faults: ListOpt = False,
    write_config: WriteConfigOpt = None,
    duration: ForOpt = None,
    prefills: PrefillsOpt = 1,
    decodes: DecodesOpt = 1,
    dp: DpOpt = 1,
    router: RouterOpt = "0.3.2",
    seed: SeedOpt = 0,
    ascii_only: AsciiOpt = False,
) -> None:
    """Starts a simulated cluster on free loopback ports and runs it until Ctrl-C.

    The engines write their gauges, answer /v1/loads and log as the real release does, at the moments it does; what is
    really stuck is known and printed. Any command takes --demo FAULT to start one for itself.
    """
    from pdctl import outlet

    if list_faults:
        outlet.write_lines(_list(ascii_only))
        return
    from pdctl.demo.run import started

    with started(
        fault, release=release, prefills=prefills, decodes=decodes, dp=dp, seed=seed, router=router
    ) as running:
        config = _write_config(running, write_config)
        outlet.write_lines(_about(running, config, ascii_only))
        _stay(running, duration)


def _list(ascii_only: bool) -> Iterator[str]:
    from pdctl.demo.faults import FAULTS
    from pdctl.render.look import look
    from pdctl.render.text import wrap

    shown = look(ascii_only)
    width = max(len(name) for name in FAULTS) + 2
    for fault in FAULTS.values():
        leads = f" [{', '.join(fault.leads_to)}]" if fault.leads_to else ""
        only = f" ({fault.release} unless --release says another)" if fault.release else ""
        yield from wrap(fault.line + only + leads, shown.width, f"{fault.name:<{width}}", " " * width)


def _write_config(running: Demo, wanted: Path | None) -> Path:
    """Writes the inventory into the demo's folder, and where it was asked for. Returns the path to name."""
    from pdctl.inventory.write import render_cluster

    text = render_cluster(running.cluster)
    own = running.folder / "pdctl.toml"
    own.write_text(text, "utf-8")
    if wanted is None:
        return own
    try:
        wanted.write_text(text, "utf-8")
    except OSError as error:
        raise PdctlError(f"{wanted}: cannot be written: {error.strerror}") from None
    return wanted


def _about(running: Demo, config: Path, ascii_only: bool) -> Iterator[str]:
    from pdctl.demo.faults import FAULTS
    from pdctl.render.look import look
    from pdctl.render.text import wrap

    shown = look(ascii_only)
    yield from wrap(FAULTS[running.fault].line, shown.width, f"{running.fault}: ", "    ")
    yield ""
    width = max(len(i.name) for i in running.cluster.instances) + 2
    for instance in running.cluster.instances:
        yield f"  {instance.name:<{width}}{instance.url}"
        if instance.role.value == "router":
            yield f"  {'':<{width}}metrics {instance.metrics}"
        yield f"  {'':<{width}}log {instance.log}"
    yield ""
    yield "What is true:"
    yield from (f"  {line}" for line in truth_lines(running.truth()))
    if running.leads_to:
        yield f"  should lead to: {', '.join(running.leads_to)}"
    yield ""
    yield "In another terminal:"
    for command in ("triage", "pinned", "sample"):
        yield f"  pdctl {command} --config {config}"
    yield "Ctrl-C ends it."


def truth_lines(truth: Truth) -> Iterator[str]:
    """The truth in words, one line a fact."""
    for name, dp in truth.stopped:
        yield f"{name}: the scheduler of rank DP{dp} stands still"
    for stuck in truth.stuck:
        since = f"{max(truth.t - stuck.since, 0.0):.0f} s"
        yield f"{stuck.instance}: {stuck.count} stuck in {stuck.queue}, DP{stuck.dp}, for {since}"
    if not truth.stuck and not truth.stopped:
        yield "nothing is stuck"


def _stay(running: Demo, duration: float | None) -> None:
    """Until the time is over or Ctrl-C; the end of the simulation before that is an error."""
    try:
        running.process.wait(timeout=duration)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        return
    raise PdctlError("the simulation ended by itself", (running.folder / "demo.err").read_text("utf-8", "replace"))
