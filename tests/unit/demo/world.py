"""What the demo's tests share: clusters in virtual time, and a reading of their pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pdctl.demo.core.answers import answer
from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.page import render_page
from pdctl.demo.core.traffic import Clients, Shape, Steady
from pdctl.demo.core.truth import Truth

ROW = re.compile(r"sglang:(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
SHAPE = Shape(prompt=(380, 420), new=(50, 70), streaming=0.0)


def cluster(release: str = "0.5.23", **more: object) -> SimCluster:
    """A cluster nobody asks anything, not even the router for health."""
    return SimCluster(ClusterSpec(release=release, health_interval=None, **more))  # type: ignore[arg-type]


def clients(world: SimCluster, count: int, start: float, end: float) -> None:
    Clients(world.tl, world.rng, world.submit, SHAPE, count, start, end)


def steady(world: SimCluster, rate: float, start: float, end: float = float("inf")) -> None:
    Steady(world.tl, world.rng, world.submit, SHAPE, rate, start, end)


def pin(world: SimCluster, at: float, count: int = 1) -> None:
    for _ in range(count):
        job = SHAPE.job(world.rng)
        job.held = "pinned"
        world.tl.at(at, world.submit, job)


def page(engine: SimEngine) -> dict[str, float]:
    """The page's samples, summed over labels, by sample name without its prefix."""
    out: dict[str, float] = {}
    for name, _, value in _rows(render_page(engine)):
        out[name] = out.get(name, 0.0) + value
    return out


def _rows(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        if match := ROW.fullmatch(line):
            yield match[1], dict(LABEL.findall(match[2] or "")), float(match[3])


def samples(engine: SimEngine, family: str) -> Iterator[tuple[dict[str, str], float]]:
    """The labels and value of each sample of that name."""
    return ((labels, value) for name, labels, value in _rows(render_page(engine)) if name == family)


def stage(engine: SimEngine, name: str) -> float:
    rows = samples(engine, "per_stage_req_latency_seconds_count")
    return sum(value for labels, value in rows if labels["stage"] == name)


def loads(world: SimCluster, name: str) -> dict[str, object]:
    """The first rank of /v1/loads, its disaggregation block folded in."""
    reply = answer(world, name, "/v1/loads?include=core,disagg,queues")
    assert reply.status == 200
    row = json.loads(reply.body)["loads"][0]
    return {**row, **row["disaggregation"]}


def series(world: SimCluster, engine: SimEngine, family: str, times: list[float]) -> list[float | None]:
    """One family's value at each instant; None while the page does not hold it."""
    out: list[float | None] = []
    for at in times:
        world.advance_to(at)
        out.append(page(engine).get(family))
    return out


def lengths(truth: Truth, name: str, queue: str) -> int:
    return truth.lengths[name].get(queue, 0)
