"""A real router on h3, its workers on h1 and h2, nginx in front of it that speaks TLS: what the hosts show of them."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import ROOT
from machines import HERE, Lab, Machine
from test_commands_lab import Pdctl, of

from pdctl.model.answer import Fact
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import Cluster, Host
from pdctl.reach.hosts import Hosts
from pdctl.reach.http import HttpReach

sys.path.append(str(ROOT / "tests" / "integration"))
from certificates import made_tls
from routers import environment

pytestmark = pytest.mark.router

INVENTORY = """
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
url = "http://{h1}:30080"
host = "h1"
unit = "pd-prefill"
[[instance]]
name = "decode-0"
role = "decode"
url = "http://{h2}:30081"
host = "h2"
unit = "pd-decode"
[[instance]]
name = "router-0"
role = "router"
url = "http://127.0.0.1:8000"
metrics = "http://127.0.0.1:29000/metrics"
host = "h3"
[[instance]]
name = "front"
role = "proxy"
url = "https://127.0.0.1:8443"
host = "h3"
unit = "front"
"""
NGINX = """
worker_processes 1; daemon off; pid /run/front.pid; error_log stderr;
events {{ worker_connections 256; }}
http {{
    access_log off; client_body_temp_path /tmp/nginx-body; proxy_temp_path /tmp/nginx-proxy;
    fastcgi_temp_path /tmp/nginx-f; uwsgi_temp_path /tmp/nginx-u; scgi_temp_path /tmp/nginx-s;
    upstream router {{ server 127.0.0.1:8000; keepalive 4; }}
    server {{
        listen 127.0.0.1:8443 ssl; ssl_certificate {leaf}; ssl_certificate_key {leaf};
        location / {{ proxy_pass http://router; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


def run_unit(host: Machine, name: str, *words: str) -> None:
    host.run("systemctl", "reset-failed", name, check=False)
    host.run("systemd-run", f"--unit={name}", "--collect", *words)


@pytest.fixture(scope="module")
def front(lab: Lab) -> Iterator[Lab]:
    """The whole chain; torn down when this file is done."""
    if shutil.which("nginx", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("no nginx here (apt-get install -y --no-install-recommends nginx-light)")
    python = environment("sglang-router") / "bin" / "python"
    for name, port, to in (("h1", "30080", "30000"), ("h2", "30081", "30001")):
        run_unit(lab[name], "relay", sys.executable, f"{HERE}/fakes/relay.py", lab[name].address, port, to)
    workers = ["--prefill", f"http://{lab['h1'].address}:30080", "8998"]
    workers += ["--decode", f"http://{lab['h2'].address}:30081"]
    run_unit(
        lab["h3"], "pd-router", str(python), "-m", "sglang_router.launch_router", "--pd-disaggregation", *workers,
        "--host", "127.0.0.1", "--port", "8000", "--prometheus-port", "29000", "--prometheus-host", "127.0.0.1",
    )  # fmt: skip
    inside = Path("/proc") / str(lab["h3"].pid) / "root/run/front"
    inside.mkdir()
    made_tls(inside)
    (inside / "nginx.conf").write_text(NGINX.format(leaf="/run/front/leaf.pem"))
    shutil.copy(inside / "ca.pem", lab.home / "ca.pem")
    run_unit(lab["h3"], "front", "/usr/sbin/nginx", "-c", "/run/front/nginx.conf")
    lab["h3"].wait_for("bash", "-c", ": < /dev/tcp/127.0.0.1/8000 && : < /dev/tcp/127.0.0.1/8443", seconds=60)
    yield lab
    for name, units in (("h1", ["relay"]), ("h2", ["relay"]), ("h3", ["front", "pd-router"])):
        lab[name].run("systemctl", "stop", *units, check=False)


@pytest.fixture
def pdctl(front: Lab, tmp_path: Path) -> Pdctl:
    made = Pdctl(tmp_path, front.home)
    made.inventory(INVENTORY.format(h1=front["h1"].address, h2=front["h2"].address))
    return made


def test_a_router_that_hides_its_flags_is_found_by_the_port_it_listens_on(pdctl: Pdctl) -> None:
    report = pdctl.json("ps", status=None)
    (router,) = of(report, "router-0")["processes"]
    assert (router["part"], router["title"]) == ("router", "sglang::router")
    assert router["open_files"] > 3
    front = of(report, "front")
    assert front["unit"]["active"] == "active"
    assert any("nginx" in process["title"] for process in front["processes"])


def test_a_router_s_sockets(pdctl: Pdctl, front: Lab) -> None:
    report = pdctl.json("sockets", status=None)
    router = of(report, "router-0")
    assert {8000, 29000} <= {listener["port"] for listener in router["listeners"]}
    assert any("router counts" in note for note in router["notes"])
    assert [listener["port"] for listener in of(report, "front")["listeners"]] == [8443]


def test_a_router_s_stack_says_what_it_cannot(pdctl: Pdctl) -> None:
    shown = pdctl.run("stacks", "router-0", status=None)
    assert "native (Rust) threads" in shown
    assert "threads" in shown
    assert "tokio" in shown


def test_tls_through_ssh_through_nginx_to_a_real_router(front: Lab) -> None:
    with Hosts(Cluster("lab", (), (Host("h3", "h3"),))) as hosts, HttpReach(dial=hosts.dial) as http:
        now = time.monotonic()
        ca = str(front.home / "ca.pem")
        ask = HttpAsk("front", Fact.HEALTH, "https://127.0.0.1:8443/health", via="h3", ca_file=ca)
        answer = http.answer(ask, started=now, deadline=now + 20)
        assert (answer.status, answer.error) == (200, None), answer.detail
        ask = HttpAsk("router-0", Fact.METRICS, "http://127.0.0.1:29000/metrics", via="h3")
        page = http.answer(ask, started=now, deadline=now + 20)
        assert page.status == 200
