"""Windows without sockets or waiting: raw answers of a simulated cluster over simulated time, with their truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from pdctl.demo.core.answers import Reply, answer
from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.core.truth import Truth
from pdctl.demo.faults import FAULTS, simulate
from pdctl.demo.scenes import Plan
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Cluster, Instance, Role

TIMEOUT = 5.0
LOG_SECONDS = 360.0
LOG_LINES = 50
OLD_LOADS = "/get_load"
LOADS = "/v1/loads?include=core,disagg,queues"


@dataclass(frozen=True, slots=True)
class Recording:
    """A window with its truth: the inventory, every raw answer in order of completion, and what was so at each
    sample. ``plan`` says when the fault set in."""

    cluster: Cluster
    answers: tuple[Answer, ...]
    truths: tuple[Truth, ...]
    plan: Plan


def record(
    fault: str, release: str = "0.5.23", *, seed: int = 0, seconds: float = 60.0, interval: float = 2.0,
    rate: float | None = None, age: float | None = None, count: int | None = None, dp: int = 1,
    router: str | None = "0.3.2", loads_every: int = 1,
) -> tuple[Cluster, tuple[Answer, ...], Truth]:  # fmt: skip
    """The inventory, every raw answer in order of completion, and the truth at the end of the window.

    The window starts where the fault has been there for ``age`` seconds; samples are ``interval`` seconds apart, live
    counts are asked ``loads_every`` times a sample. Raises KeyError for an unknown fault."""
    spec = ClusterSpec(release=release, seed=seed, dp=dp, tp=dp, router=router)
    usual = FAULTS[fault].plan
    plan = Plan(
        usual.start, usual.age if age is None else age, usual.count if count is None else count,
        usual.rate if rate is None else rate,
    )  # fmt: skip
    made = recording(fault, spec, plan, seconds=seconds, interval=interval, loads_every=loads_every)
    return made.cluster, made.answers, made.truths[-1]


def recording(
    fault: str, spec: ClusterSpec, plan: Plan | None = None, *, seconds: float = 60.0, interval: float = 2.0,
    loads_every: int = 1, also: Callable[[SimCluster, Plan], None] | None = None,
) -> Recording:  # fmt: skip
    """A window of any cluster; ``also`` does more to it before its time begins."""
    cluster, plan = simulate(FAULTS[fault], spec, plan, also=also)
    asker = Asker(cluster, Random(spec.seed))
    instances = cluster.inventory().instances
    answers: list[Answer] = []
    truths: list[Truth] = []
    for n in range(round(seconds / interval) * loads_every + 1):
        cluster.advance_to(plan.start + n * interval / loads_every)
        truths.append(cluster.truth())
        for instance in instances:
            answers += asker.sample(instance, first=n == 0, whole=n % loads_every == 0)
    for instance in instances:
        answers += asker.log(instance)
    return Recording(cluster.inventory(), tuple(answers), tuple(truths), plan)


class Asker:
    """Turns replies into answers as a client would: a few milliseconds each, errors by their names."""

    def __init__(self, cluster: SimCluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng

    def sample(self, instance: Instance, *, first: bool, whole: bool) -> Iterator[Answer]:
        """One round: the metrics page, live counts, and at the start what the instance says of itself."""
        assert instance.url is not None
        if whole and instance.metrics:
            yield from self._get(instance, Fact.METRICS, instance.metrics)
        if instance.role is Role.ROUTER:
            if whole:
                yield from self._get(instance, Fact.WORKERS, instance.url + "/workers")
            return
        yield from self._loads(instance, instance.url)
        if first:
            engine = self.cluster.engine(instance.name)
            path = "/server_info" if engine is None or engine.traits.server_info_path else "/get_server_info"
            yield from self._get(instance, Fact.SERVER_INFO, instance.url + path)

    def _loads(self, instance: Instance, url: str) -> Iterator[Answer]:
        """Live counts, by the name that the engine knows."""
        (asked,) = self._get(instance, Fact.LOADS, url + LOADS)
        (older,) = self._get(instance, Fact.LOADS, url + OLD_LOADS) if asked.status == 404 else (asked,)
        yield older if older.status == 200 else asked

    def log(self, instance: Instance) -> Iterator[Answer]:
        """The log's lines of the last six minutes before the window and since, but the last fifty at least."""
        since, log = self.cluster.window_start - LOG_SECONDS, list(self.cluster.logs[instance.name])
        lines = [line for n, (at, line) in enumerate(log) if at >= since or n >= len(log) - LOG_LINES]
        body = "".join(line + "\n" for line in lines).encode()
        yield self._answer(instance.name, Fact.LOG, f"tail {instance.name}.log", 0.002, None, None, body, None)

    def _get(self, instance: Instance, fact: Fact, url: str) -> Iterator[Answer]:
        target = "/" + url.split("/", 3)[3]
        reply = answer(self.cluster, instance.name, target)
        yield self._received(instance.name, fact, f"GET {url}", reply)

    def _received(self, name: str, fact: Fact, ask: str, reply: Reply) -> Answer:
        took = reply.delay + 0.002 + self.rng.random() * 0.006
        kind = reply.content_type
        if reply.never or reply.manner == "drip":
            detail = "no byte in 5 s" if reply.never else "answer not complete in 5 s"
            return self._answer(name, fact, ask, TIMEOUT, None, Why.READ_TIMEOUT, None, detail)
        if reply.manner == "refuse":
            return self._answer(name, fact, ask, 0.001, None, Why.CONNECT_REFUSED, None, "connection refused")
        if reply.manner == "reset":
            return self._answer(name, fact, ask, took, None, Why.RESET, None, "connection reset")
        if reply.manner == "truncate":
            half = reply.body[: len(reply.body) // 2]
            return self._answer(name, fact, ask, took, 200, Why.TRUNCATED, half, "connection closed early", kind)
        if reply.manner == "huge":
            return self._answer(name, fact, ask, took, 200, Why.TOO_LARGE, None, "more than the cap")
        if reply.location is not None:
            return self._answer(name, fact, ask, took, reply.status, Why.REDIRECT_LOOP, None, reply.location)
        return self._answer(name, fact, ask, took, reply.status, None, reply.body, None, kind)

    def _answer(
        self, name: str, fact: Fact, ask: str, took: float, status: int | None, error: Why | None,
        body: bytes | None, detail: str | None, kind: str | None = None,
    ) -> Answer:  # fmt: skip
        t = self.cluster.tl.now - self.cluster.window_start + took
        at = datetime.fromtimestamp(self.cluster.spec.epoch + self.cluster.window_start, UTC) + timedelta(seconds=t)
        return Answer(name, fact, ask, t, at, took, status, error, detail, body, kind)
