"""The faults a simulated cluster can have: one line each, what it leads to, and how it is brought about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pdctl.demo import scenes
from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.scenes import Plan


@dataclass(frozen=True, slots=True)
class Fault:
    """``leads_to`` are the findings a right report may be expected to hold, ``shape`` what the cluster must have,
    ``plan`` its usual timing. ``release``: the one that it shows on, where others have what settles it."""

    name: str
    line: str
    leads_to: tuple[str, ...]
    begin: Callable[[SimCluster, Plan], None]
    plan: Plan = field(default_factory=Plan)
    shape: Callable[[ClusterSpec], ClusterSpec] = lambda spec: spec
    release: str | None = None

    def expected(self, release: str) -> tuple[str, ...]:
        """What a right report on engines of this release may be expected to hold."""
        return self.leads_to if self.release in (None, release) else ()


def prepare(fault: Fault, spec: ClusterSpec, plan: Plan | None = None) -> tuple[ClusterSpec, Plan]:
    """The cluster the fault needs and its timing."""
    return fault.shape(spec), plan or fault.plan


def _ranks(spec: ClusterSpec) -> ClusterSpec:
    return spec if spec.dp > 1 else replace(spec, dp=4, tp=max(spec.tp, 4))


def _tight(spec: ClusterSpec) -> ClusterSpec:
    return replace(spec, decode_kv=24_000)


def _small(spec: ClusterSpec) -> ClusterSpec:
    return replace(spec, decode_kv=60_000)


def _two_decodes(spec: ClusterSpec) -> ClusterSpec:
    """The breaker would hide a broken pair by avoiding its decode."""
    return replace(spec, decodes=max(spec.decodes, 2), breakers=False)


_PINNED = ("request-pinned",)
_STOPPED = ("scheduler-stopped",)
_UNREADABLE = ("endpoint-unreadable",)
_ROWS = (
    Fault("healthy", "nothing is wrong, nobody asks anything", (), scenes.healthy),
    Fault("load", "nothing is wrong, requests flow steadily", (), scenes.load),
    Fault("burst-then-idle", "64 requests, over just before you look", (), scenes.burst),
    Fault("pinned", "two requests hang between prefill and decode, no other traffic", _PINNED, scenes.pinned),
    Fault("pinned-under-load", "the same behind steady traffic", _PINNED, scenes.pinned_under_load),
    Fault("pinned-probed", "the same while somebody checks health every 10 s", _PINNED, scenes.pinned_probed),
    Fault("pinned-bootstrap", "two requests reached the prefill alone", _PINNED, scenes.pinned_bootstrap,
          Plan(age=45.0)),  # 0.4.9 gives up on them after 120 s
    Fault("pinned-transfer", "two requests reached the decode alone", _PINNED, scenes.pinned_transfer),
    Fault("storm", "250 clients give up within a second, queues empty by themselves", (), scenes.storm),
    Fault("drain", "a backlog that shrinks by itself", ("draining",), scenes.drain, shape=_small),
    Fault("decode-full", "decode's KV memory is full, requests queue", ("decode-starved",), scenes.decode_full,
          shape=_tight),
    Fault("stale", "gauges left over from a burst, on a release with nothing else to go by", ("gauge-stale",),
          scenes.stale, release="0.4.6.post5"),
    Fault("probed", "idle, while somebody checks health every 10 s", (), scenes.probed),
    Fault("hung-scheduler", "decode's scheduler stands still, HTTP answers", _STOPPED, scenes.hung_scheduler),
    Fault("hung-prefill", "prefill's scheduler stands still, HTTP answers", _STOPPED, scenes.hung_prefill),
    Fault("one-rank", "one data-parallel rank is stuck behind a healthy sum", ("rank-stuck", "request-pinned"),
          scenes.one_rank, Plan(count=3), _ranks),
    Fault("transfer-leak", "dozens of transfer slots held, memory free", ("transfer-stuck", "request-pinned"),
          scenes.transfer_leak, Plan(count=40, age=120.0)),
    Fault("prealloc-wedged", "requests parked in decode's prealloc, memory free", ("prealloc-wedged",),
          scenes.prealloc_wedged, Plan(age=120.0)),
    Fault("queue-head-blocked", "prefill's queue grows, its head is not admitted", ("queue-head-blocked",),
          scenes.queue_head_blocked, Plan(age=120.0)),
    Fault("engine-wedged", "decode runs requests and no token comes out", ("engine-wedged",), scenes.engine_wedged),
    Fault("router-holds", "requests age in the router, engines idle", ("router-holds-requests",), scenes.router_holds,
          Plan(age=400.0)),
    Fault("breaker", "the router refuses engines that are well again", ("router-circuit-open",), scenes.breaker),
    Fault("peer-stale", "decode was restarted alone, prefill talks to its old session", ("peer-stale",),
          scenes.peer_stale, Plan(age=330.0)),
    Fault("pair-broken", "transfers to one of two decodes fail", ("transfer-pair-broken",), scenes.pair_broken,
          shape=_two_decodes),
    Fault("restart", "decode restarts while you look, and the router's breakers open meanwhile",
          ("engine-restarted", "router-circuit-open"), scenes.restart),
    Fault("metrics-off", "decode has no metrics page (404)", _UNREADABLE, scenes.spoil("off")),
    Fault("lying", "decode's metrics page is a sign-in page (200, HTML)", _UNREADABLE, scenes.spoil("html")),
    Fault("unauthorized", "decode's metrics page wants a key (401)", _UNREADABLE, scenes.spoil("auth")),
    Fault("truncated", "decode's metrics page ends half way", _UNREADABLE, scenes.spoil("truncate")),
    Fault("dripping", "decode's metrics page comes a byte at a time", _UNREADABLE, scenes.spoil("drip")),
    Fault("silent", "decode's metrics endpoint never answers", _UNREADABLE, scenes.spoil("hang")),
    Fault("endless", "decode's metrics page never ends", _UNREADABLE, scenes.spoil("huge")),
    Fault("redirected", "decode's metrics page redirects to itself", _UNREADABLE, scenes.spoil("redirect")),
    Fault("empty", "decode's metrics page is empty (200)", _UNREADABLE, scenes.spoil("empty")),
    Fault("slow", "decode's metrics page takes two seconds", (), scenes.spoil("slow")),
)  # fmt: skip
FAULTS = {fault.name: fault for fault in _ROWS}


def simulate(
    fault: Fault,
    spec: ClusterSpec,
    plan: Plan | None = None,
    sink: Callable[[str, str], None] | None = None,
    also: Callable[[SimCluster, Plan], None] | None = None,
) -> tuple[SimCluster, Plan]:
    """A cluster with the fault under way, its time at the opening of the window. ``also`` adds to what happens."""
    spec, plan = prepare(fault, spec, plan)
    cluster = SimCluster(spec, sink)
    cluster.fault, cluster.window_start = fault.name, plan.start
    cluster.leads_to = fault.expected(spec.release)
    fault.begin(cluster, plan)
    if also is not None:
        also(cluster, plan)
    cluster.advance_to(plan.start)
    return cluster, plan
