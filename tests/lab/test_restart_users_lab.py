"""``pdctl restart`` over SSH as users who may do less than root: narrow sudo, none, locks that are another's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from labkit import needs_sudo
from machines import Lab, Machine
from operators import INVENTORY, UNIT_OF, Operator, invocation, restored


@pytest.fixture
def hosts(engines: Lab) -> Iterator[Lab]:
    yield from restored(engines)


def as_user(user: str, more: str = "") -> str:
    return INVENTORY.replace('ssh = "h1"', f'ssh = "{user}@h1"{more}').replace('ssh = "h2"', f'ssh = "{user}@h2"{more}')


@needs_sudo
def test_through_sudo_that_allows_systemctl_alone(hosts: Lab, tmp_path: Path) -> None:
    """Nothing but the restart itself is asked of root, so a narrow rule is enough for it."""
    for host in ("h1", "h2"):
        rule = "plain ALL=(root) NOPASSWD: /usr/bin/systemctl, /bin/systemctl"
        hosts[host].run("bash", "-c", 'echo "$1" > /etc/sudoers.d/narrow; chmod 440 /etc/sudoers.d/narrow', "sh", rule)
    before = {name: invocation(hosts, name) for name in UNIT_OF}
    out = Operator(tmp_path, hosts.home, as_user("plain", '\nbecome = "sudo"')).run("--yes")
    assert "DONE" in out and "sudo -n -- systemctl" in out
    assert all(invocation(hosts, name) != before[name] for name in UNIT_OF)
    for host in ("h1", "h2"):
        hosts[host].run("rm", "/etc/sudoers.d/narrow")


OWNER = {
    "who": "alice@desk", "machine": "desk 1", "pid": 5, "born": 1.0, "cluster": "lab", "run": "r-old", "token": "a" * 16
}  # fmt: skip


def leave_stale_lock(machine: Machine) -> None:
    """Root's, from long ago, in a folder in which only its owner may remove a file."""
    boot = machine.run("cat", "/proc/sys/kernel/random/boot_id").strip()
    text = f"owner {json.dumps(OWNER)}\nsince 1796000000 {boot}\n"
    machine.run("sh", "-c", 'printf %s "$1" > /tmp/pdctl.lock', "sh", text)
    machine.run("touch", "-d", "-10 minutes", "/tmp/pdctl.lock")


@needs_sudo
def test_another_users_stale_lock_is_told_or_taken_over_through_sudo(hosts: Lab, tmp_path: Path) -> None:
    hosts["h1"].run("bash", "-c", "rm -rf /tmp/pdctl*")  # marks of runs that other tests killed
    leave_stale_lock(hosts["h1"])
    before = {name: invocation(hosts, name) for name in UNIT_OF}
    plain, ops = tmp_path / "plain", tmp_path / "ops"
    plain.mkdir()
    ops.mkdir()
    refused = Operator(plain, hosts.home, as_user("plain")).run("--yes", status=75)
    assert "the stale lock of alice@desk (run r-old) is a file of root" in refused and "root must remove it" in refused
    assert {name: invocation(hosts, name) for name in UNIT_OF} == before
    out = Operator(ops, hosts.home, as_user("ops", '\nbecome = "sudo"')).run("--yes")
    assert "h1: the lock of alice@desk (run r-old) was taken over" in out and "DONE" in out
    assert hosts["h1"].run("bash", "-c", "ls /tmp | grep pdctl || echo none").strip() == "none"


def test_a_user_who_may_not_touches_nothing(hosts: Lab, tmp_path: Path) -> None:
    before = {name: invocation(hosts, name) for name in UNIT_OF}
    out = Operator(tmp_path, hosts.home, as_user("plain")).run("--yes", status=75)
    assert "uthentication" in out or "ccess denied" in out, out
    assert {name: invocation(hosts, name) for name in UNIT_OF} == before
    assert "restart decode-0" in out.partition("Not touched:")[2]
