"""Where each shipped playbook leads, by what its steps find: commands that have said beforehand what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.model.finding import Status
from pdctl.reach.own import Ran
from pdctl.runbook.order import Order
from pdctl.runbook.shelf import opened, shipped
from tests.unit.runbook.operator_at_desk import LIVE, Commands, Desk, Played, play, report

READS = ("triage", "pinned", "ps", "sockets", "logs", "stacks", "probe", "changes", "diff", "compare", "sample")
Found = Mapping[str, Ran]
OK, NONE = report(), Ran(64, "pdctl: nothing to read")
ALONE = Order(LIVE, attended=False, unattended=True)


def found(*names: str, status: str = "") -> Ran:
    return report(*names, status=status)


def clear(*ruled_out: str) -> Ran:
    ran = report()
    return replace(ran, report={**(ran.report or {}), "ruled_out": [{"what": name} for name in ruled_out]})


STUCK, BLIND = found("request-pinned"), found(status="unknown")


def run(name: str, come_to: Found, path: Path, order: Order = ALONE, answers: tuple[str, ...] = ()) -> Played:
    commands = Commands({**{word: [OK] for word in READS}, **{word: [ran] for word, ran in come_to.items()}})
    given = {row.name: row.default for row in opened(shipped() / f"{name}.yaml").given if row.default}
    desk = Desk(list(answers))
    return play(opened(shipped() / f"{name}.yaml"), commands, path, order=replace(order, given=given), desk=desk)


# playbook, what its commands find -> the step it ends at, its verdict
WAYS: tuple[tuple[str, Found, str, Status], ...] = (
    ("first-five-minutes", {}, "calm", Status.OK),
    ("first-five-minutes", {"triage": found("request-pinned", "rank-stuck")}, "pinned-request", Status.CRITICAL),
    ("first-five-minutes", {"triage": found("rank-stuck")}, "rank-diverged", Status.CRITICAL),
    ("first-five-minutes", {"triage": found("ranks-diverged", "request-pinned")}, "rank-diverged", Status.CRITICAL),
    ("first-five-minutes", {"triage": found("queue-leaked", status="warning")}, "pinned-request", Status.WARNING),
    ("first-five-minutes", {"triage": found("peer-stale", "request-pinned")}, "stale-peer", Status.CRITICAL),
    ("first-five-minutes", {"triage": found("engine-restarted", status="ok")}, "stale-peer", Status.OK),
    ("first-five-minutes", {"sockets": found("connection-leak")}, "harness-hang", Status.CRITICAL),
    ("first-five-minutes", {"ps": found("unit-flapping", status="warning")}, "units", Status.WARNING),
    ("first-five-minutes", {"triage": found("endpoint-unreadable", status="unknown")}, "blind", Status.UNKNOWN),
    ("pinned-request", {"pinned": clear("request-pinned")}, "clear", Status.OK),
    ("pinned-request", {"pinned": found("request-pinned"), "stacks": NONE}, "restart", Status.CRITICAL),
    ("pinned-request", {"pinned": STUCK, "stacks": found("ranks-diverged")}, "diverged", Status.CRITICAL),
    ("pinned-request", {"pinned": OK, "triage": found("ranks-diverged")}, "stopped", Status.CRITICAL),
    ("pinned-request", {"pinned": OK, "triage": found("peer-stale")}, "stale", Status.CRITICAL),
    ("pinned-request", {"pinned": BLIND, "triage": found("connection-leak")}, "cannot-tell", Status.CRITICAL),
    ("pinned-request", {"pinned": BLIND}, "cannot-tell", Status.UNKNOWN),
    ("harness-hang", {}, "outside", Status.OK),
    ("harness-hang", {"triage": found("peer-stale")}, "stale", Status.CRITICAL),
    ("harness-hang", {"triage": found("decode-starved", status="warning")}, "busy", Status.WARNING),
    ("harness-hang", {"probe": found("connection-scoped-hang")}, "connection", Status.CRITICAL),
    ("harness-hang", {"sockets": found("accept-queue-full")}, "front-end", Status.CRITICAL),
    ("harness-hang", {"probe": found("endpoint-unreadable", status="unknown")}, "blind", Status.UNKNOWN),
    ("regression-since", {"changes": clear("changed-since")}, "nothing", Status.OK),
    ("regression-since", {"changes": found("changed-since", status="ok")}, "changed", Status.OK),
    ("regression-since", {"diff": found("role-mismatch", "script-drift")}, "mismatch", Status.CRITICAL),
    ("regression-since", {"diff": found("live-drift", "script-drift", status="warning")}, "drift", Status.WARNING),
    ("regression-since", {"diff": NONE, "changes": NONE}, "blind", Status.UNKNOWN),
    ("decode-starved", {"triage": found("decode-starved", status="warning")}, "leave", Status.WARNING),
    ("decode-starved", {"triage": found("prealloc-wedged")}, "stuck", Status.CRITICAL),
    ("decode-starved", {}, "not-starved", Status.OK),
    ("stale-peer", {}, "healed", Status.OK),
    ("stale-peer", {"triage": found("peer-stale")}, "co-restart", Status.CRITICAL),
    ("stale-peer", {"triage": found("scheduler-stopped")}, "stands", Status.CRITICAL),
    ("stale-peer", {"triage": found("engine-crashed")}, "crashed", Status.CRITICAL),
    ("stale-peer", {"probe": found("endpoint-unreadable", status="unknown")}, "not-proved", Status.UNKNOWN),
    ("rank-diverged", {"stacks": clear("ranks-diverged")}, "clear", Status.OK),
    ("rank-diverged", {"triage": found("request-pinned"), "stacks": OK}, "pinned", Status.CRITICAL),
    ("rank-diverged", {"triage": found("rank-stuck"), "stacks": NONE}, "standing", Status.CRITICAL),
    ("rank-diverged", {"stacks": found("ranks-diverged")}, "diverged", Status.CRITICAL),
    ("rank-diverged", {"stacks": found("device-hang")}, "device", Status.CRITICAL),
    ("after-restart", {"pinned": clear("request-pinned")}, "proved", Status.OK),
    ("after-restart", {"pinned": OK}, "left-behind", Status.OK),
    ("after-restart", {"probe": found("responses-lost")}, "requests-fail", Status.CRITICAL),
    ("after-restart", {"probe": NONE}, "not-proved", Status.UNKNOWN),
    ("co-restart", {"restart": Ran(0, "plan")}, "left", Status.UNKNOWN),
    ("co-restart", {"restart": Ran(64, "pdctl: no unit")}, "no-plan", Status.UNKNOWN),
    ("gate-a-fix", {"pinned": clear("request-pinned")}, "not-gated", Status.UNKNOWN),
    ("gate-a-fix", {"triage": found("request-pinned")}, "not-well", Status.CRITICAL),
)  # fmt: skip


@pytest.mark.parametrize("row", range(len(WAYS)), ids=lambda n: f"{WAYS[n][0]}-{WAYS[n][2]}-{n}")
def test_a_shipped_playbook_leads_to(row: int, tmp_path: Path) -> None:
    name, come_to, ends, verdict = WAYS[row]
    played = run(name, come_to, tmp_path / "t.jsonl")
    assert (played.steps[-1], played.ended.verdict) == (ends, verdict), played.steps
    assert not played.ended.stopped, played.ended.why


@pytest.mark.parametrize(
    ("come_to", "ends", "verdict"),
    [
        ({"pinned": clear("request-pinned")}, "passed", Status.OK),
        ({"pinned": found("request-pinned")}, "wedged", Status.CRITICAL),
        ({"pinned": found("scheduler-stopped")}, "wedged", Status.CRITICAL),
        ({"pinned": found("gauge-unavailable", status="unknown")}, "broke-off", Status.UNKNOWN),
        ({"pinned": Ran(70, "internal error")}, "broke-off", Status.UNKNOWN),
        ({"probe": found("endpoint-unreadable", status="unknown")}, "failed", Status.CRITICAL),
        ({"probe": Ran(64, "pdctl: no router")}, "not-gated", Status.UNKNOWN),
    ],
)
def test_the_gate_with_somebody_who_agrees_to_the_load(
    come_to: Found, ends: str, verdict: Status, tmp_path: Path
) -> None:
    played = run("gate-a-fix", come_to, tmp_path / "t.jsonl", Order(LIVE, rounds=3), ("a",))
    assert (played.steps[-1], played.ended.verdict) == (ends, verdict), played.steps
    assert played.steps.count("load") == (4 if ends == "passed" else 1)


def test_a_gate_whose_load_breaks_off_is_not_passed(tmp_path: Path) -> None:
    book = opened(shipped() / "gate-a-fix.yaml")
    commands = Commands({**{word: [OK] for word in READS}, "probe": [Ran(0, "plan"), Ran(70, "pdctl: internal error")]})
    played = play(book, commands, tmp_path / "t.jsonl", desk=Desk(["y"]))
    assert (played.steps[-1], played.ended.verdict) == ("broke-off", Status.UNKNOWN)


@pytest.mark.parametrize(
    ("exit_status", "ends"), [(0, "done"), (75, "stopped"), (64, "not-done"), (130, "not-done")]
)  # fmt: skip
def test_the_co_restart_with_somebody_who_agrees(exit_status: int, ends: str, tmp_path: Path) -> None:
    book = opened(shipped() / "co-restart.yaml")
    restart = [Ran(0, "the plan"), Ran(exit_status, "", {"status": "ok"} if exit_status == 0 else None)]
    commands = Commands({**{word: [OK] for word in READS}, "restart": restart})
    played = play(book, commands, tmp_path / "t.jsonl", desk=Desk(["prod"]))
    assert played.steps[-1] == ends
    assert [words[1] for words in commands.ran if words[0] == "restart"] == ["--plan", "--yes"]
