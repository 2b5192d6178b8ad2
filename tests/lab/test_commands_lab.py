"""ps, sockets and stacks as a person runs them, against real hosts: units, cgroups, ranks, sudo, and hosts that lack
tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from labkit import ROOT, engine_unit, needs_sudo, wait_answers
from machines import HERE, Lab, Machine

INVENTORY = """
name = "lab"
[[host]]
name = "h1"
ssh = "{user}h1"
{become}
[[host]]
name = "h2"
ssh = "h2"
[[host]]
name = "h3"
ssh = "h3"
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
"""


class Pdctl:
    """Runs the command line in a process of its own, with the lab's home."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._home = home
        self.inventory(INVENTORY.format(user="", become=""))

    def inventory(self, text: str) -> None:
        (self._folder / "pdctl.toml").write_text(text)

    def run(self, *words: str, status: int | None = 0) -> str:
        environment = {"HOME": str(self._home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "160"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "pdctl", *words],
            cwd=self._folder, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=180,
        )  # fmt: skip
        if status is not None:
            assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: str, status: int | None = 0) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.run(*words, "-o", "json", status=status))
        assert "error" not in report, report["error"]
        return report


@pytest.fixture
def pdctl(engines: Lab, tmp_path: Path) -> Pdctl:
    return Pdctl(tmp_path, engines.home)


def of(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in report["instances"] if row["name"] == name)


# --- ps ----------------------------------------------------------------------------------------------------------


def test_ps_tells_each_instance_its_processes(pdctl: Pdctl) -> None:
    """One by its unit's cgroup, the other by its command line: the inventory names no unit of it."""
    report = pdctl.json("ps")
    prefill, decode = of(report, "prefill-0"), of(report, "decode-0")
    for row in (prefill, decode):
        parts = sorted((p["part"], (p["rank"] or {}).get("tp")) for p in row["processes"])
        assert parts == [("detokenizer", None), ("main", None), ("scheduler", 0), ("scheduler", 1)]
        main = next(p for p in row["processes"] if p["part"] == "main")
        assert "sglang.launch_server" in main["title"]
        assert (main["soft_limit"], main["open_files"] > 3) == (4096, True)
        assert main["rss_bytes"] > 1_000_000
        schedulers = [p for p in row["processes"] if p["part"] == "scheduler"]
        assert [p["gpu"] for p in schedulers] == ["0", "1"]
        assert {p["ppid"] for p in schedulers} == {main["pid"]}
        assert all(p["cpu_cores"] is not None for p in row["processes"])
    assert prefill["unit"]["active"] == "active"
    assert prefill["unit"]["restarts"] == 0
    assert decode["unit"] is None


def test_ps_for_people(pdctl: Pdctl) -> None:
    shown = pdctl.run("ps", "prefill-0")
    assert "prefill-0 (prefill on h1), unit pd-prefill: active (running)" in shown
    assert "never restarted by systemd" in shown
    assert "sglang::scheduler_TP1" in shown
    assert "decode-0" not in shown


def test_ps_shows_a_restart_by_systemd(engines: Lab, pdctl: Pdctl) -> None:
    host = engines["h1"]
    before = int(host.run("systemctl", "show", "-p", "MainPID", "--value", "pd-prefill"))
    host.run("kill", "-KILL", str(before))
    host.wait_for("sh", "-c", f"p=$(systemctl show -p MainPID --value pd-prefill); [ $p != 0 ] && [ $p != {before} ]")
    wait_answers(host, 30000)
    report = pdctl.json("ps", "prefill-0", status=None)
    row = of(report, "prefill-0")
    assert row["unit"]["restarts"] == 1
    assert row["unit"]["main_pid"] != before
    assert {p["part"] for p in row["processes"]} == {"main", "scheduler", "detokenizer"}


def test_ps_of_a_unit_that_is_not_there(pdctl: Pdctl, engines: Lab) -> None:
    pdctl.inventory(INVENTORY.format(user="", become="").replace('"pd-prefill"', '"no-such-unit"'))
    report = pdctl.json("ps", "prefill-0")
    row = of(report, "prefill-0")
    assert next(p["part"] for p in row["processes"]) == "main", "its command line tells it all the same"
    assert row["unit"] is None


def test_ps_of_a_host_that_is_off(pdctl: Pdctl, engines: Lab) -> None:
    pdctl.inventory(INVENTORY.format(user="", become="").replace('host = "h1"', 'host = "h3"'))
    engines["h3"].power_off()
    try:
        report = pdctl.json("ps", "--timeout", "5s", status=3)
    finally:
        engines["h3"].power_on()
    (finding,) = report["findings"]
    assert (finding["name"], finding["subject"]) == ("endpoint-unreadable", "prefill-0")
    assert "h3" in finding["summary"]
    assert len(of(report, "decode-0")["processes"]) == 4, "the other host was looked at"


def test_ps_without_leave_says_what_is_hidden(pdctl: Pdctl) -> None:
    """A user who may not look into root's processes sees their names, and not how many files they hold."""
    pdctl.inventory(INVENTORY.format(user="plain@", become=""))
    row = of(pdctl.json("ps", "prefill-0", status=None), "prefill-0")
    assert {p["part"] for p in row["processes"]} == {"main", "scheduler", "detokenizer"}
    assert all(p["open_files"] is None for p in row["processes"])


@needs_sudo
def test_ps_with_sudo(pdctl: Pdctl) -> None:
    pdctl.inventory(INVENTORY.format(user="ops@", become='become = "sudo"'))
    row = of(pdctl.json("ps", "prefill-0", status=None), "prefill-0")
    assert next(p for p in row["processes"] if p["part"] == "main")["open_files"] > 3


# --- sockets -----------------------------------------------------------------------------------------------------


def test_sockets(pdctl: Pdctl) -> None:
    report = pdctl.json("sockets")
    for name, port in (("prefill-0", 30000), ("decode-0", 30001)):
        row = of(report, name)
        listener = next(x for x in row["listeners"] if x["port"] == port)
        assert (listener["address"], listener["backlog"]) == ("127.0.0.1", 512)
        own = [c for c in row["connections"] if c["direction"] == "in"]
        assert any("sshd" in c["peer"] for c in own), "pdctl's own connection, by the process that holds its other end"


def test_sockets_over_time(pdctl: Pdctl, engines: Lab, tmp_path: Path) -> None:
    """Connections that pile up while looked at; a recording says the same."""
    grow = "import socket,time\nheld=[]\nfor _ in range(40):\n held.append(socket.create_connection(('127.0.0.1',30001)))\n time.sleep(.1)\ntime.sleep(30)\n"  # noqa: E501
    words = ["nsenter", "--target", str(engines["h2"].pid), "--mount", "--net", "--pid", sys.executable, "-c", grow]
    grower = subprocess.Popen(words)
    try:
        record = tmp_path / "recorded"
        live = pdctl.json("sockets", "decode-0", "--for", "3s", "--interval", "1s", "--record", str(record))
    finally:
        grower.kill()
        grower.wait()
        engines["h2"].run("pkill", "-KILL", "-f", "held.append", check=False)
    row = of(live, "decode-0")
    assert row["listings"] == 4
    grown = [c["change"] for c in row["connections"] if c["direction"] == "in" and "python" in c["peer"]]
    assert sum(grown) >= 10
    again = of(pdctl.json("sockets", "decode-0", "--from", str(record)), "decode-0")
    assert again["connections"] == row["connections"]


def test_sockets_without_ss(pdctl: Pdctl, engines: Lab) -> None:
    engines["h2"].run("mv", "/usr/bin/ss", "/usr/bin/ss.away")
    try:
        report = pdctl.json("sockets", "decode-0")
    finally:
        engines["h2"].run("mv", "/usr/bin/ss.away", "/usr/bin/ss")
    row = of(report, "decode-0")
    listener = next(x for x in row["listeners"] if x["port"] == 30001)
    assert listener["backlog"] is None, "the kernel's tables do not say, and nothing is made up"
    assert any("names no processes" in note for note in row["notes"])


TALK = "import socket,signal\n{}\nsignal.pause()\n"
LISTEN = TALK.format("l=socket.create_server(('0.0.0.0',9100));h=[l.accept() for _ in range(3)]")
CALL = TALK.format("h=[socket.create_connection(('{}',9100)) for _ in range(3)]")


def serve(host: Machine) -> None:
    host.run("systemd-run", "--unit=talk", "--collect", sys.executable, "-c", LISTEN)
    host.wait_for("sh", "-c", "ss -tln | grep -q :9100")


@pytest.fixture
def talk(engines: Lab) -> Iterator[tuple[Machine, Machine]]:
    """Three connections from h3 to h2, held by both."""

    serve(engines["h2"])
    call = CALL.format(engines["h2"].address)
    engines["h3"].run("systemd-run", "--unit=talk", "--collect", sys.executable, "-c", call)
    engines["h3"].wait_for("sh", "-c", "[ $(ss -tn | grep -c :9100) = 3 ]")
    yield engines["h2"], engines["h3"]
    for name in ("h2", "h3"):
        engines[name].run("systemctl", "stop", "talk", check=False)


def test_half_open_connections(pdctl: Pdctl, talk: tuple[Machine, Machine]) -> None:
    """The far end was killed while the cable was out, and started again: its farewell never came, and nobody told the
    near end."""
    far, near = talk
    pdctl.inventory(
        INVENTORY.format(user="", become="").replace('host = "h1"\nunit = "pd-prefill"', 'host = "h3"').replace(
            "[[instance]]\nname = \"prefill-0\"\nrole = \"prefill\"\nurl = \"http://127.0.0.1:30000\"",
            "[[instance]]\nname = \"router-0\"\nrole = \"router\"\nurl = \"http://127.0.0.1:9000\"",
        )
    )  # fmt: skip
    whole = pdctl.json("sockets", status=None)
    assert not [f for f in whole["findings"] if f["name"] == "half-open"]
    near.unplug()
    far.run("systemctl", "kill", "--signal=KILL", "talk")
    far.wait_for("sh", "-c", "! ss -tn state established | grep -q :9100")
    far.net("ss", "-K", "sport", "=", "9100", check=False)  # what its kernel would still like to send
    far.run("systemctl", "reset-failed", "talk", check=False)
    serve(far)
    near.plug()
    near.wait_up()
    report = pdctl.json("sockets", "--for", "4s", "--interval", "2s", status=None)
    (finding,) = [f for f in report["findings"] if f["name"] == "half-open"]
    assert finding["subject"].startswith("host:h3->")
    assert "3 connection" in finding["summary"]


def test_fifty_thousand_sockets(pdctl: Pdctl, engines: Lab) -> None:
    host = engines["h3"]
    crowd = [sys.executable, f"{HERE}/fakes/crowd.py", "9200", "25000"]
    host.run("systemd-run", "--unit=crowd", "--collect", "-p", "LimitNOFILE=20000", *crowd)
    try:
        host.wait_for("sh", "-c", "[ $(awk '/^TCP:/ {print $3}' /proc/net/sockstat) -ge 50000 ]", seconds=60)
        pdctl.inventory(
            INVENTORY.format(user="", become="")
            .replace('host = "h1"\nunit = "pd-prefill"', 'host = "h3"\nunit = "crowd"')
            .replace(":30000", ":9200")
        )
        report = pdctl.json("sockets", "prefill-0", status=None)
    finally:
        host.run("systemctl", "stop", "crowd")
    row = of(report, "prefill-0")
    assert sum(c["count"] for c in row["connections"]) >= 50_000


# --- stacks ------------------------------------------------------------------------------------------------------


def test_stacks_of_ranks_that_agree(pdctl: Pdctl) -> None:
    report = pdctl.json("stacks", "-n", "2", "--interval", "500ms")
    for name in ("prefill-0", "decode-0"):
        row = of(report, name)
        (group,) = row["groups"]
        assert group["ranks"] == ["TP0", "TP1"]
        assert group["at"].startswith("broadcast < broadcast_pyobj < recv_requests")
        assert (group["odd"], group["unmoved"], group["wait"]) == (False, True, "collective")
        assert row["unread"] == []
        assert [t["name"] for t in row["threads"]] == ["transfer_worker"]


@pytest.fixture
def extra(engines: Lab) -> Iterator[Machine]:
    """h3 with an engine of four ranks, one of which waits elsewhere, run by a Python that has no py-spy beside it."""
    host = engines["h3"]
    unit = engine_unit("decode", 30009, tp=4, LAB_STUCK="2").replace(sys.executable, f"{sys.base_prefix}/bin/python3")
    (Path("/proc") / str(host.pid) / "root/run/systemd/system/extra.service").write_text(unit)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", "extra")
    wait_answers(host, 30009)
    yield host
    host.run("systemctl", "stop", "extra")


EXTRA = INVENTORY.format(user="", become="").replace(
    'host = "h1"\nunit = "pd-prefill"', 'host = "h3"\nunit = "extra"'
).replace('"prefill-0"\nrole = "prefill"\nurl = "http://127.0.0.1:30000"', '"extra"\nrole = "decode"\nurl = "http://127.0.0.1:30009"')  # fmt: skip  # noqa: E501


def test_stacks_name_the_odd_rank_with_a_copy_of_our_own(pdctl: Pdctl, extra: Machine) -> None:
    """No py-spy on the host: one is put there for the moment, and nothing of it stays."""
    assert extra.run("sh", "-c", "command -v py-spy; true") == ""
    pdctl.inventory(EXTRA)
    report = pdctl.json("stacks", "extra", "-n", "2", "--interval", "500ms")
    row = of(report, "extra")
    assert [(g["ranks"], g["odd"]) for g in row["groups"]] == [(["TP0", "TP1", "TP3"], False), (["TP2"], True)]
    assert row["groups"][1]["at"].startswith("all_reduce")
    assert extra.run("sh", "-c", "ls -d /tmp/pdctl-* /var/tmp/pdctl-* /dev/shm/pdctl-* 2>/dev/null; true") == ""
    assert "pdctl-" not in extra.run("ps", "-eo", "args")


def test_stacks_of_a_stopped_scheduler(pdctl: Pdctl, engines: Lab) -> None:
    """Frozen by somebody else: it is called that, and stays as it was."""
    host = engines["h2"]
    pid = host.run("pgrep", "-f", "scheduler_TP1").split()[0]
    host.run("kill", "-STOP", pid)
    try:
        report = pdctl.json("stacks", "decode-0", "-n", "2", "--interval", "500ms", status=None)
        processes = pdctl.json("ps", "decode-0", status=None)
        assert host.run("ps", "-o", "stat=", "-p", pid).startswith("T")
    finally:
        host.run("kill", "-CONT", pid)
    state = next(p["state"] for p in of(processes, "decode-0")["processes"] if str(p["pid"]) == pid)
    assert state == "T"
    row = of(report, "decode-0")
    seen = {name for group in row["groups"] for name in group["ranks"]}
    unread = " ".join(u["name"] for u in row["unread"])
    assert "TP0" in seen
    assert "TP1" not in seen, "it stands still for another reason than where its stack says"
    assert unread == "" or "TP1" in unread


def test_native_stacks_leave_everything_running(pdctl: Pdctl, engines: Lab) -> None:
    report = pdctl.json("stacks", "prefill-0", "--native", "-n", "1")
    row = of(report, "prefill-0")
    functions = {f["function"] for g in row["groups"] for f in g["frames"]}
    assert functions & {"clock_nanosleep", "time_sleep", "nanosleep", "pysleep"}, functions
    states = engines["h1"].run("sh", "-c", "ps -o stat= -p $(pgrep -d, -f sglang)").split()
    assert not [state for state in states if state[0] in "Tt"]


@needs_sudo
def test_stacks_with_sudo(pdctl: Pdctl, engines: Lab) -> None:
    pdctl.inventory(INVENTORY.format(user="ops@", become='become = "sudo"'))
    row = of(pdctl.json("stacks", "prefill-0", "-n", "1"), "prefill-0")
    assert [g["ranks"] for g in row["groups"]] == [["TP0", "TP1"]]


def test_stacks_without_leave(pdctl: Pdctl) -> None:
    pdctl.inventory(INVENTORY.format(user="plain@", become=""))
    report = pdctl.json("stacks", "prefill-0", "-n", "1", status=3)
    names = {f["name"] for f in report["findings"]}
    assert "stacks-partial" in names
    assert any("permission" in u["why"].lower() for u in of(report, "prefill-0")["unread"])


def test_stacks_are_ended_at_their_deadline(pdctl: Pdctl, extra: Machine) -> None:
    """A py-spy that never comes back: the answer says so in time, and nothing of it runs on there."""
    folder = Path("/proc") / str(extra.pid) / "root/usr/local/bin"
    folder.mkdir(parents=True, exist_ok=True)
    hanging = folder / "py-spy"
    hanging.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nsleep 4242; :\n')
    hanging.chmod(0o755)
    pdctl.inventory(EXTRA)
    try:
        report = pdctl.json("stacks", "extra", "-n", "1", "--timeout", "2s", status=3)
    finally:
        hanging.unlink()
    assert all("2 s" in u["why"] or "timeout" in u["why"] for u in of(report, "extra")["unread"])
    extra.wait_for("sh", "-c", "! pgrep -f '[s]leep 4242'")


def test_a_rank_that_dies_between_listing_and_asking(engines: Lab, tmp_path: Path) -> None:
    from pdctl.inventory.toml import read_cluster
    from pdctl.looks.hosts import HostPlan, looking
    from pdctl.looks.stacks import StackPlan, dumping
    from pdctl.model.answer import Fact, Missed

    cluster = read_cluster(INVENTORY.format(user="", become=""), "test")
    decode = tuple(i for i in cluster.instances if i.name == "decode-0")
    host = engines["h2"]
    with looking(cluster, decode, HostPlan()) as look:
        look.processes()
        pid = host.run("pgrep", "-f", "sglang::detokenizer").split()[0]
        host.run("kill", "-KILL", pid)
        with dumping(look, StackPlan(1)) as stacks:
            stacks.dump()
        window = look.window()
    host.run("systemctl", "restart", "pd-decode")
    wait_answers(host, 30001)
    by_pid = {o.more["pid"]: o for o in window.timeline("decode-0", Fact.STACKS)}
    lost = by_pid.pop(int(pid))
    assert isinstance(lost.got, Missed)
    assert "gone" in lost.got.detail
    assert not [o for o in by_pid.values() if isinstance(o.got, Missed)], "the others were dumped"


def test_interrupted_stacks_clean_up(pdctl: Pdctl, extra: Machine, tmp_path: Path) -> None:
    """Ctrl-C in the middle: the copy of py-spy goes, too."""
    pdctl.inventory(EXTRA)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-m", "pdctl", "stacks", "extra", "-n", "20", "--interval", "2s"],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    extra.wait_for("sh", "-c", "ls /tmp/pdctl-*/py-spy", seconds=30)
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 130
    assert psutil.pid_exists(extra.pid)
    assert extra.run("sh", "-c", "ls -d /tmp/pdctl-* 2>/dev/null; true") == ""
