"""``pdctl past``: what a Prometheus server scraped of the cluster, judged as triage judges what it sees itself."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    FailOnOpt,
    Output,
    OutputOpt,
    PrefillOpt,
    RecordOpt,
    RouterOpt,
    TimeoutOpt,
    emit,
    target,
)
from pdctl.errors import UsageError
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from pdctl.facts.prometheus import Server
    from pdctl.looks.past import Past, Span
    from pdctl.model.cluster import Cluster
    from pdctl.model.window import Window


UrlArg = Annotated[str, typer.Argument(metavar="PROMETHEUS", help="The server's URL, e.g. http://prometheus:9090.")]
SinceOpt = Annotated[
    str, typer.Option("--since", metavar="TIME", help='From when on: 15m (ago), 02:10, "yesterday 18:00".')
]
UntilOpt = Annotated[str, typer.Option("--until", metavar="TIME", help="Up to when; it is judged as it was then.")]
MatchOpt = Annotated[
    list[str] | None,
    typer.Option("--match", metavar="LABEL=VALUE", help="Only series with this label; repeatable."),
]
ReleaseOpt = Annotated[
    str | None,
    typer.Option("--release", metavar="X.Y.Z", help="The engines' release, which no metric tells."),
]
KeyEnvOpt = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="Environment variable with Prometheus's bearer token.")
]
CaOpt = Annotated[Path | None, typer.Option("--ca-file", metavar="FILE", help="The CA of Prometheus's certificate.")]


def past(
    prometheus: UrlArg,
    since: SinceOpt = "15m",
    until: UntilOpt = "now",
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    match: MatchOpt = None,
    release: ReleaseOpt = None,
    key_env: KeyEnvOpt = None,
    ca_file: CaOpt = None,
    timeout: TimeoutOpt = 30.0,
    record: RecordOpt = None,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Judge what a Prometheus server scraped of the cluster: now that it is over, or for a thousand engines at once.

    One query a metric, not one an engine. The scrapes are kept as a recording that every command reads with --from.
    Without an inventory the cluster is taken from the labels. Times are those of this machine's zone."""
    from pdctl import outlet
    from pdctl.checks.over_time import judge_over_time
    from pdctl.checkup.mutes import applied
    from pdctl.looks.past import PastLook
    from pdctl.reach.clock import SystemClock

    clock = SystemClock()
    span = _span(since, until, clock.wall(), release)
    server = _server(prometheus, match or (), key_env, ca_file, timeout)
    with ExitStack() as stack:
        what = _cluster(stack, config, prefill, decode, router)
        path, is_kept = _place(stack, record, what, clock.wall())
        with PastLook(server, span, clock) as look:
            found = look.recall(what, path)
        report, said_of_mutes = applied(judge_over_time(_window(path, span), found.cluster), found.cluster)
    for line in (*found.notes, *said_of_mutes, *_lines(found, path if is_kept else None)):
        outlet.say(line)
    emit(report, output, ascii_only=ascii_only, fail_on=fail_on)


def _span(since: str, until: str, now: datetime, release: str | None) -> Span:
    """Raises UsageError for what is no moment, and for a span that ends before it begins."""
    from pdctl.looks.past import Span
    from pdctl.model.when import SAID, resolve

    moments = {}
    for option, text in (("--since", since), ("--until", until)):
        try:
            moments[option] = resolve(text, now, now.astimezone().tzinfo or UTC)
        except ValueError as error:
            raise UsageError(f"{option} {text!r}: {error}", f"Write {SAID}.") from None
    if moments["--since"] >= moments["--until"]:
        raise UsageError(f"--since {since} is not before --until {until}")
    return Span(moments["--since"], moments["--until"], release)


def _server(url: str, match: Sequence[str], key_env: str | None, ca_file: Path | None, timeout: float) -> Server:
    from pdctl.facts.prometheus import Server
    from pdctl.inventory.addresses import url_fault
    from pdctl.model.cluster import KeySource

    if wrong := url_fault(url):
        raise UsageError(f"PROMETHEUS: {wrong}", "For example: pdctl past http://prometheus:9090 --since 15m")
    pairs = []
    for text in match:
        label, sign, value = text.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label):
            raise UsageError(f"--match {text!r} is not LABEL=VALUE", "For example: --match job=sglang")
        pairs.append((label, value.strip('"')))
    key = KeySource(env=key_env) if key_env else None
    return Server(url, key, str(ca_file) if ca_file else None, tuple(pairs), timeout)


def _cluster(
    stack: ExitStack, config: Path | None, prefill: list[str] | None, decode: list[str] | None, router: list[str] | None
) -> Cluster | None:
    """The cluster of the options or of the inventory found; None where there is none: the labels must tell."""
    try:
        return stack.enter_context(target(config=config, prefill=prefill, decode=decode, router=router)).cluster
    except UsageError:
        if config is not None or prefill or decode or router:
            raise
        return None


def _place(stack: ExitStack, record: Path | None, cluster: Cluster | None, now: datetime) -> tuple[Path, bool]:
    """Where the recording goes, and whether it stays there."""
    from pdctl.keep import default_record
    from pdctl.model.cluster import Cluster

    path = record or default_record(cluster or Cluster("past", ()), now)
    if path is not None:
        return path, True
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdctl-past-"))) / "capture", False


def _window(path: Path, span: Span) -> Window:
    """All of what was kept, an hour and more as well."""
    from pdctl.reach.capture import open_capture
    from pdctl.replay import read_window

    with open_capture(path) as capture:
        return read_window(capture, last_s=(span.end - span.start).total_seconds() + 1)


def _lines(found: Past, path: Path | None) -> list[str]:
    """What was asked, what of it is nobody's, where it is kept."""
    lines = [f"{found.scrapes} scrapes in {found.queries} queries"]
    if found.strangers:
        more = f" and {len(found.strangers) - 6} more" if len(found.strangers) > 6 else ""
        lines.append(f"scraped too, and not in the inventory: {', '.join(found.strangers[:6])}{more}")
    if path is not None:
        lines.append(f"evidence kept: {path}")
    return lines
