"""Hosts to break: each with network, processes and files of its own, a real systemd and a real sshd. Needs root.

with Lab(folder, {"h1": {"x.service": "..."}, "h2": {}}) as lab:
    lab["h1"].run("systemctl", "restart", "x")
    lab["h1"].power_off()

Whatever happens to this process, nothing stays behind: the hosts die with it, and a watcher tidies up after it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import seed

HERE = Path(__file__).parent
NEEDED = ("unshare", "nsenter", "setpriv", "ip", "ssh-keygen", "mount", "pivot_root")
UP_SECONDS = 60


def why_not() -> str | None:
    """Why there can be no lab here; None where there can."""
    if os.geteuid() != 0:
        return "needs root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    for file, package in (("/usr/sbin/sshd", "openssh-server"), ("/lib/systemd/systemd", "systemd dbus")):
        if not Path(file).exists():
            return f"needs {file} (apt-get install -y --no-install-recommends {package})"
    return None


def sh(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Lab:
    """The hosts. ``folder`` must be on a file system of this machine; ``bound`` are paths that are the same inside."""

    def __init__(
        self,
        folder: Path,
        units: Mapping[str, Mapping[str, str]],
        bound: Iterable[Path] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.tag = f"pl{os.getpid() % 100_000}"
        self.folder = folder
        self.net = f"10.98.{os.getpid() % 250}"
        self.bridge = f"{self.tag}-br"
        self.cgroup = folder / "cgroup"
        self.home = folder / "home"
        self._bound = tuple(bound)
        self._watcher: subprocess.Popen[bytes] | None = None
        self._hosts = {
            name: Machine(self, number, name, theirs, (settings or {}).get(name, ""))
            for number, (name, theirs) in enumerate(units.items(), 1)
        }

    def __getitem__(self, name: str) -> Machine:
        return self._hosts[name]

    @property
    def bound(self) -> tuple[str, ...]:
        return tuple(str(path) for path in self._bound)

    def __enter__(self) -> Self:
        try:
            self._build()
            for host in self._hosts.values():
                host.start()
            for host in self._hosts.values():
                host.wait_up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def down(self) -> None:
        for host in self._hosts.values():
            host.stop()
        if self._watcher is not None:
            assert self._watcher.stdin is not None
            self._watcher.stdin.close()  # it tidies up now
            self._watcher.wait()
            self._watcher = None

    def _build(self) -> None:
        self.cgroup.mkdir(parents=True)
        sh("mount", "-t", "cgroup2", "cgroup2", str(self.cgroup))
        (self.cgroup / self.tag).mkdir()
        self._watcher = subprocess.Popen(
            ["/bin/sh", str(HERE / "tidy.sh"), self.bridge, str(self.cgroup), self.tag],
            stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        sh("ip", "link", "add", self.bridge, "type", "bridge")
        sh("ip", "addr", "add", f"{self.net}.254/24", "dev", self.bridge)
        sh("ip", "link", "set", self.bridge, "up")
        self._write_client()

    def _write_client(self) -> None:
        """A home whose ~/.ssh reaches every host by its name."""
        ssh = self.home / ".ssh"
        ssh.mkdir(parents=True)
        seed.make_key(ssh / "user")
        known, config = "", ""
        for host in self._hosts.values():
            seed.make_key(ssh / f"host_{host.name}")
            key = " ".join((ssh / f"host_{host.name}.pub").read_text().split()[:2])
            known += f"{host.address} {key}\n"
            config += f"Host {host.name}\n  HostName {host.address}\n"
        (ssh / "known_hosts").write_text(known)
        (ssh / "config").write_text(
            f"{config}Host *\n  User root\n  IdentityFile {ssh}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {ssh}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        )

    @property
    def hosts_file(self) -> str:
        return "127.0.0.1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in self._hosts.values())


class Machine:
    """One host."""

    def __init__(self, lab: Lab, number: int, name: str, units: Mapping[str, str], settings: str) -> None:
        self.name = name
        self.address = f"{lab.net}.{10 + number}"
        self._lab = lab
        self._folder = lab.folder / name
        self._units = units
        self._settings = settings
        self._cable = f"{lab.tag}-v{number}"
        self._number = number
        self._outer: subprocess.Popen[bytes] | None = None
        self._slow: subprocess.Popen[bytes] | None = None
        self.pid = 0

    # --- life ---

    def start(self) -> None:
        """Boots it, without waiting for it to be up."""
        for name in ("root", "layer"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "network").unlink(missing_ok=True)
        keys = self._lab.home / ".ssh"
        seed.write_seed(
            self._folder / "seed", name=self.name, address=self.address, keys=keys, hosts=self._lab.hosts_file,
            units=self._units, settings=self._settings,
        )  # fmt: skip
        cgroup = self._lab.cgroup / self._lab.tag / self.name
        cgroup.mkdir(exist_ok=True)
        boot = ["/bin/sh", str(HERE / "boot.sh"), str(self._folder), self.name, *self._lab.bound]
        own = ["--net", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--propagation", "private"]
        enter = f'echo $$ > {cgroup}/cgroup.procs; exec setpriv --pdeathsig KILL unshare "$@"'
        with (self._folder / "console").open("wb") as console:
            self._outer = subprocess.Popen(
                ["/bin/sh", "-c", enter, "sh", *own, "--fork", "--kill-child=KILL", *boot],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip
        self.pid = self._first_child(self._outer.pid)
        self._connect()

    def _first_child(self, pid: int) -> int:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(pid).children()
                if children:
                    return children[0].pid
            time.sleep(0.01)
        raise RuntimeError(f"{self.name} did not start: {self.console()}")

    def _connect(self) -> None:
        card = (
            f"02:00:00:00:00:{10 + self._number:02x}"  # the same after each boot, else neighbours write to the old one
        )
        ends = ["type", "veth", "peer", "name", "eth0", "address", card, "netns", str(self.pid)]
        sh("ip", "link", "add", self._cable, *ends)
        sh("ip", "link", "set", self._cable, "master", self._lab.bridge, "up")
        self.net("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.net("ip", "link", "set", "eth0", "up")
        self.net("ip", "link", "set", "lo", "up")
        (self._folder / "network").touch()

    def wait_up(self) -> None:
        """Returns when its sshd answers and its units have been started."""
        until = time.monotonic() + UP_SECONDS
        while time.monotonic() < until:
            if self._answers() and self.run("systemctl", "is-active", "lab.target", check=False).strip() == "active":
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} is not up: {self.console()}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), 0.4) as there:
                return there.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self) -> None:
        """Ends it and everything in it at once."""
        self.fast()
        if self._outer is None:
            return
        if self.pid and psutil.pid_exists(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        else:
            self._outer.kill()
        self._outer.wait()
        self._outer = None
        sh("ip", "link", "del", self._cable, check=False)  # its network may live on for as long as a socket lingers

    def power_off(self) -> None:
        """As when the power is cut: no more packets, no word of farewell."""
        self.unplug()
        self.stop()

    def power_on(self) -> None:
        """A fresh boot: nothing it wrote is left."""
        self.start()
        self.wait_up()

    def console(self) -> str:
        return (self._folder / "console").read_text()[-2000:]

    # --- from inside ---

    def run(self, *words: str, check: bool = True) -> str:
        """What a command says inside, run as root without any network in between."""
        inside = ["nsenter", "--target", str(self.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        return sh(*inside, "--", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", *words, check=check)

    def net(self, *words: str, check: bool = True) -> str:
        """What a tool of this machine says of its network."""
        return sh("nsenter", "--target", str(self.pid), "--net", "--", *words, check=check)

    def wait_for(self, *words: str, seconds: float = 20) -> str:
        """Runs a command inside until it succeeds; what it said then."""
        until = time.monotonic() + seconds
        while True:
            try:
                return self.run(*words)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    # --- the cable ---

    def unplug(self) -> None:
        sh("ip", "link", "set", self._cable, "down")

    def plug(self) -> None:
        sh("ip", "link", "set", self._cable, "up")

    def slow(self, milliseconds: int) -> None:
        """Each packet is late by so much, either way."""
        a, b, side = (f"{self._lab.tag}-{letter}{self._number}" for letter in "abs")
        sh("ip", "tuntap", "add", a, "mode", "tap")
        sh("ip", "tuntap", "add", b, "mode", "tap")
        sh("ip", "link", "add", side, "type", "bridge")
        self._slow = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, str(HERE / "delay.py"), a, b, str(milliseconds)],
            stdin=subprocess.DEVNULL,
        )
        sh("ip", "link", "set", a, "master", side, "up")
        sh("ip", "link", "set", b, "master", self._lab.bridge, "up")
        sh("ip", "link", "set", side, "up")
        sh("ip", "link", "set", self._cable, "master", side)
        time.sleep(0.2)

    def fast(self) -> None:
        """Ends ``slow``."""
        if self._slow is None:
            return
        sh("ip", "link", "set", self._cable, "master", self._lab.bridge, check=False)
        self._slow.kill()
        self._slow.wait()
        self._slow = None
        for letter in "abs":
            sh("ip", "link", "del", f"{self._lab.tag}-{letter}{self._number}", check=False)
