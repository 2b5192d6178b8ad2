"""``pdctl restart`` over SSH on hosts with a real systemd: units that fail, die, hang; pdctl killed; a power cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import ROOT, needs_sudo, wait_answers
from machines import Lab, Machine

sys.path.append(str(ROOT / "tests" / "integration"))
from routers import environment
from small_cluster import end

INVENTORY = """
name = "lab"
[[host]]
name = "h1"
ssh = "h1"
[[host]]
name = "h2"
ssh = "h2"
[[instance]]
name = "prefill-0"
role = "prefill"
url = "http://127.0.0.1:30000"
host = "h1"
unit = "pd-prefill"
[[instance]]
name = "decode-0"
role = "decode"
url = "http://127.0.0.1:30001"
host = "h2"
unit = "pd-decode.service"
"""
UNIT_OF = {"prefill-0": ("h1", "pd-prefill.service", 30000), "decode-0": ("h2", "pd-decode.service", 30001)}


BEGUN: list[subprocess.Popen[str]] = []


class Operator:
    """Somebody with a pdctl, a journal of his own, and the lab's keys."""

    def __init__(self, folder: Path, home: Path, inventory: str = INVENTORY) -> None:
        self.folder = folder
        self.state = folder / "state"
        (folder / "pdctl.toml").write_text(inventory)
        self._environment = {
            "HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "XDG_STATE_HOME": str(self.state),
            "PYTHONPATH": str(ROOT), "COLUMNS": "200",
        }  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "pdctl", "restart", *words], cwd=self.folder, env=self._environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        BEGUN.append(process)
        return process

    def run(self, *words: str, status: int = 0, timeout: float = 240) -> str:
        process = self.begin(*words)
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == status, f"{words}: {process.returncode}\n{out}\n{err}"
        return out + err

    def journal(self) -> list[dict[str, object]]:
        file = self.state / "pdctl" / "journal.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def invocation(lab: Lab, name: str) -> str:
    host, unit, _ = UNIT_OF[name]
    return lab[host].run("systemctl", "show", "-P", "InvocationID", unit).strip()


def acts(lab: Lab, name: str) -> list[str]:
    """What the host's syslog has of pdctl's acts on an instance."""
    host, _, _ = UNIT_OF[name]
    lines = lab[host].run("journalctl", "-q", "-t", "pdctl", "-o", "cat").splitlines()
    return [line for line in lines if f"restart {name} " in line]


def drop_in(lab: Lab, name: str, text: str) -> None:
    """Changes a unit from its next start on."""
    host, unit, _ = UNIT_OF[name]
    folder = f"/run/systemd/system/{unit}.d"
    lab[host].run("bash", "-c", f"mkdir -p {folder}; printf '%s\\n' \"$1\" > {folder}/test.conf", "sh", text)
    lab[host].run("systemctl", "daemon-reload")


@pytest.fixture
def hosts(engines: Lab) -> Iterator[Lab]:
    """The lab with both engines as their units say, before and after."""
    yield engines
    end(BEGUN)
    BEGUN.clear()
    for name, (host, unit, port) in UNIT_OF.items():
        machine = engines[host]
        if machine.run("systemctl", "is-system-running", check=False).strip() == "":
            machine.power_on()
        machine.run("rm", "-rf", f"/run/systemd/system/{unit}.d", "/tmp/pdctl.lock")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "reset-failed", unit, check=False)
        machine.run("systemctl", "restart", unit)
        wait_answers(machine, port)
        assert name


@pytest.fixture
def operator(hosts: Lab, tmp_path: Path) -> Operator:
    return Operator(tmp_path, hosts.home)


def test_a_restart_over_ssh(operator: Operator, hosts: Lab) -> None:
    before = {name: invocation(hosts, name) for name in UNIT_OF}
    said = {name: len(acts(hosts, name)) for name in UNIT_OF}
    plan = operator.run("--plan")
    assert "systemctl --no-ask-password --no-block restart -- pd-prefill" in plan
    assert "runs now: pid " in plan and "release 0.5.23" in plan and "active (running)" in plan
    assert {name: invocation(hosts, name) for name in UNIT_OF} == before, "a plan touches nothing"
    out = operator.run("--yes")
    assert "DONE" in out
    assert all(invocation(hosts, name) != before[name] for name in UNIT_OF)
    for name in UNIT_OF:
        (line,) = acts(hosts, name)[said[name] :]
        assert "pdctl restart of lab, run " in line
        assert "/tmp/pdctl.lock" not in hosts[UNIT_OF[name][0]].run("bash", "-c", "ls -d /tmp/pdctl* || true")


def test_killed_anywhere_and_gone_on_with_each_unit_is_restarted_once(operator: Operator, hosts: Lab) -> None:
    said = {name: len(acts(hosts, name)) for name in UNIT_OF}
    killed, words = 0, ["--yes"]
    while True:
        process = operator.begin(*words)
        more = (1, 2, 3, 4, 5, 6, 8)[killed % 7]
        wanted = len(operator.journal()) + more
        while process.poll() is None and len(operator.journal()) < wanted:
            time.sleep(0.005)
        reached = process.poll() is None
        if reached:
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        if not reached:
            break
        killed += 1
        assert killed < 40
        words = ["--resume", "--yes"]
    assert operator.journal()[-1]["kind"] == "restart-done", out + err
    assert killed > 4
    for name in UNIT_OF:
        assert len(acts(hosts, name)) - said[name] == 1, "each once"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("ExecStart=\nExecStart=/bin/false\nRestart=no", "it did not start: failed (failed), result exit-code"),
        ("ExecStart=\nExecStart=/bin/false", "the new process died"),
        ("ExecStart=\nExecStart=/bin/sleep 1000", "still waiting for health (connect-refused"),
        ("ExecStart=\nExecStart=/bin/sleep 20", "the new process died"),
    ],
    ids=["fails-to-start", "fails-again-and-again", "never-ready", "dies-at-20-s"],
)  # fmt: skip
def test_a_unit_that_does_not_come_back_stops_everything_after_it(
    operator: Operator, hosts: Lab, change: str, says: str
) -> None:
    decode = invocation(hosts, "decode-0")
    drop_in(hosts, "prefill-0", f"[Service]\n{change}")
    seconds = "60s" if "sleep 20" in change else "12s"
    out = operator.run("--yes", "--ready-timeout", seconds, status=75)
    assert says in " ".join(out.split()), out
    assert "restart decode-0" in out.partition("Not touched:")[2].partition("How what was touched")[0]
    assert invocation(hosts, "decode-0") == decode, "nothing after a failure"
    state = hosts["h1"].run("systemctl", "show", "-P", "ActiveState", "pd-prefill").strip()
    if state == "failed":
        assert "prefill-0: NOT RUNNING, pd-prefill is failed (failed)" in out
    assert operator.journal()[-1]["kind"] == "restart-stopped"
    hosts["h1"].run("rm", "-rf", "/run/systemd/system/pd-prefill.service.d")
    hosts["h1"].run("systemctl", "daemon-reload")
    hosts["h1"].run("systemctl", "stop", "pd-prefill")
    assert "DONE" in operator.run("--resume", "--yes")
    assert invocation(hosts, "decode-0") != decode


def test_an_engine_that_dies_after_it_was_ready_stops_what_follows(operator: Operator, hosts: Lab) -> None:
    drop_in(hosts, "prefill-0", "[Service]\nRuntimeMaxSec=12\nRestart=no")
    drop_in(hosts, "decode-0", "[Service]\nExecStartPre=/bin/sleep 16")
    out = operator.run("--yes", status=75)
    assert "prefill-0, which was restarted and ready as pid" in " ".join(out.split())
    assert "prefill-0: NOT RUNNING" in out


def test_a_power_cut_of_a_host_during_its_restart(operator: Operator, hosts: Lab) -> None:
    prefills = len(acts(hosts, "prefill-0"))
    drop_in(hosts, "decode-0", "[Service]\nExecStartPre=/bin/sleep 60\nTimeoutStartSec=200")
    process = operator.begin("--yes")
    while not any(e["kind"] == "step-acted" and e.get("instance") == "decode-0" for e in operator.journal()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    hosts["h2"].power_off()
    begun = time.monotonic()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 75, out + err
    assert "could not be seen for" in out and "how it stands is not known" in out
    assert "decode-0: not known:" in out and "prefill-0: restarted and ready" in out
    assert time.monotonic() - begun < 180
    hosts["h2"].power_on()
    wait_answers(hosts["h2"], 30001)
    assert "DONE" in operator.run("--resume", "--yes")
    assert len(acts(hosts, "prefill-0")) - prefills == 1, "what was done is not done again"


def test_a_connection_that_is_cut_loses_nothing(operator: Operator, hosts: Lab) -> None:
    """The cable is out for a while in the middle of a wait: systemd goes on by itself, and pdctl sees it again."""
    drop_in(hosts, "decode-0", "[Service]\nExecStartPre=/bin/sleep 8")
    said = len(acts(hosts, "decode-0"))
    process = operator.begin("--yes")
    while not any(e["kind"] == "step-acted" and e.get("instance") == "decode-0" for e in operator.journal()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    hosts["h2"].unplug()
    time.sleep(6)
    hosts["h2"].plug()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert len(acts(hosts, "decode-0")) - said == 1


def test_two_operators_never_run_at_once(operator: Operator, hosts: Lab, tmp_path: Path) -> None:
    drop_in(hosts, "prefill-0", "[Service]\nExecStartPre=/bin/sleep 10")
    (tmp_path / "other").mkdir()
    other = Operator(tmp_path / "other", hosts.home)
    said = len(acts(hosts, "prefill-0"))
    first = operator.begin("--yes")
    while len(acts(hosts, "prefill-0")) == said:
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    refused = other.run("--yes", status=75)
    assert "other-restart" in refused and "is restarting lab (run " in refused
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, out + err
    assert len(acts(hosts, "prefill-0")) - said == 1


# --- who may ----------------------------------------------------------------------------------------------------------


def as_user(user: str, more: str = "") -> str:
    return INVENTORY.replace('ssh = "h1"', f'ssh = "{user}@h1"{more}').replace('ssh = "h2"', f'ssh = "{user}@h2"{more}')


def test_through_sudo_that_allows_systemctl_alone(hosts: Lab, tmp_path: Path) -> None:
    """Nothing but the restart itself is asked of root, so a narrow rule is enough for it."""
    needs_sudo()
    for host in ("h1", "h2"):
        rule = "plain ALL=(root) NOPASSWD: /usr/bin/systemctl, /bin/systemctl"
        hosts[host].run("bash", "-c", 'echo "$1" > /etc/sudoers.d/narrow; chmod 440 /etc/sudoers.d/narrow', "sh", rule)
    before = {name: invocation(hosts, name) for name in UNIT_OF}
    out = Operator(tmp_path, hosts.home, as_user("plain", '\nbecome = "sudo"')).run("--yes")
    assert "DONE" in out and "sudo -n -- systemctl" in out
    assert all(invocation(hosts, name) != before[name] for name in UNIT_OF)
    for host in ("h1", "h2"):
        hosts[host].run("rm", "/etc/sudoers.d/narrow")


def test_a_user_who_may_not_touches_nothing(hosts: Lab, tmp_path: Path) -> None:
    before = {name: invocation(hosts, name) for name in UNIT_OF}
    out = Operator(tmp_path, hosts.home, as_user("plain")).run("--yes", status=75)
    assert "uthentication" in out or "ccess denied" in out, out
    assert {name: invocation(hosts, name) for name in UNIT_OF} == before
    assert "restart decode-0" in out.partition("Not touched:")[2]


# --- a real router ----------------------------------------------------------------------------------------------------

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
ExecStart={python} -m sglang_router.launch_router --pd-disaggregation --prefill http://{h1}:31000 8999 \
  --decode http://{h2}:31001 --host 127.0.0.1 --port 31080 --prometheus-port 31029 --prometheus-host 127.0.0.1 \
  --shutdown-grace-period-secs {grace}
TimeoutStopSec={stop}
"""
BODY = '{"model": "demo-model", "prompt": "x", "max_tokens": %d, "stream": %s}'
CURL = ("curl", "-sfN", "-X", "POST", "-H", "Content-Type: application/json", "http://127.0.0.1:31080/v1/completions")
ASKED = (*CURL, "-d", BODY % (4, "false"))
GRACE = int(os.environ.get("PDCTL_LAB_GRACE", "20"))  # seconds; the router's own default is 180


def write_unit(machine: Machine, name: str, text: str) -> None:
    machine.run("bash", "-c", f"printf '%s' \"$1\" > /run/systemd/system/{name}", "sh", text)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", name)


@pytest.fixture
def routed(hosts: Lab) -> Iterator[Lab]:
    """Both halves of a pair, and a real router in front of them, as units."""
    python = environment("sglang-router") / "bin" / "python"
    nodes = ROOT / "tests" / "integration" / "nodes"
    for host, role, port in (("h1", "prefill", 31000), ("h2", "decode", 31001)):
        text = HALF.format(nodes=nodes, root=ROOT, epoch=int(time.time()), python=sys.executable, port=port, role=role)
        write_unit(hosts[host], f"half-{role}.service", text)
    for host, port in (("h1", 31000), ("h2", 31001)):
        wait_answers(hosts[host], port)
    real = REAL.format(
        python=python, h1=hosts["h1"].address, h2=hosts["h2"].address, grace=GRACE, stop=GRACE + 30
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
