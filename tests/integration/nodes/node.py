"""A member of a small cluster as a process of its own: an engine or a router, by the command line of the real one.

Every process simulates the whole cluster (from NODE_EPOCH on, ports from NODE_PORTS) and answers for itself alone.
NODE_DIES_AFTER, NODE_STARTS_IN and NODE_NEVER_READY (seconds; a name) are what goes wrong with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from functools import partial

from pdctl.demo.core.cluster import ClusterSpec
from pdctl.demo.faults import FAULTS, prepare, simulate
from pdctl.demo.http import Listener, bound
from pdctl.demo.site import Site


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--prometheus-port", type=int)
    parser.add_argument("--disaggregation-mode", default="router")
    known, _ = parser.parse_known_args()
    return known


def build(role: str) -> Site:
    ports = {k: int(v) for k, v in json.loads(os.environ["NODE_PORTS"]).items()}
    order = (ports["prefill"], ports["bootstrap"], ports["decode"], ports["router"], ports["metrics"])
    fault = FAULTS[os.environ.get("NODE_FAULT", "healthy")]
    release = os.environ.get("NODE_RELEASE", "0.5.19")
    spec, plan = prepare(fault, ClusterSpec(release, local=True, ports=order, router="0.3.2"))
    spec = replace(spec, epoch=float(os.environ["NODE_EPOCH"]) - plan.start)
    cluster, _ = simulate(fault, spec, plan, partial(say, role))
    site = Site(cluster)
    for engine in cluster.engines:
        if engine.spec.role.value == role:
            site.engines.append((engine, Listener(partial(site.engine, engine), bound(engine.spec.port))))
    if role == "router":
        site.others.append(Listener(site.router, bound(ports["router"])))
        site.others.append(Listener(site.router_metrics, bound(ports["metrics"])))
    return site


SAYING: list[bool] = []


def say(own: str, name: str, line: str) -> None:
    """What happened before the process was there is not in its log."""
    if SAYING and name.startswith(own):
        print(line, flush=True)


async def serve(role: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    print(f"{role}: loading weights", flush=True)
    await asyncio.sleep(float(os.environ.get("NODE_STARTS_IN", "0.2")))
    if role in os.environ.get("NODE_NEVER_READY", "").split():
        await stop.wait()
        return
    dies = os.environ.get("NODE_DIES_AFTER")
    if dies and role in os.environ.get("NODE_DIES", "").split():
        asyncio.get_running_loop().call_later(float(dies), os._exit, 3)
    site = build(role)
    SAYING.append(True)
    print("The server is fired up and ready to roll!", flush=True)
    await site.open()
    await site.run(stop)


def main() -> None:
    known = read_arguments()
    asyncio.run(serve(known.disaggregation_mode))
    sys.exit(0)
