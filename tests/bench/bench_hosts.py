"""What reaching a host costs: the first and the second SSH command beside OpenSSH's own client, and very many sockets
beside ss.

usage: python tests/bench/bench_hosts.py [--small]

The server is a real sshd on loopback. Runs are interleaved.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))
from loopback_sshd import MISSING, Sshd, find_sshd, start_sshd

from pdctl.model.answer import Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Cluster, Host
from pdctl.reach.hosts import Hosts
from pdctl.reach.ssh_config import SshConfig
from pdctl.reach.ssh_link import Links

CROWD = Path(__file__).resolve().parent.parent / "lab" / "fakes" / "crowd.py"
TRUE = CommandAsk("host:h", Fact.FILE, "h", ("true",))


def timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def row(what: str, figure: float, baseline: str, base: float, target: str) -> None:
    print(f"{what:34} {1000 * figure:8.1f} ms  {baseline:28} {1000 * base:8.1f} ms  {figure / base:6.2f}x  {target}")


# --- SSH ---------------------------------------------------------------------------------------------------------


def ssh(server: Sshd, config: Path, *options: str) -> None:
    words = ["ssh", "-F", str(config), *options, "-p", str(server.port), f"{server.user}@127.0.0.1", "true"]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_true(hosts: Hosts) -> None:
    now = time.monotonic()
    answer = hosts.run(TRUE, started=now, deadline=now + 30)
    assert answer.error is None, answer.detail


def bench_ssh(rounds: int) -> None:
    import pdctl.reach.ssh  # imported before the clock runs, as the client's program is loaded before ours

    assert pdctl.reach.ssh
    with tempfile.TemporaryDirectory() as folder:
        # A bash that sshd starts reads ~/.bashrc, unless it is told that it is not the first shell: what this machine's
        # owner has in there would be most of what is measured.
        server = start_sshd(Path(folder) / "sshd", "SetEnv SHLVL=5")
        try:
            _compare(server, Path(folder), rounds)
        finally:
            server.stop()


def _compare(server: Sshd, folder: Path, rounds: int) -> None:
    config, control = folder / "config", f"{folder}/control"
    config.write_text(server.config())
    master = ("-o", f"ControlPath={control}")
    ssh(server, config, *master, "-o", "ControlMaster=yes", "-o", "ControlPersist=120")
    times: dict[str, list[float]] = {name: [] for name in ("cold", "master", "first", "second")}
    for _ in range(rounds):
        times["cold"].append(timed(lambda: ssh(server, config)))
        times["master"].append(timed(lambda: ssh(server, config, *master)))
        cluster = Cluster("bench", (), (Host("h", server.spec),))
        with Hosts(cluster, links=Links(SshConfig(server.config()))) as hosts:
            times["first"].append(timed(lambda: run_true(hosts)))
            times["second"].append(timed(lambda: run_true(hosts)))
    subprocess.run(
        ["ssh", "-F", str(config), *master, "-O", "exit", "127.0.0.1"], check=False, stderr=subprocess.DEVNULL
    )
    middle = {name: statistics.median(each) for name, each in times.items()}
    row("first command over SSH", middle["first"], "ssh, cold", middle["cold"], "<= 0.6x")
    row("second command, same connection", middle["second"], "ssh over a ControlMaster", middle["master"], "<= 1x")


# --- sockets -----------------------------------------------------------------------------------------------------

INSIDE = """
import subprocess, sys, time
def timed(*words):
    begun = time.perf_counter()
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun
python, crowd, count, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
held = subprocess.Popen([python, crowd, "8000", str(count)], stdout=subprocess.PIPE, start_new_session=True)
for _ in range((count - 1) // 4000 + 1):
    held.stdout.readline()
for _ in range(rounds):
    print(timed("ss", "-tan"), timed("ss", "-tanp"),
          timed(python, "-m", "pdctl", "sockets", "--prefill", "http://127.0.0.1:1"), flush=True)
"""


def bench_sockets(count: int, rounds: int) -> None:
    """In a network of its own, which goes with the last process in it; the crowd goes with the namespace's PID 1."""
    words = ["unshare", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", sys.executable, "-c", INSIDE]
    words += [sys.executable, str(CROWD), str(count // 2), str(rounds)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
    lines = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    if not lines:
        print(f"sockets: not measured ({done.stderr.strip()[-200:]})")
        return
    plain, owned, ours = (statistics.median(column) for column in zip(*lines, strict=True))
    row(f"pdctl sockets, {count} of them", ours, "ss -tan", plain, "<= 3x")
    row("  of which its own work", max(0.0, ours - owned), "ss -tanp (with processes)", owned, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="few runs, to see that it works")
    small = parser.parse_args().small
    if find_sshd() is None or shutil.which("ssh") is None:
        print(f"SSH: not measured ({MISSING})")
    else:
        bench_ssh(3 if small else 12)
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ss") is None:
        print("sockets: not measured (needs root, unshare and ss)")
    else:
        bench_sockets(4_000 if small else 50_000, 2 if small else 10)


if __name__ == "__main__":
    main()
