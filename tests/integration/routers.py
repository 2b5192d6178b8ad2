"""Real routers from the package registry, in environments of their own, in PD mode.

They are looked for in the folder that PDCTL_ROUTERS names (one virtual environment a router: ``sglang-router``,
``smg``), else made below build/routers, which takes a minute once. Where they can't be had the tests skip and say why;
with PDCTL_ROUTERS_REQUIRED set they fail.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pdctl.model.cluster import Cluster, Instance, Role

ROOT = Path(__file__).parents[2]
PACKAGES = {"sglang-router": "sglang-router==0.3.2", "smg": "smg>=1.13,<2"}
START_S = 60.0


def environment(kind: str) -> Path:
    """The virtual environment of a router, made when it is not there."""
    folder = Path(os.environ.get("PDCTL_ROUTERS") or ROOT / "build" / "routers") / kind
    if not (folder / "bin" / "python").exists() or not list(folder.glob("lib/python3*/site-packages/*outer*")) + list(
        folder.glob("lib/python3*/site-packages/smg*")
    ):
        _made(folder, kind)
    return folder


def _made(folder: Path, kind: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    steps = (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", PACKAGES[kind]],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode == 0:
            continue
        why = f"{kind} could not be installed: {done.stderr.strip()[-300:]}"
        if os.environ.get("PDCTL_ROUTERS_REQUIRED"):
            pytest.fail(why)
        pytest.skip(why)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


@dataclass(frozen=True)
class Router:
    """A running router. ``cluster`` is the demo's engines with it in front."""

    url: str
    cluster: Cluster
    log: Path

    def ask(self, text: str, *, stream: bool = False, timeout: float = 30.0) -> int:
        """The status of one completion through it; 0 when the connection broke or the time ran out."""
        body = {"model": "demo-model", "prompt": text, "max_tokens": 8, "temperature": 0, "stream": stream}
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                while answer.read(65536):
                    pass
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def later(self, count: int, timeout: float) -> list[threading.Thread]:
        """Completions under way in threads that end when answered or out of time."""
        made = [
            threading.Thread(target=self.ask, args=(f"later {i}",), kwargs={"timeout": timeout}) for i in range(count)
        ]
        for thread in made:
            thread.start()
        return made


class _Refusing(BaseHTTPRequestHandler):
    """Hands GETs on to an engine and answers every POST with 500."""

    engine = ""

    def do_GET(self) -> None:
        try:
            with urllib.request.urlopen(f"{self.engine}{self.path}", timeout=10.0) as answer:
                self._say(answer.status, answer.read(), answer.headers.get("content-type", "text/plain"))
        except urllib.error.HTTPError as error:
            with error:
                self._say(error.code, error.read(), "text/plain")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._say(500, b"no", "text/plain")

    def _say(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def refusing(engine: Instance) -> Iterator[Instance]:
    """The engine behind a front that refuses every generation: what its numbers say is well, what it does is not."""
    handler = type("Refusing", (_Refusing,), {"engine": engine.url})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield replace(engine, url=f"http://127.0.0.1:{server.server_address[1]}", metrics_url=None)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def real_router(kind: str, engines: Cluster, folder: Path, *flags: str) -> Iterator[Router]:
    """A real router of that kind in front of the engines, until the block ends."""
    home = environment(kind)
    port, metrics = free_ports(2)
    python = str(home / "bin" / "python")
    program = (
        [python, "-m", "sglang_router.launch_router"]
        if kind == "sglang-router"
        else [str(home / "bin" / "smg"), "launch"]
    )
    argv = [*program, "--pd-disaggregation", "--host", "127.0.0.1", "--port", str(port)]
    for engine in engines.prefills:
        argv += ["--prefill", str(engine.url), str(engine.bootstrap_port)]
    for engine in engines.decodes:
        argv += ["--decode", str(engine.url)]
    argv += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics), *flags]
    log = folder / f"{kind}.log"
    with log.open("wb") as out:
        # No tokenizer is looked for on the network: it would be asked of a hub that tests must not reach.
        offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, env=offline)
    try:
        url = f"http://127.0.0.1:{port}"
        instance = Instance("router-0", Role.ROUTER, url, f"http://127.0.0.1:{metrics}/metrics", log=str(log))
        router = Router(url, Cluster("behind-a-real-router", (*engines.engines, instance)), log)
        _wait_ready(router, process)
        yield router
    finally:
        process.kill()
        process.wait()


def _wait_ready(router: Router, process: subprocess.Popen[bytes]) -> None:
    """Until it says that it has workers: a completion would hang where the engines do."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{router.url}/readiness", timeout=5.0) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"the router does not serve: {router.log.read_text('utf-8', 'replace')[-2000:]}")
