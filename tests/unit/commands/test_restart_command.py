"""``pdctl restart`` and ``pdctl history`` on the command line: what contradicts itself, how the journal is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.cli import main
from pdctl.execute import journal
from pdctl.plans.restart_rules import RULES

INVENTORY = """
name = "prod"
[[instance]]
name = "prefill-0"
role = "prefill"
url = "http://127.0.0.1:9"
restart_command = ["/bin/true"]
[[instance]]
name = "decode-0"
role = "decode"
url = "http://10.255.255.1:9"
"""


@pytest.fixture(autouse=True)
def inventory(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (elsewhere / "pdctl.toml").write_text(INVENTORY)
    monkeypatch.setenv("PDCTL_LOCK_DIR", str(elsewhere))
    return elsewhere


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--force", "gravity"], "'gravity' is no rule"),
        (["--force", "host-reachable"], "'host-reachable' cannot be overridden"),
        (["--resume", "--apply", "x"], "--resume and --apply each name what to carry out"),
        (["--resume", "--only", "decode"], "stands in the plan already"),
        (["--resume", "--serial", "2"], "stands in the plan already"),
        (["--apply", "x", "--force", "disk-space"], "a saved plan says which rules it overrides"),
        (["--run", "r1"], "--run says which run to go on with, so it needs --resume"),
        (["--serial", "0"], "0"),
        (["--ready-timeout", "soon"], "no duration"),
        (["--only", "decode-9", "--plan"], "nothing to restart called 'decode-9'"),
        (["gpu", "--plan"], "nothing to restart called 'gpu'"),
        (["--apply", "none.json", "--yes"], "none.json: cannot be read"),
        (["--resume", "--yes"], "there is no run to go on with"),
        ([], "nobody to ask"),
        (["--config", "none.toml", "--plan"], "none.toml"),
    ],
)
def test_what_cannot_be_asked_for(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restart", *words]) == 64
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plan": 7}', "\x00", '{"plan": {"id": "x"}}'])
def test_a_file_that_holds_no_plan(text: str, inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inventory / "plan.json").write_text(text)
    assert main(["restart", "--apply", "plan.json", "--yes"]) == 64
    assert "holds no plan" in capsys.readouterr().err


def test_the_rules_are_listed_offline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restart", "--rules"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in RULES) and max(map(len, out.splitlines())) <= 80


def test_a_refused_plan_is_a_document_with_the_reasons(inventory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restart", "--plan", "-o", "json"]) == 64
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["status"], said["cluster"]) == ("pdctl.restart/1", "refused", "prod")
    assert {"rule": "way-known", "subject": "decode-0"} in [
        {key: row[key] for key in ("rule", "subject")} for row in said["refusals"]
    ]
    assert [s["state"] for s in said["steps"]] == ["left"] * 3
    assert not list(inventory.glob("pdctl.lock*"))


@pytest.mark.parametrize("form", ["json", "jsonl", "short"])
def test_every_form_of_a_refused_restart_says_so(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restart", "--yes", "-o", form]) == 64
    out = capsys.readouterr().out
    assert "refused" in out and len(out.splitlines()) == (1 if form != "json" else len(out.splitlines()))


# --- history ----------------------------------------------------------------------------------------------------------


def test_an_empty_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    assert "Nothing was changed" in capsys.readouterr().out
    assert main(["history", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []


@pytest.fixture
def journaled() -> None:
    journal.append("script-begun", run="s1", act="set", subject="prefill-0", host="h1", path="/srv/a.sh")
    journal.append("script-done", run="s1", act="set", subject="prefill-0", host="h1", path="/srv/a.sh")
    journal.append("restart-begun", run="r1", cluster="prod", plan={}, forced=["decode-alone: decode-0: long"])
    journal.append(
        "step-begun", run="r1", cluster="prod", step="restart:decode-0", attempt=1, command="x\x1b[31m\u202e"
    )
    journal.append("restart-stopped", run="r1", cluster="prod", end="failed", why="no \x1b]0;title\x07 way")


def test_runs_are_shown_newest_first(journaled: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "-o", "json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(r["run"], r["kind"], r["end"]) for r in runs] == [("r1", "restart", "failed"), ("s1", "script", "done")]
    assert runs[0]["forced"] == ["decode-alone: decode-0: long"]
    assert main(["history", "--cluster", "prod", "-o", "short"]) == 0
    assert capsys.readouterr().out == "r1 restart prod failed\n"
    assert main(["history", "-n", "1", "-o", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "r1"


def test_one_run_act_by_act_and_nothing_hostile_raw(journaled: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "r1"]) == 0
    out = capsys.readouterr().out
    assert "step-begun" in out and "overridden: decode-alone" in out
    assert "\x1b" not in out and "\u202e" not in out and "\x07" not in out
    assert main(["history", "r1", "-o", "json"]) == 0
    assert [e["kind"] for e in json.loads(capsys.readouterr().out)["entries"]] == [
        "restart-begun", "step-begun", "restart-stopped"
    ]  # fmt: skip


def test_a_run_there_is_not(journaled: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "r9"]) == 64
    assert "The newest are: r1, s1." in capsys.readouterr().err


def test_a_run_without_an_end_was_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    journal.append("restart-begun", run="r1", cluster="prod", plan={})
    assert main(["history", "-o", "short"]) == 0
    assert capsys.readouterr().out == "r1 restart prod cut off\n"


def test_what_cannot_be_gone_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    journal.append("restart-begun", run="r1", cluster="prod", plan={})
    assert main(["restart", "--resume", "--yes"]) == 64
    assert "cannot be gone on with: its plan in the journal cannot be read" in capsys.readouterr().err
    journal.append("restart-done", run="r1", cluster="prod", proof=[])
    assert main(["restart", "--resume", "--yes"]) == 64
    assert "came to its end" in capsys.readouterr().err
    journal.append("restart-begun", run="r2", cluster="other", plan={})
    assert main(["restart", "--resume", "--run", "r2", "--yes"]) == 64
    assert "is of other, not of prod" in capsys.readouterr().err


def test_torn_lines_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    journal.append("script-done", run="s1")
    with journal.default_path().open("ab") as add:
        add.write(b'{"torn')
    assert main(["history"]) == 0
    assert "1 lines of the journal could not be read" in capsys.readouterr().out
