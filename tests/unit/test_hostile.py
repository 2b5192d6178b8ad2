"""Whatever stands in a recording, no command sends it to a terminal raw, and no form of output is broken by it.

Recorded incidents with hostile text put into every place where free text stands."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pdctl.cli import main
from pdctl.reach.capture import open_capture
from pdctl.reach.capture_write import CaptureWriter

CAPTURES = Path(__file__).parents[1] / "captures"
# A colour, the clipboard (OSC 52), bidirectional overrides, C1, line and paragraph separators, zero width, DEL, BEL.
RAW = "\x1b[31m\x1b]52;c;aGk=\x07\u202e\u2066\u009b31m\x85\u2028\u2029\u200b\ufeff\x7f\x08"
SECRET = "s3cr3t-0123456789"
TEXT = f"PWN{RAW} \"'<>&|` https://u:{SECRET}@h/?token={SECRET} Authorization: Bearer {SECRET} --api-key {SECRET}"
IN_FORM = {"version", "started", "kind", "to", "via", "connection", "at", "error", "status", "worker_type", "url",
           "path", "disaggregation_mode", "exe"}  # fmt: skip
JSON_FACTS = {"loads", "server-info", "workers", "processes", "git", "probe"}
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202e\u2066\ufeff]")


def spoilt(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: spoilt(inner, name) for name, inner in value.items()} | {f"x{RAW}": TEXT}
    if isinstance(value, list):
        return [spoilt(inner, key) for inner in value]
    return value + TEXT if isinstance(value, str) and key not in IN_FORM else value


def spoilt_body(fact: str, body: bytes) -> bytes:
    if fact in JSON_FACTS:
        return json.dumps(spoilt(json.loads(body)), ensure_ascii=False).encode()
    text = body.decode("utf-8", "surrogateescape")
    if fact == "metrics":
        return text.replace('model_name="', f'model_name="{RAW}').encode("utf-8", "surrogateescape")
    between = "\0" if "\0" in text else "\n"
    lines = text.split(between)
    lines = [f"{line} {TEXT}" if number % 3 == 0 and line.strip() else line for number, line in enumerate(lines)]
    return between.join([*lines, f"EVIL={TEXT}"]).encode("utf-8", "surrogateescape") + b"\xff\xfe"


@pytest.fixture(scope="module", params=["serve-script-drift", "router-holds", "one-rank-diverged"])
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("hostile") / "capture"
    with open_capture(CAPTURES / f"{request.param}.tar.zst") as capture, CaptureWriter(path, capture.cluster) as writer:
        for answer in capture.answers():
            body = spoilt_body(answer.fact.value, answer.body) if answer.body else answer.body
            more = {key: f"{value}{RAW}" if key in ("title", "path") else value for key, value in answer.more.items()}
            writer.add(replace(answer, body=body, ask=answer.ask + TEXT, more=more))
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    got = capsys.readouterr()
    return status, got.out, got.err


PLAIN = ["triage", "pinned", "check -v", "sample", "ps", "sockets", "stacks", "stacks --raw", "stacks --folded", "logs",
         "logs --failures", "changes", "diff", "diff --text", "probe", "sample -o csv"]  # fmt: skip


@pytest.mark.parametrize("command", [*PLAIN, *(f"{c} -o short" for c in ("triage", "check", "changes", "diff", "ps"))])
def test_nothing_raw_and_no_secret_reaches_a_terminal(
    capsys: pytest.CaptureFixture[str], hostile: str, command: str
) -> None:
    status, out, err = said(capsys, *command.split(), "--from", hostile)
    assert status in (0, 1, 2, 3, 64), err
    assert not HIDDEN.search(out + err)
    assert SECRET not in out + err


@pytest.mark.parametrize("command", ["triage", "ps", "sockets", "stacks", "logs", "changes", "diff", "check"])
def test_json_stays_one_document_without_secrets(
    capsys: pytest.CaptureFixture[str], hostile: str, command: str
) -> None:
    status, out, _ = said(capsys, command, "--from", hostile, "-o", "json")
    if status != 64:
        json.loads(out)
    assert out.isascii() and SECRET not in out


def test_machines_forms_stay_whole(capsys: pytest.CaptureFixture[str], hostile: str) -> None:
    _, nagios, _ = said(capsys, "check", "--from", hostile, "-o", "nagios")
    assert nagios.splitlines()[0].count("|") == 1
    _, prom, _ = said(capsys, "check", "--from", hostile, "-o", "prom")
    assert not HIDDEN.search(prom) and all(line.startswith(("#", "pdctl_")) for line in prom.splitlines())
    _, junit, _ = said(capsys, "check", "--from", hostile, "-o", "junit")
    ElementTree.fromstring(junit)
    assert SECRET not in nagios + prom + junit
