"""The plan of a co-restart: its steps in their order, the rules it must satisfy, what to know before saying yes."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from ground import NOW, cluster, footing, ground, with_script
from hypothesis import given
from hypothesis import strategies as st

from pdctl.errors import UsageError
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.plan import Act, Active, Disk, Footing, Hold, Identity, Leftover, Lock, Owner, Plan, Step, Wish
from pdctl.plans.restart import broken, command_of, host_of, plan_restart, rest_of, steps_of
from pdctl.plans.restart_rules import RULES


def planned(whole: Cluster, wish: Wish | None = None, **changed: Footing) -> Plan:
    return plan_restart(whole, wish or Wish(), ground(whole, **changed), "run-1")


def rules(plan: Plan) -> list[tuple[str, str]]:
    return [(r.rule, r.subject) for r in plan.standing]


# --- steps ------------------------------------------------------------------------------------------------------------


def test_prefill_then_decode_then_router_and_the_proof_last() -> None:
    steps = steps_of(cluster(2, 2, 2), Wish())
    assert [(s.batch, s.id) for s in steps] == [
        (0, "restart:prefill-0"), (0, "restart:prefill-1"), (1, "restart:decode-0"), (1, "restart:decode-1"),
        (2, "restart:router-0"), (2, "restart:router-1"), (3, "prove"),
    ]  # fmt: skip


def test_the_order_of_the_inventory_does_not_matter() -> None:
    whole = cluster(1, 1, 1)
    for rows in permutations(whole.instances):
        steps = steps_of(replace(whole, instances=rows), Wish())
        assert [s.role for s in steps if s.role] == [Role.PREFILL, Role.DECODE, Role.ROUTER]


def test_serial_makes_batches_of_that_size_within_a_role() -> None:
    steps = steps_of(cluster(1, 5, 1), Wish(serial=2))
    sizes = [len([s for s in steps if s.batch == n]) for n in sorted({s.batch for s in steps})]
    assert sizes == [1, 2, 2, 1, 1, 1]


def test_backups_and_the_drain_come_before_anything_is_restarted() -> None:
    whole = cluster(1, 1, 0)
    whole = replace(whole, instances=tuple(replace(i, script=f"/srv/{i.name}.sh") for i in whole.instances))
    assert [s.act for s in steps_of(whole, Wish(drain=30))] == [
        Act.BACKUP, Act.BACKUP, Act.DRAIN, Act.RESTART, Act.RESTART, Act.PROVE
    ]  # fmt: skip
    assert [s.act for s in steps_of(whole, Wish(backup=False))] == [Act.RESTART, Act.RESTART, Act.PROVE]


def test_one_script_on_one_host_is_backed_up_once() -> None:
    whole = cluster(2, 0, 0)
    rows = tuple(replace(i, script="/srv/serve.sh", host="h-prefill-0") for i in whole.instances)
    steps = steps_of(replace(whole, instances=rows), Wish())
    assert [s.id for s in steps if s.act is Act.BACKUP] == ["backup:h-prefill-0:/srv/serve.sh"]


def test_the_inventorys_own_command_goes_before_the_unit() -> None:
    unit = Instance("a", Role.PREFILL, unit="a.service")
    assert command_of(unit)[-3:] == ("restart", "--", "a.service") and "--no-block" in command_of(unit)
    own = replace(unit, restart_command=("/opt/restart.sh", "a b"))
    assert command_of(own) == ("/opt/restart.sh", "a b")
    assert command_of(Instance("a", Role.PREFILL)) == ()


def test_hosts_are_the_inventorys_or_this_machine_for_loopback() -> None:
    whole = cluster()
    assert host_of(whole.instances[0], whole) == whole.hosts[0]
    here = host_of(Instance("a", Role.PREFILL, url="http://127.0.0.1:1"), whole)
    assert here is not None and (here.name, here.ssh) == ("local", None)
    assert host_of(Instance("a", Role.PREFILL, url="http://10.1.1.1:1"), whole) is None


@given(
    st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.one_of(st.none(), st.integers(1, 5)),
    st.one_of(st.none(), st.floats(1, 60)), st.sets(st.sampled_from(["prefill", "decode", "router"])),
)  # fmt: skip
def test_no_plan_ever_breaks_its_invariants(
    prefills: int, decodes: int, routers: int, serial: int | None, drain: float | None, only: set[str]
) -> None:
    whole = cluster(prefills, decodes, routers)
    whole = replace(whole, instances=tuple(replace(i, script=f"/srv/{i.name}.sh") for i in whole.instances))
    steps = steps_of(whole, Wish(tuple(only), serial, drain))
    assert broken(steps) == ()
    for k in range(len(steps)):
        done = {s.id for s in steps[:k]}
        rest = rest_of(steps, done)
        assert rest == steps[k:] and broken(rest) == ()


def step(name: str, role: Role, batch: int) -> Step:
    return Step(f"restart:{name}", Act.RESTART, batch, "", name, role)


PROVE = Step("prove", Act.PROVE, 9, "")


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([step("d", Role.DECODE, 0), step("p", Role.PREFILL, 1), PROVE], "decode is restarted before every prefill"),
        ([step("p", Role.PREFILL, 0), step("d", Role.DECODE, 0), PROVE], "decode is restarted before every prefill"),
        ([step("r", Role.ROUTER, 0), step("d", Role.DECODE, 1), PROVE], "router is restarted before every decode"),
        ([step("p", Role.PREFILL, 0), step("p", Role.PREFILL, 1), PROVE], "twice"),
        ([step("p", Role.PREFILL, 0)], "the proof is not the last step"),
        ([PROVE, step("p", Role.PREFILL, 10)], "the proof is not the last step"),
        ([step("p", Role.PREFILL, 1), Step("b", Act.BACKUP, 2, ""), PROVE], "before the backups"),
        ([step("p", Role.PREFILL, 2), step("d", Role.DECODE, 1), PROVE], "not in the order"),
    ],
)
def test_steps_that_break_an_invariant_are_told(steps: list[Step], says: str) -> None:
    assert any(says in wrong for wrong in broken(steps)), broken(steps)


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_only_takes_roles_and_instances_and_nothing_else() -> None:
    whole = cluster(2, 2, 1)
    assert [s.instance for s in steps_of(whole, Wish(only=("decode", "prefill-1")))][:-1] == [
        "prefill-1", "decode-0", "decode-1"
    ]  # fmt: skip
    with pytest.raises(UsageError, match="nothing to restart called 'decode-7'"):
        steps_of(whole, Wish(only=("decode-7",)))


def test_decode_alone_against_a_prefill_that_has_run_long_is_refused_with_the_reason() -> None:
    plan = planned(cluster(), Wish(only=("decode",)))
    assert rules(plan) == [("decode-alone", "decode-0")]
    (refusal,) = plan.standing
    assert "prefill-0 has run for 5 h 0 min and holds sessions" in refusal.why and refusal.asked and refusal.forcible


def test_decode_alone_is_allowed_against_prefills_that_are_young_and_answer() -> None:
    whole = cluster(2, 1, 1)
    young = {i.name.replace("-", "_"): footing(i, 0.1) for i in whole.prefills}
    assert rules(planned(whole, Wish(only=("decode",)), **young)) == []
    mute = replace(young["prefill_1"], answered=())
    assert (
        "does not answer yet" in planned(whole, Wish(only=("decode",)), **{**young, "prefill_1": mute}).standing[0].why
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"process": None, "why": "no answer", "state": None}, "could not be seen: no answer"),
        (
            {"process": None, "state": "failed (failed)"},
            "is not running (failed (failed)), so a decode that comes back finds no peer",
        ),
        ({"process": Identity(7)}, "when it started is not known"),
    ],
)
def test_a_prefill_of_which_too_little_is_known_counts_as_long(changed: dict[str, object], says: str) -> None:
    whole = cluster()
    row = replace(footing(whole.instances[0], 0.1), **changed)  # type: ignore[arg-type]
    plan = planned(whole, Wish(only=("decode",)), prefill_0=row)
    assert any(says in r.why for r in plan.standing), plan.standing


def test_prefill_alone_is_refused_while_decodes_hold_state_of_it() -> None:
    whole = cluster(1, 2, 1)
    assert rules(planned(whole, Wish(only=("prefill",)))) == [("prefill-alone", "prefill-0")] * 2
    stopped = [replace(footing(i), process=None, state="inactive (dead)") for i in whole.decodes]
    down = {row.instance.replace("-", "_"): row for row in stopped}
    assert rules(planned(whole, Wish(only=("prefill",)), **down)) == []
    assert rules(planned(whole, Wish(only=("prefill", "decode")))) == []


def test_the_router_alone_and_everything_are_allowed() -> None:
    assert rules(planned(cluster(2, 2, 1), Wish(only=("router",)))) == []
    assert rules(planned(cluster(2, 2, 1))) == []


def test_force_overrides_one_rule_by_name_and_no_other() -> None:
    plan = planned(cluster(), Wish(only=("decode",), force=("decode-alone",)))
    assert rules(plan) == [] and [r.rule for r in plan.refusals if r.forced] == ["decode-alone"]
    assert rules(planned(cluster(), Wish(only=("decode",), force=("disk-space",)))) == [("decode-alone", "decode-0")]


def test_some_rules_cannot_be_overridden() -> None:
    whole = cluster(1, 0, 0)
    whole = replace(whole, instances=(replace(whole.instances[0], unit=None),))
    assert rules(planned(whole, Wish(force=tuple(RULES)))) == [("way-known", "prefill-0")]


def test_a_unit_that_several_instances_share_is_refused() -> None:
    whole = cluster(1, 1, 0)
    rows = tuple(replace(i, unit="both.service", host="h-prefill-0") for i in whole.instances)
    assert rules(planned(replace(whole, instances=rows))) == [("shared-unit", "prefill-0"), ("shared-unit", "decode-0")]
    elsewhere = tuple(replace(i, unit="both.service") for i in whole.instances)
    assert rules(planned(replace(whole, instances=elsewhere))) == []


def test_an_instance_without_a_url_cannot_be_seen_to_be_ready() -> None:
    whole = cluster(1, 0, 0)
    whole = replace(whole, instances=(replace(whole.instances[0], url=None),))
    assert rules(planned(whole, None, prefill_0=footing(cluster().instances[0]))) == [("verifiable", "prefill-0")]


# --- the world --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"loaded": False}, "unit-loaded"),
        ({"loaded": None, "why": "timeout"}, "unit-loaded"),
        ({"process": None, "state": "deactivating (stop-sigterm)"}, "process-seen"),
        ({"process": None, "state": None}, "process-seen"),
        ({"process": None, "state": "failed (failed)"}, None),
        ({"process": None, "state": "activating (auto-restart)"}, None),
        ({"process": None, "state": "activating (start-pre)"}, None),
    ],
)
def test_units_and_processes_must_be_known(changed: dict[str, object], rule: str | None) -> None:
    whole = cluster()
    row = replace(footing(whole.instances[1]), **changed)  # type: ignore[arg-type]
    assert rules(planned(whole, None, decode_0=row)) == ([(rule, "decode-0")] if rule else [])


@pytest.mark.parametrize(
    ("about", "rule"),
    [
        ({}, None),
        ({"valid": False, "fault": "line 3: syntax error"}, "script-valid"),
        ({"sha256": None, "why": "permission denied"}, "script-valid"),
        ({"valid": None, "fault": "it is no shell script"}, None),
    ],
)
def test_scripts_must_be_readable_and_parse(about: dict[str, object], rule: str | None) -> None:
    whole = cluster()
    row = with_script(footing(whole.instances[0]), **about)
    plan = planned(whole, None, prefill_0=row)
    assert [r for r, _ in rules(plan)] == ([rule] if rule else [])
    assert any("bash -n" in why for _, why in plan.unchecked) == (about.get("valid", 1) is None)


def sited(whole: Cluster, **about: object) -> Plan:
    """A plan with the first host's site changed."""
    now = ground(whole)
    sites = (replace(now.sites[0], **about), *now.sites[1:])  # type: ignore[arg-type]
    return plan_restart(whole, Wish(), replace(now, sites=sites), "run-1")


OWNER = Owner("bob@ops", "m", 1, 1.0, "prod-a", "r9", "t")


@pytest.mark.parametrize(
    ("about", "rule", "says"),
    [
        ({"reachable": False, "why": "no route"}, "host-reachable", "no route"),
        (
            {"lock": Lock(Hold.HELD, OWNER, 600.0, 3.0)},
            "other-restart",
            "bob@ops is restarting prod-a (run r9, pid 1) (for",
        ),
        ({"lock": Lock(Hold.UNKNOWN, why="permission denied")}, "other-restart", "cannot be seen: permission denied"),
        ({"disks": (Disk("/", 50 * 2**20, 2**40),)}, "disk-space", "/ has 50 MiB free"),
        ({"disks": (Disk("/", 5 * 2**30, 2**40),)}, "disk-space", "/ has 5120 MiB free"),
        ({"leftovers": (Leftover(9, "sglang::scheduler_TP0", 71000.0),)}, "leftovers", "71000 MiB of GPU memory"),
    ],
)
def test_hosts_must_be_fit(about: dict[str, object], rule: str, says: str) -> None:
    plan = sited(cluster(), **about)
    assert [r.rule for r in plan.standing] == [rule]
    assert says in plan.standing[0].why and not plan.standing[0].asked


def test_a_stale_lock_is_no_refusal_and_is_said() -> None:
    plan = sited(cluster(), lock=Lock(Hold.STALE, OWNER, 600.0, 300.0, "no sign of life for 300 s"))
    assert plan.standing == () and any("stale and will be taken over: no sign of life" in n for n in plan.notes)


def test_a_stale_lock_that_only_another_may_remove_is_in_the_way() -> None:
    plan = sited(cluster(), lock=Lock(Hold.STALE, OWNER, 600.0, 300.0, "no sign of life for 300 s", of="bob"))
    (refusal,) = plan.standing
    assert (
        refusal.rule == "other-restart"
        and "is a file of bob (no sign of life for 300 s): bob or root must remove it" in (refusal.why)
    )
    assert not any("taken over" in note for note in plan.notes)


def test_memory_of_a_gpu_that_is_held_by_no_instance_is_said() -> None:
    rows = (Leftover(9, "python3 train.py", 40960.0), Leftover(7, "not among the host's processes"))
    plan = sited(cluster(), strangers=rows)
    assert plan.standing == ()
    notes = " ".join(plan.notes)
    assert "pid 9 (python3 train.py) holds 40960 MiB of GPU memory and is of no instance here" in notes
    assert "pid 7 (not among the host's processes) holds GPU memory" in notes


def test_no_more_is_promised_of_the_proof_than_can_be_seen() -> None:
    assert any("through the router" in point for point in planned(cluster()).steps[-1].verify)
    without = planned(cluster(1, 1, 0))
    assert not any("router" in point for point in without.steps[-1].verify)
    assert ("prod", "the proof through a router (workers, breakers, generations): the inventory names none") in (
        without.unchecked
    )


def test_a_host_with_room_is_fit() -> None:
    assert sited(cluster(), disks=(Disk("/", 200 * 2**20, 2**30),)).standing == ()


def test_what_would_be_lost_and_what_is_not_known_is_said() -> None:
    whole = cluster()
    busy = replace(footing(whole.instances[0]), active=Active(3.0, {"running": 3.0}, "live counts"))
    blind = replace(footing(whole.instances[1]), active=Active(why="timeout"))
    notes = " ".join(planned(whole, None, prefill_0=busy, decode_0=blind).notes)
    assert "--drain TIME waits" in notes and "would be lost on decode-0 is not known" in notes
    assert "keeps no new request out" in " ".join(planned(whole, Wish(drain=5), prefill_0=busy).notes)


def test_engines_without_their_router_get_a_warning() -> None:
    notes = planned(cluster(), Wish(only=("prefill", "decode"))).notes
    assert any("router-0 stays as it is: breakers" in n for n in notes)


def test_every_rule_says_what_it_is() -> None:
    assert all(len(rule.says.split()) > 2 and name == rule.name for name, rule in RULES.items())
    assert NOW.tzinfo is not None
