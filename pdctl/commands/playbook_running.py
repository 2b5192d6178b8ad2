"""``pdctl playbook run``: a playbook on a cluster, a recording or a simulation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    DecodeOpt,
    DemoOpt,
    FailOnOpt,
    FromOpt,
    PrefillOpt,
    ProxyOpt,
    RecordOpt,
    ReleaseOpt,
    RouterOpt,
    parse_duration,
    target,
)
from pdctl.commands.playbook_resuming import Before, Pairs, before_this
from pdctl.commands.playbook_shared import NameArg, read
from pdctl.errors import INTERRUPTED, UsageError
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from pdctl.commands.command_line import CommandLine
    from pdctl.model.playbook import Playbook
    from pdctl.render.look import Look
    from pdctl.runbook.order import Desk, Order, Target
    from pdctl.runbook.run import Ended, Runner
    from pdctl.runbook.transcript import Transcript


class Form(StrEnum):
    HUMAN = "human"
    JSON = "json"
    JSONL = "jsonl"


SetOpt = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A value the playbook asks for.")]
UnattendedOpt = Annotated[
    bool, typer.Option("--yes-read-only", help="Ask nobody; do only what reads, and say what was not done.")
]
TranscriptOpt = Annotated[
    Path | None, typer.Option("--transcript", metavar="FILE", help="Where the transcript goes (FILE.jsonl, FILE.txt).")
]
ResumeOpt = Annotated[bool, typer.Option("--resume", help="Go on with the last run, where it stopped.")]
LookOpt = Annotated[
    float | None, typer.Option("--for", metavar="TIME", parser=parse_duration, help="No look or wait longer than this.")
]
RoundsOpt = Annotated[
    int | None, typer.Option("--rounds", metavar="N", min=0, max=1000, help="Go round at most so many times.")
]
BriefOpt = Annotated[bool, typer.Option("--brief", help="Findings alone, not all that each command prints.")]
FormOpt = Annotated[Form, typer.Option("--output", "-o", metavar="FORM", help="human, json or jsonl.")]


def run(
    context: typer.Context,
    name: NameArg,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    capture: FromOpt = None,
    demo: DemoOpt = None,
    release: ReleaseOpt = None,
    given: SetOpt = None,
    unattended: UnattendedOpt = False,
    transcript: TranscriptOpt = None,
    resume: ResumeOpt = False,
    look_s: LookOpt = None,
    rounds: RoundsOpt = None,
    record: RecordOpt = None,
    brief: BriefOpt = False,
    output: FormOpt = Form.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Runs a playbook step by step. What changes the cluster is asked about each time, whatever the playbook says.

    Leaves a transcript with times and findings. --from and --demo rehearse it on a recording or a simulation. Exit
    status as of every command that judges: of the verdict that the run came to."""
    from pdctl import exits
    from pdctl.commands.command_line import CommandLine
    from pdctl.render.look import look
    from pdctl.runbook.order import Order
    from pdctl.runbook.transcript import cut_off

    line = CommandLine(context)
    playbook = read(name, line)
    before = before_this(playbook, transcript) if resume else None
    pairs = _pairs(config, prefill, decode, router, proxy, capture, demo, release)
    if before is not None:
        pairs = before.target_of(pairs)
    limits = before.limits if before is not None else {}
    look_s, rounds = look_s or limits.get("for"), rounds if rounds is not None else limits.get("rounds")
    record = record or _path(limits.get("record"))
    shown = look(ascii_only)
    desk = Terminal(output is Form.HUMAN, brief)
    attended = not unattended and output is Form.HUMAN and _at_a_terminal()  # who agrees must see to what
    values = _given(playbook, given or [], before, desk if attended else None)
    with _target(pairs) as aim:
        if before is not None and before.events[0].get("cluster") != aim.cluster:
            raise UsageError(f"{before.path}: that run was of {before.events[0].get('cluster')}, this is {aim.cluster}")
        left = cut_off(before.events) if before is not None else None
        order = Order(aim, attended, unattended, values, look_s, rounds, record, ascii_only, left)
        runner, ended = _run(playbook, order, before, transcript, desk, shown, line, pairs, output)
    _tell_end(runner, ended, output, name)
    raise typer.Exit(INTERRUPTED if ended.interrupted else exits.exit_of(ended.verdict, fail_on))


def _at_a_terminal() -> bool:
    """Whether somebody is there to be asked; a process started without streams has None in their place."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr)


# --- what it looks at -------------------------------------------------------------------------------------------------


def _pairs(
    config: Path | None, prefill: list[str] | None, decode: list[str] | None, router: list[str] | None,
    proxy: list[str] | None, capture: Path | None, demo: str | None, release: str | None,
) -> Pairs:  # fmt: skip
    """What the options name, as pairs that stand on a command line and in a transcript; paths are absolute."""
    rows: list[tuple[str, str | None]] = [
        ("--config", str(config.absolute()) if config else None),
        ("--from", str(capture.absolute()) if capture else None),
        ("--demo", demo),
        ("--release", release),
    ]
    for option, urls in (("--prefill", prefill), ("--decode", decode), ("--router", router), ("--proxy", proxy)):
        rows += [(option, url) for url in urls or ()]
    return tuple((option, value) for option, value in rows if value is not None)


@contextmanager
def _target(pairs: Pairs) -> Iterator[Target]:
    """What the run looks at. A simulation is started once and looked at by every step through its inventory."""
    from pdctl.inventory.write import render_cluster
    from pdctl.runbook.order import Target

    one, many = dict(pairs), {option: [v for o, v in pairs if o == option] for option, _ in pairs}
    with target(
        config=_path(one.get("--config")),
        prefill=many.get("--prefill"),
        decode=many.get("--decode"),
        router=many.get("--router"),
        proxy=many.get("--proxy"),
        capture=_path(one.get("--from")),
        demo=one.get("--demo"),
        release=one.get("--release"),
    ) as what:
        cluster = what.cluster
        names = tuple(instance.name for instance in cluster.instances)
        if what.demo is not None:
            inventory = what.demo.folder / "pdctl.toml"
            inventory.write_text(render_cluster(cluster), "utf-8")
            shown = f"a simulated cluster (--demo {one['--demo']})"
            yield Target((("--config", str(inventory)),), cluster.name, names, shown, demo=True, named=pairs)
        elif what.capture is not None:
            yield Target(pairs, cluster.name, names, f"the recording {one['--from']}", recording=True, named=pairs)
        elif pairs:
            yield Target(pairs, cluster.name, names, f"{cluster.name} ({' '.join(v for _, v in pairs)})", named=pairs)
        else:
            source = str(Path(cluster.source).absolute())
            yield Target((("--config", source),), cluster.name, names, f"{cluster.name} ({source})")


def _path(text: object) -> Path | None:
    return Path(text) if isinstance(text, str) and text else None


def _given(playbook: Playbook, words: Sequence[str], before: Before | None, desk: Desk | None) -> dict[str, str]:
    """The values that the playbook asks for: as set, as of the run before, as answered, as they usually are."""
    values = before.given({word.partition("=")[0] for word in words}) if before else {}
    names = [row.name for row in playbook.given]
    for word in words:
        name, equals, value = word.partition("=")
        if name not in names or not equals:
            there = f"It takes: {', '.join(names)}." if names else "It takes none."
            raise UsageError(f"--set {word}: {playbook.name} asks for no such value", f"{there} Write NAME=VALUE.")
        values[name] = value
    for row in playbook.given:
        if row.optional and (before or values.get(row.name) == ""):
            continue
        if row.name in values:
            continue
        usual = f" [{row.default}]" if row.default is not None else ""
        answer = (desk.ask(f"{row.ask}{usual} ") or "").strip() if desk else ""
        value = answer or row.default or ""
        if not value and row.optional:
            continue
        if not value:
            raise UsageError(f"{playbook.name} needs a value: {row.ask}", f"--set {row.name}=...")
        values[row.name] = value
    for name, value in values.items():
        if value.startswith("-"):
            raise UsageError(f"--set {name}={value}: would be read as an option")
    return {name: value for name, value in values.items() if value}


# --- the transcript ---------------------------------------------------------------------------------------------------


def _opened(playbook: Playbook, before: Before | None, wanted: Path | None) -> Transcript:
    from datetime import UTC, datetime

    from pdctl.runbook.transcript import Transcript, default_folder, events_path

    if before is not None:
        return Transcript(before.path, fresh=False)
    if wanted is not None:
        return Transcript(events_path(wanted), fresh=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return Transcript(default_folder() / f"{playbook.name}-{stamp}.jsonl", fresh=True, needed=False)


# --- the run ----------------------------------------------------------------------------------------------------------


class Terminal:
    """Shows a run on stdout, asks on stderr."""

    def __init__(self, human: bool, brief: bool) -> None:
        self._human = human
        self._brief = brief

    def show(self, lines: Sequence[str]) -> None:
        from pdctl import outlet

        if self._human:
            outlet.write_lines(lines)

    def output(self, line: str) -> None:
        if not self._brief:
            self.show([line])

    def ask(self, question: str) -> str | None:
        from pdctl.render.escape import safe

        sys.stdout.flush()
        sys.stderr.write(safe(question))
        sys.stderr.flush()
        said = sys.stdin.readline()
        return said.rstrip("\n") if said else None


def _run(
    playbook: Playbook, order: Order, before: Before | None, wanted: Path | None, desk: Terminal, shown: Look,
    line: CommandLine, pairs: Pairs, output: Form,
) -> tuple[Runner, Ended]:  # fmt: skip
    from functools import partial

    from pdctl import __version__, outlet
    from pdctl.plans.playbook_course import begun
    from pdctl.reach.clock import SystemClock
    from pdctl.reach.own import run_own
    from pdctl.render.wire import dumps
    from pdctl.runbook.run import Runner, resuming, starting

    environment = {"COLUMNS": str(shown.width), **({"FORCE_COLOR": "1"} if shown.colour else {"NO_COLOR": "1"})}
    told = (lambda row: outlet.write(dumps(row) + "\n")) if output is Form.JSONL else None
    transcript = _opened(playbook, before, wanted)
    if transcript.failed is None:
        outlet.say(f"transcript: {transcript.path.with_suffix('.txt')}")  # where to look if this ends without a word
    runs = partial(run_own, report_variable=outlet.REPORT_TO, environment=environment, held=transcript.held)
    try:
        runner = Runner(
            playbook, order, transcript, desk, shown, runs=runs, options=line.options, clock=SystemClock(), told=told
        )
        if before is None:
            runner.tell(starting(playbook, order, pairs, _who(), __version__))
        else:
            runner.tell(resuming(before.events, before.course, _who()))
        return runner, runner.run(before.course if before else begun(playbook))
    finally:
        transcript.close()


def _who() -> str:
    import getpass
    import socket

    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "?"
    return f"{name}@{socket.gethostname()}"


def _tell_end(runner: Runner, ended: Ended, output: Form, name: str) -> None:
    """The document, where one was asked for; to people, where the transcript is and how to go on. ``name`` is what the
    playbook was called by: a name, or its file."""
    from pdctl import outlet
    from pdctl.render.wire import dumps

    if output is Form.JSON:
        outlet.write(dumps(_document(runner, ended), indent=2) + "\n")
    path = runner.transcript.path
    if runner.transcript.failed:
        outlet.say(f"no whole transcript: {runner.transcript.failed}")
        return
    outlet.say(f"transcript: {path} and {path.with_suffix('.txt').name}")
    if ended.stopped:
        words = ("pdctl", "playbook", "run", name, "--resume", "--transcript", str(path))
        outlet.say(f"go on with: {shlex.join(words)}")


def _document(runner: Runner, ended: Ended) -> Mapping[str, Any]:
    from pdctl import __version__

    steps = [
        {key: value for key, value in event.items() if key not in ("event", "output")}
        for event in runner.events
        if event["event"] == "step"
    ]
    return {
        "schema": "pdctl.playbook-run/1",
        "pdctl": __version__,
        "playbook": runner.playbook.name,
        "cluster": runner.order.target.cluster,
        "status": ended.verdict.value,
        "stopped": ended.stopped,
        "why": ended.why,
        "steps": steps,
        "transcript": str(runner.transcript.path),
    }
