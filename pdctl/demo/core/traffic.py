"""Where requests come from: steady streams, loops of clients, bursts, clients that leave, health probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.router import SimRouter
from pdctl.demo.core.routerstate import Job
from pdctl.demo.core.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Shape:
    """What requests look like: ranges of prompt tokens and new tokens, and the share that streams."""

    prompt: tuple[int, int] = (200, 1_500)
    new: tuple[int, int] = (30, 160)
    streaming: float = 0.5
    path: str = "/v1/completions"

    def job(self, rng: Random) -> Job:
        return Job(rng.randint(*self.prompt), rng.randint(*self.new), rng.random() < self.streaming, self.path)


class Steady:
    """Requests at random instants, ``rate`` a second on average, from ``start`` until ``end``."""

    def __init__(
        self, tl: Timeline, rng: Random, submit: Callable[[Job], None], shape: Shape, rate: float,
        start: float, end: float = float("inf"),
    ) -> None:  # fmt: skip
        self.tl, self.rng, self.submit, self.shape, self.rate, self.end = tl, rng, submit, shape, rate, end
        tl.at(start + rng.expovariate(rate), self._one)

    def _one(self) -> None:
        if self.tl.now >= self.end:
            return
        self.submit(self.shape.job(self.rng))
        self.tl.after(self.rng.expovariate(self.rate), self._one)


class Clients:
    """A closed loop: each of ``count`` clients sends its next request ``think`` seconds after its last answer."""

    def __init__(
        self, tl: Timeline, rng: Random, submit: Callable[[Job], None], shape: Shape, count: int,
        start: float, end: float = float("inf"), think: float = 0.0,
    ) -> None:  # fmt: skip
        self.tl, self.rng, self.submit, self.shape, self.end, self.think = tl, rng, submit, shape, end, think
        for n in range(count):
            tl.at(start + 0.01 * n, self._one)

    def _one(self) -> None:
        if self.tl.now >= self.end:
            return
        job = self.shape.job(self.rng)
        job.done = self._answered
        self.submit(job)

    def _answered(self, status: int, tokens: int) -> None:
        self.tl.after(self.think if status == 200 else max(self.think, 1.0), self._one)


def burst_of(tl: Timeline, rng: Random, submit: Callable[[Job], None], shape: Shape, count: int, at: float,
          over: float) -> None:  # fmt: skip
    """``count`` requests spread over ``over`` seconds."""
    for _ in range(count):
        tl.at(at + rng.random() * over, submit, shape.job(rng))


def storm_of(tl: Timeline, rng: Random, router: SimRouter, shape: Shape, count: int, at: float, over: float) -> None:
    """``count`` requests whose clients leave after 0.1 to 1.1 seconds."""
    for _ in range(count):
        job = shape.job(rng)
        begun = at + rng.random() * over
        tl.at(begun, router.submit, job)
        tl.at(begun + 0.1 + rng.random(), router.leave, job)


class Probes:
    """GET /health of an engine at a fixed interval, as Kubernetes or an old router does."""

    def __init__(self, tl: Timeline, engine: SimEngine, interval: float, start: float) -> None:
        self.tl, self.engine, self.interval = tl, engine, interval
        tl.at(start, self._one)

    def _one(self) -> None:
        if not self.engine.down:
            self.engine.probe(lambda status: None)
        self.tl.after(self.interval, self._one)
