"""`pdctl diff` and `pdctl changes` on a recording: forms, exit status, what is asked for wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.cli import main

CAPTURE = str(Path(__file__).parents[2] / "captures" / "serve-script-drift.tar.zst")
HEALTHY = str(Path(__file__).parents[2] / "captures" / "real-idle.tar.zst")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_whole_look_judges_backups_processes_and_roles(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "diff", "--from", CAPTURE, "-o", "json")
    told = json.loads(out)
    assert told["schema"] == "pdctl.report/1" and told["status"] == "critical" and status == 2
    assert {f["name"] for f in told["findings"]} == {"role-mismatch", "script-drift", "live-drift"}
    assert len(told["diffs"]) == 1, "only one of the two scripts has backups"
    assert any(u["subject"] == "prefill-0" and "no backup" in u["why"] for u in told["unchecked"])


def test_one_instance_and_its_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "diff", "decode-0", "--from", CAPTURE, "--at", "yesterday 18:00")
    assert "serve.sh.20261110-2201.bak" in out.split("\n\n")[0] and "32 -> 64" in out
    _, out, _ = run(capsys, "diff", "decode-0", "--from", CAPTURE, "--against", "serve.sh.bak", "--text")
    assert "\n--- serve.sh.bak" in out and "\n+export SGLANG_DISAGGREGATION_WAITING_TIMEOUT=600\n" in out


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("decode-0", "--exit-code"), 1),
        (("decode-0",), 2),
        (("decode-0", "--list"), 0),
        (("decode-0", "--against", "nope"), 64),
        (("decode-0", "--at", "sometime"), 64),
        (("decode-0", "--at", "2020-01-01"), 64),
        (("nobody",), 64),
        (("prefill-0", "decode-0", "prefill-0"), 64),
    ],
)
def test_exit_status(words: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "diff", *words, "--from", CAPTURE)[0] == status


def test_a_recording_without_scripts_is_not_called_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "diff", "--from", HEALTHY)
    assert status == 64 and "holds no serve script" in err


def test_two_files_need_no_inventory(
    elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, tp in (("a.sh", 2), ("b.sh", 4)):
        (elsewhere / name).write_text(f"python3 -m sglang.launch_server --tp {tp}\n")
    status, out, _ = run(capsys, "diff", "a.sh", "b.sh", "-o", "json")
    told = json.loads(out)
    assert told["schema"] == "pdctl.diff/1" and status == 0
    assert [(c["name"], c["before"], c["after"]) for c in told["diffs"][0]["changes"]] == [("--tp-size", "2", "4")]
    assert run(capsys, "diff", "a.sh", "b.sh", "--exit-code")[0] == 1
    assert run(capsys, "diff", "a.sh", "a.sh", "--exit-code")[0] == 0
    assert run(capsys, "diff", "a.sh", "b.sh", "-o", "short")[1] == "differs: 1 differences of meaning\n"


@pytest.mark.parametrize("form", ["human", "json", "jsonl", "short"])
def test_the_time_line_in_every_form(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "changes", "--since", "2026-11-11 12:00", "--from", CAPTURE, "-o", form)
    assert status == 0 and "serve.sh" in out
    if form == "json":
        told = json.loads(out)["changes"]
        assert [e["at"] for e in told["events"]] == [
            "2026-11-11T23:50:00Z", "2026-11-12T02:40:00Z", "2026-11-12T02:40:00Z"
        ]  # fmt: skip
        assert told["suspects"][0]["subject"] == "decode-0"
    if form == "jsonl":
        assert all(json.loads(line) for line in out.splitlines())


def test_a_moment_after_everything(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "changes", "--since", "2026-11-12 03:00", "--from", CAPTURE, "--ascii")
    assert "nothing changed in what was looked at" in out.splitlines()[0]
    assert "scripts unchanged" in out


def test_a_moment_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "changes", "--since", "tomorrow", "--from", CAPTURE)
    assert status == 64 and "Write 10m (ago)" in err
