"""The stages of a check that ask hosts or send requests. Imported when one of them is run.

Each gets the window so far and returns it with what it saw, and findings about what it could not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pdctl.checks.base import found
from pdctl.checks.host_seeing import unseen
from pdctl.gather import Gatherer
from pdctl.looks.hosts import HostLook, HostPlan
from pdctl.model.answer import Answer, Fact, Observation
from pdctl.model.ask import Ask
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.finding import Confidence, Evidence, Finding
from pdctl.model.window import Window
from pdctl.reach.clock import Clock
from pdctl.reach.hosts import Hosts

LEAST_S = 0.5  # a stage with less time than this is not begun
DUMPS = 2
APART_S = 2.0  # seconds between dumps
# Seconds without which a stage is not begun: what it overran would cost the verdict on all others.
NEEDS_S = {"sockets": LEAST_S, "probes": 2.0, "stacks": APART_S + 2.0}
HANG_S = 8.0  # seconds of silence that count as a hang of a probe's request
AFTER_S = 6.0  # seconds for which the cluster is looked at after requests that failed: it was before, too

Seen = tuple[Window, list[Finding]]


@dataclass(frozen=True, slots=True)
class Look:
    """What a stage needs: the way to ask, until when (by the clock), and where raw answers go."""

    cluster: Cluster
    clock: Clock
    until: float
    gatherer: Gatherer
    hosts: Hosts | None
    keep: Callable[[Answer], None]

    def left(self) -> float:
        return max(0.0, self.until - self.clock.now())


class InTime(Gatherer):
    """A gatherer no round of which goes on beyond ``until`` (by its clock)."""

    until = float("inf")

    def gather(self, asks: Sequence[Ask], deadline_s: float) -> tuple[Answer, ...]:
        return super().gather(asks, max(0.0, min(deadline_s, self.until - self.clock.now())))


def no_time(name: str, cluster: Cluster) -> Finding:
    """A stage that was to run and did not: nothing of it may look fine."""
    why = "no time was left before the deadline"
    return found(
        "endpoint-unreadable",
        cluster.name,
        f"the stage {name} was not run: {why}",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(why),),
        limits=("nothing is concluded about what it would have seen",),
        next=(f"pdctl check --only {name} --deadline 60s", "pdctl explain endpoint-unreadable"),
    )


def look_at_sockets(look: Look, window: Window, asked: bool) -> Seen:
    """Connections, open files, units and processes of the instances whose host is known; where the stage was asked for
    by name, an instance without a known host is a blind spot."""
    instances = [i for i in look.cluster.instances if i.host or asked]
    with _on_hosts(look, instances) as hosts:
        hosts.sockets()
        hosts.processes()
        hosts.units()
        hosts.limits(("main", "router"))
    window = _with(window, hosts.window().observations, look)
    return window, list(unseen(window, instances, (Fact.SOCKETS,), hosts.unplaced if asked else {}))


def look_at_stacks(look: Look, window: Window, asked: bool) -> Seen:
    """Two dumps of every scheduler rank."""
    from pdctl.looks.stacks import StackPlan, dumping
    from pdctl.reach.pyspy import DumpPlan

    engines = list(look.cluster.engines)
    timeout = min(10.0, max(LEAST_S, (look.left() - APART_S) / (DUMPS + 1)))
    with _on_hosts(look, engines) as hosts:
        hosts.processes()
        with dumping(hosts, StackPlan(DUMPS, APART_S, DumpPlan(timeout))) as stacks:
            stacks.dump()
    window = _with(window, hosts.window().observations, look)
    return window, list(unseen(window, engines, (Fact.STACKS,), hosts.why))


def send_probes(look: Look, window: Window, asked: bool) -> Seen:
    """A health check of each instance that clients talk to, and one generation through it."""
    from pdctl.checks.probe_matrix import attempts_of
    from pdctl.model.probe import Trial
    from pdctl.plans.probe import Wish, plan_probe
    from pdctl.probing.run import How, Probing

    how = How(hang_after=min(HANG_S, max(1.0, look.left() - 2.0)), deadline_s=look.left(), after_s=AFTER_S)
    with Probing(look.cluster, how, clock=look.clock) as probing:
        plan = plan_probe(look.cluster, Wish(trials=(Trial.HEALTH, Trial.ONE)), remote=probing.remote)
        probed = probing.run(plan)
    shift = (probed.window.start - window.start).total_seconds()
    seen = _with(window, (replace(o, t=o.t + shift) for o in probed.window.observations), look)
    if probed.interrupted:
        raise KeyboardInterrupt
    made = sum(len(rows) for rows in attempts_of(probed.window).values())
    if made and probed.stopped is None:
        return seen, []
    return seen, [_not_probed(look.cluster, made, probed.stopped or "none was made")]


def _not_probed(cluster: Cluster, made: int, why: str) -> Finding:
    return found(
        "endpoint-unreadable",
        cluster.name,
        f"the probe ended before its plan, after {made} requests: {why}" if made else f"no request was made: {why}",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(why),),
        limits=("of the requests that were not made nothing is known",),
        next=("pdctl probe", "pdctl explain endpoint-unreadable"),
    )


@contextmanager
def _on_hosts(look: Look, instances: Sequence[Instance]) -> Iterator[HostLook]:
    """A look at hosts that counts its times from the start of the check and ends with it."""

    assert look.hosts is not None
    gatherer = InTime(look.cluster, clock=look.clock, commands=look.hosts, via=look.hosts.dial)
    gatherer.until = look.until
    gatherer.started, gatherer.started_at = look.gatherer.start(), look.gatherer.started_at
    plan = HostPlan(timeout_s=max(LEAST_S, look.left()))
    with gatherer:
        yield HostLook(look.cluster.with_local(), instances, plan, look.hosts, gatherer, look.keep)


def _with(window: Window, more: Iterable[Observation[Any]], look: Look) -> Window:
    return window.extended(more, look.clock.wall())


LOOKS: dict[str, Callable[[Look, Window, bool], Seen]] = {
    "sockets": look_at_sockets,
    "probes": send_probes,
    "stacks": look_at_stacks,
}
