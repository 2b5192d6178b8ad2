"""A run in the journal and back: the plan whole, each step's state, however the file was cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from carry import Story
from sim import Sim, owner, site

from pdctl.execute import journal
from pdctl.execute.record import Record, last_run, runs_of
from pdctl.model.plan import End, Identity, Plan, Refusal, State, StepResult, Wish


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(Sim(site(1, 1, 1)), tmp_path / "j", Wish(serial=2, drain=5.0))


def test_a_plan_comes_back_as_it_was(story: Story) -> None:
    plan = story.plan()
    assert msgspec.convert(msgspec.to_builtins(plan), Plan) == plan
    Record(plan, story.file).begun(owner())
    (run,) = runs_of(journal.read(story.file).entries)
    assert run.plan == plan and (run.cluster, run.end, run.is_finished) == ("sim", None, False)


def test_each_step_has_the_state_it_was_left_in(story: Story) -> None:
    plan = story.plan()
    first, second, third = plan.restarts
    record = Record(plan, story.file)
    record.begun(owner())
    record.step_begun(first, 1, "x")
    done = StepResult(first.id, State.DONE, "ready", 3.0, Identity(7), "0.5.19", (("health", 1.0),))
    record.step_done(first, done)
    record.step_begun(second, 1, "x")
    record.step_failed(second, StepResult(second.id, State.FAILED, "no"))
    record.step_begun(second, 2, "x")
    run = last_run(journal.read(story.file).entries, "sim")
    assert run is not None
    assert run.results[first.id] == done and run.results[second.id].state is State.BEGUN
    assert run.attempts == {first.id: 1, second.id: 2} and third.id not in run.results


def test_how_a_run_ended_counts_until_it_is_gone_on_with(story: Story) -> None:
    record = Record(story.plan(), story.file)
    record.begun(owner())
    record.stopped(End.FAILED, "no", ())
    run = last_run(journal.read(story.file).entries, "sim")
    assert run is not None and (run.end, run.why) == (End.FAILED, "no")
    record.resumed(owner(), ["prove"])
    run = last_run(journal.read(story.file).entries, "sim")
    assert run is not None and run.end is None
    record.done(())
    run = last_run(journal.read(story.file).entries, "sim")
    assert run is not None and run.is_finished


def test_runs_of_other_clusters_and_entries_of_other_kinds_are_not_mixed_in(story: Story) -> None:
    plan = story.plan()
    Record(plan, story.file).begun(owner())
    Record(replace(plan, cluster="other", id="run-2"), story.file).begun(owner())
    journal.append("script-done", journal_file=story.file, run="x", path="/srv/a.sh")
    entries = journal.read(story.file).entries
    found = last_run(entries, "sim")
    assert found is not None and found.id == "run-1" and len(runs_of(entries)) == 2
    assert last_run(entries, "third") is None


def test_a_run_that_touched_nothing_does_not_stand_before_one_that_did(story: Story) -> None:
    plan = story.plan()
    Record(plan, story.file).begun(owner())
    Record(plan, story.file).step_begun(plan.restarts[0], 1, "x")
    later = Record(replace(plan, id="run-2"), story.file)
    later.begun(owner())
    later.stopped(End.FAILED, "another's lock", ())
    run = last_run(journal.read(story.file).entries, "sim")
    assert run is not None and run.id == "run-1"


def test_a_plan_that_cannot_be_read_says_so(story: Story) -> None:
    journal.append("restart-begun", journal_file=story.file, run="r", cluster="sim", plan={"id": 3})
    run = last_run(journal.read(story.file).entries, "sim")
    assert run is not None and run.plan is None and run.unreadable is not None


def test_a_result_that_cannot_be_read_counts_as_begun(story: Story) -> None:
    plan = story.plan()
    Record(plan, story.file).begun(owner())
    step = plan.restarts[0]
    journal.append("step-done", journal_file=story.file, run=plan.id, step=step.id, result={"state": "splendid"})
    run = last_run(journal.read(story.file).entries, "sim")
    assert run is not None and run.results[step.id].state is State.BEGUN


def test_a_journal_that_takes_no_more_stops_everything(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    from pdctl.execute.journal import JournalError

    written = []

    def full(kind: str, /, **fields: object) -> object:
        written.append(kind)
        if len(written) > 12:
            raise JournalError("disk full")
        return None

    monkeypatch.setattr(journal, "append", full)
    outcome = story.begin()
    assert outcome is not None and outcome.end is End.FAILED and outcome.why == "disk full"
    begun = sum(1 for kind in written if kind == "step-begun")
    assert len(story.sim.acts) <= begun, "nothing is done that is not written down"
    assert all(m.lock is None for m in story.sim.machines.values())


def test_a_rule_that_is_overridden_only_when_it_is_gone_on_with_is_recorded_too(story: Story) -> None:
    plan = story.plan()
    full = Refusal("disk-space", "h-prefill-0", "full", True, False, forced=True)
    Record(replace(plan, refusals=(full,)), story.file).begun(owner())
    left = Refusal("leftovers", "h-decode-0", "pid 9", True, False, forced=True)
    Record(replace(plan, refusals=(full, left)), story.file).resumed(owner(), ["prove"])
    (run,) = runs_of(journal.read(story.file).entries)
    assert run.forced == ("disk-space: h-prefill-0: full", "leftovers: h-decode-0: pid 9")
