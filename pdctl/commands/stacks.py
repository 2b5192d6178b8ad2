"""``pdctl stacks``: where every scheduler rank is."""

from __future__ import annotations

from enum import StrEnum
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
from pdctl.errors import UsageError
from pdctl.exits import FailOn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pdctl.looks.stacks import StackPlan
    from pdctl.model.cluster import Instance
    from pdctl.model.host_view import StackView
    from pdctl.model.window import Window
    from pdctl.render.look import Look

FINDINGS = ("ranks-diverged", "device-hang", "stacks-partial", "scheduler-stopped")
ROUTER_LIMIT = "its work is done in native (Rust) threads, of which py-spy shows nothing: no stack was taken"
NOTHING_TO_DUMP = "none of its processes is a scheduler or another part of an engine"


class Form(StrEnum):
    """How stacks are shown to people."""

    GROUPED = "grouped"
    RAW = "raw"
    FOLDED = "folded"


CountOpt = Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, max=50, help="How many dumps.")]
ApartOpt = Annotated[
    float, typer.Option("--interval", metavar="TIME", parser=parse_duration, help="Between dumps: 3, 3s, 500ms.")
]
RawOpt = Annotated[bool, typer.Option("--raw", help="The dumps as py-spy printed them.")]
LocalsOpt = Annotated[bool, typer.Option("--locals", help="Local variables as well (they may hold requests); raw.")]
NativeOpt = Annotated[bool, typer.Option("--native", help="C frames as well. STOPS each process while it is read.")]
FoldedOpt = Annotated[bool, typer.Option("--folded", help="Folded lines, for flame graphs.")]


def stacks(
    instances: InstanceArg = None,
    config: ConfigOpt = None,
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    capture: FromOpt = None,
    count: CountOpt = 3,
    apart: ApartOpt = 3.0,
    timeout: TimeoutOpt = 10.0,
    raw: RawOpt = False,
    with_locals: LocalsOpt = False,
    native: NativeOpt = False,
    folded: FoldedOpt = False,
    record: RecordOpt = None,
    output: OutputOpt = Output.HUMAN,
    fail_on: FailOnOpt = FailOn.WARNING,
    ascii_only: AsciiOpt = False,
) -> None:
    """Dump every scheduler rank a few times: ranks grouped by where they are, the odd one, what did not move.

    Uses the py-spy of the engine's own environment or of its host, else puts a copy there for the moment. Processes are
    not stopped for it, except with --native."""
    from pdctl.looks.stacks import StackPlan
    from pdctl.model.answer import Fact
    from pdctl.reach.pyspy import DumpPlan
    from pdctl.render.stacks import stacks_value

    form = _form(raw or with_locals, folded, output)
    plan = StackPlan(count, apart, DumpPlan(timeout, with_locals, native))
    with target(config=config, prefill=prefill, decode=decode, router=router, capture=capture) as what:
        refuse_record_of_recording(what, record)
        wanted = chosen(what.cluster, instances)
        seen = _Seen(what, wanted, plan, record)
    engines = [i for i in wanted if i.is_engine]
    why = seen.why if engines else {i.name: ROUTER_LIMIT for i in wanted}  # routers alone: nothing was dumped
    report = judged(seen.window, what.cluster, engines or wanted, only=FINDINGS, needs=(Fact.STACKS,), why=why)
    report = with_details(report, {view.name: stacks_value(view) for view in seen.views})
    finish(
        report,
        lambda look: seen.lines(form, look),
        output,
        ascii_only=ascii_only,
        fail_on=fail_on,
        notes=seen.notes,
        alone=form is not Form.GROUPED,
    )


def _form(raw: bool, folded: bool, output: Output) -> Form:
    if raw and folded:
        raise UsageError("--folded and --raw are two ways to show the same", "Give one of them.")
    if (raw or folded) and output is not Output.HUMAN:
        raise UsageError(f"-o {output.value} is a form of its own", "Leave out --raw, --locals and --folded.")
    return Form.RAW if raw else Form.FOLDED if folded else Form.GROUPED


class _Seen:
    """The dumps, live or from a recording, and how to show them."""

    def __init__(self, what: Target, wanted: Sequence[Instance], plan: StackPlan, record: Path | None) -> None:
        self.why: dict[str, str] = {}
        self.notes: list[str] = []
        self.bodies: list[tuple[str, bytes]] = []
        self._threads: dict[str, tuple[str, ...]] = {}
        self._wanted = wanted
        self.window = self._recorded(what) if what.capture is not None else self._live(what, plan, record)
        self.views = [self._view(instance) for instance in wanted]

    def lines(self, form: Form, look: Look) -> Iterator[str]:
        from pdctl.model.answer import Fact
        from pdctl.model.host import Stacks
        from pdctl.render.stacks import folded_lines, raw_lines, stacks_lines

        if form is Form.RAW:
            return raw_lines(self.bodies, look)
        if form is Form.FOLDED:
            names = [instance.name for instance in self._wanted]
            return folded_lines(
                ((name, at.value) for name in names for at in self.window.seen(name, Fact.STACKS, Stacks)), look
            )
        return stacks_lines(self.views, look)

    def _recorded(self, what: Target) -> Window:
        from pdctl.model.answer import Fact
        from pdctl.replay import read_window

        assert what.capture is not None
        names = {instance.name for instance in self._wanted}
        for answer in what.capture.answers():
            if answer.fact is Fact.STACKS and answer.subject in names and answer.body:
                self.bodies.append((f"{answer.subject}: {answer.ask}", answer.body))
        window = read_window(what.capture)
        self.notes += [window.note] if window.note else []
        return window

    def _live(self, what: Target, plan: StackPlan, record: Path | None) -> Window:
        from pdctl.looks.hosts import HostPlan, looking
        from pdctl.looks.stacks import dumping
        from pdctl.model.answer import Fact

        with looking(what.cluster, self._wanted, HostPlan(max(90.0, 2 * plan.dump.timeout_s), record)) as look:
            look.on_answer = lambda a: (
                self.bodies.append((f"{a.subject}: {a.ask}", a.body)) if a.fact is Fact.STACKS and a.body else None
            )
            look.processes()
            if look.unfound:
                look.sockets()
                look.processes()
            with dumping(look, plan) as stacks_:
                stacks_.dump()
                stacks_.look_at_routers()
            look.gpus()
            self.notes = [*look.notes, *stacks_.notes]
            self._threads = {r.name: tuple(r.words()) for r in stacks_.routers}
            window = look.window()
        asked = window.subjects(Fact.STACKS)
        self.why = {i.name: NOTHING_TO_DUMP for i in self._wanted if i.is_engine and i.name not in asked} | look.why
        return window

    def _view(self, instance: Instance) -> StackView:
        from dataclasses import replace

        from pdctl.checks.stack_view import stacks_of
        from pdctl.model.cluster import Role

        view = stacks_of(self.window, instance)
        if instance.role is Role.ROUTER:
            return replace(view, why=None, notes=(ROUTER_LIMIT, *self._threads.get(instance.name, ())))
        return replace(view, why=self.why.get(instance.name, view.why))
