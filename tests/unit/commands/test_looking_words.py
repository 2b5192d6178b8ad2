"""What is said of a look and of what was kept of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import main
from pdctl.commands.looking import said
from pdctl.commands.sample import _sayings
from pdctl.model.window import Window
from pdctl.watch import Looked
from tests.unit.checks.scene import START

FULL = "recording stopped after 3 answers: no space left on device"
EMPTY = Window(START, START, ())


@pytest.mark.parametrize("full", [False, True])
def test_a_look_whose_disk_filled_up_does_not_claim_to_be_kept_whole(full: bool) -> None:
    lines = said(Looked(EMPTY, kept=Path("/tmp/kept"), notes=[FULL] if full else []))
    assert lines[-1] == ("what was kept until then: /tmp/kept" if full else "evidence kept: /tmp/kept")
    assert (FULL in lines) == full


@dataclass
class Planned:
    record: Path | None = Path("/tmp/kept it")
    until: str | None = None


@dataclass
class Sampled:
    notes: list[str]
    plan: Planned = field(default_factory=Planned)
    interrupted: bool = False
    found: Any = None
    taken: int = 5
    read: int = 5


@pytest.mark.parametrize(("notes", "begins"), [([], "recorded in"), ([FULL], "what was recorded until then is in")])
def test_samples_whose_disk_filled_up_are_recorded_until_then(notes: list[str], begins: str) -> None:
    *_, last = _sayings(Sampled(notes))  # type: ignore[arg-type]
    assert last == f"{begins} /tmp/kept it; judge it with: pdctl triage --from '/tmp/kept it'"


def test_pinned_takes_a_proxy_as_triage_does(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("pinned", "triage"):
        assert main([command, "--prefill", "http://127.0.0.1:9", "--proxy", "nowhere"]) == 64
        assert '--proxy: "nowhere" has no scheme' in capsys.readouterr().err


def test_stacks_of_routers_alone_are_none_and_not_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stacks", "--router", "http://127.0.0.1:9", "-n", "1", "-o", "short"]) == 3
    assert "native (Rust) threads" in capsys.readouterr().out
