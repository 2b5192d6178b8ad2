"""``pdctl playbook`` on the command line: list, show, check, and run on recordings."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pdctl
from pdctl.cli import main
from pdctl.plans.playbook import read_playbook
from pdctl.runbook.shelf import own
from pdctl.runbook.transcript import read_events

CAPTURES = Path(__file__).parents[2] / "captures"
MINE = """\
about: Is a request stuck?
given:
  what: {ask: "What text?", default: failed}
steps:
  - step: look
    run: [pinned]
    next:
      - {found: request-pinned, go: lines}
      - {go: calm}
  - step: lines
    run: [explain, request-pinned]
  - step: text
    run: [logs, --grep, "{what}"]
    optional: true
  - step: mute
    run: [probe, --load]
    next: [{not_run: true, go: left}]
  - step: calm
    end: ok
  - step: left
    end: as-found
"""


@pytest.fixture
def mine(elsewhere: Path) -> Path:
    path = elsewhere / "mine.yaml"
    path.write_text(MINE, "utf-8")
    return path


Runs = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Runs:
    def run(*words: str) -> tuple[int, str, str]:
        status = main(["playbook", *words])
        out = capsys.readouterr()
        return status, out.out, out.err

    return run


def test_list_names_them_with_what_they_answer(cli: Runs) -> None:
    status, out, _ = cli("list")
    assert status == 0 and "harness-hang" in out and "Clients hang while the engines are idle" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "gate-a-fix" in cli("list", "-o", "short")[1].split()
    rows = json.loads(cli("list", "-o", "json")[1])["playbooks"]
    assert {"name", "about", "source", "own"} == set(rows[0])


def test_list_says_of_a_broken_one_that_it_cannot_be_used(cli: Runs) -> None:
    own().mkdir(parents=True)
    (own() / "broken.yaml").write_text("steps: 1\n")
    _, out, _ = cli("list")
    assert "broken" in out and "cannot be used" in out


def test_show_tells_steps_ways_and_what_takes_consent(cli: Runs, mine: Path) -> None:
    status, out, _ = cli("show", str(mine))
    assert status == 0
    assert "if request-pinned found -> lines" in out and "asks a person each time" in out
    value = json.loads(cli("show", str(mine), "-o", "json")[1])
    assert [step["name"] for step in value["steps"] if step["consent"]] == ["mute"]


def test_check_says_everything_wrong_and_ends_64(cli: Runs, elsewhere: Path) -> None:
    bad = elsewhere / "bad.yaml"
    bad.write_text(
        "about: x\nsteps:\n  - step: a\n    run: [triage, --fro, 20s]\n  - step: b\n    run: [ps, --for, soon]\n"
    )
    status, out, _ = cli("check", str(bad))
    assert status == 64
    said = " ".join(out.split())
    assert f"{bad}:3: run: step a: No such option: --fro" in said and "pdctl triage --help" in said
    assert f"{bad}:5: run: step b:" in said and "no duration" in said
    value = json.loads(cli("check", str(bad), "-o", "json")[1])
    assert [p["line"] for p in value["files"][0]["problems"]] == [3, 5]


def test_check_of_a_good_one_ends_0(cli: Runs, mine: Path) -> None:
    assert cli("check", str(mine))[0] == 0


def test_a_bad_file_is_not_run(cli: Runs, elsewhere: Path) -> None:
    (elsewhere / "bad.yaml").write_text("about: x\nsteps:\n  - step: a\n    run: [sh, -c, id]\n")
    status, out, err = cli("run", "bad.yaml", "--demo", "healthy")
    assert (status, out) == (64, "")
    assert 'bad.yaml:4: run: "sh" is no command a playbook can run' in err


def test_a_recording_is_rehearsed_and_leaves_a_transcript(cli: Runs, mine: Path, tmp_path: Path) -> None:
    capture = str(CAPTURES / "pinned-inflight.tar.zst")
    at = tmp_path / "t"
    status, out, err = cli("run", str(mine), "--from", capture, "--yes-read-only", "--transcript", str(at), "--brief")
    assert status == 2, err
    assert "rehearsed on the recording" in " ".join(out.split()) and "request-pinned, certain, prefill-0" in out
    events = read_events(tmp_path / "t.jsonl")
    steps = [event for event in events if event["event"] == "step"]
    assert [step["step"] for step in steps] == ["look", "lines", "text", "mute", "left"]
    assert steps[0]["findings"][0]["name"] == "request-pinned" and steps[0]["took"] > 0
    assert "needs a live cluster" in steps[3]["not_run"] or "rehearsal" in steps[3]["not_run"]
    assert "CRITICAL" in (tmp_path / "t.txt").read_text() or "YES" in (tmp_path / "t.txt").read_text()
    assert str(tmp_path / "t.jsonl") in err


def test_json_is_one_document_and_jsonl_the_events(cli: Runs, mine: Path, tmp_path: Path) -> None:
    words = ("run", str(mine), "--from", str(CAPTURES / "real-idle.tar.zst"), "--yes-read-only")
    status, out, _ = cli(*words, "-o", "json", "--transcript", str(tmp_path / "a"))
    value: dict[str, Any] = json.loads(out)
    assert (status, value["status"], value["stopped"]) == (0, "ok", False)
    assert [step["step"] for step in value["steps"]] == ["look", "calm"]
    _, out, _ = cli(*words, "-o", "jsonl", "--transcript", str(tmp_path / "b"))
    assert [json.loads(line) for line in out.splitlines()] == read_events(tmp_path / "b.jsonl")


def test_a_value_is_set_or_usual_and_never_an_option(cli: Runs, mine: Path, tmp_path: Path) -> None:
    words = ("run", str(mine), "--from", str(CAPTURES / "real-idle.tar.zst"), "--yes-read-only")
    cli(*words, "--set", "what=x y", "--transcript", str(tmp_path / "a"))
    assert read_events(tmp_path / "a.jsonl")[0]["given"] == {"what": "x y"}
    assert cli(*words, "--set", "what=--yes")[0] == 64
    assert "asks for no such value" in cli(*words, "--set", "that=x")[2]


def test_a_run_goes_on_where_it_stopped(cli: Runs, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere / "state"))
    book = elsewhere / "two.yaml"
    book.write_text(
        "about: x\nsteps:\n  - step: look\n    run: [pinned]\n  - step: q\n    ask: Well?\n    answers: {y: done}\n"
        "    unattended: y\n  - step: done\n    end: as-found\n"
    )
    capture = str(CAPTURES / "pinned-inflight.tar.zst")
    status, _, err = cli("run", str(book), "--from", capture)
    assert status == 2, "in a pipe it stops at a question"
    (again,) = re.findall(r"^go on with: pdctl playbook (.*)$", err, re.M)
    assert shlex.split(again)[:3] == ["run", str(book), "--resume"], "by its file, which no name finds"
    other = str(CAPTURES / "real-idle.tar.zst")
    status, _, err = cli("run", str(book), "--resume", "--yes-read-only", "--from", other)
    assert status == 64 and "that run looks at the recording" in err, "what was found there decides nothing here"
    status, out, _ = cli("run", str(book), "--resume", "--yes-read-only", "--from", capture)
    assert "; begun at" in out
    assert status == 2 and "resumed at" in out and "[1/3]" not in out, "the first step is not done again"
    status, _, err = cli("run", str(book), "--resume")
    assert status == 64 and "no run of two is left" in err
    (path,) = (elsewhere / "state" / "pdctl" / "playbooks").glob("two-*.jsonl")
    book.write_text(book.read_text() + "# changed\n")
    status, _, err = cli("run", str(book), "--resume", "--transcript", str(path))
    assert status == 64 and "has changed since" in err


def test_a_secret_is_given_again_to_go_on(cli: Runs, elsewhere: Path) -> None:
    """The transcript holds it masked, and a masked one reaches nothing."""
    book = elsewhere / "two.yaml"
    book.write_text(
        "about: x\ngiven: {token: {ask: q, default: none}}\nsteps:\n  - step: q\n    ask: Well?\n"
        "    answers: {y: r}\n  - step: r\n    run: [explain, request-pinned]\n"
        "  - step: s\n    run: [logs, --grep, '{token}']\n    optional: true\n"
    )
    words = ("run", str(book), "--prefill", "http://127.0.0.1:9", "--transcript", str(elsewhere / "t"))
    assert cli(*words, "--set", "token=hunter2hunter2")[0] == 3
    assert "hunter2" not in (elsewhere / "t.jsonl").read_text() + (elsewhere / "t.txt").read_text()
    status, _, err = cli(*words, "--resume")
    assert status == 64 and "token holds a secret" in err
    status, _, err = cli(*words, "--resume", "--set", "token=hunter2hunter2")
    assert status == 3 and "go on with" in err, "it stands at its question again"


def test_commands_to_go_on_with_name_what_the_run_looked_at(cli: Runs, elsewhere: Path) -> None:
    book = elsewhere / "say.yaml"
    book.write_text("about: x\nsteps:\n  - step: a\n    say: |\n      Then:\n      - pdctl triage; pdctl history\n")
    capture = CAPTURES / "real-idle.tar.zst"
    _, out, _ = cli("run", str(book), "--from", str(capture))
    flat = " ".join(out.replace("\\\n", " ").split())
    assert f"- pdctl triage --from {capture}; pdctl history" in flat


def test_the_co_restart_rehearsed_on_a_recording_comes_to_an_end(cli: Runs, elsewhere: Path) -> None:
    words = ("run", "co-restart", "--from", str(CAPTURES / "real-idle.tar.zst"), "--yes-read-only", "-o", "json")
    status, out, _ = cli(*words)
    value = json.loads(out)
    assert (status, value["stopped"], value["steps"][-1]["step"]) == (3, False, "no-plan")


def test_without_a_standard_input_nobody_is_asked(mine: Path, elsewhere: Path) -> None:
    words = f'"{sys.executable}" -m pdctl playbook run "{mine}" --from "{CAPTURES / "real-idle.tar.zst"}" <&-'
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_two_targets_are_one_too_many(cli: Runs, mine: Path) -> None:
    assert cli("run", str(mine), "--demo", "healthy", "--from", "x")[0] == 64
    assert cli("run", str(mine))[0] == 64, "no cluster to look at"


def test_no_subcommand_is_wrong_usage(cli: Runs) -> None:
    assert cli()[0] == 64


def test_a_pipe_that_closes_does_not_stop_a_run(mine: Path, tmp_path: Path) -> None:
    """Whoever pages through the output and leaves must not cut the transcript."""
    capture, at = str(CAPTURES / "pinned-inflight.tar.zst"), str(tmp_path / "t")
    own_words = ["playbook", "run", str(mine), "--from", capture, "--yes-read-only", "--transcript", at]
    words = [sys.executable, "-m", "pdctl", *own_words]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False, timeout=120)
    finally:
        os.close(write)
    assert done.returncode == 2, done.stderr
    assert read_events(tmp_path / "t.jsonl")[-1]["event"] == "end"


def test_the_playbook_in_the_readme_is_one() -> None:
    """Its restart may be a command that this pdctl does not have yet; the language is what is shown."""
    text = (Path(pdctl.__file__).parents[1] / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    assert [step.name for step in read_playbook(shown, "shown", "README.md").steps][-1] == "restart"


def test_a_state_folder_that_cannot_be_written_does_not_stop_a_run(
    cli: Runs, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    words = ("run", str(mine), "--from", str(CAPTURES / "real-idle.tar.zst"), "--yes-read-only")
    status, _, err = cli(*words)
    assert status == 0 and "no whole transcript" in err
    status, _, err = cli(*words, "--transcript", "/dev/null/t")
    assert status == 70 and "cannot be written" in err, "one that was asked for must be there"
