"""A restart's plan and outcome as people and programs get them: whole words, marks with words, nothing hostile raw."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.plan import (
    SHIFTED,
    Active,
    End,
    Footing,
    Ground,
    Hold,
    Identity,
    Lock,
    Outcome,
    Plan,
    Point,
    Proven,
    Script,
    Site,
    Standing,
    State,
    StepResult,
    Wish,
)
from pdctl.plans.restart import plan_restart
from pdctl.render.look import Look
from pdctl.render.plan import plan_lines
from pdctl.render.restart import document, outcome_lines, outcome_value, plan_value, short_line

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
DRIFT = "a restart of prefill-0 would change: flag --x 1 -> 2"
HOSTILE = "\x1b[31mred\u202e\x07 sk-abcdefgh12345678"
CLUSTER = Cluster(
    "prod-a",
    (
        Instance(
            "prefill-0", Role.PREFILL, "http://10.0.0.1:30000", host="gpu-01", unit="p.service", script="/srv/p.sh"
        ),
        Instance("router-0", Role.ROUTER, "http://10.0.0.3:30000", host="gpu-01", restart_command=("/opt/r.sh", "a b")),
    ),
    (Host("gpu-01", "ops@gpu-01", "sudo"),),
)


def plan(**wish: object) -> Plan:
    footings = (
        Footing(
            "prefill-0", "gpu-01", Identity(4711, NOW - timedelta(hours=3), "abc"), None, "active (running)", True,
            90.0, "0.5.15", Active(3.0, {"running": 2.0, "inflight": 1.0}, "live counts"),
            Script("/srv/p.sh", "aa", NOW, None, True, None, True, DRIFT), gauges={"running": 2.0}, notes=(HOSTILE,),
        ),
        Footing("router-0", "gpu-01", None, None, "no process", active=Active(why="connect-refused")),
    )  # fmt: skip
    ground = Ground(NOW, "digest", footings, (Site("gpu-01", lock=Lock(Hold.FREE), unseen={"GPU memory": HOSTILE}),))
    return plan_restart(CLUSTER, replace(Wish(), **wish), ground, "20261130-120000-abcd")  # type: ignore[arg-type]


def outcome(end: End = End.FAILED) -> Outcome:
    made = plan()
    restart, router = made.restarts
    results = (
        StepResult("backup:gpu-01:/srv/p.sh", State.DONE, "kept as /srv/p.sh.x.bak", 0.1),
        StepResult(restart.id, State.DONE, "ready", 41.5, Identity(4800, NOW), "0.5.19", (("health", 30.0),)),
        StepResult(router.id, State.FAILED, f"no way {HOSTILE}", 12.0, last_log=HOSTILE),
    )
    standing = (Standing("prefill-0", False, "restarted and ready"), Standing("router-0", True, "NOT RUNNING"))
    proof = (Point("breakers closed", "router-0", Proven.NOT_CHECKED, HOSTILE),)
    after = replace(made.ground, footings=(replace(made.ground.footings[0], gauges={"running": 0.0}),))
    return Outcome(made, end, results, f"restart router-0: no way {HOSTILE}", proof, standing, made.ground, after)


def test_the_plan_says_what_where_by_which_command_what_runs_and_what_would_be_lost() -> None:
    text = " ".join(" ".join(plan_lines(plan(), Look(width=100))).split())
    for said in (
        "Restart of 2 instances of prod-a, run 20261130-120000-abcd",
        "prefill-0 on gpu-01 sudo -n -- systemctl --no-ask-password --no-block restart -- p.service",
        "runs now: pid 4711 since 2026-11-30 09:00:00 UTC, release 0.5.15, active (running)",
        "would be lost: 3 requests (running 2, inflight 1; live counts)",
        "script: /srv/p.sh, written 2026-11-30 12:00:00 UTC, after the process started",
        "a restart of prefill-0 would change: flag --x 1 -> 2",
        "sudo -n -- /opt/r.sh 'a b'",
        "runs now: nothing (no process)",
        "each must be ready within 10 min: a new process, health, metrics, version, a real generation",
        "router-0 does not run now (no process): the restart starts it",
        "gpu-01: GPU memory:",
    ):
        assert said in text, said


def test_what_could_not_be_seen_is_not_called_nothing() -> None:
    made = plan()
    blind = replace(made.ground.footings[0], process=None, state=None, why="no connection in time")
    ground = replace(made.ground, footings=(blind, *made.ground.footings[1:]))
    text = " ".join(" ".join(plan_lines(replace(made, ground=ground), Look(width=100))).split())
    assert "runs now: not known (no connection in time)" in text


def test_a_plan_gone_on_with_says_what_became_of_each_step() -> None:
    made = plan()
    restart, router = made.restarts
    results = {
        restart.id: StepResult(restart.id, State.DONE, "ready"),
        router.id: StepResult(router.id, State.BEGUN),
    }
    text = "\n".join(plan_lines(made, Look(width=100), results))
    assert "✓ prefill-0 on gpu-01: done (ready)" in text and "! router-0 on gpu-01: begun" in text
    assert "pid 4711" not in text, "what ran before is no news of a step that is done"


def test_nothing_is_green_that_was_not_seen_to_be_ready() -> None:
    rows = (
        Standing("a", False, "restarted and ready", ready=True), Standing("b", False, "runs, and was not seen"),
        Standing("c", True, "NOT RUNNING"), Standing("d", None, "not known"),
    )  # fmt: skip
    text = "\n".join(outcome_lines(replace(outcome(), standing=rows), Look()))
    for line in ("✓ a: restarted", "! b: runs", "✗ c: NOT", "? d: not known"):
        assert line in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_screen_but_for_one_long_word(width: int) -> None:
    for line in (*plan_lines(plan(), Look(width=width)), *outcome_lines(outcome(), Look(width=width))):
        assert len(line) <= width or len(line.split()) <= 3, line


def test_refusals_are_shown_with_how_to_override_them_and_forced_ones_apart() -> None:
    whole = " ".join(" ".join(plan_lines(plan(only=("router",)), Look())).split())
    assert "Refused" not in whole
    crowded = replace(plan(), refusals=plan().refusals)
    assert list(plan_lines(crowded, Look()))
    from pdctl.model.plan import Refusal

    two = (
        Refusal("disk-space", "gpu-01", "full", True, False),
        Refusal("decode-alone", "decode-0", "long", True, True, forced=True),
        Refusal("unit-loaded", "p", "no", False, False),
    )
    text = " ".join(" ".join(plan_lines(replace(plan(), refusals=two), Look())).split())
    assert "disk-space, gpu-01: full (--force disk-space overrides it)" in text
    assert "unit-loaded, p: no " in text + " " and "Overridden by --force, which is recorded - decode-alone" in text


def test_touched_and_not_touched_are_two_lists() -> None:
    text = "\n".join(outcome_lines(outcome(), Look()))
    touched, _, left = text.partition("Not touched:")
    assert "restart prefill-0: done, 41.5 s: ready" in touched and "restart router-0: failed, 12.0 s" in touched
    assert "prove that it works" in left.partition("How what was touched")[0]
    assert "✗ router-0: NOT RUNNING" in text and "pdctl restart --resume" in text
    assert text.splitlines()[0].startswith("✗ STOPPED  prod-a")


def test_a_mark_never_stands_without_a_word() -> None:
    text = "\n".join(outcome_lines(replace(outcome(), end=End.DONE, why=None), Look()))
    assert text.startswith("✓ DONE  prod-a")
    assert "– breakers closed, router-0: not checked (" in text


def test_what_to_do_next_is_what_can_be_done() -> None:
    shifted = replace(outcome(), why=f"{SHIFTED}: x")
    assert "does not fit any more. A new one:" in "\n".join(outcome_lines(shifted, Look()))
    untouched = "\n".join(outcome_lines(replace(outcome(), results=(), standing=()), Look()))
    assert "Nothing was touched. A new plan:" in untouched and "--resume" not in untouched


def test_before_and_after_stand_side_by_side() -> None:
    lines = list(outcome_lines(outcome(), Look(width=100)))
    at = lines.index("Before and after:")
    assert [line.split() for line in lines[at + 2 : at + 5]] == [
        ["prefill-0", "process", "4711", "4711"], ["release", "0.5.15", "0.5.15"], ["running", "2", "0"]
    ]  # fmt: skip


@pytest.mark.parametrize("ascii_only", [False, True])
def test_nothing_hostile_and_no_secret_reaches_the_terminal(ascii_only: bool) -> None:
    look = Look(ascii=ascii_only)
    text = "\n".join((*plan_lines(plan(), look), *outcome_lines(outcome(), look), short_line(outcome(), look)))
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text and "sk-abcdefgh" not in text
    assert not ascii_only or text.isascii()


def test_one_line_says_all_of_it() -> None:
    assert short_line(replace(outcome(), why="no"), Look()) == "STOPPED prod-a 1 of 2 restarted: no"


def test_programs_get_one_document_without_secrets() -> None:
    for value in (plan_value(plan(), "planned"), outcome_value(outcome())):
        text = document(value)
        said = json.loads(text)
        assert said["schema"] == "pdctl.restart/1" and "sk-abcdefgh" not in text and text.isascii()
        assert [s["id"] for s in said["steps"]] == [s.id for s in plan().steps]
    said = json.loads(document(outcome_value(outcome())))
    assert said["status"] == "failed" and said["standing"][1]["down"] is True
    assert said["before"]["prefill-0"]["running"] == 2 and said["after"]["prefill-0"]["running"] == 0
    assert [s["state"] for s in said["steps"]] == ["done", "done", "failed", "left"]
