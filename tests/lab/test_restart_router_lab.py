"""``pdctl restart`` over SSH with real routers in front: the whole co-restart, and one that holds a request."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import ROOT, wait_answers
from machines import Lab
from operators import Operator, restored, write_unit
from routers import environment


@pytest.fixture
def hosts(engines: Lab) -> Iterator[Lab]:
    yield from restored(engines)


ROUTED = """
name = "lab"
[[host]]
name = "h1"
ssh = "h1"
[[host]]
name = "h2"
ssh = "h2"
[[host]]
name = "h3"
ssh = "h3"
[[instance]]
name = "prefill-0"
role = "prefill"
url = "http://{h1}:31000"
host = "h1"
unit = "half-prefill.service"
[[instance]]
name = "decode-0"
role = "decode"
url = "http://{h2}:31001"
host = "h2"
unit = "half-decode.service"
[[instance]]
name = "router-0"
role = "router"
url = "http://127.0.0.1:31080"
metrics = "http://127.0.0.1:31029/metrics"
host = "h3"
unit = "half-router.service"
"""
HALF = """[Service]
Environment=PYTHONPATH={nodes}:{root} PYTHONDONTWRITEBYTECODE=1 NODE_HOST=0.0.0.0 NODE_EPOCH={epoch} NODE_STARTS_IN=1
Environment='NODE_PORTS={{"prefill": 31000, "bootstrap": 8999, "decode": 31001, "router": 31090, "metrics": 31091}}'
ExecStart={python} -m sglang.launch_server --port {port} --disaggregation-mode {role}
"""
REAL = """[Service]
ExecStart={program} --pd-disaggregation --prefill http://{h1}:31000 8999 \
  --decode http://{h2}:31001 --host 127.0.0.1 --port 31080 --prometheus-port 31029 --prometheus-host 127.0.0.1 \
  --shutdown-grace-period-secs {grace}
Environment=HF_HUB_OFFLINE=1 HTTPS_PROXY=http://127.0.0.1:9 NO_PROXY=127.0.0.1,{h1},{h2}
TimeoutStopSec={stop}
"""
BODY = '{"model": "demo-model", "prompt": "x", "max_tokens": %d, "stream": %s}'
CURL = ("curl", "-sfN", "-X", "POST", "-H", "Content-Type: application/json", "http://127.0.0.1:31080/v1/completions")
ASKED = (*CURL, "-d", BODY % (4, "false"))
GRACE = int(os.environ.get("PDCTL_LAB_GRACE", "20"))  # seconds; the router's own default is 180


def program(kind: str) -> str:
    """What starts a router in an environment of its own."""
    tools = environment(kind) / "bin"
    return f"{tools}/python -m sglang_router.launch_router" if kind == "sglang-router" else f"{tools}/smg launch"


@pytest.fixture
def routed(hosts: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Both halves of a pair, and a real router in front of them, as units."""
    kind = getattr(request, "param", "sglang-router")
    nodes = ROOT / "tests" / "integration" / "nodes"
    for host, role, port in (("h1", "prefill", 31000), ("h2", "decode", 31001)):
        text = HALF.format(nodes=nodes, root=ROOT, epoch=int(time.time()), python=sys.executable, port=port, role=role)
        write_unit(hosts[host], f"half-{role}.service", text)
    for host, port in (("h1", 31000), ("h2", 31001)):
        wait_answers(hosts[host], port)
    real = REAL.format(
        program=program(kind), h1=hosts["h1"].address, h2=hosts["h2"].address, grace=GRACE, stop=GRACE + 30
    )  # fmt: skip
    write_unit(hosts["h3"], "half-router.service", real)
    hosts["h3"].wait_for(*ASKED, seconds=60)
    yield hosts
    for host, role in (("h1", "prefill"), ("h2", "decode"), ("h3", "router")):
        hosts[host].run("systemctl", "kill", "-s", "KILL", f"half-{role}", check=False)
        hosts[host].run("systemctl", "stop", f"half-{role}", check=False)
        hosts[host].run("rm", "-f", f"/run/systemd/system/half-{role}.service", "/tmp/pdctl.lock")
        hosts[host].run("systemctl", "daemon-reload")


@pytest.mark.router
@pytest.mark.parametrize("routed", ["sglang-router", "smg"], indirect=True)
def test_the_whole_with_a_real_router(routed: Lab, tmp_path: Path) -> None:
    inventory = ROUTED.format(h1=routed["h1"].address, h2=routed["h2"].address)
    operator = Operator(tmp_path, routed.home, inventory)
    out = operator.run("--yes", "-o", "json", timeout=400)
    said, _ = json.JSONDecoder().raw_decode(out)
    assert said["status"] == "done"
    proof = {p["what"]: p["proven"] for p in said["proof"]}
    for point in ("workers registered", "breakers closed", "a fresh generation", "a kept-alive generation"):
        assert proof[point] == "yes", said["proof"]


@pytest.mark.router
def test_a_real_router_that_holds_a_request_is_waited_for(routed: Lab, tmp_path: Path) -> None:
    """It takes no new requests and ends when its grace is over: the restart says so, and goes on."""
    routed["h3"].run("systemd-run", "--unit=stuck", "--collect", *CURL, "-d", BODY % (60000, "true"))
    time.sleep(4)
    assert routed["h3"].run("systemctl", "is-active", "stuck").strip() == "active"
    operator = Operator(tmp_path, routed.home, ROUTED.format(h1=routed["h1"].address, h2=routed["h2"].address))
    plan = operator.run("--plan", "--only", "router")
    assert "would be lost: 1 request" in plan, plan
    begun = time.monotonic()
    out = operator.run("--yes", "--only", "router", timeout=400)
    assert time.monotonic() - begun > GRACE
    assert "waiting for the old process to end (the old process is still there (deactivating (stop-sigterm)))" in out
    assert "DONE" in out
