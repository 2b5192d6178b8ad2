"""A change before it is made: the steps, what they stand on, what speaks against them; and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pdctl.model.cluster import Role

SHIFTED = "the ground has shifted since the plan was made"  # how every such end is worded
READY = 600.0  # seconds that a new process is given to be ready, where nobody says otherwise


class Act(StrEnum):
    """What a step does."""

    BACKUP = "backup"
    DRAIN = "drain"
    RESTART = "restart"
    PROVE = "prove"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Steps of one ``batch`` are done at the same time; a batch begins when every step of the one before has
    been verified. ``id`` stays the same from plan to plan, so that a journal can name it. ``command`` is what is run
    on ``host`` (as root where ``become``); ``verify`` says in words what must hold before anything follows."""

    id: str
    act: Act
    batch: int
    says: str
    instance: str | None = None
    role: Role | None = None
    host: str | None = None
    command: tuple[str, ...] = ()
    become: bool = False
    unit: str | None = None
    script: str | None = None
    verify: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """Which run of a program a main process is. A number alone may come again; together with when it started, or with
    systemd's id of the run, it does not."""

    pid: int
    started: datetime | None = None
    invocation: str | None = None

    def is_same(self, other: Identity | None) -> bool:
        """Whether both are one run of one program."""
        if other is None or self.pid != other.pid:
            return False
        if self.invocation and other.invocation:
            return self.invocation == other.invocation
        if self.started is None or other.started is None:
            return True
        return abs((self.started - other.started).total_seconds()) < 2.0

    def __str__(self) -> str:
        since = f" since {self.started:%Y-%m-%d %H:%M:%S} UTC" if self.started else ""
        return f"pid {self.pid}{since}" if self.pid else f"a run without a main process{since}"


@dataclass(frozen=True, slots=True)
class Active:
    """Requests an instance has under way. ``count`` is None where nothing tells, ``why`` then says so; ``parts`` are
    the queues it is made of, ``source`` where it was read."""

    count: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    source: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A serve script as it stands. ``sha256`` is None where it could not be read (``why``). ``valid``: ``bash -n``
    passes (None: not checked). ``edited``: it was written after the process started (None: not known). ``drift`` says
    what a restart would change, None where it could not be compared."""

    path: str
    sha256: str | None = None
    mtime: datetime | None = None
    why: str | None = None
    valid: bool | None = None
    fault: str | None = None
    edited: bool | None = None
    drift: str | None = None


@dataclass(frozen=True, slots=True)
class Footing:
    """What is known of one instance. ``process`` is its main process, None where none runs or none could be seen
    (``why``); ``state`` its unit's, as "active (running)". ``answered`` are the facts it answered over HTTP,
    ``refused`` those it is known not to serve. ``stop_seconds``: how long systemd lets it take to stop. ``workers``: a
    router's, by URL, None where it does not tell. ``restarts``: how often systemd has restarted it by itself, None
    where it does not tell."""

    instance: str
    host: str | None = None
    process: Identity | None = None
    why: str | None = None
    state: str | None = None
    loaded: bool | None = None
    stop_seconds: float | None = None
    version: str | None = None
    active: Active = Active()
    script: Script | None = None
    answered: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    gauges: Mapping[str, float] = field(default_factory=dict)
    workers: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    restarts: int | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock. ``machine`` (its name and the id of its boot), ``pid`` and ``born`` (seconds since the epoch)
    name the pdctl that took it; ``token`` is of that one process, so that a resumed run is not the one before."""

    who: str
    machine: str
    pid: int
    born: float
    cluster: str
    run: str
    token: str


class Hold(StrEnum):
    """How a host's lock stands."""

    FREE = "free"
    OURS = "ours"
    HELD = "held"
    STALE = "stale"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lock:
    """A host's lock. ``age_s`` since it was taken, ``quiet_s`` since its holder's last sign of life, both by the host's
    own clock. ``why`` says what makes it stale, or why it could not be seen. ``of``: the host's user whose file it
    is, where none but that user may remove it."""

    hold: Hold
    owner: Owner | None = None
    age_s: float | None = None
    quiet_s: float | None = None
    why: str | None = None
    of: str | None = None


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system. ``free`` and ``size`` in bytes."""

    path: str
    free: int
    size: int


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that belongs to no instance of the inventory, with what it holds of GPU memory."""

    pid: int
    title: str
    gpu_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """What is known of one host. ``unseen`` names what could not be looked at there, with the reason. ``strangers``
    hold GPU memory and belong to no instance of the inventory."""

    host: str
    reachable: bool = True
    why: str | None = None
    boot: str | None = None
    lock: Lock = Lock(Hold.UNKNOWN)
    disks: tuple[Disk, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    strangers: tuple[Leftover, ...] = ()


@dataclass(frozen=True, slots=True)
class Ground:
    """What a plan stands on. ``inventory`` is a digest of what the inventory says of hosts and instances."""

    at: datetime
    inventory: str
    footings: tuple[Footing, ...] = ()
    sites: tuple[Site, ...] = ()

    def of(self, instance: str | None) -> Footing | None:
        return next((f for f in self.footings if f.instance == instance), None)

    def site(self, host: str | None) -> Site | None:
        return next((s for s in self.sites if s.host == host), None)


@dataclass(frozen=True, slots=True)
class Rule:
    """Something a plan must satisfy. ``asked``: it judges what was asked for rather than the state of the world.
    ``forcible``: --force NAME overrides it."""

    name: str
    says: str
    forcible: bool = True
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that is not satisfied. ``forced``: it was overridden by name."""

    rule: str
    subject: str
    why: str
    forcible: bool
    asked: bool
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for. ``only``: roles or instances, all where empty. ``serial``: how many instances of a role at a
    time, all where None. Seconds: ``drain`` to wait for active requests to end (None: no wait), ``ready`` for a new
    process to be ready, ``stop`` for the old one to be gone (None: what systemd allows it, and some more). ``force``:
    rules overridden."""

    only: tuple[str, ...] = ()
    serial: int | None = None
    drain: float | None = None
    ready: float = READY
    stop: float | None = None
    force: tuple[str, ...] = ()
    backup: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """A change, whole. It may be carried out when no refusal stands. ``notes`` are what to know before saying yes;
    ``unchecked`` what was not looked at, by subject."""

    id: str
    cluster: str
    wish: Wish
    ground: Ground
    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    unchecked: tuple[tuple[str, str], ...] = ()

    @property
    def standing(self) -> tuple[Refusal, ...]:
        """The refusals that were not overridden."""
        return tuple(r for r in self.refusals if not r.forced)

    @property
    def restarts(self) -> tuple[Step, ...]:
        return tuple(s for s in self.steps if s.act is Act.RESTART)

    @property
    def batches(self) -> tuple[tuple[Step, ...], ...]:
        numbers = sorted({s.batch for s in self.steps})
        return tuple(tuple(s for s in self.steps if s.batch == n) for n in numbers)

    def step(self, step_id: str) -> Step | None:
        return next((s for s in self.steps if s.id == step_id), None)


class State(StrEnum):
    """What became of a step."""

    LEFT = "left"  # never begun
    BEGUN = "begun"  # may or may not have been done: the world tells
    DONE = "done"  # done and verified
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of one step. ``detail`` in one line; ``after`` is the new process; ``phases`` are what was waited
    for with the seconds each took; ``last_log`` what the log said last."""

    step: str
    state: State
    detail: str = ""
    took: float | None = None
    after: Identity | None = None
    version: str | None = None
    phases: tuple[tuple[str, float], ...] = ()
    last_log: str | None = None


class Proven(StrEnum):
    """How one point of the proof came out."""

    YES = "yes"
    NO = "no"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the proof."""

    what: str
    subject: str
    proven: Proven
    says: str


class End(StrEnum):
    """How a run ended."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a touched instance stands when a run ends. ``down``: nothing serves there; None: not known. ``ready``: it is
    the process that was seen to be ready."""

    instance: str
    down: bool | None
    says: str
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of carrying out a plan. ``why`` says in one line what ended it before its end."""

    plan: Plan
    end: End
    results: tuple[StepResult, ...]
    why: str | None = None
    proof: tuple[Point, ...] = ()
    standing: tuple[Standing, ...] = ()
    before: Ground | None = None
    after: Ground | None = None
    notes: tuple[str, ...] = ()

    def of(self, step: Step) -> StepResult:
        """The step's result; one that was never begun is ``LEFT``."""
        found = next((r for r in self.results if r.step == step.id), None)
        return found or StepResult(step.id, State.LEFT)
