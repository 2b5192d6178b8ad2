"""A restart in the simulated cluster, from the plan to the proof."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from carry import Story, all_done, nothing_silent
from sim import Faults, Sim, owner, site

from pdctl.execute import journal
from pdctl.execute.events import Kind
from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import Ask
from pdctl.model.cluster import Cluster, Host
from pdctl.model.plan import Act, End, Proven, State, Wish
from pdctl.plans.nodes import with_nodes
from pdctl.reach.lock import STALE_AFTER


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(Sim(site()), tmp_path / "journal.jsonl")


def acts(story: Story, what: str = "restart") -> list[str]:
    return [whose for _, kind, whose in story.sim.acts if kind == what]


def test_everything_is_restarted_in_order_each_once(story: Story) -> None:
    outcome = story.begin()
    all_done(story, outcome)
    assert acts(story) == ["prefill-0", "prefill-1", "decode-0", "decode-1", "router-0"]
    assert outcome is not None
    assert [r.state for r in outcome.results] == [State.DONE] * len(outcome.plan.steps)
    assert {p.proven for p in outcome.proof if "generation" in p.what} == {Proven.YES}
    restart = outcome.of(outcome.plan.restarts[0])
    assert [name for name, _ in restart.phases] == [
        "the old process to end", "a new process", "health", "metrics", "version", "a generation"
    ]  # fmt: skip
    assert restart.version == "0.5.19" and restart.after is not None and restart.after.pid > 500


def test_scripts_are_backed_up_before_anything_is_restarted(story: Story) -> None:
    story.begin()
    kinds = [kind for _, kind, _ in story.sim.acts]
    assert kinds == ["backup"] * 5 + ["restart"] * 5
    files = story.sim.machines["h-prefill-0"].files
    assert [files[name] for name in files if name.endswith(".bak")] == [files["/srv/prefill-0.sh"]]


def test_a_backup_of_the_same_second_is_not_gone_over(story: Story) -> None:
    machine = story.sim.machines["h-prefill-0"]
    plan = story.plan()
    machine.files["/srv/prefill-0.sh.2026-11-30T00:00:00Z.bak"] = b"of another\n"
    all_done(story, story.begin(plan))
    assert machine.files["/srv/prefill-0.sh.2026-11-30T00:00:00Z.bak"] == b"of another\n"
    assert machine.files["/srv/prefill-0.sh.2026-11-30T00:00:00Z.1.bak"] == machine.files["/srv/prefill-0.sh"]


def test_instances_of_a_role_are_restarted_together(story: Story) -> None:
    for unit in story.sim.units.values():
        unit.starts_in = 60.0
    story.begin()
    times = {whose: t for t, kind, whose in story.sim.acts if kind == "restart"}
    assert times["prefill-1"] - times["prefill-0"] < 2
    assert times["decode-0"] - times["prefill-1"] > 60


def test_serial_waits_for_each(tmp_path: Path) -> None:
    story = Story(Sim(site()), tmp_path / "j", Wish(serial=1))
    for unit in story.sim.units.values():
        unit.starts_in = 60.0
    all_done(story, story.begin())
    times = [t for t, kind, _ in story.sim.acts if kind == "restart"]
    assert all(later - earlier > 60 for earlier, later in itertools.pairwise(times))


@pytest.mark.parametrize(
    ("fate", "says"),
    [
        ("no-start", r"did not start: failed \(failed\), result exit-code, exit status 1"),
        ("never-ready", r"not ready after 60\d s: still waiting for health \(status 503\)"),
        ("dies", "the new process died"),
    ],
)
@pytest.mark.parametrize("name", ["prefill-1", "decode-0", "router-0"])
def test_the_first_failure_stops_everything_after_it(story: Story, fate: str, says: str, name: str) -> None:
    unit = story.sim.units[name]
    unit.fate, unit.starts_in, unit.dies_after = fate, 30.0, 20.0
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED and outcome.why is not None
    assert re.search(says, outcome.why), outcome.why
    order = ["prefill-0", "prefill-1", "decode-0", "decode-1", "router-0"]
    role = name.split("-")[0]
    expected = order[: max(i for i, n in enumerate(order) if n.startswith(role)) + 1]
    assert acts(story) == expected, "those of its own batch were begun, nothing after"
    nothing_silent(story, outcome)
    stands = {s.instance: s for s in outcome.standing}
    assert set(stands) == set(expected)
    assert stands[name].down is (fate != "never-ready")
    assert all(m.lock is None for m in story.sim.machines.values()), "the locks are given up"


def test_an_act_that_is_refused_keeps_the_rest_of_its_batch_from_being_touched(story: Story) -> None:
    story.sim.units["decode-0"].fate = "refused"
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED
    assert outcome.why == "restart decode-0: Access denied"
    assert acts(story) == ["prefill-0", "prefill-1", "decode-0"], "no act follows, in the same batch neither"
    assert {s.instance for s in outcome.plan.restarts if outcome.of(s).state is State.LEFT} == {"decode-1", "router-0"}
    story.sim.heal()
    all_done(story, story.resume())
    assert {name: unit.starts for name, unit in story.sim.units.items()} == dict.fromkeys(story.sim.units, 1)


def test_what_was_not_seen_when_all_is_over_is_looked_at_again(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.sim.units["decode-0"].fate = "no-start"
    look, blind = story.sim.look, [2]

    def blinded(asks: Sequence[Ask], timeout: float) -> tuple[Answer | None, ...]:
        if story.sim.frozen and blind[0]:
            blind[0] -= 1
            return tuple(None for _ in asks)
        return look(asks, timeout)

    monkeypatch.setattr(story.sim, "look", blinded)
    outcome = story.begin()
    assert outcome is not None and blind == [0]
    assert {s.instance: s.down for s in outcome.standing}["decode-0"] is True


def test_what_was_never_begun_is_said_to_be_left(story: Story) -> None:
    story.sim.units["prefill-0"].fate = "no-start"
    outcome = story.begin()
    assert outcome is not None
    left = [s.instance for s in outcome.plan.restarts if outcome.of(s).state is State.LEFT]
    assert left == ["decode-0", "decode-1", "router-0"]


def test_an_engine_that_was_ready_and_dies_later_stops_what_follows(story: Story) -> None:
    """Ready at 3 s, dead at 20 s, while decode is on its way."""
    unit = story.sim.units["prefill-0"]
    unit.fate, unit.dies_after = "dies", 20.0
    story.sim.units["decode-0"].starts_in = 60.0
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED
    assert outcome.why is not None and "prefill-0, which was restarted and ready" in outcome.why
    assert "router-0" not in acts(story)
    nothing_silent(story, outcome)


def test_a_stubborn_router_is_waited_for(story: Story) -> None:
    story.sim.units["router-0"].stops_in = 180.0
    story.wish = Wish(stop=200.0)
    all_done(story, story.begin())


def test_an_old_process_that_does_not_end_is_a_failure(story: Story) -> None:
    story.sim.units["router-0"].stops_in = 180.0
    story.wish = Wish(stop=60.0)
    outcome = story.begin()
    assert outcome is not None and outcome.why is not None
    assert "the old process is still there after 6" in outcome.why and "stop-sigterm" in outcome.why


def test_a_host_whose_power_is_cut_in_its_restart_fails_in_time(story: Story) -> None:
    cut = {"done": False}

    def watch(happening: object) -> None:
        if not cut["done"] and any(w == "decode-0" for _, k, w in story.sim.acts if k == "restart"):
            cut["done"] = True
            story.sim.power_cut("h-decode-0")

    story.told = Listening(watch)  # type: ignore[assignment]
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED and outcome.why is not None
    assert "decode-0" in outcome.why and "could not be seen for 6" in outcome.why
    assert "router-0" not in acts(story)
    stands = {s.instance: s for s in outcome.standing}
    assert stands["decode-0"].down is None and "not known" in stands["decode-0"].says


class Listening(list):  # type: ignore[type-arg]
    """A list that calls back."""

    def __init__(self, call: object) -> None:
        super().__init__()
        self.call = call

    def append(self, item: object) -> None:
        super().append(item)
        self.call(item)  # type: ignore[operator]


def test_a_proof_that_fails_is_a_failure(story: Story) -> None:
    plan = story.plan()
    story.sim.breaker = 1.0
    outcome = story.begin(plan)
    assert outcome is not None and outcome.end is End.FAILED
    assert outcome.why is not None and "breakers closed at router-0" in outcome.why and "open" in outcome.why
    assert any(p.proven is Proven.NO for p in outcome.proof)
    assert len(acts(story)) == 5
    story.sim.breaker = 0.0
    again = story.resume()
    all_done(story, again)
    assert len(acts(story)) == 5, "what was done is not done again"


def test_a_breaker_that_closes_in_time_is_waited_for(story: Story) -> None:
    plan = story.plan()
    story.sim.breaker = 2.0
    story.told = Listening(
        lambda h: setattr(story.sim, "breaker", 0.0) if h.kind is Kind.WAIT and h.step.act is Act.PROVE else None
    )  # type: ignore[assignment]
    all_done(story, story.begin(plan))


def drained(story: Story) -> str:
    outcome = story.begin()
    all_done(story, outcome)
    assert outcome is not None
    return outcome.of(next(s for s in outcome.plan.steps if s.act is Act.DRAIN)).detail


def test_a_drain_ends_when_nothing_is_active(tmp_path: Path) -> None:
    story = Story(Sim(site()), tmp_path / "j", Wish(drain=60.0))
    story.sim.active["decode-0"] = 3.0
    story.told = Listening(
        lambda h: story.sim.active.update({"decode-0": 0.0}) if h.kind is Kind.WAIT and h.elapsed > 10 else None
    )  # type: ignore[assignment]
    assert drained(story) == "nothing is active"
    assert 10 < story.sim.acts[5][0] - story.sim.acts[4][0] < 20


def test_a_drain_goes_on_at_its_time_and_says_what_was_left(tmp_path: Path) -> None:
    story = Story(Sim(site()), tmp_path / "j", Wish(drain=30.0))
    story.sim.active |= {"decode-0": 3.0, "router-0": 4.0}
    assert drained(story) == "the time is over: active: decode-0 3, router-0 4"
    assert 30 <= story.sim.acts[5][0] - story.sim.acts[4][0] < 35


def test_a_drain_that_cannot_see_does_not_take_that_for_nothing(tmp_path: Path) -> None:
    story = Story(Sim(site()), tmp_path / "j", Wish(drain=30.0))
    story.sim.active["decode-0"] = None
    assert drained(story) == "the time is over: not known of decode-0"


def test_scripts_that_change_before_the_backup_stop_it(story: Story) -> None:
    plan = story.plan()
    story.sim.machines["h-decode-1"].files["/srv/decode-1.sh"] = b"changed\n"
    outcome = story.begin(plan)
    assert outcome is not None and outcome.end is End.FAILED
    assert outcome.why is not None and "/srv/decode-1.sh of decode-1 has been changed" in outcome.why
    assert story.sim.acts == []


def test_another_process_than_the_plans_stops_it_before_anything(story: Story) -> None:
    plan = story.plan()
    story.sim.units["decode-0"].pid = 4242
    story.sim.units["decode-0"].run = 9
    outcome = story.begin(plan)
    assert outcome is not None and outcome.why is not None
    assert "ground has shifted" in outcome.why and "decode-0 was pid 103" in outcome.why and "4242" in outcome.why
    assert story.sim.acts == []


def test_another_inventory_stops_it_before_anything(story: Story) -> None:
    plan = story.plan()
    story.sim.inventory = "other"
    outcome = story.begin(plan)
    assert outcome is not None and outcome.why is not None and "the inventory has been changed" in outcome.why
    assert story.sim.acts == []


def test_a_terminal_that_went_away_ends_no_restart(story: Story) -> None:
    def gone(happening: object) -> None:
        raise BrokenPipeError

    story.told = Listening(gone)  # type: ignore[assignment]
    all_done(story, story.begin())


def test_an_error_of_pdctl_itself_leaves_nothing_unsaid(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    from pdctl.execute import restarts

    def broken(*_: object) -> None:
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(restarts, "cannot_generate", broken)
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED and outcome.why is not None
    assert "an internal error of pdctl: KeyError: 'nobody foresaw this' (test_carrying.py:" in outcome.why
    assert {s.instance for s in outcome.standing} == {"prefill-0", "prefill-1"}
    assert all(m.lock is None for m in story.sim.machines.values())
    monkeypatch.undo()
    all_done(story, story.resume())


def test_that_a_run_is_gone_on_with_is_written_down(story: Story) -> None:
    story.sim.units["decode-1"].fate = "no-start"
    story.begin()
    story.sim.heal()
    all_done(story, story.resume())
    (resumed,) = [e for e in journal.read(story.file).entries if e.kind == "restart-resumed"]
    assert resumed.fields["left"] == ["restart:decode-1", "restart:router-0", "prove"]
    assert resumed.fields["pid"] == 4711


# --- engines that span several hosts ----------------------------------------------------------------------------------


def spread() -> Cluster:
    """The first prefill spans two hosts."""
    whole = site(1, 1, 1)
    first = replace(whole.instances[0], nodes=("h-more",))
    return with_nodes(replace(whole, instances=(first, *whole.instances[1:]), hosts=(*whole.hosts, Host("h-more"))))


def test_the_nodes_of_an_engine_are_restarted_together_and_ready_with_its_first(tmp_path: Path) -> None:
    story = Story(Sim(spread()), tmp_path / "j", Wish(serial=1, drain=30.0))
    story.sim.units["prefill-0"].starts_in = 60.0
    outcome = story.begin()
    all_done(story, outcome)
    times = {whose: t for t, kind, whose in story.sim.acts if kind == "restart"}
    assert list(times) == ["prefill-0", "prefill-0@h-more", "decode-0", "router-0"]
    assert times["prefill-0@h-more"] - times["prefill-0"] < 2 and times["decode-0"] - times["prefill-0"] > 60
    assert outcome is not None
    node = outcome.of(next(s for s in outcome.plan.restarts if s.instance == "prefill-0@h-more"))
    assert node.detail == "ready; health, metrics, version, a generation not checked: prefill-0 answers for the whole"
    assert next(r for r in outcome.results if r.step == "drain").detail == "nothing is active"


def test_a_node_that_does_not_come_back_stops_what_follows(tmp_path: Path) -> None:
    story = Story(Sim(spread()), tmp_path / "j")
    story.sim.units["prefill-0@h-more"].fate = "no-start"
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED
    assert outcome.why is not None and "restart prefill-0@h-more: it did not start" in outcome.why
    assert acts(story) == ["prefill-0", "prefill-0@h-more"]
    nothing_silent(story, outcome)


def test_a_long_wait_gives_signs_of_life_so_that_nobody_takes_its_locks_for_stale(tmp_path: Path) -> None:
    story = Story(Sim(site(1, 1, 0)), tmp_path / "j")
    story.sim.units["prefill-0"].starts_in = 400.0
    quiet: list[float] = []

    def look(happening: object) -> None:
        locked = [m for m in story.sim.machines.values() if m.lock is not None]
        quiet.extend(story.sim.clock.now() - m.beat for m in locked)

    story.told = Listening(look)  # type: ignore[assignment]
    all_done(story, story.begin())
    assert len(quiet) > 40 and max(quiet) < STALE_AFTER / 3


@pytest.mark.parametrize(("other", "says"), [(True, "was taken over by bob@ops (run run-2)"), (False, "is gone: ")])
def test_a_lock_that_is_lost_in_a_wait_ends_it(other: bool, says: str, tmp_path: Path) -> None:
    story = Story(Sim(site(1, 1, 0)), tmp_path / "j")
    story.sim.units["prefill-0"].starts_in = 300.0

    def lose() -> None:
        machine = story.sim.machines["h-prefill-0"]
        taken = {**asdict(owner("bob", "run-2")), "since": story.sim.clock.now(), "boot": machine.boot}
        machine.lock, machine.beat = (taken if other else None), story.sim.clock.now()

    story.sim.faults = Faults(hook={60: lose})
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED and outcome.why is not None
    assert outcome.why.startswith("the lock on h-prefill-0 ") and says in outcome.why
    assert acts(story) == ["prefill-0"] and story.sim.clock.now() < 1000 + 100, "at the next sign of life, not later"


def test_gone_on_with_it_does_not_act_where_it_cannot_see_whether_it_did(story: Story) -> None:
    story.sim.units["decode-0"].fate = "no-start"
    story.begin()
    story.sim.heal()
    look = story.sim.look

    def blind(asks: Sequence[Ask], timeout: float) -> tuple[Answer | None, ...]:
        return tuple(None if a and a.fact is Fact.UNIT and a.subject == "decode-0" else a for a in look(asks, timeout))

    story.sim.look = blind  # type: ignore[method-assign]
    before = acts(story)
    outcome = story.resume()
    assert outcome is not None and outcome.why is not None
    assert "whether it took effect cannot be seen" in outcome.why and acts(story) == before
