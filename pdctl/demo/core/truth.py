"""What is really stuck, where and since when: read from the simulation's own state, not from what it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pdctl.demo.core.decode import DecodeRank
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.fabric import Fabric
from pdctl.demo.core.leg import Leg, Stage
from pdctl.demo.core.prefill import PrefillRank
from pdctl.demo.core.rank import Rank

GRACE = 2.0  # seconds in which the other leg of a request may still be on its way


@dataclass(frozen=True, slots=True)
class Stuck:
    """Requests that will not leave a queue by themselves (a timeout aside). ``since`` in seconds of the window
    (before it: negative), of the oldest; ``cause`` is the fault that holds them."""

    instance: str
    queue: str
    dp: int
    count: int
    since: float
    cause: str


@dataclass(frozen=True, slots=True)
class Truth:
    """The state of a simulated cluster at one instant. ``stopped`` are schedulers that do not turn, as (instance,
    dp); ``lengths`` the true queue lengths by instance; ``leads_to`` the findings the chosen fault should lead to."""

    t: float
    fault: str
    stuck: tuple[Stuck, ...] = ()
    stopped: tuple[tuple[str, int], ...] = ()
    lengths: dict[str, dict[str, int]] = field(default_factory=dict)
    leads_to: tuple[str, ...] = ()

    @property
    def pinned(self) -> tuple[Stuck, ...]:
        """What is stuck between prefill and decode: neither running nor waiting for its forward pass."""
        return tuple(s for s in self.stuck if s.queue in ("bootstrap", "inflight", "transfer"))


def stuck_in(engines: list[SimEngine], fabric: Fabric, now: float, start: float) -> tuple[Stuck, ...]:
    """Every stuck request of a cluster, grouped by instance, queue, rank and cause."""
    groups: dict[tuple[str, str, int, str], list[float]] = {}
    for rank in (rank for engine in engines for rank in engine.ranks):
        for leg, cause in _stuck_of(rank, fabric, now):
            groups.setdefault((rank.name, str(leg.stage), rank.dp, cause), []).append(leg.stage_at)
    return tuple(
        Stuck(instance, queue, dp, len(times), min(times) - start, cause)
        for (instance, queue, dp, cause), times in groups.items()
    )


def _stuck_of(rank: Rank, fabric: Fabric, now: float) -> Iterator[tuple[Leg, str]]:
    for leg in rank.legs():
        if not leg.fake and (cause := _cause(rank, fabric, leg, now)):
            yield leg, cause


def _cause(rank: Rank, fabric: Fabric, leg: Leg, now: float) -> str | None:
    if rank.hung:
        return rank.hung
    if isinstance(rank, DecodeRank):
        if leg.stage is Stage.PREALLOC and rank.blocked:
            return rank.blocked
        if leg.stage is Stage.RUNNING and rank.wedged:
            return rank.wedged
    if isinstance(rank, PrefillRank) and leg.stage is Stage.WAITING and rank.blocked:
        return rank.blocked
    if leg.arrived or leg.error or leg.stage not in (Stage.BOOTSTRAP, Stage.INFLIGHT, Stage.TRANSFER):
        return None
    if leg.stage is not Stage.BOOTSTRAP and (holder := fabric.holder_of(leg)):
        return holder
    alone = not fabric.has_peer(leg, rank.spec.is_prefill) and now - leg.stage_at > GRACE
    return "orphan" if alone and leg.stage is not Stage.INFLIGHT else None


def lengths_of(engines: list[SimEngine]) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for engine in engines:
        stages = Counter(str(leg.stage) for rank in engine.ranks for leg in rank.legs() if not leg.fake)
        out[engine.spec.name] = dict(sorted(stages.items()))
    return out
