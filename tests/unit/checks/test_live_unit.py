"""live-drift of a router that hides its command line: by its unit and by times."""

from __future__ import annotations

import json

from pdctl.checks import live_drift
from pdctl.model.answer import Fact
from pdctl.model.finding import Confidence
from tests.unit.checks.host_scene import HostScene
from tests.unit.checks.scene import R

SCRIPT = "/opt/router.sh"
TEXT = "exec python3 -m sglang_router.launch_router --pd-disaggregation --policy {} --port 8000\n"
BY_SCRIPT = "ExecStart={ path=/opt/router.sh ; argv[]=/opt/router.sh ; }\n"
DIRECT = (
    "ExecStart={ path=/v/bin/python3 ; argv[]=/v/bin/python3 -m sglang_router.launch_router --pd-disaggregation "
    "--policy random --port 8000 ; }\n"
)


def scene(exec_start: str, edited: str, *, backup: str | None = None, more: str = "", text: str = "") -> HostScene:
    """A router that started at 03:00 and calls itself sglang::router."""
    made = HostScene()
    made.raw(0, R, Fact.UNIT, f"Id=r.service\nActiveState=active\n{exec_start}{more}")
    row = {
        "pid": 7,
        "ppid": 1,
        "title": "sglang::router",
        "cmdline": ["sglang::router"],
        "started": "2026-11-12T03:00:00Z",
    }
    made.raw(0, R, Fact.PROCESSES, json.dumps([row]))
    made.raw(0, R, Fact.SCRIPT, text or TEXT.format("cache_aware"), path=SCRIPT, mtime=edited)
    if backup is not None:
        made.raw(0, R, Fact.SCRIPT, backup, path=f"{SCRIPT}.bak", mtime="2026-11-11T12:00:00Z")
    return made


def test_a_script_edited_after_the_start_against_its_backup_from_before() -> None:
    made = scene(BY_SCRIPT, "2026-11-12T03:05:00Z", backup=TEXT.format("random"))
    finding = made.one(live_drift.judge)
    assert finding.confidence is Confidence.LIKELY and "--policy random -> cache_aware" in finding.summary
    assert "router.sh.bak" in finding.summary and any("hidden" in limit for limit in finding.limits)


def test_without_a_backup_what_would_change_is_not_known() -> None:
    finding = scene(BY_SCRIPT, "2026-11-12T03:05:00Z").one(live_drift.judge)
    assert finding.confidence is Confidence.POSSIBLE and "what is not known" in finding.summary


def test_an_edit_that_means_the_same_or_came_before_the_start_is_ruled_out() -> None:
    same = scene(BY_SCRIPT, "2026-11-12T03:05:00Z", backup="# old\n" + TEXT.format("cache_aware"))
    older = scene(BY_SCRIPT, "2026-11-12T02:55:00Z")
    for made, why in ((same, "means the same"), (older, "older than the process")):
        assert made.found(live_drift.judge) == []
        (out,) = made.ruled_out(live_drift.judge)
        assert why in out.by


def test_a_unit_that_starts_something_else_tells_nothing_of_the_script() -> None:
    made = scene("ExecStart={ path=/opt/other.sh ; argv[]=/opt/other.sh ; }\n", "2026-11-12T03:05:00Z")
    assert made.found(live_drift.judge) == [] and made.ruled_out(live_drift.judge) == []
    assert len(made.unchecked(live_drift.judge)) == 1


def test_a_unit_with_the_launch_command_itself_is_compared_by_flags_and_environment() -> None:
    text = "export RUST_LOG=debug A=1\n" + TEXT.format("cache_aware")
    made = scene(DIRECT, "2026-11-12T02:00:00Z", text=text, more='Environment=RUST_LOG=info "A=1"\n')
    summary = made.one(live_drift.judge).summary
    assert "--policy random -> cache_aware" in summary and "RUST_LOG info -> debug" in summary and "A " not in summary
    files = scene(DIRECT, "2026-11-12T02:00:00Z", text=text, more="EnvironmentFiles=/etc/r.env (ignore_errors=no)\n")
    assert "RUST_LOG" not in files.one(live_drift.judge).summary


def test_a_script_without_a_launch_command_is_not_checked_and_said_so() -> None:
    made = scene(BY_SCRIPT, "2026-11-12T03:05:00Z", text="echo hello\n")
    (told,) = made.unchecked(live_drift.judge)
    assert "no launch command was found in /opt/router.sh" in told.why
