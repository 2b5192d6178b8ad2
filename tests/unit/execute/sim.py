"""A simulated cluster under a restart: hosts with locks and marks, units that stop, start, hang and die.

The scripts that pdctl would run on a host are known by their text and acted out; nothing else of pdctl is replaced. The
truth is always at hand, and each act is checked against it the moment it is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random

from pdctl.execute.seeing import identity_of_unit
from pdctl.facts import unit as unit_fact
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import Ask, CommandAsk, HttpAsk
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.plan import Active, Footing, Ground, Owner, Script, Site
from pdctl.model.probe import Attempt
from pdctl.model.window import Window
from pdctl.plans import script_write
from pdctl.plans.unit_words import state_of
from pdctl.reach import act, lock
from pdctl.reach.clock import FakeClock

WALL = datetime(2026, 11, 30, tzinfo=UTC)
LOCK = "/tmp/pdctl.lock"
VERSION = "0.5.19"
AT_ONCE = 0.5  # seconds: what is lost between a look and the act right after it
PAGE = 'sglang:max_total_num_tokens{model_name="m",engine_type="unified",tp_rank="0"} 1000.0\n'


class Killed(BaseException):
    """pdctl was killed: nothing of it runs any more."""


class Broken(BaseException):
    """An invariant was broken. Nothing of pdctl may take it for an error of its own and go on."""


@dataclass
class Unit:
    """A unit as systemd has it. ``fate`` is what its next process does: ready, never-ready, no-start, dies; "refused"
    where there is none, because systemd takes no job."""

    instance: Instance
    pid: int
    born: float
    ready_at: float
    run: int = 1
    stops_in: float = 1.0
    starts_in: float = 3.0
    fate: str = "ready"
    dies_after: float = 20.0
    stop_at: float | None = None
    dies_at: float | None = None
    failed: bool = False
    restarts: int = 0
    starts: int = 0  # acts that restarted it
    lost_at: float = -1e9  # when it was last taken away by fate

    @property
    def alive(self) -> bool:
        return self.pid != 0

    def ready(self, now: float) -> bool:
        return self.alive and now >= self.ready_at and self.stop_at is None


@dataclass
class Machine:
    """A host: its lock file, the marks of acts, its files."""

    name: str
    up: bool = True
    boot: int = 1
    lock: dict[str, object] | None = None
    beat: float = 0.0
    marks: dict[str, int] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Faults:
    """What goes wrong at which call. Everything pdctl does is counted from 1: each ask of the hosts, each survey,
    generation, window, wait, and each line of the journal. ``kill`` and ``interrupt`` end pdctl before the call (with
    ``after``: after its effect; a line of the journal is torn by a kill in its middle where ``torn``); ``lose`` loses
    the answer to an ask, before or after its effect."""

    kill: int | None = None
    interrupt: int | None = None
    after: bool = False
    torn: bool = False
    lose: dict[int, bool] = field(default_factory=dict)
    hook: dict[int, Callable[[], None]] = field(default_factory=dict)


class Waits(FakeClock):
    """A clock whose waits are counted as the other things pdctl does are."""

    def __init__(self, sim: Sim, start: float, wall: datetime) -> None:
        super().__init__(start, wall)
        self._sim = sim

    def sleep(self, seconds: float) -> None:
        with self._sim.counted():
            super().sleep(seconds)


class Sim:
    """The world of one test."""

    def __init__(self, cluster: Cluster, rng: Random | None = None) -> None:
        self.cluster = cluster
        self.clock = Waits(self, 1000.0, WALL)
        self.rng = rng or Random(0)
        self.machines = {h.name: Machine(h.name) for h in cluster.hosts}
        self.units: dict[str, Unit] = {}
        for n, instance in enumerate(cluster.instances, 1):
            self.units[instance.name] = Unit(instance, 100 + n, 0.0, 0.0)
            machine = self.machines[instance.host or ""]
            if instance.script:
                machine.files[instance.script] = f"exec serve {instance.name}\n".encode()
        self.faults = Faults()
        self.calls = 0
        self.written: list[int] = []  # those calls that wrote a line of the journal
        self.asked: list[int] = []  # those that asked a host or an instance
        self.restarting: list[int] = []  # those that restarted something
        self.acts: list[tuple[float, str, str]] = []  # when, what, whose
        self.frozen = False
        self.dead = False
        self.planned: set[str] = set()
        self.next_pid = 500
        self.inventory = "inv"
        self.breaker = 0.0
        self.workers_gone = False
        self.active: dict[str, float | None] = {}

    # --- time ---------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Lets everything happen that is due by now."""
        now = self.clock.now()
        for unit in self.units.values():
            if not self.machines[unit.instance.host or ""].up:
                continue
            if unit.stop_at is not None and now >= unit.stop_at:
                self._start(unit, unit.stop_at)
            if unit.dies_at is not None and now >= unit.dies_at and unit.alive:
                self.die(unit.instance.name)

    def _start(self, unit: Unit, at: float) -> None:
        unit.stop_at, unit.run, unit.failed = None, unit.run + 1, False
        unit.dies_at = None
        if unit.fate == "no-start":
            unit.pid, unit.failed = 0, True
            return
        self.next_pid += 1
        unit.pid, unit.born = self.next_pid, at
        unit.ready_at = at + unit.starts_in if unit.fate != "never-ready" else float("inf")
        if unit.fate == "dies":
            unit.dies_at = at + unit.dies_after

    def die(self, name: str) -> None:
        """The process ends by itself; its unit does not start it again."""
        unit = self.units[name]
        unit.lost_at = self.clock.now() if unit.dies_at is None else unit.dies_at
        unit.pid, unit.failed, unit.dies_at, unit.stop_at = 0, True, None, None

    def power_cut(self, host: str) -> None:
        self.machines[host].up = False
        for unit in self.units.values():
            if unit.instance.host == host:
                unit.lost_at = self.clock.now()

    def power_on(self, host: str) -> None:
        """A fresh boot: no lock, no marks, every unit started anew."""
        machine = self.machines[host]
        machine.up, machine.boot, machine.lock, machine.marks = True, machine.boot + 1, None, {}
        for unit in self.units.values():
            if unit.instance.host == host:
                self._start(unit, self.clock.now())

    def heal(self) -> None:
        """Whatever was wrong with hosts and units is put right; what does not run is left down."""
        for machine in self.machines.values():
            if not machine.up:
                self.power_on(machine.name)
        for unit in self.units.values():
            unit.fate, unit.dies_at = "ready", None
            if unit.alive and unit.ready_at == float("inf"):
                unit.ready_at = self.clock.now()
        self.faults, self.frozen, self.dead, self.breaker, self.workers_gone = Faults(), False, False, 0.0, False

    # --- World --------------------------------------------------------------------------------------------------------

    def act(self, ask: CommandAsk) -> Answer:
        return self._called(ask)

    def look(self, asks: Sequence[Ask], timeout: float) -> tuple[Answer | None, ...]:
        return tuple(self._called(ask) for ask in asks)

    def _called(self, ask: Ask) -> Answer:
        with self.counted() as n:
            self.asked.append(n)
            faults = self.faults
            self.clock.advance(0.02)
            self.settle()
            if faults.lose.get(n) is False:
                return self._failed(ask, Why.SSH, "connection lost")
            answer = self._answer(ask)
            return self._failed(ask, Why.SSH, "connection lost") if n in faults.lose else answer

    @contextmanager
    def counted(self) -> Iterator[int]:
        """One more thing that pdctl does: a moment before it and one after it in which pdctl may end."""
        if self.dead:
            raise Killed
        self.calls += 1
        n = self.calls
        if n in self.faults.hook:
            self.faults.hook[n]()
        if not self.faults.after:
            self._end_here(n)
        yield n
        if self.faults.after:
            self._end_here(n)

    def _end_here(self, n: int) -> None:
        if n == self.faults.kill:
            self.dead = True
            raise Killed
        if n == self.faults.interrupt:
            raise KeyboardInterrupt

    def generate(self, instances: Sequence[Instance], timeout: float) -> dict[str, Attempt]:
        with self.counted():
            return {i.name: self._attempt(i) for i in instances}

    def generate_pair(self, instance: Instance, timeout: float) -> tuple[Attempt, ...]:
        with self.counted():
            first = self._attempt(instance)
            return (first, self._attempt(instance)) if first.good else (first,)

    def window(self, seconds: float) -> Window:
        with self.counted():
            self.clock.advance(12.0)
            self.settle()
        now = self.clock.wall()
        return Window(now - timedelta(seconds=12), now, (), live=True)

    def _attempt(self, instance: Instance) -> Attempt:
        self.clock.advance(0.3)
        self.settle()
        if self.ready(instance.name):
            return Attempt(instance.name, status=200, took=0.3)
        return Attempt(instance.name, error="connect-refused", detail="refused")

    def ready(self, name: str) -> bool:
        """The truth: whether the instance serves."""
        unit = self.units[name]
        return self.machines[unit.instance.host or ""].up and unit.ready(self.clock.now())

    def survey(self, own: Owner | None = None) -> Ground:
        with self.counted():
            self.settle()
            return self.ground(own)

    def ground(self, own: Owner | None = None) -> Ground:
        """What a survey sees."""
        footings = tuple(self._footing(unit) for unit in self.units.values())
        sites = tuple(self._site(machine, own) for machine in self.machines.values())
        return Ground(self.clock.wall(), self.inventory, footings, sites)

    def _footing(self, unit: Unit) -> Footing:
        instance, machine = unit.instance, self.machines[unit.instance.host or ""]
        if not machine.up:
            return Footing(instance.name, machine.name, why="connection lost")
        shown = unit_fact.read(self._plain(Fact.UNIT, self._shown(unit)), instance)
        present = identity_of_unit(shown)
        text = machine.files.get(instance.script or "")
        script = Script(instance.script or "", sha256(text).hexdigest(), WALL, None, True) if text is not None else None
        answered = ("metrics", "workers") if instance.role is Role.ROUTER else ("metrics", "server-info")
        return Footing(
            instance.name, machine.name, present[0] if present else None, None, state_of(shown), True, 10.0, VERSION,
            Active(self.active.get(instance.name, 0.0)), script, answered if self.ready(instance.name) else (),
            workers=self._workers() if instance.role is Role.ROUTER else None,
        )  # fmt: skip

    def _site(self, machine: Machine, own: Owner | None) -> Site:
        if not machine.up:
            return Site(machine.name, False, "connection lost")
        seen = lock.read_lock(self._plain(Fact.FILE, self._show_lock(machine)), own)
        return Site(machine.name, True, None, str(machine.boot), seen)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, ask: Ask) -> Answer:
        instance = next((i for i in self.cluster.instances if i.name == ask.subject), None)
        host = (ask.host if isinstance(ask, CommandAsk) else None) or (instance.host if instance else None)
        machine = self.machines[host or ""]
        if not machine.up:
            return self._failed(
                ask, Why.SSH if isinstance(ask, CommandAsk) else Why.CONNECT_TIMEOUT, "no route to host"
            )
        if isinstance(ask, HttpAsk):
            assert instance is not None
            return self._http(ask, self.units[instance.name])
        if ask.fact is Fact.UNIT:
            assert instance is not None
            return self._said(ask, self._shown(self.units[instance.name]))
        if ask.fact is Fact.LOG:
            return self._said(ask, f"log of {ask.subject}\n")
        return self._script(ask, machine)

    def _http(self, ask: HttpAsk, unit: Unit) -> Answer:
        now = self.clock.now()
        if not unit.alive or (unit.stop_at is not None and now >= unit.stop_at):
            return self._failed(ask, Why.CONNECT_REFUSED, "refused")
        if not unit.ready(now) and unit.stop_at is None:
            return self._said(ask, "", 503)
        if ask.fact is Fact.WORKERS:
            rows = [{"url": url, "worker_type": "prefill", "is_healthy": True} for url in self._workers()]
            return self._said(ask, json.dumps({"workers": rows}), 200)
        if ask.fact is Fact.SERVER_INFO:
            return self._said(ask, json.dumps({"version": VERSION}), 200)
        count = self.active.get(unit.instance.name, 0.0)
        if ask.fact is Fact.LOADS:
            if count is None:
                return self._failed(ask, Why.READ_TIMEOUT, "no answer in 5 s")
            return self._said(ask, json.dumps({"loads": [{"num_running_reqs": int(count)}]}), 200)
        if ask.fact is Fact.METRICS and unit.instance.role is Role.ROUTER:
            lines = [f'smg_worker_cb_state{{worker="{url}"}} {self.breaker:g}' for url in self._workers()]
            lines += [f'smg_worker_requests_active{{worker="{url}"}} {count or 0:g}' for url in self._workers()]
            return self._said(ask, "\n".join(lines) + "\n", 200)
        return self._said(ask, PAGE if ask.fact is Fact.METRICS else "", 200)

    def _workers(self) -> tuple[str, ...]:
        return () if self.workers_gone else tuple(i.url for i in self.cluster.engines if i.url)

    def _shown(self, unit: Unit) -> str:
        """``systemctl show``."""
        now = self.clock.now()
        active, sub, job = "active", "running", ""
        if unit.stop_at is not None and now < unit.stop_at:
            active, sub, job = "deactivating", "stop-sigterm", "Job=77\n"
        elif not unit.alive:
            active, sub = ("failed", "failed") if unit.failed else ("inactive", "dead")
        since = WALL + timedelta(seconds=unit.born - 1000.0)
        return (
            f"LoadState=loaded\nActiveState={active}\nSubState={sub}\nMainPID={unit.pid}\nInvocationID={unit.run:032x}\n"
            f"NRestarts={unit.restarts}\nActiveEnterTimestamp={since:%a %Y-%m-%d %H:%M:%S} UTC\n{job}"
            f"Result={'exit-code' if unit.failed else 'success'}\nExecMainCode=1\nExecMainStatus={int(unit.failed)}\n"
        )

    # --- the scripts of a host ----------------------------------------------------------------------------------------

    def _script(self, ask: CommandAsk, machine: Machine) -> Answer:
        argv = [word if isinstance(word, str) else word.value for word in ask.argv]
        if argv[0] == "find":
            rows = [f"1700000000.0\t9\t755\troot\troot\tf\t{name}\0" for name in machine.files]
            return self._said(ask, "".join(rows))
        script, words = argv[2], argv[4:]
        if script in (lock._LOOK, lock._TAKE, lock._BEAT, lock._RELEASE):
            return self._said(ask, self._lock(script, words, machine))
        if script == act._MARK:
            status = machine.marks.get(words[0])
            return self._said(ask, "none\n" if status is None else f"begun\nrc {status}\nsaid\n\n")
        if script == act._TIDY:
            machine.marks = {k: v for k, v in machine.marks.items() if not k.startswith(words[0])}
            return self._said(ask, "")
        if script == script_write._READ:
            text = machine.files.get(words[0])
            if text is None:
                return self._failed(ask, Why.OTHER, "no such file", 66)
            return self._said(ask, f"{words[0]}\0{'755'} 0 0 root:root {len(text)} 1700000000 1\0".encode() + text)
        if script == act._AT_ONCE:
            return self._act(ask, words, machine)
        raise AssertionError(f"a script the simulation does not know: {script[:80]}")

    def _act(self, ask: CommandAsk, words: list[str], machine: Machine) -> Answer:
        path, token, mark, said, *command = words
        assert path == LOCK and said
        if machine.lock is None or machine.lock["token"] != token:
            return self._failed(
                ask, Why.OTHER, "exit status 97: the lock of this host is not ours any more", act.NOT_OURS
            )
        if mark in machine.marks:
            return self._failed(ask, Why.OTHER, "exit status 98: begun before", act.BEGUN_BEFORE)
        machine.marks[mark] = 0
        if command[0] == "systemctl":
            if self._restart(command[-1], machine, token):
                return self._said(ask, "")
            machine.marks[mark] = 1
            return self._failed(ask, Why.OTHER, "Access denied", 1)
        assert command[:2] == ["sh", "-c"], command
        backup, script = command[5], command[4]
        self._acted("backup", script, token)
        machine.files[backup] = machine.files[script]
        return self._said(ask, f"made {backup}\n")

    def _restart(self, name: str, machine: Machine, token: str) -> bool:
        """Whether systemd takes the job."""
        unit = next(u for u in self.units.values() if u.instance.unit == name and u.instance.host == machine.name)
        self._check(unit)
        self._acted("restart", unit.instance.name, token)
        self.restarting.append(self.calls)
        if unit.fate == "refused":
            return False
        unit.starts += 1
        if unit.alive:
            unit.stop_at = self.clock.now() + unit.stops_in
        else:
            self._start(unit, self.clock.now())
        return True

    def _acted(self, what: str, whose: str, token: str) -> None:
        if self.frozen:
            raise Broken(f"{what} {whose} after a failure")
        holders = {str(m.lock["token"]) for m in self.machines.values() if m.lock is not None and m.up}
        if holders - {token}:
            raise Broken(f"{what} {whose} while another holds a lock: two operators at once")
        self.acts.append((self.clock.now(), what, whose))

    def _check(self, unit: Unit) -> None:
        """The order, against the truth at this moment."""
        role = unit.instance.role
        before = {Role.DECODE: (Role.PREFILL,), Role.ROUTER: (Role.PREFILL, Role.DECODE)}.get(role, ())
        for other in self.units.values():
            first = other.instance.role in before and other.instance.name in self.planned
            just_lost = self.clock.now() - other.lost_at < AT_ONCE
            if first and not just_lost and (not self.ready(other.instance.name) or other.run == 1):
                raise Broken(f"{unit.instance.name} restarted before {other.instance.name} is ready")

    def _lock(self, script: str, words: list[str], machine: Machine) -> str:
        now = self.clock.now()
        ours = machine.lock is not None and len(words) > 1 and machine.lock["token"] == words[1]
        if script == lock._BEAT and ours:
            machine.beat = now
        elif script == lock._RELEASE and ours:
            machine.lock = None
        elif script == lock._TAKE:
            if machine.lock is not None and words[1] and machine.lock["token"] == words[1]:
                machine.lock = None
            if machine.lock is None:
                machine.lock, machine.beat = {**json.loads(words[2]), "since": now, "boot": machine.boot}, now
        return self._show_lock(machine)

    def _show_lock(self, machine: Machine) -> str:
        text = f"now {int(self.clock.now())}\nboot {machine.boot}\n"
        if machine.lock is None:
            return text + "none\n"
        owner = {k: v for k, v in machine.lock.items() if k not in ("since", "boot")}
        since, boot = machine.lock["since"], machine.lock["boot"]
        assert isinstance(since, float)
        return text + f"beat {int(machine.beat)}\nowner {json.dumps(owner)}\nsince {int(since)} {boot}\n"

    # --- answers as values --------------------------------------------------------------------------------------------

    def _said(self, ask: Ask, text: str | bytes, status: int = 0) -> Answer:
        body = text.encode() if isinstance(text, str) else text
        words = str(ask)
        return Answer(ask.subject, ask.fact, words, self.clock.now(), self.clock.wall(), 0.01, status, None, None, body)

    def _plain(self, fact: Fact, text: str) -> Answer:
        return Answer("x", fact, "", 0.0, self.clock.wall(), 0.0, 0, None, None, text.encode())

    def _failed(self, ask: Ask, why: Why, detail: str, status: int | None = None) -> Answer:
        now = self.clock.now()
        return Answer(ask.subject, ask.fact, str(ask), now, self.clock.wall(), 0.1, status, why, detail, None)


def owner(name: str = "alice", run: str = "run-1") -> Owner:
    """An operator on a machine that is not this one."""
    return Owner(
        f"{name}@ops", f"{name}s machine", 4711, 1.0, "sim", run, sha256(f"{name}{run}".encode()).hexdigest()[:16]
    )


def site(prefills: int = 2, decodes: int = 2, routers: int = 1, *, shared_host: bool = False) -> Cluster:
    """A cluster whose instances each have a host of their own, or all share one."""
    rows = [(Role.PREFILL, prefills), (Role.DECODE, decodes), (Role.ROUTER, routers)]
    instances, hosts = [], []
    for role, count in rows:
        for n in range(count):
            name = f"{role.value}-{n}"
            host = "h-all" if shared_host else f"h-{name}"
            hosts.append(Host(host, ssh=host))
            port = 30000 + len(instances)
            metrics = f"http://10.0.0.9:{port + 1000}/metrics" if role is Role.ROUTER else None
            instances.append(
                Instance(
                    name, role, f"http://10.0.0.9:{port}", metrics, host, f"{name}.service", f"/srv/{name}.sh"
                )
            )  # fmt: skip
    return Cluster("sim", tuple(instances), tuple(dict.fromkeys(hosts)))
