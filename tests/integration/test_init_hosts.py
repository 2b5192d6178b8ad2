"""``pdctl init --host`` on real processes: an engine below a script that redirects its log, and a router that hides its
options and is told by the ports it listens on. Over a real sshd, and here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from loopback_sshd import Sshd, free_port

from pdctl.cli import main

SERVER = """
import http.server, socketserver, sys, threading, json
PAGES = {"/metrics": b"# TYPE smg_http_requests_total counter\\nsmg_http_requests_total 1\\n"}
INFO = {"/server_info": json.dumps({"version": "0.5.19", "disaggregation_mode": "prefill"}).encode()}
def serve(port, pages):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = pages.get(self.path)
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")
        def log_message(self, *_): pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever).start()
if __name__ == "__main__":
    if "--router" in sys.argv:
        serve(int(sys.argv[-2]), {}); serve(int(sys.argv[-1]), PAGES)
    else:
        import yaml
        settings = yaml.safe_load(open(sys.argv[sys.argv.index("--config") + 1]))
        serve(settings["port"], INFO)
        print("ready", flush=True)
"""


@dataclass(frozen=True)
class Running:
    """What runs: the ports of the engine, of the router's requests and of its metrics."""

    folder: Path
    engine: int
    http: int
    metrics: int


def wait_listening(port: int) -> None:
    until = time.monotonic() + 30
    while not any(c.laddr and c.laddr.port == port and c.status == "LISTEN" for c in psutil.net_connections("tcp")):
        assert time.monotonic() < until, port
        time.sleep(0.05)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path, free_port(), free_port(), free_port())
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(SERVER)
    (tmp_path / "engine.yaml").write_text(f"port: {made.engine}\ndisaggregation-mode: prefill\n")
    script = tmp_path / "prefill.sh"
    launch = f"{sys.executable} -m sglang.launch_server --config engine.yaml --api-key sk-verysecret123456"
    script.write_text(f"#!/bin/bash\ncd {tmp_path}\n{launch} >>{tmp_path}/prefill.log 2>&1\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.pathsep.join(sys.path)}"}
    words = [f"exec -a sglang::router {sys.executable} {package}/launch_server.py --router {made.http} {made.metrics}"]
    children = [
        subprocess.Popen(["bash", str(script)], env=environment, start_new_session=True),
        subprocess.Popen(["bash", "-c", *words], env=environment, start_new_session=True),
    ]
    try:
        for port in (made.engine, made.http, made.metrics):
            wait_listening(port)
        yield made
    finally:
        for child in children:
            family = psutil.Process(child.pid).children(recursive=True)
            for process in (*family, child):
                process.kill()
            child.wait()
            psutil.wait_procs(family, 5)


def mine(text: str, running: Running) -> dict[str, dict[str, object]]:
    """The instances of this test by role: other engines may run on this machine."""
    ports = [str(port) for port in (running.engine, running.http, running.metrics)]
    rows = [r for r in tomllib.loads(text)["instance"] if str(r.get("url", "")).rpartition(":")[2] in ports]
    return {str(row["role"]): row for row in rows}


def check(text: str, running: Running, host: str) -> None:
    found = mine(text, running)
    prefill, router = found["prefill"], found["router"]
    assert prefill["url"] == f"http://127.0.0.1:{running.engine}"
    assert (prefill["host"], prefill["script"]) == (host, f"{running.folder}/prefill.sh")
    assert prefill["log"] == f"{running.folder}/prefill.log"
    assert (router["url"], router["metrics"]) == (
        f"http://127.0.0.1:{running.http}",
        f"http://127.0.0.1:{running.metrics}/metrics",
    )
    assert "settings partly from engine.yaml" in text
    assert "SGLang 0.5.19" in text
    assert "it wants an API key" in text
    assert "sk-verysecret" not in text


def test_over_ssh(running: Running, sshd: Sshd, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = elsewhere / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text(sshd.config())
    monkeypatch.setenv("HOME", str(home))
    main(["init", "--host", sshd.spec, "--timeout", "3s"])
    text = (elsewhere / "pdctl.toml").read_text()
    check(text, running, "127.0.0.1")
    assert tomllib.loads(text)["host"] == [{"name": "127.0.0.1", "ssh": sshd.spec}]


def test_here(running: Running, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "--host", "local", "--timeout", "3s", "--write", "-"])
    out, err = capsys.readouterr()
    check(out, running, "local")
    assert "prefill.sh" in err
    assert not (elsewhere / "pdctl.toml").exists()


def test_a_host_that_is_not_reached_is_said_and_unknown(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert main(["init", "--host", "nobody@127.0.0.1:1"]) == 3
    err = capsys.readouterr().err
    assert "127.0.0.1: not looked at: " in err
    assert "nothing was found to write down" in err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("words", [["--host", "a b"], ["--host", "x", "--prefill", "http://127.0.0.1:1"]])
def test_wrong_usage(words: list[str], elsewhere: Path) -> None:
    assert main(["init", *words]) == 64
