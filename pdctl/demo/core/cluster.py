"""A whole simulated cluster: engines, fabric, router, log lines, and its truth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.fabric import Fabric
from pdctl.demo.core.leg import Leg
from pdctl.demo.core.router import SimRouter
from pdctl.demo.core.routerstate import Job, RouterSpec
from pdctl.demo.core.spec import EngineSpec, Speed
from pdctl.demo.core.timeline import Timeline
from pdctl.demo.core.truth import Truth, lengths_of, stuck_in
from pdctl.model.cluster import Cluster, Instance, Role

LOG_KEPT = 4_000  # lines an instance's memory log keeps
Sink = Callable[[str, str], None]  # instance, line


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster to simulate. ``epoch`` is the wall time of its second 0. ``router`` is "0.3.2", "smg" or None for
    one that nobody sees."""

    release: str = "0.5.23"
    prefills: int = 1
    decodes: int = 1
    dp: int = 1
    tp: int = 1
    lockstep: bool = False
    seed: int = 0
    router: str | None = "0.3.2"
    epoch: float = 1_764_000_000.0
    prefill_kv: int = 160_000
    decode_kv: int = 160_000
    health_interval: float | None = 60.0
    breakers: bool = True
    speed: Speed = field(default_factory=Speed)
    ports: tuple[int, ...] = ()  # of prefills, their bootstrap servers, decodes, router, its metrics
    local: bool = False  # log lines in this machine's time instead of UTC


class SimCluster:
    """The simulation. Advance it with ``advance_to``; nothing happens in between."""

    def __init__(self, spec: ClusterSpec, sink: Sink | None = None) -> None:
        self.spec = spec
        self.tl = Timeline()
        self.rng = Random(spec.seed)
        speed = spec.speed
        self.fabric = Fabric(self.tl, lambda tokens: speed.transfer_base + tokens / speed.transfer_tokens)
        self.logs: dict[str, deque[tuple[float, str]]] = {}
        self._sink = sink
        self._zone = None if spec.local else UTC
        self.fault = "healthy"
        self.leads_to: tuple[str, ...] = ()
        self.window_start = 0.0
        self.mischief: dict[tuple[str, str], str] = {}  # (instance, path) -> what is wrong with the answer
        ports = iter(spec.ports or range(30_000, 31_000))
        self.prefills = [self._engine(Role.PREFILL, n, ports) for n in range(spec.prefills)]
        self.decodes = [self._engine(Role.DECODE, n, ports) for n in range(spec.decodes)]
        self.router = self._router(ports)

    def _engine(self, role: Role, n: int, ports: Iterator[int]) -> SimEngine:
        spec, prefill = self.spec, role is Role.PREFILL
        port = next(ports)
        name = f"{role}-{n}"
        engine = EngineSpec(
            name, role, spec.release, spec.dp, spec.tp, spec.lockstep,
            spec.prefill_kv if prefill else spec.decode_kv, port=port,
            bootstrap_port=next(ports) if prefill else None, speed=spec.speed,
        )  # fmt: skip
        return SimEngine(engine, self, self._writer(name))

    def _router(self, ports: Iterator[int]) -> SimRouter:
        """The router. A cluster without one has it all the same, unseen: its traffic must come from somewhere."""
        kind = self.spec.router
        port, metrics = (next(ports), next(ports)) if kind else (0, 0)
        spec = RouterSpec(
            shape="smg" if kind and kind.startswith("smg") else "0.3.2",
            port=port,
            metrics_port=metrics,
            health_interval=self.spec.health_interval if kind else None,
            breakers=self.spec.breakers,
        )
        return SimRouter(spec, self, self.engines, self._writer(spec.name) if kind else lambda line: None)

    def _writer(self, name: str) -> Callable[[str], None]:
        log = self.logs[name] = deque(maxlen=LOG_KEPT)

        def write(line: str) -> None:
            log.append((self.tl.now, line))
            if self._sink is not None:
                self._sink(name, line)

        return write

    # -- time --------------------------------------------------------------------------------------------------
    def advance_to(self, t: float) -> None:
        self.tl.advance_to(t)

    def stamp(self, t: float) -> str:
        """A time as engines write it: no zone, no fraction."""
        return datetime.fromtimestamp(self.spec.epoch + t, self._zone).strftime("%Y-%m-%d %H:%M:%S")

    utc = stamp

    # -- who is there ------------------------------------------------------------------------------------------
    @property
    def engines(self) -> list[SimEngine]:
        return [*self.prefills, *self.decodes]

    def engine(self, name: str) -> SimEngine | None:
        return next((e for e in self.engines if e.spec.name == name), None)

    def reachable(self, engine: SimEngine, leg: Leg) -> bool:
        """Whether a decode reaches the bootstrap server of a request's prefill: it lives in the main process."""
        room = self.fabric.rooms.get(leg.room)
        if room is not None and room.prefill is not None:
            return True
        return any(not prefill.down for prefill in self.prefills)

    def submit(self, job: Job) -> None:
        """A client's request, through the router."""
        self.router.submit(job)

    def orphan(self, engine: SimEngine, shape_prompt: int, max_new: int = 100) -> Leg:
        """A request to one engine alone: its peer never gets the other half."""
        leg = Leg(
            f"{self.rng.getrandbits(128):032x}", self.rng.getrandbits(63), shape_prompt, max_new, born=self.tl.now
        )
        engine.submit(leg)
        return leg

    # -- truth and inventory -----------------------------------------------------------------------------------
    def truth(self, t: float | None = None) -> Truth:
        """What is so at an instant (now when none is given; time advances to it)."""
        if t is not None:
            self.advance_to(t)
        now = self.tl.now
        return Truth(
            now - self.window_start, self.fault,
            stuck_in(self.engines, self.fabric, now, self.window_start),
            tuple((r.name, r.dp) for e in self.engines for r in e.ranks if r.hung),
            lengths_of(self.engines), self.leads_to,
        )  # fmt: skip

    def inventory(self, logs: dict[str, str] | None = None) -> Cluster:
        """The cluster as a pdctl inventory; ``logs`` gives the path of each instance's log."""
        rows = [
            Instance(
                e.spec.name, e.spec.role, e.spec.url, bootstrap_port=e.spec.bootstrap_port,
                log=(logs or {}).get(e.spec.name),
            )
            for e in self.engines
        ]  # fmt: skip
        if self.spec.router:
            spec = self.router.spec
            page = f"http://{spec.host}:{spec.metrics_port}/metrics"
            rows.append(Instance(spec.name, Role.ROUTER, spec.url, page, log=(logs or {}).get(spec.name)))
        return Cluster("demo", tuple(rows), source="pdctl demo")
