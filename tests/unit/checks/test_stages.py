"""The stages of a check: what each names is what its rules find, and what is chosen is what was asked for."""

from __future__ import annotations

from importlib import import_module

import pytest
from scene import P, Scene, times

from pdctl.checks import MODULES, judge
from pdctl.checks.stages import BLIND, NAMES, STAGES, Chosen, choose, open_questions, unknown
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.registry import REGISTRY

USUAL = ["reach", "identity", "queues", "router", "sockets"]


def names(chosen: Chosen) -> list[str]:
    return [stage.name for stage in chosen.stages]


def test_the_findings_of_a_stage_are_those_of_its_rules() -> None:
    told: set[str] = set()
    for stage in STAGES:
        assert set(stage.modules) <= set(MODULES), stage.name
        found = {f for name in stage.modules for c in import_module(f"pdctl.checks.{name}").CHECKS for f in c.findings}
        assert found <= set(stage.findings) | told, f"{stage.name}: {found}"
        assert set(stage.findings) <= found, stage.name
        told |= set(stage.findings)


def test_no_finding_belongs_to_two_stages_and_all_are_in_the_registry() -> None:
    all_of_them = [name for stage in STAGES for name in stage.findings]
    assert len(all_of_them) == len(set(all_of_them)) and set(all_of_them) <= set(REGISTRY)


def test_from_harmless_to_intrusive_and_what_sends_requests_or_dumps_stacks_only_when_asked() -> None:
    assert list(NAMES) == [*USUAL, "logs", "probes", "stacks"]
    assert names(choose()) == USUAL
    assert choose().why_not["probes"] == "only when asked for: --stage probes"


def test_no_stage_asks_for_a_health_check() -> None:
    """It is a request of its own that the engine counts."""
    assert all(Fact.HEALTH not in stage.facts | stage.once for stage in STAGES)


def test_without_hosts_in_the_inventory_they_are_left_out_unless_named() -> None:
    assert names(choose(hosts=False)) == USUAL[:-1]
    assert names(choose(["sockets"], hosts=False)) == USUAL
    assert names(choose(only=["sockets"], hosts=False)) == ["sockets"]


def test_a_stage_that_somebody_named_is_known_for_that() -> None:
    """What was asked for by name and cannot be seen is blindness; what comes along by itself is not."""
    assert choose().asked == frozenset()
    assert choose(["sockets"]).asked == choose(only=["connection-leak"]).asked == {"sockets"}


def test_what_is_asked_for_comes_in_its_place() -> None:
    assert names(choose(["stacks", "logs"])) == [*USUAL, "logs", "stacks"]


def test_only_names_stages_or_findings() -> None:
    assert names(choose(only=["reach", "probes"])) == ["reach", "probes"]
    chosen = choose(only=["request-pinned"])
    assert names(chosen) == ["queues"] and set(chosen.only) == {"request-pinned", BLIND}


def test_blindness_is_looked_for_whatever_is_chosen_unless_it_is_skipped_by_name() -> None:
    assert "seeing" in choose(only=["request-pinned"]).modules
    assert "seeing" in choose(skip=["queues"]).modules
    assert "seeing" not in choose(skip=["reach"]).modules


def test_skip_names_stages_or_findings() -> None:
    assert names(choose(skip=["router", "sockets"])) == ["reach", "identity", "queues"]
    chosen = choose(skip=["draining"])
    assert names(chosen) == USUAL and chosen.skip == ("draining",)
    both = ["router-holds-requests", "router-circuit-open"]
    assert "router" not in names(choose(skip=both))


def test_names_that_are_neither_are_found_out() -> None:
    assert list(unknown(["queues", "request-pinned", "que", "pinned"])) == ["que", "pinned"]


@pytest.mark.parametrize("only", [["script-drift"], ["changed-since"]])
def test_what_no_stage_looks_for_leaves_nothing_to_run(only: list[str]) -> None:
    assert choose(only=only).stages == ()


def test_the_same_choice_has_the_same_word_and_another_another() -> None:
    assert choose().selection == choose().selection
    words = {choose().selection, choose(hosts=False).selection, choose(skip=["draining"]).selection}
    assert len(words | {choose(only=["draining"]).selection, choose(["logs"]).selection}) == 5


def test_questions_that_were_left_open_are_told_by_finding() -> None:
    scene = Scene()
    for t in times(2.0):
        scene.page(t, P, inflight=1, requests=9)
        scene.loads(t, P, inflight=1)
    cluster = Cluster("test", (Instance(P, Role.PREFILL, "http://192.0.2.11:30000"),))
    chosen = choose(hosts=False)
    report = judge(scene.window(), cluster, modules=chosen.modules)
    left = open_questions(report, chosen.modules)
    assert "request-pinned" in left and left["request-pinned"].startswith(P)
    assert "router-holds-requests" not in left or "router" in left["router-holds-requests"]


def test_judging_some_modules_says_nothing_of_others() -> None:
    cluster = Cluster("test", (Instance(P, Role.PREFILL, "http://192.0.2.11:30000"),))
    scene = Scene()
    scene.page(0.0, P, inflight=0)
    report = judge(scene.window(), cluster, modules=("seeing",))
    assert report.unchecked == () and report.ruled_out == ()
