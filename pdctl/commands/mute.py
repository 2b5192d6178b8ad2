"""``pdctl mute``: who does not want to hear of which finding, until when and why."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    Output,
    PrefillOpt,
    ProxyOpt,
    RouterOpt,
    inventory_names,
    parse_duration,
    target,
)
from pdctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pdctl.model.cluster import Cluster
    from pdctl.model.mute import Lifted, Mute

LIST, LIFT = "list", "lift"


def words_of(incomplete: str) -> list[str]:
    """Findings, and the two words that stand in the place of one, for the shell."""
    from pdctl.model.registry import REGISTRY

    return [name for name in (LIST, LIFT, *REGISTRY) if name.startswith(incomplete)]


WordsArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="FINDING | list | lift FINDING", help="What to mute.", autocompletion=words_of),
]
OnOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--on", metavar="INSTANCE", help="The instance, or the pair (a->b); repeatable.", autocompletion=inventory_names
    ),
]
ForOpt = Annotated[
    float | None, typer.Option("--for", metavar="TIME", parser=parse_duration, help="For how long: 30m, 2h, 1.5h.")
]
WhyOpt = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="Why: shown wherever the finding is.")]
WhoOpt = Annotated[str | None, typer.Option("--who", metavar="NAME", help="Who; you, unless given.")]
StickyOpt = Annotated[bool, typer.Option("--sticky", help="Keep it muted although it gets worse.")]
SharedOpt = Annotated[bool, typer.Option("--shared", help="Keep it beside the inventory, for all who read that.")]
FormOpt = Annotated[Output, typer.Option("--output", "-o", metavar="FORM", help="human, json or jsonl.")]


def mute(
    words: WordsArg = None,
    on: OnOpt = None,
    seconds: ForOpt = None,
    why: WhyOpt = None,
    who: WhoOpt = None,
    sticky: StickyOpt = False,
    shared: SharedOpt = False,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    output: FormOpt = Output.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Mute a finding for a while: it stays in every report, with who and why, but does not count in the status.

    pdctl mute FINDING --on INSTANCE --for 2h --why TEXT mutes; pdctl mute list shows what is muted; pdctl mute lift
    FINDING [--on INSTANCE] ends it. It lifts by itself when its time is over, and when the finding gets worse: a higher
    severity, another rank, a greater count than when it was muted (--sticky: not then)."""
    from pdctl.reach.clock import SystemClock

    now = SystemClock().wall()
    with target(config=config, prefill=prefill, decode=decode, router=router, proxy=proxy) as what:
        cluster = what.cluster
    action, finding = _parsed(words or (), on)
    if action == LIST:
        _show(cluster, now, output, ascii_only)
    elif action == LIFT:
        _lift(cluster, finding, on or ())
    else:
        _mute(_made(cluster, finding, on or (), now, seconds, why, who, sticky), cluster, now, shared)


def _parsed(words: Sequence[str], on: Sequence[str] | None) -> tuple[str, str]:
    """What to do, and with which finding. Raises UsageError."""
    if not words or (words[0] == LIST and len(words) == 1):
        if on:
            raise UsageError("which finding is not said", "pdctl mute FINDING --on INSTANCE --for 2h --why TEXT")
        return LIST, ""
    if words[0] == LIFT and len(words) == 2:
        return LIFT, _known(words[1])
    if len(words) == 1 and words[0] not in (LIST, LIFT):
        return "", _known(words[0])
    raise UsageError(f"not understood: pdctl mute {' '.join(words)}", "pdctl mute --help shows what may stand there.")


def _known(finding: str) -> str:
    from difflib import get_close_matches

    from pdctl.model.registry import REGISTRY

    if finding in REGISTRY:
        return finding
    near = get_close_matches(finding, REGISTRY, 1)
    raise UsageError(
        f"no finding {finding!r}", f"Did you mean {near[0]}?" if near else "`pdctl findings` lists them."
    )  # fmt: skip


# --- muting ------------------------------------------------------------------------------------------------------


def _made(
    cluster: Cluster, finding: str, on: Sequence[str], now: datetime, seconds: float | None, why: str | None,
    who: str | None, sticky: bool,
) -> list[Mute]:  # fmt: skip
    """The mutes asked for. Raises UsageError for what is missing, and for an instance there is not."""
    from pdctl.checkup.lastfound import last_found
    from pdctl.model.mute import Mute

    for given, option, example in ((on, "--on", "prefill-0"), (seconds, "--for", "2h"), (why, "--why", "'INC-42'")):
        if not given:
            raise UsageError(f"a mute needs {option}", f"For example: {option} {example}")
    assert seconds is not None and why is not None
    names = {i.name for i in cluster.instances} | {f"host:{h.name}" for h in cluster.hosts} | {cluster.name}
    for subject in on:
        for part in subject.split("->"):
            if part not in names:
                raise UsageError(f"{cluster.name} has no instance {part!r}", f"It has: {', '.join(sorted(names))}.")
    until = now + timedelta(seconds=seconds)
    made = []
    for subject in dict.fromkeys(on):
        seen = last_found(cluster, finding, subject, now)
        made.append(Mute(finding, subject, now, until, who or _me(), why, sticky, seen[0] if seen else None))
    return made


def _mute(mutes: list[Mute], cluster: Cluster, now: datetime, shared: bool) -> None:
    from pdctl import outlet
    from pdctl.checkup.mutes import add

    path = add(mutes, cluster, now, shared=shared)
    for made in mutes:
        outlet.write(f"muted: {made.finding} on {made.on} until {made.until:%Y-%m-%d %H:%M:%S} UTC\n")
        outlet.write(f"  {_baseline(made)}\n")
    whose = "all who read this inventory" if shared else "your own runs; --shared reaches other users', cron's too"
    outlet.write(f"kept in {path}, for {whose}\n")


def _baseline(made: Mute) -> str:
    if made.sticky:
        return "it stays muted when it gets worse"
    if made.was is None:
        return "not seen in the last hour: the first run that sees it says what is worse"
    worst = max(made.was, key=lambda p: p.count or 0.0)
    counts = f", counting {worst.count:g}" if worst.count is not None else ""
    return f"it lifts when it gets worse than it was last seen: {worst.severity}{counts}"


def _me() -> str:
    """The user, by the name that sudo was called with if it was."""
    import getpass
    import os
    import socket

    name = os.environ.get("SUDO_USER")
    if not name:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


# --- lifting and listing -----------------------------------------------------------------------------------------


def _lift(cluster: Cluster, finding: str, on: Sequence[str]) -> None:
    from pdctl import outlet
    from pdctl.checkup.mutes import lift

    gone = lift(cluster, finding, tuple(on))
    if not gone:
        raise UsageError(
            f"{finding} is not muted{' on ' + ', '.join(on) if on else ''}", "`pdctl mute list` shows what is."
        )
    for old in gone:
        outlet.write(f"lifted: {old.finding} on {old.on}\n")


def _show(cluster: Cluster, now: datetime, output: Output, ascii_only: bool) -> None:
    """What is muted now, what comes first to its end first, and what would be and lifted itself."""
    from pdctl import outlet
    from pdctl.checkup.mutes import mutes_of

    found = mutes_of(cluster)
    for note in found.notes:
        outlet.say(note)
    rows = sorted((m for m in found.rows if m.is_on(now)), key=lambda m: m.until)
    lifted = [each for each in found.lifted if each.mute.is_on(now)]
    if output in (Output.JSON, Output.JSONL):
        from pdctl.render.mute import mutes_json, mutes_jsonl

        text = mutes_json(rows, cluster.name, lifted) if output is Output.JSON else mutes_jsonl(rows)
        outlet.write_lines(text.splitlines())
        return
    outlet.write_lines(_lines(rows, lifted, cluster, now, ascii_only))


def _lines(
    rows: Sequence[Mute], lifted: Sequence[Lifted], cluster: Cluster, now: datetime, ascii_only: bool
) -> Iterator[str]:
    from pdctl.render.look import look
    from pdctl.render.mute import mutes_lines

    yield from mutes_lines(rows, cluster.name, now, look(ascii_only), lifted)
