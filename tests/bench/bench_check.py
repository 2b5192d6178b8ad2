"""What a look costs: `pdctl check` of one prefill, one decode and one router on loopback, beside curl and a peer.

usage: python tests/bench/bench_check.py [--small] [--peer COMMAND]

COMMAND is a rival's way to look at the same engines, with {prefill} and {decode} for their URLs; without it the row has
no baseline. Rounds are interleaved and the median of each is taken. The engines are simulated, in a process of their
own; their pages move as those of engines under load do.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pdctl.demo.run import started
from pdctl.model.cluster import Cluster

BASE = "python -c pass"
CURL = "curl of the three pages | grep"
PEER = "peer"
ABOVE_CURL_MS = 250.0
OF_PEER = 0.4
FORMS = ("short", "nagios", "prom", "json")


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one run."""

    cpu: float
    wall: float


def cost_of(command: Sequence[str], env: Mapping[str, str]) -> Cost:
    """User and system time, and wall time, of a command with all its children."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(cpu * 1000, wall * 1000)


def check_of(cluster: Cluster) -> tuple[str, ...]:
    """The command that checks it."""
    prefill, decode, router = cluster.prefills[0], cluster.decodes[0], cluster.routers[0]
    return (
        sys.executable, "-m", "pdctl", "check", "--prefill", str(prefill.url), "--decode", str(decode.url),
        "--router", f"{router.url},{router.metrics_url}",
    )  # fmt: skip


def commands(cluster: Cluster, idle: Cluster, peer: str | None) -> dict[str, Sequence[str]]:
    """What is measured, by name."""
    prefill, decode = cluster.prefills[0], cluster.decodes[0]
    pages = " ".join(shlex.quote(i.metrics or "") for i in (prefill, decode, cluster.routers[0]))
    check = check_of(cluster)
    out: dict[str, Sequence[str]] = {
        BASE: (sys.executable, "-c", "pass"),
        CURL: ("/bin/sh", "-c", f"curl -s {pages} | grep -E 'num_running_reqs|queue_reqs|active'"),
        # A first look at a busy cluster goes on until something was seen to move: that is the cluster's own time.
        "pdctl check, first look, idle cluster": (*check_of(idle), "-o", "short", "--fresh"),
    }
    out |= {f"pdctl check -o {form}, with memory": (*check, "-o", form) for form in FORMS}
    if peer:
        out[PEER] = shlex.split(peer.format(prefill=prefill.url, decode=decode.url))
    return out


def measured(rounds: int, peer: str | None) -> dict[str, Cost]:
    """Medians. A first round, in which code is compiled and a memory made, does not count."""
    with started("load") as demo, started("healthy") as idle, tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "XDG_STATE_HOME": state}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        wanted = commands(demo.cluster, idle.cluster, peer)
        taken: dict[str, list[Cost]] = {name: [] for name in wanted}
        for number in range(rounds + 1):
            for name, command in wanted.items():
                cost = cost_of(command, env)
                if number:
                    taken[name].append(cost)
    return {
        name: Cost(statistics.median(c.cpu for c in costs), statistics.median(c.wall for c in costs))
        for name, costs in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two rounds only, to see that it works")
    parser.add_argument("--peer", metavar="COMMAND", help="a rival's command, with {prefill} and {decode}")
    given = parser.parse_args()
    rounds = 2 if given.small else 15
    found = measured(rounds, given.peer)
    base, curl, peer = found[BASE], found[CURL], found.get(PEER)
    print(
        f"{'what':<38} {'CPU':>9} {'of base':>8} {'of peer':>8} {'wall':>9} {'above curl':>11}   (median of {rounds})"
    )
    for name, cost in found.items():
        of_peer = f"{cost.cpu / peer.cpu:>7.2f}x" if peer else f"{'-':>8}"
        print(
            f"{name:<38} {cost.cpu:>6.0f} ms {cost.cpu / base.cpu:>7.1f}x {of_peer} {cost.wall:>6.0f} ms"
            f" {cost.wall - curl.wall:>8.0f} ms"
        )
    print(f"target: at most {ABOVE_CURL_MS:.0f} ms of wall time above curl, at most {OF_PEER} of the peer's CPU")


if __name__ == "__main__":
    main()
