"""The process behind a running demo: simulates, serves, and answers its parent on a pipe.

Started as ``python -m pdctl.demo.serve JSON``. Its first line of output says that it is ready; each line of input
("truth") is answered with one line; the end of input ends it, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.faults import FAULTS, prepare, simulate
from pdctl.demo.http import Listener, bound
from pdctl.demo.site import Site


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: the fault, the cluster's size, and the folder its logs go to."""

    fault: str
    release: str
    prefills: int
    decodes: int
    dp: int
    seed: int
    router: str | None
    folder: str


class Logs:
    """The log files of a demo, one an instance."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, TextIO] = {}

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}.log")

    def write(self, name: str, line: str) -> None:
        if name not in self._files:
            self._files[name] = open(self.path(name), "w", encoding="utf-8", buffering=1)  # noqa: PTH123,SIM115
        self._files[name].write(line + "\n")

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def build(order: Order, logs: Logs) -> tuple[SimCluster, Site]:
    """The simulation at the present, and its servers on free ports."""
    fault = FAULTS[order.fault]
    asked = ClusterSpec(
        order.release, order.prefills, order.decodes, order.dp, max(order.dp, 1), seed=order.seed,
        router=order.router, local=True,
    )  # fmt: skip
    spec, plan = prepare(fault, asked)
    sockets = [bound() for _ in range(2 * spec.prefills + spec.decodes + 2 * bool(spec.router))]
    spec = _with_ports(spec, sockets, time.time() - plan.start)
    cluster, _ = simulate(fault, spec, plan, logs.write)
    for engine in cluster.engines:
        Path(logs.path(engine.spec.name)).touch()
    return cluster, _site(cluster, iter(sockets))


def _with_ports(spec: ClusterSpec, sockets: list[socket.socket], epoch: float) -> ClusterSpec:
    return replace(spec, ports=tuple(s.getsockname()[1] for s in sockets), epoch=epoch)


def _site(cluster: SimCluster, sockets: Iterator[socket.socket]) -> Site:
    site = Site(cluster)
    for engine in cluster.engines:
        site.engines.append((engine, Listener(partial(site.engine, engine), next(sockets))))
        if engine.spec.is_prefill:
            site.others.append(Listener(site.bootstrap, next(sockets)))
    if cluster.spec.router:
        site.others.append(Listener(site.router, next(sockets)))
        site.others.append(Listener(site.router_metrics, next(sockets)))
    return site


def ready_line(cluster: SimCluster, logs: Logs) -> str:
    names = [engine.spec.name for engine in cluster.engines]
    if cluster.spec.router:
        names.append(cluster.router.spec.name)
    inventory = cluster.inventory({name: logs.path(name) for name in names})
    return json.dumps({"instances": [asdict(i) for i in inventory.instances], "leads_to": cluster.leads_to})


async def listen(site: Site, stop: asyncio.Event) -> None:
    """Answers the parent until it is gone."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        if line.strip() == b"truth":
            site.now()
            print(json.dumps(asdict(site.cluster.truth())), flush=True)  # noqa: T201  the pipe to the parent
    stop.set()


async def serve(order: Order) -> None:
    logs = Logs(Path(order.folder))
    cluster, site = build(order, logs)
    stop = asyncio.Event()
    await site.open()
    print(ready_line(cluster, logs), flush=True)  # noqa: T201
    running = asyncio.create_task(site.run(stop))
    parent = asyncio.create_task(listen(site, stop))
    try:
        await asyncio.wait([running, parent], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await running
    finally:
        parent.cancel()
        logs.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process by closing its pipe
    asyncio.run(serve(Order(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
