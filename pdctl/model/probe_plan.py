"""What a probe is going to do: which requests, by which way, in which order, and how much load that is at most."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.model.cluster import Instance, Role
from pdctl.model.probe import Trial


@dataclass(frozen=True, slots=True)
class Way:
    """A path that requests take. ``host`` is the host whose SSH connection carries them. ``half``: the instance is one
    half of a prefill/decode pair, so a generation at it needs the bootstrap host that stands for no peer; ``generates``
    is False where even that is not known to work, ``note`` what a direct generation means there."""

    instance: Instance
    host: str | None = None
    half: bool = False
    generates: bool = True
    note: str | None = None

    @property
    def name(self) -> str:
        return self.instance.name

    @property
    def via(self) -> str:
        return "proxy" if self.instance.role is Role.PROXY else "direct"


@dataclass(frozen=True, slots=True)
class Stage:
    """One kind on one path. ``requests`` at most, ``at_once`` of them at most, ``tokens`` that may be generated in all.
    ``gaps`` in seconds; ``agents`` times ``rounds`` requests; ``repeat`` times one request, or one wave."""

    way: Way
    trial: Trial
    requests: int
    at_once: int = 1
    tokens: int = 0
    stream: bool = False
    gaps: tuple[float, ...] = ()
    agents: int = 0
    rounds: int = 0
    repeat: int = 1
    most_tokens: int = 16
    seconds: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.trial.value} at {self.way.name}"


@dataclass(frozen=True, slots=True)
class Load:
    """How much a plan sends at most. ``seconds`` is how long it takes where every answer comes at once; the deadline
    bounds it where they don't."""

    requests: int
    at_once: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A kind that a path is not asked, and why."""

    to: str
    trial: Trial
    why: str


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """``steps`` run one after the other, the stages of a step at the same time."""

    steps: tuple[tuple[Stage, ...], ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(stage for step in self.steps for stage in step)

    @property
    def ways(self) -> tuple[Way, ...]:
        return tuple({stage.way.name: stage.way for stage in self.stages}.values())

    @property
    def load(self) -> Load:
        stages = self.stages
        return Load(
            sum(s.requests for s in stages),
            max((sum(s.at_once for s in step) for step in self.steps), default=0),
            sum(s.tokens for s in stages),
            sum(max((s.seconds for s in step), default=0.0) for step in self.steps),
        )
