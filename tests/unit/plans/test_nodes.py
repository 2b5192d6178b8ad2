"""Engines that span several hosts: each further node is restarted with its engine, and proven by it."""

from __future__ import annotations

from dataclasses import replace

from ground import NOW, cluster, footing, ground

from pdctl.model.cluster import Cluster, Host
from pdctl.model.finding import RuledOut
from pdctl.model.plan import Act, Ground, Identity, Plan, Proven, Wish
from pdctl.plans import proof
from pdctl.plans.nodes import with_nodes
from pdctl.plans.restart import plan_restart


def spread(prefills: int = 1) -> Cluster:
    """Every prefill spans two hosts."""
    whole = cluster(prefills, 1, 1)
    more = tuple(Host(f"{i.host}-b", f"{i.host}-b") for i in whole.prefills)
    rows = tuple(replace(i, nodes=(f"{i.host}-b",)) if i in whole.prefills else i for i in whole.instances)
    return with_nodes(replace(whole, instances=rows, hosts=(*whole.hosts, *more)))


def planned(whole: Cluster, wish: Wish | None = None, now: Ground | None = None) -> Plan:
    return plan_restart(whole, wish or Wish(), now or ground(whole), "run-1")


def batches(plan: Plan) -> list[list[str | None]]:
    return [[s.instance for s in batch] for batch in plan.batches if batch[0].act is Act.RESTART]


def test_a_node_runs_by_the_unit_of_its_engine_on_a_host_of_its_own() -> None:
    node = spread().instance("prefill-0@h-prefill-0-b")
    assert node is not None and node.part_of == "prefill-0" and node.url is None
    step = next(s for s in planned(spread()).restarts if s.instance == node.name)
    assert (step.host, step.unit) == ("h-prefill-0-b", "prefill-0.service")
    assert with_nodes(cluster()) == cluster()


def test_the_nodes_of_an_engine_are_restarted_together() -> None:
    both = ["prefill-0", "prefill-0@h-prefill-0-b"]
    assert batches(planned(spread())) == [both, ["decode-0"], ["router-0"]]
    assert batches(planned(spread(2), Wish(serial=1)))[:2] == [both, ["prefill-1", "prefill-1@h-prefill-1-b"]]
    assert batches(planned(spread(2), Wish(only=("prefill-0", "decode"))))[0] == both


def test_a_node_needs_no_url_and_stands_in_the_way_of_nothing() -> None:
    whole = spread()
    assert planned(whole).standing == ()
    young = tuple(
        replace(f, process=Identity(f.process.pid, NOW) if f.process else None, answered=("metrics",) if i.url else ())
        for i, f in zip(whole.instances, ground(whole).footings, strict=True)
    )
    now = replace(ground(whole), footings=young)
    assert planned(whole, Wish(only=("decode",)), now).standing == (), "only the first node answers"


def test_a_node_whose_host_is_silent_stops_the_whole() -> None:
    whole = spread()
    now = ground(whole)
    sites = tuple(replace(s, reachable=False, why="no route") if s.host.endswith("-b") else s for s in now.sites)
    assert [r.rule for r in planned(whole, None, replace(now, sites=sites)).standing] == ["host-reachable"]


def test_the_proof_asks_the_first_node_alone() -> None:
    points = list(proof.pinned(spread(), [RuledOut("request-pinned", "prefill-0", "nothing in flight")]))
    assert [(p.subject, p.proven) for p in points] == [("prefill-0", Proven.YES)]
    assert footing(spread().prefills[1]).instance == "prefill-0@h-prefill-0-b"
