"""Dumping the stacks of instances: py-spy found or put there, dumped a few times, everything left as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pdctl.facts.asks_host import threads_ask
from pdctl.facts.proc_listing import Listed, Thread, read_threads
from pdctl.facts.stacks import GONE, PERMISSION, STOPPED, VERSION, reason_of
from pdctl.facts.titles import CONTROLLER, DETOKENIZER, MAIN, ROUTER_PART, SCHEDULER, part_of
from pdctl.looks.hosts import Found, HostLook
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import Ask, CommandAsk
from pdctl.model.cluster import Host, Role
from pdctl.reach.pyspy import DumpPlan, NoSpy, Spy, dump_ask, find_spy, remove_spy, resume_ask

DUMPED = (SCHEDULER, MAIN, DETOKENIZER, CONTROLLER)
BESIDE = (Fact.METRICS, Fact.LOADS)  # what tells whether an engine went on between the dumps
STOPPED_STATES = ("T", "t")
SETTLE = 0.3  # seconds: a process is stopped for a moment while its native frames are read
STATES = {"R": "running", "S": "sleeping", "D": "in the kernel (D)", "T": "stopped", "t": "traced", "Z": "zombie"}
WHYS = {PERMISSION: Why.PERMISSION, GONE: Why.NOT_FOUND}
WORDS = {GONE: "gone: the process has ended", VERSION: "py-spy cannot read this Python", STOPPED: "stopped"}


@dataclass(frozen=True, slots=True)
class StackPlan:
    """``count`` dumps, ``apart`` seconds from the start of one to the next."""

    count: int = 3
    apart: float = 3.0
    dump: DumpPlan = field(default_factory=DumpPlan)


@dataclass(slots=True)
class Router:
    """What can be seen of a router, whose work is done in threads that are not Python's."""

    name: str
    threads: tuple[Thread, ...] = ()

    def words(self) -> Iterator[str]:
        """Its threads by name and state: "16 tokio-runtime-w sleeping in futex_do_wait"."""
        if not self.threads:
            yield "its threads could not be listed"
            return
        yield f"{len(self.threads)} threads"
        for (name, state, place), count in Counter(map(_told, self.threads)).most_common(8):
            yield f"{count} {name}: {state}" + (f" in {place}" if place else "")


class StackLook:
    """The dumps of a look. Use ``dumping``."""

    def __init__(self, look: HostLook, plan: StackPlan) -> None:
        self.look = look
        self.plan = plan
        self.notes: list[str] = []
        self.routers: list[Router] = []
        self._spies: dict[str, Spy | NoSpy] = {}

    # --- before ---

    def prepare(self) -> None:
        """Finds a py-spy for every host that has something to dump."""
        by_host: dict[Host, list[str]] = {}
        for found, rows in self._targets():
            assert found.host is not None
            by_host.setdefault(found.host, []).extend(_interpreters(rows, found.kin.rows))
        for host, beside in by_host.items():
            self._spies[host.name] = find_spy(self._run, host, beside)

    def clean_up(self) -> None:
        """Removes what was put on the hosts."""
        for host in self.look.used_hosts:
            spy = self._spies.pop(host.name, None)
            trouble = remove_spy(self._run, host, spy) if isinstance(spy, Spy) else None
            if trouble:
                self.notes.append(trouble)

    # --- dumps ---

    def dump(self) -> None:
        """The dumps, one after the other; what is missed is kept as missed."""
        targets = list(self._targets())
        if not targets:
            return
        before = self._states(targets)
        for number in range(self.plan.count):
            began = self.look.clock.now()
            self._dump_all(targets)
            if number + 1 < self.plan.count:
                self.look.clock.sleep(self.plan.apart - (self.look.clock.now() - began))
        if self.plan.dump.native:
            self._resume(targets, before)
        self.look.see(self.look.ask(self.look.http_asks(BESIDE)))

    def _dump_all(self, targets: Sequence[tuple[Found, tuple[Listed, ...]]]) -> None:
        asks: list[Ask] = self.look.http_asks(BESIDE)
        for found, rows in targets:
            assert found.host is not None
            spy = self._spies[found.host.name]
            if isinstance(spy, NoSpy):
                self.look.see([self._unasked(found, row, spy) for row in rows])
                continue
            asks += [dump_ask(found.instance, found.host, spy, r.pid, r.title, self.plan.dump) for r in rows]
        self.look.see(_explained(answer) for answer in self.look.ask(asks))

    def _unasked(self, found: Found, row: Listed, spy: NoSpy) -> Answer:
        assert found.host is not None
        ask = dump_ask(found.instance, found.host, Spy("py-spy"), row.pid, row.title, self.plan.dump)
        return self.look.missed(ask, Why.NO_SUCH_TOOL, spy.why)

    # --- after ---

    def _states(self, targets: Sequence[tuple[Found, tuple[Listed, ...]]]) -> dict[tuple[str, int], str]:
        by_host: dict[Host, list[int]] = {}
        for found, rows in targets:
            assert found.host is not None
            by_host.setdefault(found.host, []).extend(row.pid for row in rows)
        return {
            (host.name, pid): state
            for host, pids in by_host.items()
            for pid, state in self.look.states(host, pids).items()
        }

    def _resume(self, targets: Sequence[tuple[Found, tuple[Listed, ...]]], before: dict[tuple[str, int], str]) -> None:
        """Sees that no process was left stopped by a dump that stopped it, and lets go on what was. One that was
        stopped before stays so: somebody meant it."""
        left = self._left_stopped(targets, before)
        if not left:
            return
        self.look.clock.sleep(SETTLE)
        for host_name, pid in self._left_stopped(targets, before) & left:
            host = next(h for h in self.look.used_hosts if h.name == host_name)
            answer = self._run(resume_ask(host, pid))
            outcome = "it goes on" if answer.status == 0 else f"it could not be let go on: {answer.detail}"
            self.notes.append(f"pid {pid} on {host_name} was left stopped by the dump; {outcome}")

    def _left_stopped(
        self, targets: Sequence[tuple[Found, tuple[Listed, ...]]], before: dict[tuple[str, int], str]
    ) -> set[tuple[str, int]]:
        now = self._states(targets)
        return {
            key for key, state in now.items() if state in STOPPED_STATES and before.get(key, "T") not in STOPPED_STATES
        }

    # --- routers ---

    def look_at_routers(self) -> None:
        """The threads of each router: its work is done in native threads, of which py-spy shows nothing."""
        for found in self.look.found.values():
            if found.instance.role is not Role.ROUTER or found.host is None:
                continue
            pids = [row.pid for row in found.kin.rows if part_of(row.title) == ROUTER_PART]
            answers = self.look.ask(threads_ask(found.instance, found.host, pid) for pid in pids[:1])
            threads = read_threads(answers[0].body or b"") if answers else ()
            self.routers.append(Router(found.instance.name, threads))

    # --- helpers ---

    def _targets(self) -> Iterator[tuple[Found, tuple[Listed, ...]]]:
        """What to dump of each instance: its schedulers first."""
        for found in self.look.found.values():
            rows = [row for row in found.kin.rows if part_of(row.title) in DUMPED]
            if rows and found.host is not None and found.instance.role is not Role.ROUTER:
                yield found, tuple(sorted(rows, key=lambda row: DUMPED.index(part_of(row.title))))

    def _run(self, ask: CommandAsk) -> Answer:
        return self.look.ask([ask])[0]


def _told(thread: Thread) -> tuple[str, str, str]:
    return (thread.name, STATES.get(thread.state, thread.state), thread.waits_in)


@contextmanager
def dumping(look: HostLook, plan: StackPlan) -> Iterator[StackLook]:
    """Dumps of what ``look`` has found; afterwards nothing of ours is left on the hosts, Ctrl-C or not."""
    stacks = StackLook(look, plan)
    try:
        stacks.prepare()
        yield stacks
    finally:
        stacks.clean_up()


def _interpreters(rows: Sequence[Listed], all_rows: Sequence[Listed]) -> list[str]:
    """Where the processes' Python is: as their command lines call it (a virtual environment's), then the file."""
    called = [row.argv[0] for row in all_rows if row.argv and "/" in row.argv[0]]
    return [*called, *(row.exe for row in rows if row.exe)]


def _explained(answer: Answer) -> Answer:
    """A failed dump with py-spy's reason for it in a word, where it gives one."""
    if answer.fact is not Fact.STACKS or answer.error not in (Why.OTHER, Why.PERMISSION):
        return answer
    said = str(answer.more.get("stderr", "")) or (answer.detail or "")
    reason = reason_of(said)
    detail = WORDS.get(reason)
    return replace(
        answer, error=WHYS.get(reason, answer.error), detail=f"{detail} ({answer.detail})" if detail else answer.detail
    )
