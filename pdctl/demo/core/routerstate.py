"""What a router is told to do, and what it knows of its workers and requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.leg import Leg

CLOSED, OPEN, HALF_OPEN = 0, 1, 2
AGE_BOUNDS = (30, 60, 180, 300, 600, 1200, 3600, 7200, 14400, 28800, 86400)
DURATION_BOUNDS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """``shape`` is the router whose pages and log it speaks: "0.3.2" (sglang-router) or "smg"."""

    name: str = "router-0"
    shape: str = "0.3.2"
    host: str = "127.0.0.1"
    port: int = 30_001
    metrics_port: int = 29_000
    health_interval: float | None = 60.0
    age_sample: float = 20.0
    max_retries: int = 5
    breaker_failures: int = 10
    breaker_seconds: float = 60.0
    breaker_successes: int = 3
    breakers: bool = True

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@dataclass
class WorkerState:
    """What the router knows of one engine."""

    engine: SimEngine
    worker_id: str
    active: int = 0
    state: int = CLOSED
    opened_at: float = 0.0
    failures: int = 0  # consecutive
    successes: int = 0
    healthy: bool = True
    missed_checks: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def kind(self) -> str:
        return "prefill" if self.engine.spec.is_prefill else "decode"


@dataclass(eq=False)
class Job:
    """One client request. ``held`` names the fault that pins it, on each try; ``dp`` asks for a rank of the prefill."""

    prompt: int
    max_new: int
    stream: bool = False
    path: str = "/v1/completions"
    held: str | None = None
    dp: int | None = None
    decode: str | None = None
    done: Callable[[int, int], None] | None = None  # (status, tokens)
    request_id: str = ""
    born: float = 0.0
    tries: int = 0
    lost: bool = False  # the router waits for answers that cannot come
    over: bool = False
    pair: list[WorkerState] = field(default_factory=list)
    legs: list[tuple[WorkerState, Leg]] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
