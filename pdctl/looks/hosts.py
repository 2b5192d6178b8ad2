"""Looking at the hosts of a cluster: processes first, then what can only be asked once they are known.

with looking(cluster, instances, plan) as look:
    look.processes(); look.units(); look.limits(); look.sockets()
    look.window()

Each answer is kept as it arrives, so a recording can be read back as if live. A listing of all processes becomes one
answer for each instance.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pdctl.facts import asks_host, read
from pdctl.facts.asks import asks_for
from pdctl.facts.base import Unreadable
from pdctl.facts.kin import Kin, kin_of
from pdctl.facts.proc_listing import Listed, read_listing, read_states
from pdctl.gather import Gatherer
from pdctl.keep import keeping
from pdctl.model.answer import Answer, Fact, Observation, Why
from pdctl.model.ask import Ask, CommandAsk
from pdctl.model.cluster import LOCAL, Cluster, Host, Instance
from pdctl.model.host import Sockets
from pdctl.model.window import Window
from pdctl.reach import local_sockets
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.hosts import Hosts

HTTP_TIMEOUT = 2.0  # seconds
LOST_FOR = 20.0  # seconds for which a host that could not be reached is not tried again
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


@dataclass(frozen=True, slots=True)
class HostPlan:
    """``timeout_s`` for a phase of asking; ``record`` is where raw answers are kept."""

    timeout_s: float = 30.0
    record: Path | None = None


@dataclass(slots=True)
class Found:
    """An instance's processes on its host, or why none are known. ``listed``: the host told all it has."""

    instance: Instance
    host: Host | None
    kin: Kin = field(default_factory=lambda: Kin(()))
    why: str | None = None
    listed: bool = False


@contextmanager
def looking(
    cluster: Cluster, instances: Sequence[Instance], plan: HostPlan, clock: Clock | None = None
) -> Iterator[HostLook]:
    """A look at the hosts of these instances. Raises CaptureError when the recording cannot be made."""
    clock = clock or SystemClock()
    with ExitStack() as stack:
        whole = cluster.with_local()
        hosts = stack.enter_context(Hosts(whole, clock=clock))
        keeper = stack.enter_context(keeping(plan.record, cluster))
        gatherer = stack.enter_context(Gatherer(cluster, clock=clock, commands=hosts, via=hosts.dial))
        look = HostLook(whole, instances, plan, hosts, gatherer, keeper.add)
        look.notes = keeper.notes
        yield look


class HostLook:
    """What was seen so far, and the ways to see more. Not for several threads."""

    def __init__(
        self, cluster: Cluster, instances: Sequence[Instance], plan: HostPlan, hosts: Hosts, gatherer: Gatherer,
        keep: Callable[[Answer], None],
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.hosts = hosts
        self.found = {instance.name: _placed(instance, cluster) for instance in instances}
        self.notes: list[str] = []
        self.on_answer: Callable[[Answer], object] | None = None
        self._plan = plan
        self._gatherer = gatherer
        self._keep = keep
        self._seen: list[Observation[Any]] = []
        self._lost: dict[str, tuple[float, str]] = {}
        gatherer.start()

    # --- what is known ---

    def window(self) -> Window:
        """Everything seen so far."""
        return Window(self._gatherer.started_at, self.clock.wall(), tuple(self._seen), live=True)

    @property
    def used_hosts(self) -> tuple[Host, ...]:
        """The hosts of the instances looked at, each once."""
        return tuple(dict.fromkeys(found.host for found in self.found.values() if found.host is not None))

    @property
    def unfound(self) -> bool:
        """Whether the processes of an instance were looked for and not found, on a host that answered."""
        return any(f.host is not None and not f.kin.rows and f.listed for f in self.found.values())

    @property
    def why(self) -> dict[str, str]:
        """Why instances have no processes."""
        return {name: found.why for name, found in self.found.items() if found.why is not None}

    @property
    def unplaced(self) -> dict[str, str]:
        """Why instances could not be looked for: their host is not known."""
        return {name: found.why for name, found in self.found.items() if found.why is not None and found.host is None}

    def placed(self) -> Iterator[tuple[Instance, Host]]:
        """The instances whose host is known."""
        for found in self.found.values():
            if found.host is not None:
                yield found.instance, found.host

    @property
    def clock(self) -> Clock:
        return self._gatherer.clock

    # --- asking ---

    def ask(self, asks: Iterable[Ask]) -> tuple[Answer, ...]:
        """The answers, not kept: for what is worked on first. A host that could not be reached a moment ago is not
        tried again: its asks are answered by that failure."""
        wanted = tuple(asks)
        lost = [(ask, failure) for ask in wanted if (failure := self._lost_for(ask)) is not None]
        left = [ask for ask in wanted if self._lost_for(ask) is None]
        about = {(a.subject, a.fact, str(a)): dict(a.about) for a in left if isinstance(a, CommandAsk)}
        answers = self._gatherer.gather(left, self._plan.timeout_s) if left else ()
        for answer in answers:
            self._note_loss(answer, left)
        came = (replace(a, more={**about.get((a.subject, a.fact, a.ask), {}), **a.more}) for a in answers)
        return (*came, *(self.missed(ask, Why.SSH, failure) for ask, failure in lost))

    def _lost_for(self, ask: Ask) -> str | None:
        name = ask.host if isinstance(ask, CommandAsk) else ask.via
        since, failure = self._lost.get(name or "", (-LOST_FOR, ""))
        return failure if failure and self.clock.now() - since < LOST_FOR else None

    def _note_loss(self, answer: Answer, asks: Sequence[Ask]) -> None:
        """Remembers the host of an answer that SSH did not bring."""
        if answer.error is not Why.SSH:
            return
        ask = next((a for a in asks if (a.subject, a.fact, str(a)) == (answer.subject, answer.fact, answer.ask)), None)
        name = ask.host if isinstance(ask, CommandAsk) else ask.via if ask is not None else None
        if name is not None:
            self._lost[name] = (self.clock.now(), answer.detail or "not reached over SSH")

    def see(self, answers: Iterable[Answer]) -> None:
        """Keeps answers and reads them."""
        for answer in answers:
            self._keep(answer)
            if self.on_answer is not None:
                self.on_answer(answer)
            self._seen.append(read(answer, self.cluster.instance(answer.subject)))

    def missed(self, ask: Ask, why: Why, detail: str) -> Answer:
        """The answer that stands for an ask that was not made."""
        t = self.clock.now() - self._gatherer.start()
        at = self.clock.wall()
        about = dict(ask.about) if isinstance(ask, CommandAsk) else {}
        return Answer(ask.subject, ask.fact, str(ask), t, at, 0.0, None, why, detail, more=about)

    def http_asks(self, facts: Sequence[Fact]) -> list[Ask]:
        """What to ask of the instances themselves at the same time, briefly: here it stands beside what is asked."""
        via = self._via()
        asks = (a for f in self.found.values() for a in asks_for(f.instance, facts, via=via.get(f.instance.name)))
        return [replace(ask, timeout=min(ask.timeout, HTTP_TIMEOUT)) for ask in asks]

    def _via(self) -> dict[str, str]:
        return {i.name: h.name for i, h in self.placed() if h.ssh is not None}

    def units(self) -> None:
        self.see(self.ask(asks_host.unit_ask(i, h) for i, h in self.placed() if i.unit))

    def gpus(self) -> None:
        """The GPUs of each host; a host without nvidia-smi is no news."""
        answers = self.ask(asks_host.gpu_ask(host) for host in self.used_hosts)
        self.see(answer for answer in answers if answer.error is not Why.NO_SUCH_TOOL)

    def processes(self) -> None:
        """The processes of each instance: one listing a host."""
        hosts = {asks_host.host_subject(host): host for host in self.used_hosts}
        for answer in self.ask(asks_host.processes_ask(host) for host in hosts.values()):
            self._split(answer, hosts[answer.subject])

    def _split(self, answer: Answer, host: Host) -> None:
        """One listing as an answer for each instance on the host."""
        mine = [found for found in self.found.values() if found.host == host]
        rows, why, error = _listed(answer)
        listening = self._listening(host)
        for found in mine:
            found.kin = kin_of(found.instance, rows, listening) if why is None else Kin(())
            found.listed = why is None
            found.why = why or (None if found.kin.rows else _not_found(found.instance, host))
            body = json.dumps([row.as_row() for row in found.kin.rows], indent=1).encode() if why is None else None
            self.see([replace(
                answer, subject=found.instance.name, body=body, error=error, detail=why, status=answer.status, more={},
            )])  # fmt: skip

    def _listening(self, host: Host) -> dict[int, frozenset[int]]:
        """Which processes listen on which port of a host, by the newest listing of its sockets."""
        ports: dict[int, set[int]] = defaultdict(set)
        seen = self.window().last(asks_host.host_subject(host), Fact.SOCKETS, Sockets)
        for row in seen.value.rows if seen else ():
            if row.state == "LISTEN" and row.pid is not None:
                ports[row.local_port].add(row.pid)
        return {port: frozenset(pids) for port, pids in ports.items()}

    def limits(self, parts: Sequence[str]) -> None:
        """Open files of the processes of these parts (main, scheduler, router, ...)."""
        from pdctl.facts.titles import part_of

        self.see(self.ask(
            asks_host.limits_ask(f.instance, f.host, row.pid, row.title)
            for f in self.found.values() if f.host is not None
            for row in f.kin.rows if part_of(row.title) in parts
        ))  # fmt: skip

    def sockets(self, http: Sequence[Fact] = ()) -> None:
        """The sockets of each host and its kernel's counters, beside what the instances say at the same time. A host
        without nstat is no news."""
        asks: list[Ask] = [asks_host.sockets_ask(host) for host in self.used_hosts if self._has_ss(host)]
        asks += [asks_host.nstat_ask(host) for host in self.used_hosts]
        asks += self.http_asks(http)
        answers = self.ask(asks)
        self.see(a for a in answers if not (a.fact is Fact.NSTAT and a.error is Why.NO_SUCH_TOOL))
        self.see(self._by_psutil(host) for host in self.used_hosts if not self._has_ss(host))

    def _has_ss(self, host: Host) -> bool:
        """Whether the host is asked by command: this machine without ss is asked by psutil, which names processes."""
        return host.ssh is not None or local_sockets.has_ss()

    def _by_psutil(self, host: Host) -> Answer:
        ask = asks_host.sockets_ask(host)
        return local_sockets.listing(ask, clock=self.clock, started=self._gatherer.start())

    def states(self, host: Host, pids: Sequence[int]) -> dict[int, str]:
        """Each process's state now; one that is gone is missing."""
        answers = self.ask([asks_host.states_ask(host, tuple(pids))]) if pids else ()
        return read_states(answers[0].body or b"") if answers else {}


def _placed(instance: Instance, cluster: Cluster) -> Found:
    host = next((h for h in cluster.hosts if h.name == (instance.host or LOCAL)), None)
    if instance.host is None and not _is_here(instance):
        return Found(instance, None, why="the inventory names no host for it")
    if host is None:
        return Found(instance, None, why=f"the inventory has no host {instance.host}")
    return Found(instance, host)


def _is_here(instance: Instance) -> bool:
    """Whether an instance without a host is one of this machine."""
    from urllib.parse import urlsplit

    return instance.url is None or (urlsplit(instance.url).hostname or "") in LOOPBACK


def _listed(answer: Answer) -> tuple[Sequence[Listed], str | None, Why | None]:
    """The processes of a host's listing, or why there are none."""
    if answer.error is not None or answer.body is None:
        return (), answer.detail or "no answer", answer.error or Why.EMPTY
    try:
        return read_listing(answer.body), None, None
    except Unreadable as error:
        return (), error.detail, error.why


def _not_found(instance: Instance, host: Host) -> str:
    """Why an instance has no process: what was looked for."""
    looked = []
    if instance.unit:
        looked.append(f"unit {instance.unit}")
    if instance.url:
        looked.append(f"a command line or listener for {instance.url}")
    as_root = host.ssh is None or host.become or host.ssh.startswith("root@")
    hidden = "" if as_root else " (those of other users may be hidden)"
    return f"no process on host {host.name} for {' or '.join(looked) or 'it'}{hidden}"
