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
import socket
import sys
from dataclasses import replace
from functools import partial

from pdctl.demo import generate
from pdctl.demo.core.cluster import ClusterSpec
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.leg import Leg
from pdctl.demo.faults import FAULTS, prepare, simulate
from pdctl.demo.http import Answer, Listener, Request
from pdctl.demo.site import Site


class Half(Site):
    """A site that serves one half of each pair and sees to the other half itself, because its peer is another process:
    a real router in front of both gets its answers."""

    async def _generate(self, engine: SimEngine, request: Request, wanted: generate.Wanted) -> Answer:
        if wanted.room is not None and wanted.host != generate.FAKE_HOST:
            other = next(e for e in self.cluster.engines if e.spec.is_prefill != engine.spec.is_prefill)
            leg = Leg(
                f"{self.rng.getrandbits(128):032x}", wanted.room, wanted.prompt, wanted.max_new,
                born=self.cluster.tl.now, stream=False, fake=False, endpoint=request.path,
            )  # fmt: skip
            leg.done = lambda status, text: None
            other.submit(leg, None)
        return await super()._generate(engine, request, wanted)


def listening(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((os.environ.get("NODE_HOST", "127.0.0.1"), port))
    return made


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
    site = Half(cluster)
    for engine in cluster.engines:
        if engine.spec.role.value == role:
            site.engines.append((engine, Listener(partial(site.engine, engine), listening(engine.spec.port))))
    if role == "router":
        site.others.append(Listener(site.router, listening(ports["router"])))
        site.others.append(Listener(site.router_metrics, listening(ports["metrics"])))
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
