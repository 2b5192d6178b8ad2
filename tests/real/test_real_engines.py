"""Real engines, real KV transfer, a real router: what the tool says beside what is true.

PDCTL_REAL_RIG names a control script with the calls ``status``, ``hang on|off``, ``stop|cont decode``, ``orphan N S``,
``load COUNT CONCURRENCY TOKENS NEW``, ``storm N``; the cluster is up when the tests begin (prefill :30100, decode
:30200, router :30300, its metrics :30301, each plus RIG_PORT_OFFSET).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import main

RIG = os.environ.get("PDCTL_REAL_RIG", "")
pytestmark = [pytest.mark.real, pytest.mark.skipif(not RIG, reason="PDCTL_REAL_RIG names no control script")]
OFFSET = int(os.environ.get("RIG_PORT_OFFSET", "0"))


def rig(*words: str, timeout: float = 120.0) -> None:
    subprocess.run([RIG, *words], check=True, capture_output=True, timeout=timeout, cwd=Path(RIG).parent)


@contextmanager
def meanwhile(*words: str) -> Iterator[None]:
    """A call of the rig that goes on during the block and has ended after it."""
    with subprocess.Popen(
        [RIG, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path(RIG).parent
    ) as p:
        try:
            yield
        finally:
            p.wait(timeout=180)


@contextmanager
def fault(begin: tuple[str, ...], end: tuple[str, ...]) -> Iterator[None]:
    rig(*begin)
    try:
        yield
    finally:
        rig(*end)


def judged(capsys: pytest.CaptureFixture[str], command: str = "triage", *options: str) -> dict[str, Any]:
    """The report on the rig, through the command line."""
    url = "http://127.0.0.1:{}"
    argv = [command, "--prefill", url.format(30100 + OFFSET), "--decode", url.format(30200 + OFFSET)]
    argv += ["--router", f"{url.format(30300 + OFFSET)},{url.format(30301 + OFFSET)}/metrics"]
    main([*argv, "--no-record", "-o", "json", *options])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def told(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(f["name"], f["subject"], f["confidence"]) for f in report["findings"]]


def test_idle(capsys: pytest.CaptureFixture[str]) -> None:
    report = judged(capsys)
    assert (report["status"], told(report)) == ("ok", [])


def test_load(capsys: pytest.CaptureFixture[str]) -> None:
    with meanwhile("load", "200", "4", "400", "60"):
        time.sleep(2)
        report = judged(capsys, "triage", "--for", "15s")
    assert (report["status"], told(report)) == ("ok", [])


def test_two_requests_hang_in_the_transfer_call(capsys: pytest.CaptureFixture[str]) -> None:
    with fault(("hang", "on"), ("hang", "off")), subprocess.Popen([RIG, "load", "2", "2", "400", "20"]) as client:
        time.sleep(4)
        report = judged(capsys, "pinned")
        rig("hang", "off")
        client.wait(timeout=120)
    assert ("request-pinned", "prefill-0", "certain") in told(report)
    assert report["findings"][0]["summary"].startswith("2 request(s)")


def test_two_requests_reached_the_prefill_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with meanwhile("orphan", "2", "30"):
        time.sleep(3)
        report = judged(capsys)
    assert ("request-pinned", "prefill-0", "certain") in told(report)


def test_the_decodes_scheduler_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    with meanwhile("load", "8", "8", "400", "400"):
        time.sleep(2)
        with fault(("stop", "decode"), ("cont", "decode")):
            report = judged(capsys)
    assert ("scheduler-stopped", "decode-0", "certain") in told(report)
    assert "request-pinned" not in [name for name, _, _ in told(report)]


def test_a_storm_of_aborts_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with meanwhile("storm", "200"):
        report = judged(capsys, "triage", "--for", "20s")
    assert not {f["name"] for f in report["findings"]} & {"request-pinned", "transfer-stuck", "transfer-pair-broken"}
