"""An engine of the demo, as a unit of a lab host runs it: one main process that serves HTTP, one child a rank.

    python -m sglang.launch_server --port 30000 --disaggregation-mode prefill [--tp-size 2] [...]

Every engine simulates the whole cluster from the same moment on (LAB_EPOCH) and answers for itself alone, on 127.0.0.1
as engines often do. LAB_FAULT is the demo's fault, LAB_STUCK a scheduler rank that waits elsewhere than its siblings.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from dataclasses import replace
from functools import partial

from pdctl.demo.core.cluster import ClusterSpec
from pdctl.demo.faults import FAULTS, prepare, simulate
from pdctl.demo.http import Listener, bound
from pdctl.demo.site import Site
from sglang.scheduler import spawn

PORTS = {"prefill": 30000, "decode": 30001}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--disaggregation-mode", default="prefill", choices=PORTS)
    parser.add_argument("--disaggregation-bootstrap-port", type=int, default=8998)
    parser.add_argument("--tp-size", "--tp", type=int, default=1)
    known, _ = parser.parse_known_args()
    return known


def start_children(tp_size: int) -> None:
    stuck = os.environ.get("LAB_STUCK")
    for rank in range(tp_size):
        suffix = f"_TP{rank}" if tp_size > 1 else ""
        spawn(f"sglang::scheduler{suffix}", stuck == str(rank))
    spawn("sglang::detokenizer", False)


def build(role: str, port: int) -> Site:
    fault = FAULTS[os.environ.get("LAB_FAULT", "healthy")]
    ports = (port if role == "prefill" else 1, 8998, port if role == "decode" else 2, 30100, 30101)
    spec, plan = prepare(fault, ClusterSpec(os.environ.get("LAB_RELEASE", "0.5.23"), local=True, ports=ports))
    epoch = float(os.environ["LAB_EPOCH"]) - plan.start
    spec = replace(spec, epoch=epoch)
    cluster, _ = simulate(fault, spec, plan, partial(say, f"{role}-0"))
    site = Site(cluster)
    for engine in cluster.engines:
        if engine.spec.is_prefill == (role == "prefill"):
            site.engines.append((engine, Listener(partial(site.engine, engine), bound(port))))
    if role == "prefill":
        site.others.append(Listener(site.bootstrap, bound(8998)))
    return site


def say(own: str, name: str, line: str) -> None:
    if name == own:
        print(line, flush=True)


async def serve(site: Site) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await site.run(stop)


def main() -> None:
    known = read_arguments()
    start_children(known.tp_size)
    asyncio.run(serve(build(known.disaggregation_mode, known.port)))
    sys.exit(0)


if __name__ == "__main__":
    main()
