"""Scripts and changes on real hosts: systemd's own words, a script behind sudo, power cut in the middle of a write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labkit import ROOT, needs_sudo, wait_answers
from machines import Lab

INVENTORY = """
name = "lab"
[[host]]
name = "h1"
ssh = "{user}h1"
{become}
[[host]]
name = "h2"
ssh = "h2"
[[host]]
name = "h3"
ssh = "h3"
[[instance]]
name = "prefill-0"
role = "prefill"
url = "http://127.0.0.1:30000"
host = "h1"
unit = "pd-prefill"
script = "/opt/serve/prefill.sh"
watch = ["/opt/serve"]
[[instance]]
name = "decode-0"
role = "decode"
url = "http://127.0.0.1:30001"
host = "h2"
unit = "pd-decode"
script = "/opt/serve/decode.sh"
[[instance]]
name = "decode-1"
role = "decode"
url = "http://127.0.0.1:30002"
host = "h3"
script = "{power}/serve.sh"
"""
SCRIPT = """\
#!/bin/bash
export NCCL_DEBUG=WARN
exec {python} -m sglang.launch_server --model-path /models/demo --port {port} --tp-size 2 --disaggregation-mode {role}
"""


class Pdctl:
    """Runs the command line in a process of its own, with the lab's home."""

    def __init__(self, folder: Path, home: Path, power: str) -> None:
        self._folder, self._home, self._power = folder, home, power
        self.inventory()

    def inventory(self, user: str = "", become: str = "", *, alone: bool = False) -> None:
        """``alone``: without the decode that has a script and nothing to restart."""
        text = INVENTORY.format(user=user, become=become, power=self._power)
        text = text.rpartition("[[instance]]")[0] if alone else text
        (self._folder / "pdctl.toml").write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {"HOME": str(self._home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
        environment["XDG_STATE_HOME"] = str(self._folder / "state")
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "pdctl", *words], cwd=self._folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, status: int | None = 0) -> str:
        child = self.start(*words)
        out, err = child.communicate(timeout=180)
        assert status is None or child.returncode == status, f"{words}: {child.returncode}\n{out}\n{err}"
        return out

    def json(self, *words: str, status: int | None = 0) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.run(*words, "-o", "json", status=status))
        return told

    def journal(self) -> list[dict[str, Any]]:
        path = self._folder / "state" / "pdctl" / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def power(lab: Lab) -> Iterator[Path]:
    """A folder that is the same on the hosts and here, so that it outlives a host: its disk."""
    folder = Path(tempfile.mkdtemp(prefix=".disk-", dir=ROOT))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pdctl(engines: Lab, tmp_path: Path, power: Path) -> Pdctl:
    for host, role, port in (("h1", "prefill", 30000), ("h2", "decode", 30001)):
        text = SCRIPT.format(python=sys.executable, port=port, role=role)
        machine = engines[host]
        machine.run("mkdir", "-p", "/opt/serve")
        machine.run("sh", "-c", 'printf %s "$1" > "$2"; chmod 750 "$2"', "sh", text, f"/opt/serve/{role}.sh")
        machine.run("touch", "-d", "-2 hours", f"/opt/serve/{role}.sh")
    return Pdctl(tmp_path, engines.home, str(power))


def test_a_unit_that_systemd_restarted_is_on_the_line_in_systemds_own_words(engines: Lab, pdctl: Pdctl) -> None:
    host = engines["h1"]
    before = host.run("systemctl", "show", "-p", "MainPID", "--value", "pd-prefill").strip()
    host.run("kill", "-KILL", before)
    host.wait_for("sh", "-c", f"p=$(systemctl show -p MainPID --value pd-prefill); [ $p != 0 ] && [ $p != {before} ]")
    wait_answers(host, 30000)
    told = pdctl.json("changes", "prefill-0", "--since", "10m", status=None)
    events = told["changes"]["events"]
    said = " | ".join(e["what"] for e in events if e["kind"] == "unit")
    assert "Main process exited, code=killed, status=9/KILL" in said and "Scheduled restart job" in said
    restarted = [e for e in told["changes"]["suspects"] if e["what"].startswith("Started")]
    assert any(e["why"] == "systemd restarted it by itself" for e in restarted)
    assert "unit-flapping" in {f["name"] for f in told["findings"]}


def test_a_restart_by_hand_after_an_edit_brings_it_into_effect(engines: Lab, pdctl: Pdctl) -> None:
    host = engines["h2"]
    time.sleep(2.5)  # a start is known to a second: what is edited at that moment may be in effect
    host.run("cp", "-p", "/opt/serve/decode.sh", "/opt/serve/decode.sh.bak")
    host.run("sed", "-i", "s/WARN/INFO/", "/opt/serve/decode.sh")
    before = pdctl.json("changes", "decode-0", "--since", "30m", status=None)
    (edit,) = [e for e in before["changes"]["events"] if e["kind"] == "script"]
    assert not edit["suspect"] and "no effect yet" in edit["why"] and "NCCL_DEBUG WARN -> INFO" in edit["what"]
    time.sleep(2.5)
    host.run("systemctl", "restart", "pd-decode")
    wait_answers(host, 30001)
    after = pdctl.json("changes", "decode-0", "--since", "30m", status=None)
    first = after["changes"]["suspects"][0]
    assert first["kind"] == "script" and "in effect since" in first["effect"]


def test_the_running_process_against_its_script(engines: Lab, pdctl: Pdctl) -> None:
    engines["h2"].run("sed", "-i", "s/--tp-size 2/--tp-size 4/", "/opt/serve/decode.sh")
    told = pdctl.json("diff", "decode-0", status=None)
    drift = next(f for f in told["findings"] if f["name"] == "live-drift")
    assert "--tp-size 2 -> 4" in drift["summary"]


@needs_sudo
def test_a_script_of_root_edited_through_sudo_keeps_mode_and_owner(engines: Lab, pdctl: Pdctl) -> None:
    pdctl.inventory("ops@", 'become = "sudo"')
    host = engines["h1"]
    told = pdctl.json("script", "set", "prefill-0", "NCCL_DEBUG=INFO", "--yes")
    assert told["changed"] and [s["step"] for s in told["steps"]] == ["backup", "write", "verify"]
    for path in ("/opt/serve/prefill.sh", told["backup"]):
        assert host.run("stat", "-c", "%a %U %G", path).strip() == "750 root root"
    assert "NCCL_DEBUG=INFO" in host.run("cat", "/opt/serve/prefill.sh")
    assert "NCCL_DEBUG=WARN" in host.run("cat", told["backup"])
    pdctl.inventory("plain@")
    assert "cannot be read" in pdctl.start("script", "set", "prefill-0", "A=1", "--yes").communicate()[1]


def test_power_lost_in_the_middle_leaves_the_old_file_or_the_new_one(engines: Lab, pdctl: Pdctl, power: Path) -> None:
    """The host is cut off at ever later moments of the write, until one comes after its end."""
    script = power / "serve.sh"
    old = SCRIPT.format(python="python3", port=30002, role="decode") + "# padding\n" * 20_000
    new = old.replace("NCCL_DEBUG=WARN", "NCCL_DEBUG=INFO")
    outcomes = set()
    for step in range(8):
        script.write_text(old)
        script.chmod(0o754)
        for left in power.glob("*.bak"):
            left.unlink()
        begun = len(pdctl.journal())
        child = pdctl.start("script", "set", "decode-1", "NCCL_DEBUG=INFO", "--yes")
        until = time.monotonic() + 60
        while len(pdctl.journal()) == begun and child.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        cut = threading.Timer(step * 0.025, engines["h3"].power_off)
        cut.start()
        child.communicate(timeout=120)
        cut.join()
        engines["h3"].power_on()
        text = script.read_text()
        assert text in (old, new), f"cut after {step * 25} ms: {len(text)} bytes of neither"
        assert script.stat().st_mode & 0o777 == 0o754
        kept = list(power.glob("serve.sh.2*.bak"))
        assert all(k.read_text() == old for k in kept) and (text == old or kept)
        assert child.returncode in (0, 75)
        assert (child.returncode == 0) <= (text == new)
        outcomes.add((child.returncode, text == new))
        last = pdctl.journal()[-1]
        assert last["kind"] == ("script-done" if child.returncode == 0 else "script-failed")
        if child.returncode == 0:
            break
    assert (75, False) in outcomes, "at least one cut came in the middle"


def test_an_edit_and_the_co_restart_that_brings_it_into_effect(engines: Lab, pdctl: Pdctl) -> None:
    """Both in one command: written, restarted in order, proven, told to syslog on each host and in the history."""
    pdctl.inventory(alone=True)
    hosts = {"h1": "pd-prefill", "h2": "pd-decode"}
    before = {host: engines[host].run("systemctl", "show", "-P", "InvocationID", unit) for host, unit in hosts.items()}
    told = pdctl.json("script", "set", "decode-0", "NCCL_DEBUG=INFO", "--restart", "--yes")
    assert told["changed"] and told["restart"]["status"] == "done" and told["next"] is None
    assert "NCCL_DEBUG=INFO" in engines["h2"].run("cat", "/opt/serve/decode.sh")
    for host, unit in hosts.items():
        assert engines[host].run("systemctl", "show", "-P", "InvocationID", unit) != before[host]
    said = engines["h2"].run("journalctl", "-q", "-t", "pdctl", "-o", "cat")
    assert "write /opt/serve/decode.sh (pdctl script, run " in said and "restart decode-0 (pdctl restart of lab" in said
    back = pdctl.json("script", "restore", "decode-0", told["backup"].rpartition("/")[2], "--restart", "--yes")
    assert back["restart"]["status"] == "done"
    assert "NCCL_DEBUG=WARN" in engines["h2"].run("cat", "/opt/serve/decode.sh")
    runs = json.loads(pdctl.run("history", "--cluster", "lab", "-o", "json"))["runs"]
    assert [(run["kind"], run["end"]) for run in runs] == [("restart", "done"), ("script", "done")] * 2
