"""known_hosts, line by line. Hashed names were made with ``ssh-keygen -H``."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from pdctl.reach.ssh_config import SshFailure, Target
from pdctl.reach.ssh_hostkeys import HostKey, KnownHosts, read_known_hosts

ED = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519" + b"1" * 36)
OTHER = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519" + b"2" * 36)
RSA = HostKey("ssh-rsa", b"\0\0\0\x07ssh-rsa" + b"3" * 36)


def known(tmp_path: Path, text: str, hostname: str = "gpu1", port: int = 22, alias: str | None = None) -> KnownHosts:
    file = tmp_path / "known_hosts"
    file.write_text(text)
    return KnownHosts(Target("gpu1", hostname, port, "root", known_hosts=(str(file),), key_alias=alias))


def test_the_fingerprint_is_ssh_keygen_s() -> None:
    """``ssh-keygen -lf`` of this key, seen with OpenSSH 9.2."""
    blob = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"  # github.com's published key
    key = HostKey("ssh-ed25519", base64.b64decode(blob))
    assert key.fingerprint == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


@pytest.mark.parametrize(
    "names",
    ["gpu1", "other,gpu1", "gpu*", "gpu?", "*", "GPU1", "gpu1,!gpu2"],
)
def test_names_that_fit(tmp_path: Path, names: str) -> None:
    known(tmp_path, f"{names} {ED}\n").check(ED)


@pytest.mark.parametrize("names", ["gpu2", "gpu", "gpu11", "*,!gpu1", "!gpu1", "[gpu1]:2022"])
def test_names_that_do_not(tmp_path: Path, names: str) -> None:
    with pytest.raises(SshFailure, match="not known"):
        known(tmp_path, f"{names} {ED}\n").check(ED)


def test_a_port_is_part_of_the_name(tmp_path: Path) -> None:
    known(tmp_path, f"[gpu1]:2022 {ED}\n", port=2022).check(ED)
    with pytest.raises(SshFailure, match="not known"):
        known(tmp_path, f"[gpu1]:2023 {ED}\n", port=2022).check(ED)


def test_the_same_key_without_the_port_counts(tmp_path: Path) -> None:
    known(tmp_path, f"gpu1 {ED}\n", port=2022).check(ED)
    with pytest.raises(SshFailure, match="not known"):
        known(tmp_path, f"gpu1 {OTHER}\n", port=2022).check(ED)


def test_a_hashed_name(tmp_path: Path) -> None:
    hashed = "|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg="  # "192.168.1.61", from sshd(8)
    known(tmp_path, f"{hashed} {ED}\n", hostname="192.168.1.61").check(ED)
    with pytest.raises(SshFailure, match="not known"):
        known(tmp_path, f"{hashed} {ED}\n", hostname="192.168.1.62").check(ED)


def test_a_changed_key(tmp_path: Path) -> None:
    with pytest.raises(SshFailure, match="HOST KEY CHANGED") as caught:
        known(tmp_path, f"\n# comment\ngpu1 {OTHER}\n").check(ED)
    assert f"{tmp_path}/known_hosts:3" in caught.value.message
    assert ED.fingerprint in caught.value.message
    assert OTHER.fingerprint in caught.value.message


def test_a_key_of_another_type_is_unknown_rather_than_changed(tmp_path: Path) -> None:
    with pytest.raises(SshFailure, match="only its ssh-rsa key is known"):
        known(tmp_path, f"gpu1 {RSA}\n").check(ED)


def test_any_of_several_keys_counts(tmp_path: Path) -> None:
    known(tmp_path, f"gpu1 {OTHER}\ngpu1 {ED}\n").check(ED)


def test_revoked_wins(tmp_path: Path) -> None:
    with pytest.raises(SshFailure, match="REVOKED"):
        known(tmp_path, f"gpu1 {ED}\n@revoked * {ED}\n").check(ED)
    known(tmp_path, f"gpu1 {ED}\n@revoked * {OTHER}\n").check(ED)


def test_types_known_are_asked_for_first(tmp_path: Path) -> None:
    assert known(tmp_path, f"gpu1 {RSA}\n").algorithms == ("rsa-sha2-512", "rsa-sha2-256")
    assert known(tmp_path, f"gpu1 {ED}\ngpu1 {RSA}\n").algorithms == ("ssh-ed25519", "rsa-sha2-512", "rsa-sha2-256")
    assert known(tmp_path, "").algorithms == ()


def test_the_command_to_add_it_holds_the_key_that_was_shown(tmp_path: Path) -> None:
    with pytest.raises(SshFailure) as caught:
        known(tmp_path, "", hostname="10.0.0.1", port=2022).check(ED)
    assert f"echo '[10.0.0.1]:2022 {ED}' >> {tmp_path}/known_hosts" in caught.value.message
    assert "gpu1 ([10.0.0.1]:2022)" in caught.value.message


@pytest.mark.parametrize(
    "line",
    [
        "",
        "#gpu1 x y",
        "gpu1",
        "gpu1 ssh-ed25519",
        "gpu1 ssh-ed25519 !!!",
        "@cert-authority * ssh-ed25519 AAAA",
        "\0\xff",
    ],
)
def test_lines_that_hold_no_key_are_passed_over(line: str) -> None:
    assert list(read_known_hosts(line)) == []


def test_no_file_knows_nobody() -> None:
    target = Target("gpu1", "gpu1", 22, "root", known_hosts=("/nonexistent/known_hosts",))
    with pytest.raises(SshFailure, match="not known"):
        KnownHosts(target).check(ED)
