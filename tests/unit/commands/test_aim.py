"""Next commands run as printed: on what this run looked at, and as one word a name."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pdctl.checks.base import found
from pdctl.cli import COMMANDS, main
from pdctl.commands.aim import NAMED, OPTIONS, TAKES, aimed, named_by
from pdctl.lazy import load
from pdctl.model.finding import Confidence, InstanceReport, Report

CAPTURES = Path(__file__).parents[2] / "captures"
NOON = datetime(2026, 11, 12, 12, 0, tzinfo=UTC)


def nexts(*rows: str, instances: tuple[str, ...] = ("prefill-0",)) -> tuple[str, ...]:
    finding = found("draining", "prefill-0", "it drains", confidence=Confidence.CERTAIN, evidence=(), next=rows)
    shown = tuple(InstanceReport(name, "prefill") for name in instances)
    return aimed(Report("c", NOON, NOON, 1, (finding,), instances=shown)).findings[0].next


@pytest.mark.parametrize("command", TAKES)
def test_the_table_says_which_options_each_command_takes(command: str) -> None:
    known = {name for parameter in load(command, *COMMANDS[command]).params for name in parameter.opts}
    assert TAKES[command] == known & OPTIONS


def test_each_command_gets_the_options_it_takes() -> None:
    NAMED.set(
        named_by({"--config": None, "--prefill": ["http://a:1", "http://b:1"], "--router": ["http://r:1,http://r:2"]})
    )
    try:
        assert nexts(
            "pdctl stacks prefill-0", "pdctl restart --plan", "pdctl explain draining", "Look at it (pdctl ps)"
        ) == (
            "pdctl stacks prefill-0 --prefill http://a:1 --prefill http://b:1 --router http://r:1,http://r:2",
            "pdctl restart --plan",
            "pdctl explain draining",
            "Look at it (pdctl ps)",
        )
        NAMED.set(named_by({"--config": None, "--from": Path("an incident")}))
        assert nexts("pdctl pinned", "pdctl logs a") == (
            "pdctl pinned --from 'an incident'",
            "pdctl logs a --from 'an incident'",
        )
    finally:
        NAMED.set(())
    assert nexts("pdctl pinned") == ("pdctl pinned",)


def test_a_name_is_one_word_whatever_is_in_it() -> None:
    names = ("prefill-0", "a;id", "a;id b", "$(reboot)")
    (row,) = nexts("pdctl logs prefill-0 a;id b $(reboot) a;id --failures", instances=names)
    assert shlex.split(row) == ["pdctl", "logs", "prefill-0", "a;id b", "$(reboot)", "a;id", "--failures"]


def test_the_commands_a_report_of_a_recording_names_run_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["triage", "--from", str(CAPTURES / "one-dp-rank-pinned.tar.zst"), "-o", "json"])
    rows = [row for f in json.loads(capsys.readouterr().out)["findings"] for row in f["next"]]
    assert rows
    for row in rows:
        program, *words = shlex.split(row)
        assert program == "pdctl" and main(words) in (0, 1, 2, 3), row
        capsys.readouterr()
