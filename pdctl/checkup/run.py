"""A check as a machine makes it: stages under one deadline, judged together with what earlier runs saw.

run = check(cluster, order)         # live, under a lock, with memory
run = check_recorded(window, ...)   # of a recording
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pdctl.checks import all_checks
from pdctl.checks.glance import standing
from pdctl.checks.lately import newest_of
from pdctl.checks.staged import judged, stages_of
from pdctl.checks.stages import nothing_seen
from pdctl.checkup.lastfound import note_found
from pdctl.checkup.mutes import applied
from pdctl.checkup.order import Order
from pdctl.checkup.remember import (
    KEEP_S,
    Instant,
    Memory,
    epoch,
    instant,
    keep,
    memory_path,
    recall,
    remembered,
)
from pdctl.checkup.rounds import LOOK_ON_S, Rounds
from pdctl.checkup.spans import LATELY, recent, spans
from pdctl.errors import Busy, PdctlError
from pdctl.gather import Gatherer
from pdctl.model.answer import Answer
from pdctl.model.checkrun import CheckRun
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Finding, Report, Status, Unchecked
from pdctl.model.packed import BAD
from pdctl.model.window import Window
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.state import Held, locked, own_folder, since_boot

if TYPE_CHECKING:
    from pdctl.reach.hosts import Hosts

RESERVE_S = 1.0  # of the deadline, for judging and telling
RESERVE_EACH_S = 0.05  # more for each instance
WAIT = 0.7  # of the deadline, for another run to end: it may look on for a while
STAGES_S = 5.0  # left for the stages after a look
MOST_RAW = 128 * 1024 * 1024  # bytes of raw answers held for evidence
BEYOND_HTTP = ("sockets", "probes", "stacks")  # the stages that ask hosts or send requests, in order
TRENDS = "trends from one run to the next"


def check(cluster: Cluster, order: Order, clock: Clock | None = None) -> CheckRun:
    """A live check. It waits for another one of the same kind, most of its deadline; raises Busy when that is still
    at it then."""
    clock = clock or SystemClock()
    begun = clock.now()
    with ExitStack() as stack:
        notes: list[str] = []
        path = None
        if not order.stateless:
            path = _locked_path(cluster, order, clock, stack, notes)
        return _Check(cluster, order, clock, begun, path, notes).run()


def check_recorded(window: Window, cluster: Cluster, order: Order, clock: Clock | None = None) -> CheckRun:
    """The same verdict on a recording: no memory, no lock."""
    clock = clock or SystemClock()
    begun = clock.now()
    newest = newest_of(window)
    report = judged(
        [window] if newest is window else [window, newest],
        cluster,
        order.chosen,
        tuple(nothing_seen(window, cluster)),
    )
    report, notes = applied(report, cluster)
    told = (*notes, *((window.note,) if window.note else ()))
    stages = stages_of(order.chosen, report)
    return CheckRun(report, stages, clock.now() - begun, order.deadline_s, clock.wall(), notes=told)


def _locked_path(cluster: Cluster, order: Order, clock: Clock, stack: ExitStack, notes: list[str]) -> Path | None:
    """The memory's file, with the lock beside it held until the stack ends; None where there can be none."""
    import os

    try:
        path = memory_path(cluster, order.chosen.selection)
        own_folder(path.parent)
        note = f"process {os.getpid()}, since {clock.wall():%Y-%m-%d %H:%M:%S} UTC"
        stack.enter_context(locked(path.with_suffix(".lock"), note, WAIT * order.deadline_s))
        return path
    except Held as held:
        holder = held.holder or "another process"
        raise Busy(
            f"a check of {cluster.name} is still running ({holder}); this one did not begin",
            "Where checks take longer than they are apart, give them a shorter --deadline.",
        ) from None
    except OSError as error:
        why = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        notes.append(f"no state can be kept, so nothing is remembered and runs may overlap: {why}")
        return None


class _Check:
    """One live check under way."""

    def __init__(
        self, cluster: Cluster, order: Order, clock: Clock, begun: float, path: Path | None, notes: list[str]
    ) -> None:
        self.cluster = cluster
        self.order = order
        self.clock = clock
        self.notes = notes
        self.begun = begun
        reserve = RESERVE_S + RESERVE_EACH_S * len(cluster.instances)
        self.until = self.begun + order.deadline_s - min(reserve, 0.3 * order.deadline_s)
        self.more: list[Finding] = []
        self.cut: dict[str, str] = {}
        self._path = path
        self._raw: list[Answer] = []
        self._held = 0
        self._rounds = Rounds(cluster, order, clock, self.until)

    def run(self) -> CheckRun:
        all_checks(self.order.chosen.modules)  # imported now, when there is time, and not when it is nearly up
        now = instant(self.clock)
        memory = self._recalled(now)
        with ExitStack() as stack:
            hosts = self._hosts(stack)
            gatherer = stack.enter_context(self._gatherer(hosts))
            seen, start = self._look(gatherer, memory)
            seen = self._beyond_http(seen, gatherer, hosts)
            report = self._judged(memory, seen, start)
            report, said = applied(report, self.cluster)
            self.notes.extend(said)
            kept = self._evidence(report, memory, seen, gatherer)
        note_found(report)
        if self._path is not None:
            self._remember(memory, seen, start, report, kept is not None)
        return self._made(report, memory, kept)

    def left(self) -> float:
        """Seconds in which something can still be asked."""
        return max(0.0, self.until - self.clock.now())

    # --- asking ---

    def _hosts(self, stack: ExitStack) -> Hosts | None:
        """The way to the hosts, where it is needed: importing it is not free."""
        on_hosts = any(self.order.chosen.has(name) for name in ("sockets", "logs", "stacks"))
        if not on_hosts and not any(host.ssh for host in self.cluster.hosts):
            return None
        from pdctl.reach.hosts import Hosts

        return stack.enter_context(Hosts(self.cluster.with_local(), clock=self.clock))

    def _gatherer(self, hosts: Hosts | None) -> Gatherer:
        keeps = self._keep_raw if self.order.evidence is not None else None
        via = None if hosts is None else hosts.dial
        return Gatherer(self.cluster, clock=self.clock, commands=hosts, via=via, on_answer=keeps)

    def _look(self, gatherer: Gatherer, memory: Memory) -> tuple[Window, Instant]:
        """One look, or looks for a while, at what instances say of themselves; gone on with for a few seconds where it
        is one look and something is under way that was not seen to move."""
        seen = self._rounds.first(gatherer)
        start = self._start_of(gatherer)

        def stands(window: Window) -> bool:
            rows = standing(recent(memory, window, start), self.cluster)
            return any(row.readings < LATELY or row.seconds < LOOK_ON_S for row in rows)  # else it is known to stand

        if self.order.seconds is None and self.order.chosen.has("queues") and stands(seen):
            beyond = any(map(self.order.chosen.has, BEYOND_HTTP))
            seconds = self.left() - (STAGES_S if beyond else 0.0)
            seen = self._rounds.more(gatherer, seen, seconds, lambda window: not stands(window))
        return seen, start

    def _start_of(self, gatherer: Gatherer) -> Instant:
        started = gatherer.start()
        return Instant(gatherer.started_at.timestamp(), since_boot() - (self.clock.now() - started))

    def _beyond_http(self, window: Window, gatherer: Gatherer, hosts: Hosts | None) -> Window:
        """The stages that ask hosts or send requests, in order, while there is time."""
        for name in BEYOND_HTTP:
            if not self.order.chosen.has(name):
                continue
            from pdctl.checkup import stages

            if self.left() < stages.NEEDS_S[name]:
                self.cut[name] = "no time was left before the deadline"
                self.more.append(stages.no_time(name, self.cluster))
                continue
            look = stages.Look(self.cluster, self.clock, self.until, gatherer, hosts, self._keep_raw)
            window, more = stages.LOOKS[name](look, window, name in self.order.chosen.asked)
            self.more.extend(more)
        return window

    def _keep_raw(self, answer: Answer) -> None:
        """Holds the answer until it is known whether the run failed, as far as there is room."""
        size = len(answer.body or b"")
        if self.order.evidence is None or self._held + size > MOST_RAW:
            return
        self._held += size
        self._raw.append(answer)

    # --- judging ---

    def _judged(self, memory: Memory, seen: Window, start: Instant) -> Report:
        try:
            windows = spans(memory, seen, start)
        except BAD:
            memory.runs, windows = (), [seen]
            self.notes.append("earlier runs are forgotten: their file is damaged")
        more = (*self.more, *nothing_seen(seen, self.cluster))
        newest = recent(memory, seen, start)
        # One look goes on until what is under way was seen to move: it is not cut short, however short it is.
        short = {"short_s": 0.0} if self.order.seconds is None else {}
        report = judged(windows, self.cluster, self.order.chosen, more, self.cut, newest=newest, **short)
        blind = tuple(Unchecked(TRENDS, self.cluster.name, why) for why in self.notes)
        return replace(report, unchecked=(*report.unchecked, *blind))

    def _recalled(self, now: Instant) -> Memory:
        if self._path is None:
            return Memory()
        memory = recall(self._path, now, self.order.remember_s or 0.0)
        if memory.forgot is not None:
            self.notes.append(f"earlier runs are forgotten: {memory.forgot}")
        return memory

    def _remember(self, memory: Memory, seen: Window, start: Instant, report: Report, kept: bool) -> None:
        assert self._path is not None
        now = instant(self.clock)
        memory = remembered(memory, seen, start, now, self.order.remember_s or KEEP_S)
        if report.status is not Status.UNKNOWN:
            memory.last_success = now.wall
        if not self.order.fails(report):
            memory.failing = memory.failing_at = None
        elif kept:
            memory.failing, memory.failing_at = _signature(report), now.wall
        try:
            keep(self._path, memory, now)
        except (OSError, *BAD) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self.notes.append(f"this run is not remembered: {why}")

    # --- evidence ---

    def _evidence(self, report: Report, memory: Memory, seen: Window, gatherer: Gatherer) -> str | None:
        """Where the evidence of a failure is kept that was not kept before, None where there is none to keep."""
        if self.order.evidence is None or not self.order.fails(report):
            return None
        from pdctl.checkup.evidence import Evidence, is_new

        if not is_new(_signature(report), memory.failing, memory.failing_at, instant(self.clock).wall):
            return None
        if seen.seconds < LOOK_ON_S:  # from one look nobody can tell later what stood and what moved
            self._rounds.more(gatherer, seen, self.left())
        try:
            return str(Evidence(self.order.evidence, self.cluster).keep(self._raw, self.clock.wall()))
        except (PdctlError, OSError) as error:
            self.notes.append(f"the evidence is not kept: {error}")
            return None

    # --- telling ---

    def _made(self, report: Report, memory: Memory, kept: str | None) -> CheckRun:
        now = self.clock.wall()
        sees = report.status is not Status.UNKNOWN
        return CheckRun(
            report=report,
            stages=stages_of(self.order.chosen, report, self.cut),
            took_s=self.clock.now() - self.begun,
            deadline_s=self.order.deadline_s,
            ended=now,
            runs=len(memory.runs),
            seconds=memory.seconds,
            last_success=now if sees else epoch(memory.last_success),
            kept=kept,
            notes=tuple(dict.fromkeys(self.notes)),
        )


def _signature(report: Report) -> str:
    """What is wrong, so that the same fault a minute later is known for the same."""
    return ";".join(sorted(f"{f.name}@{f.subject}" for f in report.findings if f.muted is None))
