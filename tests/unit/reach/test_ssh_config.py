"""Targets out of configuration files. Expected values are what ``ssh -G`` says of the same files."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from pdctl.reach.ssh_config import Address, SshConfig, SshFailure, read_address


@pytest.mark.parametrize(
    ("spec", "address"),
    [
        ("gpu1", Address("gpu1")),
        ("root@gpu1", Address("gpu1", "root")),
        ("root@gpu1:2222", Address("gpu1", "root", 2222)),
        ("192.0.2.7:22", Address("192.0.2.7", None, 22)),
        ("[2001:db8::7]:2222", Address("2001:db8::7", None, 2222)),
        ("me@[2001:db8::7]", Address("2001:db8::7", "me")),
        ("2001:db8::7", Address("2001:db8::7")),
        ("ssh://me@gpu1:2022", Address("gpu1", "me", 2022)),
        (" gpu1 ", Address("gpu1")),
    ],
)
def test_addresses(spec: str, address: Address) -> None:
    assert read_address(spec) == address


@pytest.mark.parametrize("spec", ["", "@", "root@", "gpu1:port", "-oProxyCommand=touch x", "gpu1:"])
def test_what_is_no_address(spec: str) -> None:
    with pytest.raises(SshFailure):
        read_address(spec)


def test_without_configuration() -> None:
    target = SshConfig("").target("gpu1")
    assert (target.hostname, target.port, target.user) == ("gpu1", 22, getpass.getuser())
    home = str(Path.home())
    assert f"{home}/.ssh/id_ed25519" in target.identities
    assert target.known_hosts[0] == f"{home}/.ssh/known_hosts"
    assert target.jumps == ()
    assert target.proxy_command is None
    assert target.agent
    assert not target.identities_only
    assert target.connect_timeout is None


TEXT = """
Host gpu1 gpu2
    HostName %h.cluster.example
    User ops
    Port 2022
    IdentityFile ~/.ssh/cluster_%h
    IdentityFile ~/.ssh/second
    IdentitiesOnly yes
    ConnectTimeout 7
    UserKnownHostsFile ~/.ssh/cluster_hosts ~/.ssh/more
    ProxyJump bastion,jump@inner:2200
Host gpu2
    HostKeyAlias the-other
Host bastion
    User front
Host behind
    ProxyCommand exec nc %h %p
Host open
    ProxyJump none
    ProxyCommand none
    IdentityAgent none
Host *
    User everyone
    ProxyJump bastion
"""


def test_a_block() -> None:
    target = SshConfig(TEXT).target("gpu1")
    home = str(Path.home())
    assert (target.hostname, target.port, target.user) == ("gpu1.cluster.example", 2022, "ops")
    assert target.identities == (f"{home}/.ssh/cluster_gpu1.cluster.example", f"{home}/.ssh/second")
    assert target.identities_only
    assert target.connect_timeout == 7.0
    assert target.known_hosts[:2] == (f"{home}/.ssh/cluster_hosts", f"{home}/.ssh/more")
    assert target.jumps == ("bastion", "jump@inner:2200")
    assert target.key_name == "[gpu1.cluster.example]:2022"


def test_what_the_inventory_says_wins() -> None:
    target = SshConfig(TEXT).target("me@gpu1:22")
    assert (target.user, target.port, target.key_name) == ("me", 22, "gpu1.cluster.example")


def test_an_alias_is_the_key_s_name_whatever_the_port() -> None:
    assert SshConfig(TEXT).target("gpu2").key_name == "the-other"


def test_a_jump_host_is_not_reached_through_itself() -> None:
    assert SshConfig(TEXT).target("bastion").jumps == ()
    assert SshConfig(TEXT).target("anything").jumps == ("bastion",)
    assert SshConfig(TEXT).target("anything", jumped=True).jumps == ()


def test_none_switches_off() -> None:
    target = SshConfig(TEXT).target("open")
    assert target.jumps == ()
    assert target.proxy_command is None
    assert not target.agent


def test_a_proxy_command_is_filled_in() -> None:
    without_jump, _, _ = TEXT.rpartition("Host *")
    config = SshConfig(without_jump)
    assert config.target("behind").proxy_command == "nc behind 22"
    assert config.target("behind:2222").proxy_command == "nc behind 2222"


@pytest.mark.parametrize("text", ["Port ssh", "ConnectTimeout soon"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(SshFailure, match="no number"):
        SshConfig(text).target("gpu1")


def test_a_line_that_is_no_configuration() -> None:
    with pytest.raises(SshFailure, match="SSH configuration"):
        SshConfig("Host x\n  nonsense\n")


@pytest.fixture
def folder() -> Path:
    path = Path.home() / ".ssh"
    path.mkdir()
    return path


def test_included_files(folder: Path) -> None:
    (folder / "config").write_text(
        "Include conf.d/*.conf\nHost gpu*\n  Port 2022\n  Include inner\n  User after\nHost last\n  User late\n"
    )
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / "a.conf").write_text("Host gpu1\n  HostName first.example\n")
    (folder / "conf.d" / "b.conf").write_text("Host gpu1\n  HostName second.example\n  ConnectTimeout 3\n")
    (folder / "inner").write_text("Host gpu2\n  HostName two.example\n")
    config = SshConfig.read()
    one, two, last = (config.target(name) for name in ("gpu1", "gpu2", "last"))
    assert (one.hostname, one.connect_timeout, one.port, one.user) == ("first.example", 3.0, 2022, "after")
    assert (two.hostname, two.port, two.user) == ("two.example", 2022, "after")
    assert (last.hostname, last.port, last.user) == ("last", 22, "late")


def test_a_file_that_includes_itself(folder: Path) -> None:
    (folder / "config").write_text("Include config\n")
    with pytest.raises(SshFailure, match="include one another"):
        SshConfig.read()


def test_no_file_at_all() -> None:
    assert SshConfig.read().target("gpu1").hostname == "gpu1"
