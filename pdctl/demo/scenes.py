"""How each fault is brought about: who asks what when, and what is done to the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdctl.demo.core.cluster import SimCluster
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.traffic import Clients, Probes, Shape, Steady, burst_of, storm_of

PAST = 600.0  # simulated seconds before anybody looks
SMALL = Shape(prompt=(300, 700), new=(40, 120))
LONG = Shape(prompt=(1_200, 2_400), new=(300, 700), streaming=1.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """When things happen: ``start`` is the instant at which the window opens (the past lies before it), ``age`` how
    many seconds before it the fault sets in, ``count`` how many requests it holds, ``rate`` requests a second."""

    start: float = PAST
    age: float = 180.0
    count: int = 2
    rate: float = 6.0

    @property
    def onset(self) -> float:
        return self.start - self.age


# -- traffic ---------------------------------------------------------------------------------------------------
def _steady(cluster: SimCluster, plan: Plan, end: float = float("inf"), shape: Shape | None = None) -> None:
    shape = shape or Shape()
    Steady(cluster.tl, cluster.rng, cluster.submit, shape, plan.rate, max(plan.onset - 60.0, 1.0), end)


def _calm(plan: Plan) -> Plan:
    """Few enough requests that long ones do not fill decode's memory."""
    return replace(plan, rate=min(plan.rate, 1.5))


def _morning(cluster: SimCluster, plan: Plan, end: float) -> None:
    """Ordinary traffic of the past, over by ``end``."""
    _steady(cluster, replace(plan, rate=min(plan.rate, 3.0)), end, SMALL)


def healthy(cluster: SimCluster, plan: Plan) -> None:
    """Ordinary traffic that ended a minute and a half ago."""
    _morning(cluster, plan, plan.start - 90.0)


def load(cluster: SimCluster, plan: Plan) -> None:
    """Requests at random instants, all through."""
    _steady(cluster, plan)


def burst(cluster: SimCluster, plan: Plan) -> None:
    """Sixty-four requests, the last of them answered as the window opens."""
    _morning(cluster, plan, plan.start - 120.0)
    burst_of(cluster.tl, cluster.rng, cluster.submit, SMALL, 64, plan.start - 8.0, 4.0)


def probed(cluster: SimCluster, plan: Plan) -> None:
    """Nobody asks, but each engine's health every ten seconds."""
    _morning(cluster, plan, plan.start - 60.0)
    for n, engine in enumerate(cluster.engines):
        Probes(cluster.tl, engine, 10.0, plan.start - 50.0 + 0.7 * n)


# -- pinned ----------------------------------------------------------------------------------------------------
def _pin(cluster: SimCluster, plan: Plan, cause: str, dp: int | None = None) -> None:
    for n in range(plan.count):
        job = SMALL.job(cluster.rng)
        job.held, job.dp = cause, dp
        cluster.tl.at(plan.onset + 0.4 * n, cluster.submit, job)


def pinned(cluster: SimCluster, plan: Plan) -> None:
    """Requests whose KV never reaches the transfer queue; nobody else asks."""
    _morning(cluster, plan, plan.onset - 5.0)
    _pin(cluster, plan, "pinned")


def pinned_under_load(cluster: SimCluster, plan: Plan) -> None:
    """The same, while others come and go."""
    _steady(cluster, plan)
    _pin(cluster, plan, "pinned-under-load")


def pinned_probed(cluster: SimCluster, plan: Plan) -> None:
    """The same, while each engine's health is asked every ten seconds."""
    pinned(cluster, plan)
    for n, engine in enumerate(cluster.engines):
        Probes(cluster.tl, engine, 10.0, plan.onset + 3.0 + 0.7 * n)


def pinned_bootstrap(cluster: SimCluster, plan: Plan) -> None:
    """Requests that reached the prefill alone."""
    _morning(cluster, plan, plan.onset - 5.0)
    for n in range(plan.count):
        cluster.tl.at(plan.onset + 0.4 * n, cluster.orphan, cluster.prefills[0], 600)


def pinned_transfer(cluster: SimCluster, plan: Plan) -> None:
    """Requests that reached the decode alone."""
    _morning(cluster, plan, plan.onset - 5.0)
    for n in range(plan.count):
        cluster.tl.at(plan.onset + 0.4 * n, cluster.orphan, cluster.decodes[0], 600)


def transfer_leak(cluster: SimCluster, plan: Plan) -> None:
    """A transfer call that does not return: everything to that decode queues behind it."""
    _morning(cluster, plan, plan.onset - 5.0)
    for pair in [(p.spec.name, d.spec.name) for p in cluster.prefills for d in cluster.decodes]:
        cluster.tl.at(plan.onset, cluster.fabric.hang, *pair, "transfer-leak")
    burst_of(cluster.tl, cluster.rng, cluster.submit, SMALL, max(plan.count, 40), plan.onset + 0.1, 20.0)


def one_rank(cluster: SimCluster, plan: Plan) -> None:
    """One rank of the first prefill holds what it has; the balancer gives it nothing more."""
    engine, stuck = cluster.prefills[0], cluster.spec.dp // 2
    cluster.tl.at(plan.onset - 1.0, _avoid, engine, stuck)
    _steady(cluster, plan)
    _pin(cluster, plan, "one-rank", stuck)


def _avoid(engine: SimEngine, dp: int) -> None:
    engine.avoided = frozenset({dp})


# -- queues ----------------------------------------------------------------------------------------------------
def storm(cluster: SimCluster, plan: Plan) -> None:
    """Clients that leave at once; what they asked for is aborted on both sides."""
    _morning(cluster, plan, plan.start - 60.0)
    storm_of(cluster.tl, cluster.rng, cluster.router, LONG, 250, plan.start - 3.0, 7.0)


def drain(cluster: SimCluster, plan: Plan) -> None:
    """A backlog that decode works off within a minute or two; nothing new comes."""
    _morning(cluster, plan, plan.start - 120.0)
    burst_of(cluster.tl, cluster.rng, cluster.submit, LONG, 90, plan.start - 12.0, 6.0)


def decode_full(cluster: SimCluster, plan: Plan) -> None:
    """More clients than decode has KV memory for: it works on them without a pause."""
    Clients(cluster.tl, cluster.rng, cluster.submit, LONG, 120, plan.onset)


def prealloc_wedged(cluster: SimCluster, plan: Plan) -> None:
    """Nothing is admitted from prealloc, although memory is free."""
    _morning(cluster, plan, plan.onset - 30.0)
    cluster.tl.at(plan.onset - 1.0, _block, cluster.decodes[0], "prealloc-wedged")
    burst_of(cluster.tl, cluster.rng, cluster.submit, SMALL, max(plan.count, 12), plan.onset, 10.0)


def queue_head_blocked(cluster: SimCluster, plan: Plan) -> None:
    """The head of the prefill's waiting queue is never admitted, although nothing runs."""
    _morning(cluster, plan, plan.onset - 30.0)
    cluster.tl.at(plan.onset - 1.0, _block, cluster.prefills[0], "queue-head-blocked")
    _steady(cluster, replace(plan, rate=0.5, age=plan.age - 60.0), shape=SMALL)


def _block(engine: SimEngine, cause: str) -> None:
    for rank in engine.ranks:
        rank.block(cause)


def engine_wedged(cluster: SimCluster, plan: Plan) -> None:
    """Requests run and get no token, while the loop turns."""
    _steady(cluster, _calm(plan), end=plan.onset, shape=LONG)
    cluster.tl.at(plan.onset, _wedge, cluster.decodes[0], "engine-wedged")


def _wedge(engine: SimEngine, cause: str) -> None:
    for rank in engine.ranks:
        rank.wedge(cause)


def hung_scheduler(cluster: SimCluster, plan: Plan) -> None:
    """Decode's loop stands still under way."""
    _steady(cluster, _calm(plan), end=plan.onset + 5.0, shape=LONG)
    cluster.tl.at(plan.onset, _stop, cluster.decodes[0], "hung-scheduler")


def hung_prefill(cluster: SimCluster, plan: Plan) -> None:
    """Prefill's loop stands still under way."""
    _steady(cluster, plan, end=plan.onset + 5.0)
    cluster.tl.at(plan.onset, _stop, cluster.prefills[0], "hung-prefill")


def _stop(engine: SimEngine, cause: str) -> None:
    for rank in engine.ranks:
        rank.stop(cause)


# -- stale gauges ----------------------------------------------------------------------------------------------
def stale(cluster: SimCluster, plan: Plan) -> None:
    """A burst, over a few seconds into the window: older releases show its numbers for half a minute after it. Newer
    ones correct them at once, unless KV of failed transfers is still held: so some transfers fail as well."""
    _morning(cluster, plan, plan.start - 120.0)
    burst_of(cluster.tl, cluster.rng, cluster.submit, SMALL, 64, plan.start + 1.0, 3.0)
    if cluster.decodes[0].traits.defers_release:
        for n in range(3):
            cluster.tl.at(plan.start - 6.0 + n, _lone_transfer, cluster)


def _lone_transfer(cluster: SimCluster) -> None:
    decode = cluster.decodes[0]
    leg = cluster.orphan(decode, 500)
    cluster.tl.after(1.5, decode.leave, leg)


# -- router and peers ------------------------------------------------------------------------------------------
def router_holds(cluster: SimCluster, plan: Plan) -> None:
    """The router waits for answers to requests that no engine has."""
    _morning(cluster, plan, plan.onset - 30.0)
    for n in range(max(plan.count, 6)):
        job = SMALL.job(cluster.rng)
        job.lost = True
        cluster.tl.at(plan.onset + 5.0 * n, cluster.submit, job)


def breaker(cluster: SimCluster, plan: Plan) -> None:
    """Enough transfers fail to open the breakers; then they would work again, and nobody asks."""
    pairs = [(p.spec.name, d.spec.name) for p in cluster.prefills for d in cluster.decodes]
    _morning(cluster, plan, plan.onset - 30.0)
    for pair in pairs:
        cluster.tl.at(plan.onset, cluster.fabric.fail, *pair, "Failed to send kv chunk")
        cluster.tl.at(plan.onset + 20.0, cluster.fabric.fail, *pair, None)
    for n in range(6):
        cluster.tl.at(plan.onset + 1.0 + n, cluster.submit, SMALL.job(cluster.rng))


def peer_stale(cluster: SimCluster, plan: Plan) -> None:
    """The decode was restarted alone; the prefill still talks to its old session."""
    decode = cluster.decodes[0]
    session = f"{decode.spec.host}:{16_000 + cluster.rng.randrange(1_000)}"
    reason = f"Decode instance could be dead, remote mooncake session {session} is not alive"
    _steady(cluster, replace(plan, rate=min(plan.rate, 0.5)), shape=SMALL)
    cluster.tl.at(plan.onset, decode.crash)
    cluster.tl.at(plan.onset + 25.0, decode.boot)
    for prefill in cluster.prefills:
        cluster.tl.at(plan.onset, _dead_session, cluster, prefill, decode.spec.name, session, reason)


def _dead_session(cluster: SimCluster, prefill: SimEngine, decode: str, session: str, reason: str) -> None:
    cluster.fabric.fail(prefill.spec.name, decode, reason, mute=True)
    prefill.log(f"Session {session} failed.", prefill.ranks[0])


def pair_broken(cluster: SimCluster, plan: Plan) -> None:
    """Transfers of one pair fail, of all others succeed."""
    _steady(cluster, plan)
    pair = cluster.prefills[0].spec.name, cluster.decodes[-1].spec.name
    cluster.tl.at(plan.onset, cluster.fabric.fail, *pair, "Failed to send kv chunk")


def restart(cluster: SimCluster, plan: Plan) -> None:
    """Decode goes away ten seconds into the window and is back six seconds later."""
    _steady(cluster, plan)
    cluster.tl.at(plan.start + 10.0, cluster.decodes[0].crash)
    cluster.tl.at(plan.start + 16.0, cluster.decodes[0].boot)


# -- seeing ----------------------------------------------------------------------------------------------------
def spoil(kind: str) -> Callable[[SimCluster, Plan], None]:
    """Healthy traffic, and decode's metrics page as ``kind`` leaves it."""

    def begin(cluster: SimCluster, plan: Plan) -> None:
        _steady(cluster, replace(plan, rate=min(plan.rate, 2.0)))
        cluster.mischief[cluster.decodes[0].spec.name, "/metrics"] = kind

    return begin
