"""``pdctl restart`` over SSH on hosts with a real systemd: units that fail, die, hang; pdctl killed; a power cut."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import wait_answers
from machines import Lab
from operators import INVENTORY, UNIT_OF, Operator, acts, drop_in, invocation, restored, write_unit


@pytest.fixture
def hosts(engines: Lab) -> Iterator[Lab]:
    yield from restored(engines)


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


def test_a_unit_that_fails_again_and_again_can_be_restarted(operator: Operator, hosts: Lab) -> None:
    """The commonest reason to restart: systemd starts it, it dies, and is another process at each look."""
    started = hosts["h1"].run("systemctl", "show", "-P", "ExecStart", "pd-prefill")
    words = started.partition("argv[]=")[2].partition(" ;")[0]
    command = f"/bin/sh -c 'test -e /run/good && exec {words}; sleep 2'"
    drop_in(hosts, "prefill-0", f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=\nExecStart={command}")
    hosts["h1"].run("systemctl", "restart", "pd-prefill")
    hosts["h1"].wait_for("sh", "-c", "test $(systemctl show -P NRestarts pd-prefill) -ge 2")
    made, end = json.JSONDecoder().raw_decode(planned := operator.run("--plan", "-o", "json"))
    assert made["status"] == "planned"
    (operator.folder / "plan.json").write_text(planned[:end])
    time.sleep(4)
    hosts["h1"].run("touch", "/run/good")
    out = operator.run("--apply", "plan.json", "--yes")
    assert "DONE" in out and "systemd has restarted it by itself" in out
    hosts["h1"].run("rm", "/run/good")


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


def test_a_terminal_that_goes_away_leaves_no_lock_and_the_run_can_be_gone_on_with(
    operator: Operator, hosts: Lab
) -> None:
    drop_in(hosts, "prefill-0", "[Service]\nExecStartPre=/bin/sleep 8")
    said = len(acts(hosts, "prefill-0"))
    process = operator.begin("--yes")
    while not any(e["kind"] == "step-acted" and e.get("instance") == "prefill-0" for e in operator.journal()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "INTERRUPTED" in out, out + err
    assert "prefill-0: NOT RUNNING" in out or "prefill-0: runs, and was not seen to be ready" in out
    assert "absent" in hosts["h1"].run("bash", "-c", "test -e /tmp/pdctl.lock || echo absent")
    assert "DONE" in operator.run("--resume", "--yes")
    assert len(acts(hosts, "prefill-0")) - said == 1


def test_an_engine_over_two_hosts_is_restarted_on_both(hosts: Lab, tmp_path: Path) -> None:
    write_unit(hosts["h3"], "pd-prefill.service", "[Service]\nExecStart=/bin/sleep 100000\n")
    more = '[[host]]\nname = "h3"\nssh = "h3"\n[[instance]]\nname = "prefill-0"\nnodes = ["h3"]'
    inventory = INVENTORY.replace('[[instance]]\nname = "prefill-0"', more)
    pids = [hosts[h].run("systemctl", "show", "-P", "MainPID", "pd-prefill") for h in ("h1", "h3")]
    out = Operator(tmp_path, hosts.home, inventory).run("--yes", "--serial", "1")
    assert "DONE" in out and "still the process that was ready, prefill-0@h3" in out
    assert all(
        hosts[h].run("systemctl", "show", "-P", "MainPID", "pd-prefill") != pid
        for h, pid in zip(("h1", "h3"), pids, strict=True)
    )
    hosts["h3"].run("systemctl", "stop", "pd-prefill")
    hosts["h3"].run("rm", "/run/systemd/system/pd-prefill.service")
    hosts["h3"].run("systemctl", "daemon-reload")


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
