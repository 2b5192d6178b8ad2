"""Checks a minute apart, as cron makes them, on simulated clusters whose minutes pass at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from lapse import Lapse, lapsing

from pdctl.checks.stages import choose
from pdctl.checkup import remember
from pdctl.checkup import run as checkup
from pdctl.checkup.order import Order
from pdctl.checkup.remember import memory_path
from pdctl.checkup.run import check
from pdctl.demo.scenes import Plan
from pdctl.errors import Busy
from pdctl.model.checkrun import CheckRun
from pdctl.model.finding import Severity, Status
from pdctl.reach.capture import open_capture


class Cron:
    """Makes a check whenever it is told to."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stack = stack
        self._patch = monkeypatch
        self.lapse: Lapse

    def on(self, fault: str, **more: object) -> Cron:
        self.lapse = self._stack.enter_context(lapsing(fault, **more))  # type: ignore[arg-type]
        for module in (checkup, remember):
            self._patch.setattr(module, "since_boot", self.lapse.clock.since_boot)
        return self

    def run(self, **order: object) -> CheckRun:
        chosen = order.pop("chosen", None) or choose(hosts=False)
        return check(self.lapse.cluster, Order(chosen, **order), self.lapse.clock)  # type: ignore[arg-type]

    def runs(self, count: int, every: float = 60.0, **order: object) -> list[CheckRun]:
        done = []
        for n in range(count):
            if n:
                self.lapse.passes(every)
            done.append(self.run(**order))
        return done


@pytest.fixture
def cron(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cron]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:
        yield Cron(stack, monkeypatch)


def names(run: CheckRun) -> set[str]:
    return {f.name for f in run.report.findings}


def bad(run: CheckRun) -> set[str]:
    return {f.name for f in run.report.findings if f.severity is not Severity.INFO}


# --- trends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["pinned", "pinned-bootstrap", "pinned-transfer"])
@pytest.mark.parametrize("release", ["0.5.19", "0.5.23"])
def test_a_pinned_request_is_found_in_the_first_run_and_later_ones_know_since_when(
    fault: str, release: str, cron: Cron
) -> None:
    first, second = cron.on(fault, release=release).runs(2)
    for run in (first, second):
        assert run.report.status is Status.CRITICAL and "request-pinned" in names(run)
    pinned = next(f for f in second.report.findings if f.name == "request-pinned")
    assert pinned.since is not None and (second.report.end - pinned.since).total_seconds() > 60


def test_a_request_that_gets_stuck_between_two_runs_is_found_by_the_first_that_saw_nothing_move(cron: Cron) -> None:
    """The third run still sees what moved before it; the fourth does not, and looks on for a few seconds."""
    runs = cron.on("pinned", plan=Plan(age=-90.0)).runs(4)
    assert [run.report.status for run in runs] == [*[Status.OK] * 3, Status.CRITICAL]
    assert [run.report.samples for run in runs[:3]] == [1, 2, 3], "one look a run is enough while things move"


def test_a_run_soon_after_one_that_looked_on_need_not_do_so_again(cron: Cron) -> None:
    first, second, third = cron.on("pinned").runs(3, every=1.0)
    assert first.report.samples > 3 and first.report.status is Status.CRITICAL
    for run in (second, third):
        assert run.report.status is Status.CRITICAL and run.took_s < 2.0


@pytest.mark.parametrize("release", ["0.5.6", "0.5.15", "0.5.23"])
def test_the_first_run_against_a_busy_cluster_sees_it_move_and_is_quiet(release: str, cron: Cron) -> None:
    run = cron.on("load", release=release).run()
    assert run.report.status is Status.OK and bad(run) == set()
    assert 1 < run.report.samples <= 4, "it looked on until it saw that requests move"


@pytest.mark.parametrize("fault", ["engine-wedged", "prealloc-wedged", "queue-head-blocked"])
def test_what_stands_and_was_not_seen_to_move_is_unknown_until_it_is_known(fault: str, cron: Cron) -> None:
    first, second = cron.on(fault).runs(2)
    assert first.report.status is Status.UNKNOWN and bad(first) == {"gauge-unavailable"}
    assert "nothing was seen to move" in first.report.findings[0].summary
    assert second.report.status is Status.CRITICAL and fault in names(second)


def test_a_scheduler_that_does_not_answer_is_no_green_first_run(cron: Cron) -> None:
    run = cron.on("hung-prefill").run(timeout_s=0.5)
    assert run.report.status in (Status.CRITICAL, Status.UNKNOWN)
    assert any(f.subject == "prefill-0" for f in run.report.findings)


def test_how_long_to_look_is_heeded_and_what_it_could_not_show_is_unknown(cron: Cron) -> None:
    run = cron.on("pinned").run(seconds=2.0, interval_s=1.0)
    assert run.report.samples == 3 and run.report.status is Status.UNKNOWN
    assert bad(run) == {"gauge-unavailable"}


def test_who_did_not_ask_whether_requests_move_is_not_told(cron: Cron) -> None:
    cron.on("pinned")
    for chosen in (choose(only=["reach"]), choose(skip=["queues"], hosts=False)):
        run = cron.run(chosen=chosen)
        assert (run.report.status, run.report.samples) == (Status.OK, 1)


def test_a_cluster_under_load_is_well_for_a_quarter_of_an_hour_and_memory_stays_small(cron: Cron) -> None:
    runs = cron.on("load").runs(16)
    assert [bad(run) for run in runs] == [set()] * 16
    assert 10 < runs[-1].runs <= remember.KEEP_RUNS and runs[-1].seconds <= remember.KEEP_S
    assert memory_path(cron.lapse.cluster, choose(hosts=False).selection).stat().st_size < 200_000


def test_a_restart_between_two_looks_is_seen(cron: Cron) -> None:
    runs = cron.on("restart", plan=Plan(age=-30.0)).runs(4, every=30.0)
    assert "engine-restarted" not in names(runs[0])
    assert any("engine-restarted" in names(run) for run in runs[1:])


def test_a_queue_that_drains_is_seen_to_drain(cron: Cron) -> None:
    runs = cron.on("drain").runs(4, every=5.0)
    assert any("draining" in names(run) for run in runs[1:]), [names(r) for r in runs]
    assert all("request-pinned" not in names(run) for run in runs)


@pytest.mark.parametrize(
    "fault, finding",
    [("engine-wedged", "engine-wedged"), ("decode-full", "decode-starved"), ("transfer-leak", "transfer-stuck")],
)
def test_traffic_of_before_the_fault_does_not_hide_it(fault: str, finding: str, cron: Cron) -> None:
    """It sets in three looks after the first, and all that was remembered moved until then."""
    runs = cron.on(fault, plan=Plan(age=-150.0)).runs(6)
    assert [finding in names(run) for run in runs[:3]] == [False] * 3
    assert finding in names(runs[-1]), [sorted(names(run)) for run in runs]


# --- what is asked -----------------------------------------------------------------------------------------------


def test_one_look_asks_each_endpoint_once_and_sends_no_health_check(cron: Cron) -> None:
    cron.on("healthy").run()
    asked = [(name, path.partition("?")[0]) for name, path in cron.lapse.requests]
    assert sorted(asked) == [
        ("decode-0", "/metrics"), ("decode-0", "/server_info"), ("decode-0", "/v1/loads"),
        ("prefill-0", "/metrics"), ("prefill-0", "/server_info"), ("prefill-0", "/v1/loads"),
        ("router-0", "/metrics"), ("router-0", "/workers"),
    ]  # fmt: skip


def test_a_stage_alone_asks_for_no_more_than_it_needs(cron: Cron) -> None:
    run = cron.on("load").run(chosen=choose(only=["reach"]))
    assert {path for _, path in cron.lapse.requests} == {"/metrics"}
    assert [stage.name for stage in run.stages if stage.ran] == ["reach"]
    assert run.report.unchecked and {u.why for u in run.report.unchecked} == {"left out by --only"}


def test_a_short_window_looks_again_and_again(cron: Cron) -> None:
    run = cron.on("load").run(seconds=0.6, interval_s=0.2)
    assert run.report.samples == 4


# --- blindness ---------------------------------------------------------------------------------------------------


def test_who_stops_answering_is_unknown_at_once_however_well_it_was(cron: Cron) -> None:
    cron.on("load").runs(5)
    cron.lapse.dead.add("prefill-0")
    cron.lapse.passes(60)
    run = cron.run()
    assert run.report.status is Status.UNKNOWN and bad(run) == {"endpoint-unreadable"}
    cron.lapse.dead.clear()
    cron.lapse.passes(60)
    assert cron.run().report.status is Status.OK


def test_it_is_looked_for_even_when_only_something_else_was_asked_for(cron: Cron) -> None:
    cron.on("load").lapse.dead.update(["prefill-0", "decode-0", "router-0"])
    assert cron.run(chosen=choose(only=["request-pinned"])).report.status is Status.UNKNOWN


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:9"])
def test_a_look_that_saw_nothing_is_unknown_even_when_blindness_is_skipped(url: str | None, cron: Cron) -> None:
    cron.on("load")
    blind = replace(cron.lapse.cluster, instances=(replace(cron.lapse.cluster.instances[0], url=url, log="/x"),))
    order = Order(choose(skip=["reach"], hosts=False))
    run = check(blind, order, cron.lapse.clock)
    assert run.report.status is Status.UNKNOWN and "nothing was seen" in run.report.findings[0].summary


def test_a_stage_that_found_no_time_is_unknown_and_not_fine(cron: Cron) -> None:
    cron.on("load").lapse.hung.add("prefill-0")
    run = cron.run(chosen=choose(["stacks"], hosts=False), deadline_s=0.6, timeout_s=5.0)
    stacks = next(stage for stage in run.stages if stage.name == "stacks")
    assert not stacks.ran and "no time" in (stacks.why or "")
    assert any("stage stacks was not run" in f.summary for f in run.report.findings)
    assert run.report.status is Status.UNKNOWN


def test_a_stage_that_would_not_end_in_time_is_not_begun_and_costs_no_verdict_on_the_others(cron: Cron) -> None:
    run = cron.on("breaker").run(chosen=choose(["stacks"], hosts=False), deadline_s=4.5)
    assert not next(stage for stage in run.stages if stage.name == "stacks").ran
    assert run.report.status is Status.CRITICAL and {"router-circuit-open", "endpoint-unreadable"} <= names(run)


# --- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_clock_that_is_set_makes_it_begin_anew_and_say_so(jump: float, cron: Cron) -> None:
    cron.on("pinned").runs(2)
    cron.lapse.clock.jump = jump
    run = cron.runs(1)[0]
    assert run.runs == 0 and any("clock was set" in note for note in run.notes)
    assert any("clock was set" in u.why for u in run.report.unchecked)
    assert "request-pinned" in names(cron.runs(4)[-1])


def test_a_damaged_memory_is_forgotten_and_the_next_run_has_one(cron: Cron) -> None:
    cron.on("load").run()
    memory_path(cron.lapse.cluster, choose(hosts=False).selection).write_bytes(b"\x00" * 4096)
    run = cron.run()
    assert run.runs == 0 and run.notes == ("earlier runs are forgotten: its file is damaged",)
    assert run.report.status is Status.OK and cron.run().runs == 1


def test_state_that_can_not_be_kept_is_said_and_changes_no_verdict(
    cron: Cron, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    run = cron.on("load").run()
    assert run.report.status is Status.OK
    assert any(u.what == checkup.TRENDS for u in run.report.unchecked)


def test_the_last_success_is_that_of_the_last_run_that_saw(cron: Cron) -> None:
    first = cron.on("load").run()
    cron.lapse.dead.add("decode-0")
    cron.lapse.passes(60)
    blind = cron.run()
    assert first.last_success is not None and blind.last_success is not None
    assert abs((blind.last_success - first.last_success).total_seconds()) < 5


# --- one at a time -----------------------------------------------------------------------------------------------


def test_of_two_runs_one_looks_and_the_other_says_who_does(cron: Cron) -> None:
    from pdctl.reach.state import locked, own_folder

    cron.on("load")
    path = memory_path(cron.lapse.cluster, choose(hosts=False).selection)
    own_folder(path.parent)
    with (
        locked(path.with_suffix(".lock"), "process 4711, since then"),
        pytest.raises(Busy, match="process 4711") as busy,
    ):
        cron.run(deadline_s=1.0)
    assert busy.value.exit_status == 3 and cron.lapse.requests == []
    assert cron.run().report.status is Status.OK


def test_checks_that_look_at_different_things_do_not_wait_for_one_another(cron: Cron) -> None:
    from pdctl.reach.state import locked, own_folder

    cron.on("load")
    path = memory_path(cron.lapse.cluster, choose(hosts=False).selection)
    own_folder(path.parent)
    with locked(path.with_suffix(".lock"), "another"):
        assert cron.run(chosen=choose(only=["reach"])).report.status is Status.OK


# --- evidence ----------------------------------------------------------------------------------------------------


def test_the_evidence_of_a_failing_moment_is_kept_once(cron: Cron, tmp_path: Path) -> None:
    cron.on("load").lapse.dead.add("prefill-0")
    order = {"evidence": tmp_path / "e"}
    first, second = cron.runs(2, **order)
    assert first.kept is not None and second.kept is None
    with open_capture(first.kept) as capture:
        asked = [a for a in capture.answers() if a.subject == "prefill-0" and a.fact == "metrics"]
        assert len(asked) >= 3 and all(a.error is not None for a in asked), "it was looked at for a while longer"
        assert not capture.cut_short
    cron.lapse.dead.add("decode-0")
    cron.lapse.passes(60)
    assert cron.run(**order).kept is not None, "another failure is another moment"


def test_nothing_is_kept_of_a_run_that_is_well_and_the_folder_is_not_even_made(cron: Cron, tmp_path: Path) -> None:
    assert cron.on("load").run(evidence=tmp_path / "e").kept is None
    assert not (tmp_path / "e").exists()


def test_evidence_that_can_not_be_kept_is_said_and_changes_no_verdict(cron: Cron, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cron.on("load").lapse.dead.add("prefill-0")
    run = cron.run(evidence=tmp_path / "file" / "e")
    assert run.report.status is Status.UNKNOWN and any("evidence is not kept" in note for note in run.notes)
