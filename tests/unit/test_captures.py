"""Every capture comes out right, judged as a user would: ``pdctl triage --from CAPTURE -o json``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import main

FOLDER = Path(__file__).parents[1] / "captures"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "expected.toml").read_text("utf-8"))
EXIT = {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}


def judged(name: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any], str]:
    status = main(["triage", "--from", str(FOLDER / f"{name}.tar.zst"), "-o", "json", *options])
    out = capsys.readouterr()
    return status, json.loads(out.out), out.out + out.err


def test_every_capture_is_expected_and_every_expectation_has_its_capture() -> None:
    assert {p.name.removesuffix(".tar.zst") for p in FOLDER.glob("*.tar.zst")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_capture(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    want = EXPECTED[name]
    status, report, _ = judged(name, capsys)
    found = report["findings"]
    assert report["status"] in want["status"], [f["summary"] for f in found]
    assert status == EXIT[report["status"]]
    for must in want["must"]:
        assert any(fits(f, must) for f in found), (must, [(f["name"], f["subject"]) for f in found])
    assert [f["name"] for f in found if f["name"] in want["must_not"]] == []


def fits(finding: dict[str, Any], must: dict[str, Any]) -> bool:
    """Whether a finding is the one that must be there."""
    rank = finding.get("rank") or {}
    return (
        finding["name"] == must["finding"]
        and must.get("subject", finding["subject"]) == finding["subject"]
        and all(rank.get(key) == value for key, value in must.get("rank", {}).items())
        and must.get("summary_has", "").lower() in finding["summary"].lower()
    )


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_finding_carries_what_a_finding_must(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, report, _ = judged(name, capsys)
    for finding in report["findings"]:
        assert finding["evidence"], finding["name"]
        assert finding["next"], finding["name"]
        assert all(e["saw"] for e in finding["evidence"])
        if finding["confidence"] != "certain":
            assert finding["limits"] or finding["against"], f"{finding['name']} is not certain and does not say why"


def test_no_secret_of_a_capture_is_ever_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, said = judged("serve-script-drift", capsys)
    main(["triage", "--from", str(FOLDER / "serve-script-drift.tar.zst")])
    assert "sk-not-a-real-key" not in said + capsys.readouterr().out


@pytest.mark.parametrize("output", ["human", "json", "jsonl", "short"])
def test_the_exit_status_does_not_depend_on_the_form(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("real-pinned-2", "real-idle", "decode-kv-full", "metrics-disabled"):
        want = EXIT[EXPECTED[name]["status"][0]]
        assert main(["triage", "--from", str(FOLDER / f"{name}.tar.zst"), "-o", output]) == want
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("real-pinned-1-0.5.9", 2),
        ("real-pinned-1-0.5.15", 2),
        ("real-pinned-1-probed-0.5.19", 2),
        ("real-orphans", 2),
        ("real-idle", 0),
        ("real-idle-probed-0.5.15", 0),
        ("real-stale-0.5.9", 0),
        ("real-decode-kv-full", 1),
        ("metrics-timeout", 3),
        ("steady-rotation", 3),  # behind traffic a single stuck request can't be excluded: said, not guessed
    ],
)
def test_pinned_answers_its_one_question(name: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pinned", "--from", str(FOLDER / f"{name}.tar.zst"), "-o", "json"]) == status
    assert json.loads(capsys.readouterr().out)["schema"] == "pdctl.report/1"
