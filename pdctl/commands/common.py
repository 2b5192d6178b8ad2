"""What commands share: the options every one of them spells alike, the cluster or capture they look at, the way out.

with target(config=config, prefill=prefill, ..., capture=from_, demo=demo, release=release) as what:
    what.cluster, what.capture, what.demo
emit(report, output, ascii_only=ascii_only, fail_on=fail_on)      # writes and ends the command
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pdctl import exits
from pdctl.commands.aim import NAMED, handed_out, named_by
from pdctl.errors import InventoryError, UsageError
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from pdctl.demo.run import Demo
    from pdctl.model.cluster import Cluster
    from pdctl.model.finding import Report
    from pdctl.model.registry import Entry
    from pdctl.reach.capture import Capture


class Output(StrEnum):
    """The forms of a report. What is judged and the exit status are the same in all of them."""

    HUMAN = "human"
    JSON = "json"
    JSONL = "jsonl"
    SHORT = "short"


# --- options -----------------------------------------------------------------------------------------------------


def parse_duration(text: str | float) -> float:
    """Seconds of "2", "2s", "500ms", "1.5m" or "1h". Raises typer.BadParameter for anything else, and for 0.

    >>> parse_duration("500ms"), parse_duration("2m")
    (0.5, 120.0)
    """
    unit = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(ms|s|m|h|)", str(text).strip())
    seconds = float(match[1]) * unit[match[2]] if match else 0.0
    if not 0 < seconds < 1e7:
        raise typer.BadParameter(f"{text!r} is no duration; write 2s, 500ms, 1.5m or 1h")
    return seconds


def inventory_names(incomplete: str) -> list[str]:
    """Instance names of the inventory that would be used, for the shell; nothing where there is none."""
    import tomllib

    try:
        text, _ = find_inventory(None)
        rows = tomllib.loads(text).get("instance", [])
        return [name for row in rows if isinstance(name := row.get("name"), str) and name.startswith(incomplete)]
    except (InventoryError, UsageError, tomllib.TOMLDecodeError, AttributeError, TypeError):
        return []


def fault_names(incomplete: str) -> list[tuple[str, str]]:
    """Faults of the simulated cluster, for the shell."""
    from pdctl.demo.faults import FAULTS

    return [(fault.name, fault.line) for fault in FAULTS.values() if fault.name.startswith(incomplete)]


ConfigOpt = Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="The inventory.")]
PrefillOpt = Annotated[list[str] | None, typer.Option("--prefill", metavar="URL", help="A prefill engine; repeatable.")]
DecodeOpt = Annotated[list[str] | None, typer.Option("--decode", metavar="URL", help="A decode engine; repeatable.")]
RouterOpt = Annotated[
    list[str] | None,
    typer.Option("--router", metavar="URL[,METRICS]", help="A router, and where its metrics are; repeatable."),
]
ProxyOpt = Annotated[
    list[str] | None, typer.Option("--proxy", metavar="URL", help="A proxy in front of the routers; repeatable.")
]
FromOpt = Annotated[
    Path | None, typer.Option("--from", metavar="CAPTURE", help="Judge a recording instead of a live cluster.")
]
DemoOpt = Annotated[
    str | None,
    typer.Option(
        "--demo",
        metavar="FAULT",
        help="Look at a simulated cluster with this fault.",
        autocompletion=fault_names,
    ),
]
ReleaseOpt = Annotated[
    str | None, typer.Option("--release", metavar="X.Y.Z", help="With --demo: the engine release to simulate.")
]
OutputOpt = Annotated[Output, typer.Option("--output", "-o", metavar="FORM", help="human, json, jsonl or short.")]
FailOnOpt = Annotated[
    FailOn,
    typer.Option(
        "--fail-on", metavar="STATUS", help="The exit status is 0 below this: warning or critical. Unknown always is 3."
    ),
]
IntervalOpt = Annotated[
    float, typer.Option("--interval", metavar="TIME", parser=parse_duration, help="Between samples: 2, 2s, 500ms.")
]
ForOpt = Annotated[
    float, typer.Option("--for", metavar="TIME", parser=parse_duration, help="How long to look at most: 60, 60s, 2m.")
]
TimeoutOpt = Annotated[
    float, typer.Option("--timeout", metavar="TIME", parser=parse_duration, help="For one answer, start to end.")
]
DeadlineOpt = Annotated[
    float | None,
    typer.Option(
        "--deadline", metavar="TIME", parser=parse_duration, help="For the whole run; what is late is missed."
    ),
]
RecordOpt = Annotated[
    Path | None, typer.Option("--record", metavar="DIR", help="Keep every raw answer there, for --from.")
]
AsciiOpt = Annotated[bool, typer.Option("--ascii", help="Nothing but ASCII in the output.")]
InstanceArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="[INSTANCE]...", help="Only these instances.", autocompletion=inventory_names),
]


# --- what to look at ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """What a command looks at. ``capture`` is None for a live cluster; ``demo`` is the running simulation, if any."""

    cluster: Cluster
    capture: Capture | None = None
    demo: Demo | None = None


@contextmanager
def target(
    *,
    config: Path | None = None,
    prefill: Sequence[str] | None = None,
    decode: Sequence[str] | None = None,
    router: Sequence[str] | None = None,
    proxy: Sequence[str] | None = None,
    capture: Path | None = None,
    demo: str | None = None,
    release: str | None = None,
) -> Iterator[Target]:
    """The one thing the options name: a capture, a simulated cluster, the URLs given, or else the inventory found.

    Raises UsageError where they name two or none, InventoryError or CaptureError where it cannot be read. A simulated
    cluster runs until the block ends."""
    urls = (tuple(prefill or ()), tuple(decode or ()), tuple(router or ()), tuple(proxy or ()))
    _only_one(capture is not None, demo is not None, any(urls), config is not None)
    NAMED.set(named_by({
        "--config": config, "--prefill": prefill, "--decode": decode, "--router": router, "--proxy": proxy,
        "--from": capture, "--demo": demo, "--release": release,
    }))  # fmt: skip
    if release is not None and demo is None:
        raise UsageError("--release says which release to simulate, so it needs --demo")
    with ExitStack() as stack:
        if capture is not None:
            from pdctl.reach.capture import open_capture

            recording = open_capture(capture)
            yield Target(recording.cluster, capture=recording)
        elif demo is not None:
            from pdctl.demo.run import started

            running = stack.enter_context(started(demo, release=release))
            yield Target(running.cluster, demo=running)
        else:
            yield Target(_cluster_of_urls(*urls) if any(urls) else read_inventory(config))


def _only_one(capture: bool, demo: bool, urls: bool, config: bool) -> None:
    given = {
        "--from": capture,
        "--demo": demo,
        "URLs (--prefill, --decode, --router, --proxy)": urls,
        "--config": config,
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} each name what to look at", "Give one of them.")


def _cluster_of_urls(
    prefill: tuple[str, ...], decode: tuple[str, ...], router: tuple[str, ...], proxy: tuple[str, ...]
) -> Cluster:
    from pdctl.inventory.urls import cluster_of_urls

    return cluster_of_urls(prefill, decode, router, proxy)


def read_inventory(config: Path | None) -> Cluster:
    """The cluster of the file given, or of the first inventory found. Raises InventoryError or UsageError."""
    from pdctl.inventory.toml import read_cluster

    text, source = find_inventory(config)
    return read_cluster(text, source)


def find_inventory(config: Path | None) -> tuple[str, str]:
    """Text and path of the inventory. Raises InventoryError where it cannot be read, UsageError where none is found."""
    from pdctl.inventory.where import candidates

    if config is not None:
        return _text_of(config), str(config)
    looked = candidates(os.environ.get("PDCTL_CONFIG"), _config_home())
    for place in looked:
        if place.must_exist or Path(place.path).is_file():
            return _text_of(Path(place.path)), place.path
    raise UsageError("no cluster to look at", _none_found([place.shown for place in looked]))


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InventoryError(f"{path}: not UTF-8 text (byte {error.start})", "TOML files are UTF-8.") from None
    except OSError as error:
        new = f"pdctl init --prefill URL --decode URL --router URL --write {shlex.quote(str(path))} writes one."
        hint = new if isinstance(error, FileNotFoundError) else ""
        raise InventoryError(f"{path}: cannot be read: {error.strerror}", hint) from None


def _config_home() -> str:
    """The user's configuration folder; as it is written where the user has no home (a container's nameless user)."""
    try:
        return os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    except RuntimeError:
        return "~/.config"


def _none_found(looked: Sequence[str]) -> str:
    return (
        f"Looked for {', '.join(looked)}.\n"
        "Name the endpoints: pdctl triage --prefill URL --decode URL --router URL\n"
        "or write an inventory once: pdctl init --prefill URL --decode URL --router URL"
    )


# --- the way out -------------------------------------------------------------------------------------------------


def emit(
    report: Report,
    output: Output = Output.HUMAN,
    *,
    ascii_only: bool = False,
    fail_on: FailOn = FailOn.WARNING,
    pinned: bool = False,
    interrupted: bool = False,
) -> NoReturn:
    """Writes the report in the form asked for and ends the command with the status that was judged, whoever still
    reads the output; a look cut short by Ctrl-C ends as interrupted. ``pinned`` words it for people as the answer to
    that one question."""
    from pdctl import errors, outlet

    report = handed_out(report)
    outlet.write_lines(_lines(report, output, ascii_only, pinned))
    fault = dict(NAMED.get()).get("--demo")
    if fault is not None and report.findings and output is Output.HUMAN:
        outlet.say(f"this cluster is gone now: `pdctl demo {fault}` starts one that stays, for looks of your own")
    raise typer.Exit(errors.INTERRUPTED if interrupted else exits.exit_of(report.status, fail_on))


def entry_value(entry: Entry) -> dict[str, str]:
    """A row of the registry of findings as JSON says it."""
    return {"name": entry.name, "group": entry.group, "severity": entry.severity.value, "says": entry.says}


def _lines(report: Report, output: Output, ascii_only: bool, pinned: bool = False) -> Iterator[str]:
    from pdctl.render.look import look

    if output is Output.HUMAN and pinned:
        from pdctl.render.pinned import pinned_lines

        yield from pinned_lines(report, look(ascii_only))
    elif output is Output.HUMAN:
        from pdctl.render.human import triage_lines

        yield from triage_lines(report, look(ascii_only))
    elif output is Output.SHORT:
        from pdctl.render.short import short_line

        yield short_line(report, look(ascii_only))
    else:
        from pdctl.render.wire import report_json, report_jsonl

        yield report_jsonl(report) if output is Output.JSONL else report_json(report)
