"""``pdctl mute`` and ``pdctl compare`` as they are typed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from pdctl.cli import main
from pdctl.model.answer import Why

CAPTURES = Path(__file__).parents[2] / "captures"
PINNED, IDLE = (str(CAPTURES / f"real-{name}.tar.zst") for name in ("pinned-2", "idle"))
TOML = """name = "prod"
[[host]]
name = "gpu-01"
ssh = "gpu-01"
[[instance]]
name = "prefill-0"
role = "prefill"
url = "http://192.0.2.1:1"
host = "gpu-01"
[[instance]]
name = "decode-0"
role = "decode"
url = "http://192.0.2.2:1"
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "pdctl.toml").write_text(TOML)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


# --- mute --------------------------------------------------------------------------------------------------------


MUTE = ("mute", "request-pinned", "--on", "prefill-0", "--for", "2h", "--why", "INC-42")


def test_muting_listing_and_lifting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MUTE, "--who", "ops"]) == 0
    out = said(capsys)
    assert out.startswith("muted: request-pinned on prefill-0 until ") and "not seen in the last hour" in out
    assert main(["mute", "list"]) == 0
    out = said(capsys)
    assert "request-pinned on prefill-0: for 1 h 59 min yet" in out and "by ops: INC-42" in out
    assert main(["mute", "list", "-o", "json"]) == 0
    (row,) = json.loads(said(capsys))["mutes"]
    assert (row["finding"], row["on"], row["who"], row["why"], row["shared"]) == (
        "request-pinned", "prefill-0", "ops", "INC-42", False,
    )  # fmt: skip
    assert main(["mute", "lift", "request-pinned", "--on", "prefill-0"]) == 0
    assert said(capsys) == "lifted: request-pinned on prefill-0\n"
    assert main(["mute"]) == 0
    assert said(capsys) == "Nothing is muted on prod.\n"


def test_what_lifted_itself_is_listed_with_why_until_its_time_is_over(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MUTE, "--who", "ops"]) == 0
    file = place / "state/pdctl/mutes.json"
    value = json.loads(file.read_text())
    (row,) = value["mutes"]
    key = f"request-pinned@prefill-0@{datetime.fromisoformat(row['made']).timestamp():.6f}"
    value["lifted"] = {key: {"why": "it counts 40, and 2 when it was muted", "until": row["until"]}}
    file.write_text(json.dumps(value))
    said(capsys)
    assert main(["mute", "list"]) == 0
    out = " ".join(said(capsys).split())
    assert out.startswith("Nothing is muted on prod.")
    assert "the mute of request-pinned on prefill-0 (by ops) is lifted: it counts 40, and 2 when it was muted" in out
    assert main(["mute", "list", "-o", "json"]) == 0
    told = json.loads(said(capsys))
    assert told["mutes"] == [] and [each["lifted"] for each in told["lifted"]] == [value["lifted"][key]["why"]]


def test_several_instances_pairs_and_hosts_can_be_muted_and_shared(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ons = [word for on in ("prefill-0->decode-0", "host:gpu-01") for word in ("--on", on)]
    assert main(["mute", "half-open", *ons, "--for", "30m", "--why", "x", "--shared", "--sticky"]) == 0
    assert "kept in pdctl.mutes.json, for all who read this inventory" in said(capsys)
    rows = json.loads((place / "pdctl.mutes.json").read_text())["mutes"]
    assert [(row["on"], row["sticky"]) for row in rows] == [("prefill-0->decode-0", True), ("host:gpu-01", True)]


@pytest.mark.parametrize(
    "words, says",
    [
        (["mute", "request-pinned"], "a mute needs --on"),
        (["mute", "request-pinned", "--on", "prefill-0"], "a mute needs --for"),
        (["mute", "request-pinned", "--on", "prefill-0", "--for", "1h"], "a mute needs --why"),
        (["mute", "request-pined", "--on", "prefill-0"], "Did you mean request-pinned?"),
        (["mute", "request-pinned", "--on", "prefill-9", "--for", "1h", "--why", "x"], "no instance 'prefill-9'"),
        (["mute", "half-open", "--on", "prefill-0->x", "--for", "1h", "--why", "x"], "no instance 'x'"),
        (["mute", "--on", "prefill-0"], "which finding is not said"),
        (["mute", "lift", "half-open"], "half-open is not muted"),
        (["mute", "lift"], "not understood"),
        (["mute", "list", "half-open"], "not understood"),
        ([*MUTE[:5], "0", *MUTE[6:]], "no duration"),
    ],
)
def test_what_is_missing_or_wrong_is_said_and_nothing_is_muted(
    words: list[str], says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 64
    assert says in capsys.readouterr().err
    assert not (place / "state/pdctl/mutes.json").exists()


def test_a_recording_is_judged_with_the_mutes_of_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A mute made now does not hold for what was recorded before."""
    assert main(["triage", "--from", PINNED, "-o", "short"]) == 2
    (Path("pdctl.toml")).write_text(TOML.replace('"prod"', '"rig"'))
    assert main(list(MUTE)) == 0
    assert main(["triage", "--from", PINNED, "-o", "short"]) == 2
    assert main(["check", "--from", PINNED, "-o", "short"]) == 2
    capsys.readouterr()


# --- compare -----------------------------------------------------------------------------------------------------


def test_two_captures_differ_and_with_exit_code_that_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", IDLE, PINNED, "-o", "json"]) == 0
    value = json.loads(said(capsys))
    found = {(row["kind"], row["subject"], row["what"]) for row in value["differences"]}
    assert {("finding", "prefill-0", "request-pinned"), ("gauge", "prefill-0", "inflight")} <= found
    assert value["before"]["status"] == "ok" and value["after"]["status"] == "critical"
    assert main(["compare", IDLE, PINNED, "--exit-code"]) == 1
    assert "new: request-pinned at prefill-0 (critical)" in said(capsys)


def test_a_capture_is_like_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", PINNED, PINNED, "--exit-code"]) == 0
    assert "ALIKE" in said(capsys).splitlines()[0]


def test_the_two_halves_of_a_real_load_are_alike(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each gauge's own noise keeps what only fluctuates from being told."""
    from pdctl.reach.capture import open_capture
    from pdctl.reach.capture_write import CaptureWriter

    for number, keep in enumerate((lambda t: t < 36.0, lambda t: t >= 36.0)):
        with (
            open_capture(CAPTURES / "real-load.tar.zst") as capture,
            CaptureWriter(place / f"half-{number}", capture.cluster) as writer,
        ):
            for answer in capture.answers():
                if keep(answer.t) and answer.fact in ("metrics", "loads"):
                    writer.add(answer)
    assert main(["compare", "half-0", "half-1", "-o", "json", "--exit-code"]) == 0
    value = json.loads(said(capsys))
    assert value["differences"] == [] and value["alike"]["gauge"] > 30 and value["alike"]["rate"] > 15


@pytest.mark.parametrize(
    "words, says",
    [
        (["compare", "now", IDLE], "the first of the two is a capture"),
        (["compare", "nowhere", IDLE], "no such capture"),
        (["compare", IDLE, PINNED, "-o", "csv"], "csv"),
        (["compare", IDLE, PINNED, "-o", "short"], "no form of a comparison"),
        (["compare", IDLE, PINNED, "--prefill", "http://192.0.2.1:1"], "no cluster is looked at"),
    ],
)
def test_wrong_usage_is_said(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 64
    assert says in capsys.readouterr().err


def test_where_nothing_can_be_compared_that_is_not_called_alike(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two recordings of engines that never answered: unknown, not equal."""
    from pdctl.reach.capture import open_capture
    from pdctl.reach.capture_write import CaptureWriter

    with open_capture(IDLE) as capture, CaptureWriter(place / "blind", capture.cluster) as writer:
        for answer in capture.answers():
            if answer.fact == "metrics":
                writer.add(replace(answer, status=None, body=None, error=Why.CONNECT_REFUSED))
    assert main(["compare", "blind", "blind", "--exit-code"]) == 3
    assert "CANNOT TELL" in said(capsys).splitlines()[0]


def test_now_that_does_not_answer_differs_from_when_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", IDLE, "now", "--for", "100ms", "--interval", "100ms", "--timeout", "200ms", "--no-hosts"]
    assert main([*words, "-o", "json", "--exit-code"]) == 1
    value = json.loads(said(capsys))
    told = {(row["subject"], row["after"]) for row in value["differences"] if row["kind"] == "instance"}
    assert {("prefill-0", "did not answer"), ("router-0", None)} <= told
    assert not [row for row in value["differences"] if row["kind"] in ("gauge", "rate")]
