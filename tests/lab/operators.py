"""Somebody with a pdctl who restarts the lab's engines, and what the lab's hosts say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from labkit import ROOT, wait_answers
from machines import Lab, Machine

sys.path.append(str(ROOT / "tests" / "integration"))
from small_cluster import end

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


BEGUN: list[subprocess.Popen[str]] = []


class Operator:
    """Somebody with a pdctl, a journal of his own, and the lab's keys."""

    def __init__(self, folder: Path, home: Path, inventory: str = INVENTORY) -> None:
        self.folder = folder
        self.state = folder / "state"
        (folder / "pdctl.toml").write_text(inventory)
        self._environment = {
            "HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "XDG_STATE_HOME": str(self.state),
            "PYTHONPATH": str(ROOT), "COLUMNS": "200",
        }  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "pdctl", "restart", *words], cwd=self.folder, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        BEGUN.append(process)
        return process

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


def write_unit(machine: Machine, name: str, text: str) -> None:
    machine.run("bash", "-c", f"printf '%s' \"$1\" > /run/systemd/system/{name}", "sh", text)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", name)


def restored(engines: Lab) -> Iterator[Lab]:
    """The lab with both engines as their units say, before and after."""
    yield engines
    end(BEGUN)
    BEGUN.clear()
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
