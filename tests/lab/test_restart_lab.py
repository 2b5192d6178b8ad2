"""``pdctl restart`` over SSH on hosts with a real systemd: units that fail, die, hang; pdctl killed; a power cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import ROOT, wait_answers
from machines import Lab

INVENTORY = """
name = "lab"
[[host]]
name = "h1"
ssh = "h1"
[[host]]
name = "h2"
ssh = "h2"
[[instance]]
name = "prefill-0"
role = "prefill"
url = "http://127.0.0.1:30000"
host = "h1"
unit = "pd-prefill"
[[instance]]
name = "decode-0"
role = "decode"
url = "http://127.0.0.1:30001"
host = "h2"
unit = "pd-decode.service"
"""
UNIT_OF = {"prefill-0": ("h1", "pd-prefill.service", 30000), "decode-0": ("h2", "pd-decode.service", 30001)}


class Operator:
    """Somebody with a pdctl, a journal of his own, and the lab's keys."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        (folder / "pdctl.toml").write_text(INVENTORY)
        self._environment = {
            "HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "XDG_STATE_HOME": str(self.state),
            "PYTHONPATH": str(ROOT), "COLUMNS": "200",
        }  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "pdctl", "restart", *words], cwd=self.folder, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str, status: int = 0, timeout: float = 240) -> str:
        process = self.begin(*words)
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == status, f"{words}: {process.returncode}\n{out}\n{err}"
        return out + err

    def journal(self) -> list[dict[str, object]]:
        file = self.state / "pdctl" / "journal.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def invocation(lab: Lab, name: str) -> str:
    host, unit, _ = UNIT_OF[name]
    return lab[host].run("systemctl", "show", "-P", "InvocationID", unit).strip()


def acts(lab: Lab, name: str) -> list[str]:
    """What the host's syslog has of pdctl's acts on an instance."""
    host, _, _ = UNIT_OF[name]
    lines = lab[host].run("journalctl", "-q", "-t", "pdctl", "-o", "cat").splitlines()
    return [line for line in lines if f"restart {name} " in line]


def drop_in(lab: Lab, name: str, text: str) -> None:
    """Changes a unit from its next start on."""
    host, unit, _ = UNIT_OF[name]
    folder = f"/run/systemd/system/{unit}.d"
    lab[host].run("bash", "-c", f"mkdir -p {folder}; printf '%s\\n' \"$1\" > {folder}/test.conf", "sh", text)
    lab[host].run("systemctl", "daemon-reload")


@pytest.fixture
def hosts(engines: Lab) -> Iterator[Lab]:
    """The lab with both engines as their units say, before and after."""
    yield engines
    for name, (host, unit, port) in UNIT_OF.items():
        machine = engines[host]
        if machine.run("systemctl", "is-system-running", check=False).strip() == "":
            machine.power_on()
        machine.run("rm", "-rf", f"/run/systemd/system/{unit}.d", "/tmp/pdctl.lock")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "reset-failed", unit, check=False)
        machine.run("systemctl", "restart", unit)
        wait_answers(machine, port)
        assert name


@pytest.fixture
def operator(hosts: Lab, tmp_path: Path) -> Operator:
    return Operator(tmp_path, hosts.home)


def test_a_restart_over_ssh(operator: Operator, hosts: Lab) -> None:
    before = {name: invocation(hosts, name) for name in UNIT_OF}
    said = {name: len(acts(hosts, name)) for name in UNIT_OF}
    plan = operator.run("--plan")
    assert "systemctl --no-ask-password --no-block restart -- pd-prefill" in plan
    assert "runs now: pid " in plan and "release 0.5.23" in plan and "active (running)" in plan
    assert {name: invocation(hosts, name) for name in UNIT_OF} == before, "a plan touches nothing"
    out = operator.run("--yes")
    assert "DONE" in out
    assert all(invocation(hosts, name) != before[name] for name in UNIT_OF)
    for name in UNIT_OF:
        (line,) = acts(hosts, name)[said[name] :]
        assert "pdctl restart of lab, run " in line
        assert "/tmp/pdctl.lock" not in hosts[UNIT_OF[name][0]].run("bash", "-c", "ls -d /tmp/pdctl* || true")


def test_killed_anywhere_and_gone_on_with_each_unit_is_restarted_once(operator: Operator, hosts: Lab) -> None:
    said = {name: len(acts(hosts, name)) for name in UNIT_OF}
    killed, words = 0, ["--yes"]
    while True:
        process = operator.begin(*words)
        more = (1, 2, 3, 4, 5, 6, 8)[killed % 7]
        wanted = len(operator.journal()) + more
        while process.poll() is None and len(operator.journal()) < wanted:
            time.sleep(0.005)
        reached = process.poll() is None
        if reached:
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        if not reached:
            break
        killed += 1
        assert killed < 40
        words = ["--resume", "--yes"]
    assert operator.journal()[-1]["kind"] == "restart-done", out + err
    assert killed > 4
    for name in UNIT_OF:
        assert len(acts(hosts, name)) - said[name] == 1, "each once"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("ExecStart=\nExecStart=/bin/false\nRestart=no", "it did not start: failed (failed), result exit-code"),
        ("ExecStart=\nExecStart=/bin/false", "the new process died"),
        ("ExecStart=\nExecStart=/bin/sleep 1000", "still waiting for health (connect-refused"),
        ("ExecStart=\nExecStart=/bin/sleep 20", "the new process died"),
    ],
    ids=["fails-to-start", "fails-again-and-again", "never-ready", "dies-at-20-s"],
)  # fmt: skip
def test_a_unit_that_does_not_come_back_stops_everything_after_it(
    operator: Operator, hosts: Lab, change: str, says: str
) -> None:
    decode = invocation(hosts, "decode-0")
    drop_in(hosts, "prefill-0", f"[Service]\n{change}")
    seconds = "60s" if "sleep 20" in change else "12s"
    out = operator.run("--yes", "--ready-timeout", seconds, status=75)
    assert says in " ".join(out.split()), out
    assert "restart decode-0" in out.partition("Not touched:")[2].partition("How what was touched")[0]
    assert invocation(hosts, "decode-0") == decode, "nothing after a failure"
    state = hosts["h1"].run("systemctl", "show", "-P", "ActiveState", "pd-prefill").strip()
    if state == "failed":
        assert "prefill-0: NOT RUNNING, pd-prefill is failed (failed)" in out
    assert operator.journal()[-1]["kind"] == "restart-stopped"
    hosts["h1"].run("rm", "-rf", "/run/systemd/system/pd-prefill.service.d")
    hosts["h1"].run("systemctl", "daemon-reload")
    hosts["h1"].run("systemctl", "stop", "pd-prefill")
    assert "DONE" in operator.run("--resume", "--yes")
    assert invocation(hosts, "decode-0") != decode


def test_an_engine_that_dies_after_it_was_ready_stops_what_follows(operator: Operator, hosts: Lab) -> None:
    drop_in(hosts, "prefill-0", "[Service]\nRuntimeMaxSec=12\nRestart=no")
    drop_in(hosts, "decode-0", "[Service]\nExecStartPre=/bin/sleep 16")
    out = operator.run("--yes", status=75)
    assert "prefill-0, which was restarted and ready as pid" in " ".join(out.split())
    assert "prefill-0: NOT RUNNING" in out


def test_a_power_cut_of_a_host_during_its_restart(operator: Operator, hosts: Lab) -> None:
    prefills = len(acts(hosts, "prefill-0"))
    drop_in(hosts, "decode-0", "[Service]\nExecStartPre=/bin/sleep 60\nTimeoutStartSec=200")
    process = operator.begin("--yes")
    while not any(e["kind"] == "step-acted" and e.get("instance") == "decode-0" for e in operator.journal()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    hosts["h2"].power_off()
    begun = time.monotonic()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 75, out + err
    assert "could not be seen for" in out and "how it stands is not known" in out
    assert "decode-0: not known:" in out and "prefill-0: restarted and ready" in out
    assert time.monotonic() - begun < 180
    hosts["h2"].power_on()
    wait_answers(hosts["h2"], 30001)
    assert "DONE" in operator.run("--resume", "--yes")
    assert len(acts(hosts, "prefill-0")) - prefills == 1, "what was done is not done again"


def test_a_connection_that_is_cut_loses_nothing(operator: Operator, hosts: Lab) -> None:
    """The cable is out for a while in the middle of a wait: systemd goes on by itself, and pdctl sees it again."""
    drop_in(hosts, "decode-0", "[Service]\nExecStartPre=/bin/sleep 8")
    said = len(acts(hosts, "decode-0"))
    process = operator.begin("--yes")
    while not any(e["kind"] == "step-acted" and e.get("instance") == "decode-0" for e in operator.journal()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    hosts["h2"].unplug()
    time.sleep(6)
    hosts["h2"].plug()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert len(acts(hosts, "decode-0")) - said == 1


def test_two_operators_never_run_at_once(operator: Operator, hosts: Lab, tmp_path: Path) -> None:
    drop_in(hosts, "prefill-0", "[Service]\nExecStartPre=/bin/sleep 10")
    (tmp_path / "other").mkdir()
    other = Operator(tmp_path / "other", hosts.home)
    said = len(acts(hosts, "prefill-0"))
    first = operator.begin("--yes")
    while len(acts(hosts, "prefill-0")) == said:
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    refused = other.run("--yes", status=75)
    assert "other-restart" in refused and "is restarting lab (run " in refused
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, out + err
    assert len(acts(hosts, "prefill-0")) - said == 1
