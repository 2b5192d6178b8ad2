"""A prefill, a decode and a router as processes of this machine, each with a serve script and one that restarts it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAMES = ("prefill-0", "decode-0", "router-0")
_SERVE = """#!/bin/bash
# the serve script of {name}
export NODE_RELEASE=0.5.19
exec {python} -m {module} --port {port} {flags}
"""
_RESTART = """#!/bin/bash
# stops what runs, waits for it to be gone, starts it anew
echo "$(date +%s.%N) {name}" >> {folder}/restarts
if [ -e {folder}/{name}.broken ]; then echo "disk quota exceeded" >&2; exit 4; fi
pid=$(cat {folder}/{name}.pid 2>/dev/null)
[ -n "$pid" ] && kill "$pid" 2>/dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
[ -e {folder}/over ] && exit 0
set -a; . {folder}/settings; set +a
setsid {folder}/{name}.sh > {folder}/{name}.log 2>&1 < /dev/null &
echo $! > {folder}/{name}.pid
"""


@dataclass(frozen=True)
class SmallCluster:
    """``folder`` holds scripts, logs, pids, the inventory (pdctl.toml) and ``restarts``: who was restarted when."""

    folder: Path
    ports: Mapping[str, int]
    begun: list[subprocess.Popen[str]] = field(default_factory=list)

    def pid(self, name: str) -> int | None:
        file = self.folder / f"{name}.pid"
        return int(file.read_text()) if file.exists() else None

    def alive(self, name: str) -> bool:
        pid = self.pid(name)
        return pid is not None and psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE

    def restarted(self) -> list[str]:
        """Every restart there was, in order."""
        file = self.folder / "restarts"
        return [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []

    def settings(self, **more: str) -> None:
        """What the processes started from now on find in their environment."""
        own = {
            "NODE_PORTS": json.dumps(dict(self.ports)), "NODE_EPOCH": str(int(time.time())),
            "PYTHONPATH": f"{HERE / 'nodes'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1", **more,
        }  # fmt: skip
        (self.folder / "settings").write_text("".join(f"{key}='{value}'\n" for key, value in own.items()))

    def start(self, name: str) -> None:
        subprocess.run([self.folder / f"restart-{name}.sh"], check=True, capture_output=True)

    def start_all(self) -> None:
        for name in NAMES:
            self.start(name)
        (self.folder / "restarts").unlink()
        self.wait_up()

    def wait_up(self) -> None:
        for key in ("prefill", "decode", "router"):
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", self.ports[key]), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                raise AssertionError(f"{key} does not listen: {(self.folder / f'{key}-0.log').read_text()[-1500:]}")

    def stop(self) -> None:
        """Ends everything of this cluster, a restart that is still under way too: it may start what was just ended."""
        (self.folder / "over").touch()
        end(self.begun)
        until, quiet = time.monotonic() + 20, 0
        while quiet < 3 and time.monotonic() < until:
            mine = list(self._processes())
            for process in mine:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            quiet = 0 if mine else quiet + 1
            time.sleep(0.05)

    def _processes(self) -> Iterator[psutil.Process]:
        """The members, by their ports, and the scripts that restart them, by their folder."""
        ports = {str(port) for port in self.ports.values()}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                is_member = "--port" in words and words[words.index("--port") + 1] in ports and "-m" in words
                is_script = any(word.startswith(f"{self.folder}/") and word.endswith(".sh") for word in words)
                if (is_member or is_script) and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    def environment(self) -> dict[str, str]:
        """For a pdctl of its own: a home and a folder of locks nobody else uses."""
        state = self.folder / "home"
        state.mkdir(exist_ok=True)
        return {
            "PATH": os.environ["PATH"], "HOME": str(state), "PDCTL_LOCK_DIR": str(self.folder), "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def pdctl(self, *words: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pdctl", *words], cwd=self.folder, env=self.environment(), capture_output=True,
            text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A pdctl that is left to run."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pdctl", *words], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.begun.append(process)
        return process

    def journal(self) -> list[dict[str, object]]:
        file = self.folder / "home" / ".local" / "state" / "pdctl" / "journal.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def end(begun: list[subprocess.Popen[str]]) -> None:
    """Ends what a test that failed has left to run."""
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    socks = [socket.socket() for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@contextmanager
def small_cluster(folder: Path) -> Iterator[SmallCluster]:
    """The cluster, up; everything of it is ended with the block."""
    names = ("prefill", "bootstrap", "decode", "router", "metrics")
    made = SmallCluster(folder, dict(zip(names, free_ports(5), strict=True)))
    inventory = 'name = "small"\n'
    for name in NAMES:
        role = name.split("-")[0]
        is_router = role == "router"
        flags = (
            f"--prometheus-port {made.ports['metrics']}" if is_router else f"--disaggregation-mode {role} --tp-size 1"
        )
        module = "sglang_router.launch_router" if is_router else "sglang.launch_server"
        about = {"name": name, "python": sys.executable, "module": module, "port": made.ports[role], "flags": flags}
        _write(folder, f"{name}.sh", _SERVE.format(**about))
        _write(folder, f"restart-{name}.sh", _RESTART.format(**about, folder=folder))
        metrics = f'metrics = "http://127.0.0.1:{made.ports["metrics"]}/metrics"\n' if is_router else ""
        inventory += (
            f'\n[[instance]]\nname = "{name}"\nrole = "{role}"\nurl = "http://127.0.0.1:{made.ports[role]}"\n{metrics}'
            f'script = "{folder}/{name}.sh"\nlog = "{folder}/{name}.log"\n'
            f'restart_command = ["{folder}/restart-{name}.sh"]\n'
        )
    (folder / "pdctl.toml").write_text(inventory)
    made.settings()
    try:
        made.start_all()
        yield made
    finally:
        made.stop()
