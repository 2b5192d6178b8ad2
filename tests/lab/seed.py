"""The files in which a lab host differs from this machine: its name, its sshd, its users, its units."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

SSHD = """\
Port 22
ListenAddress {address}
HostKey /etc/ssh/lab_host_key
AuthorizedKeysFile /etc/ssh/lab_authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
{settings}
"""
SSHD_UNIT = """\
[Unit]
Description=OpenSSH server of a lab host
[Service]
ExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/lab_sshd_config
KillMode=process
Restart=always
RestartSec=200ms
RuntimeDirectory=sshd
RuntimeDirectoryPreserve=yes
RuntimeDirectoryMode=0755
"""
TARGET = """\
[Unit]
Description=Lab host is up
Requires=sysinit.target
After=sysinit.target
Wants=systemd-journald.service dbus.socket dbus.service lab-sshd.service {units}
AllowIsolate=yes
"""
JOURNAL = "[Journal]\nStorage=volatile\nRuntimeMaxUse=32M\nForwardToConsole=no\nAudit=no\nRateLimitBurst=0\n"
# What has no meaning in a namespace: hardware, clocks, kernel modules, consoles.
MASKED = """
systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket
systemd-timesyncd.service systemd-pstore.service systemd-random-seed.service systemd-sysctl.service
systemd-modules-load.service systemd-firstboot.service systemd-sysusers.service systemd-machine-id-commit.service
systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-hwdb-update.service
systemd-boot-system-token.service systemd-update-done.service systemd-journal-catalog-update.service
ldconfig.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount
sys-kernel-config.mount sys-fs-fuse-connections.mount systemd-remount-fs.service systemd-networkd.service
systemd-resolved.service systemd-logind.service getty@tty1.service console-getty.service apparmor.service
keyboard-setup.service kmod-static-nodes.service systemd-ask-password-console.path
systemd-ask-password-wall.path systemd-tmpfiles-setup-dev.service
"""
# Beside root: one who may do everything through sudo, and one who may nothing.
USERS = {"ops": 4001, "plain": 4002}
SUDOERS = "Defaults !requiretty\nops ALL=(ALL) NOPASSWD: ALL\nplain ALL=(ALL) ALL\n"


def make_key(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def write_seed(
    seed: Path, *, name: str, address: str, keys: Path, hosts: str, units: Mapping[str, str], settings: str = ""
) -> None:
    """Fills ``seed``. ``keys`` holds the host's key and the public key that may log in; ``units`` are systemd units by
    file name, started at boot where they are services."""
    shutil.rmtree(seed, ignore_errors=True)
    ssh, system = seed / "etc/ssh", seed / "etc/systemd/system"
    for folder in (ssh, system, seed / "etc/systemd/journald.conf.d", seed / "etc/sudoers.d", seed / "root"):
        folder.mkdir(parents=True)
    shutil.copy(keys / f"host_{name}", ssh / "lab_host_key")
    shutil.copy(keys / "user.pub", ssh / "lab_authorized_keys")
    (ssh / "lab_sshd_config").write_text(SSHD.format(address=address, settings=settings))
    (seed / "etc/hostname").write_text(f"{name}\n")
    (seed / "etc/machine-id").write_text(f"{uuid4().hex}\n")
    (seed / "etc/hosts").write_text(hosts)
    (seed / "etc/systemd/journald.conf.d/lab.conf").write_text(JOURNAL)
    for start_up in (".bashrc", ".profile"):
        (seed / "root" / start_up).touch()
    (seed / "root").chmod(0o700)
    _write_users(seed / "etc")
    _write_units(system, units)


def _write_users(etc: Path) -> None:
    lines = Path("/etc/passwd").read_text(), Path("/etc/shadow").read_text(), Path("/etc/group").read_text()
    passwd, shadow, group = (text.rstrip("\n") for text in lines)
    for user, number in USERS.items():
        passwd += f"\n{user}:x:{number}:{number}::/tmp:/bin/sh"
        shadow += f"\n{user}:*:19000:0:99999:7:::"
        group += f"\n{user}:x:{number}:"
    if "\nsshd:" not in passwd:
        passwd += "\nsshd:x:74:65534::/run/sshd:/usr/sbin/nologin"
    for name, text, mode in (("passwd", passwd, 0o644), ("shadow", shadow, 0o640), ("group", group, 0o644)):
        (etc / name).write_text(f"{text}\n")
        (etc / name).chmod(mode)
    (etc / "sudoers.d/lab").write_text(SUDOERS)
    (etc / "sudoers.d/lab").chmod(0o440)


def _write_units(system: Path, units: Mapping[str, str]) -> None:
    services = " ".join(name for name in units if name.endswith(".service"))
    (system / "lab.target").write_text(TARGET.format(units=services))
    (system / "lab-sshd.service").write_text(SSHD_UNIT)
    for name, text in units.items():
        (system / name).write_text(text)
    for name in MASKED.split():
        (system / name).symlink_to("/dev/null")
