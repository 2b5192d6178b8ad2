"""A simulated cluster served on loopback whose time passes when a test says so, and a clock that passes with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pdctl.demo.core.answers import answer
from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.faults import FAULTS, simulate
from pdctl.demo.scenes import Plan
from pdctl.model.cluster import Cluster
from pdctl.reach import state
from pdctl.reach.clock import SystemClock

ROUTER = 3  # places in the ports of a cluster: prefill, its bootstrap server, decode, router, its metrics


class Shifted(SystemClock):
    """The machine's clocks, ``offset`` seconds on; the time of day is set by ``jump`` seconds besides. Who sleeps on
    it lets that time pass, for the cluster as well."""

    def __init__(self, passes: Callable[[float], None]) -> None:
        self.offset = 0.0
        self.jump = 0.0
        self._passes = passes

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._passes(seconds)

    def now(self) -> float:
        return super().now() + self.offset

    def wall(self) -> datetime:
        return super().wall() + timedelta(seconds=self.offset + self.jump)

    def since_boot(self) -> float:
        return state.since_boot() + self.offset


class Lapse:
    """The cluster. ``requests`` are the paths asked so far; names in ``dead`` answer nothing but a closed connection,
    names in ``hung`` nothing at all."""

    def __init__(self, sim: SimCluster, plan: Plan, cluster: Cluster) -> None:
        self.sim = sim
        self.plan = plan
        self.cluster = cluster
        self.clock = Shifted(self.passes)
        self.requests: list[tuple[str, str]] = []
        self.dead: set[str] = set()
        self.hung: set[str] = set()
        self.release = threading.Event()
        self.lock = threading.Lock()
        self._at = plan.start
        sim.advance_to(plan.start)

    def passes(self, seconds: float) -> None:
        """Time passes, for the cluster and for the clock."""
        with self.lock:
            self._at += seconds
            self.sim.advance_to(self._at)
        self.clock.offset += seconds


def _handler(holder: list[Lapse], name: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            lapse = holder[0]
            with lapse.lock:
                lapse.requests.append((name, self.path))
                reply = answer(lapse.sim, name, self.path)
            if name in lapse.hung or reply.never:
                lapse.release.wait(60)
                self.close_connection = True
                return
            if name in lapse.dead or reply.manner == "refuse":
                self.close_connection = True
                return
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def lapsing(fault: str, *, release: str = "0.5.23", plan: Plan | None = None, seed: int = 0) -> Iterator[Lapse]:
    """The cluster at the moment its plan opens the window."""
    holder: list[Lapse] = []
    names = ("prefill-0", "bootstrap", "decode-0", "router-0", "router-0")
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(holder, name)) for name in names]
    for server in servers:
        server.daemon_threads = True
    threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}) for server in servers]
    try:
        ports = tuple(server.server_port for server in servers)
        spec = ClusterSpec(release=release, seed=seed, ports=ports)
        sim, at = simulate(FAULTS[fault], spec, plan)
        holder.append(Lapse(sim, at, replace(sim.inventory(), name="lapse", source="test")))
        for thread in threads:
            thread.start()
        yield holder[0]
    finally:
        if holder:
            holder[0].release.set()
        for server, thread in zip(servers, threads, strict=True):
            if thread.is_alive():
                server.shutdown()
                thread.join()
            server.server_close()
