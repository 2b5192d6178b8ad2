"""A real OpenSSH server on loopback, with keys and configuration of its own, and the client's side of them."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

MISSING = "no OpenSSH server here (apt-get install -y --no-install-recommends openssh-server)"


def find_sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Sshd:
    """A running server. ``folder`` holds everything of it; ``spec`` is how an inventory names it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    user: str = field(default_factory=lambda: pwd.getpwuid(os.getuid()).pw_name)

    @property
    def spec(self) -> str:
        return f"{self.user}@127.0.0.1:{self.port}"

    @property
    def key(self) -> Path:
        return self.folder / "user_key"

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def config(self, hosts: str = "", known: Path | None = None, key: Path | None = None) -> str:
        """A client configuration that reaches it. ``hosts`` are blocks that come before what counts for all."""
        return (
            f"{hosts}\nHost *\n  IdentityFile {key or self.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known or self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
        )

    def children(self) -> list[int]:
        """The processes that serve connections."""
        import psutil

        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=False)]

    def stop(self) -> None:
        """Ends the server and whatever serves a connection or was started by one."""
        import psutil

        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        for member in family:
            try:
                member.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family, timeout=5)


def start_sshd(folder: Path, settings: str = "") -> Sshd:
    """A server that answers when this returns. ``settings`` come first in its configuration, so they win."""
    binary = find_sshd()
    assert binary is not None, MISSING
    folder.mkdir(parents=True, exist_ok=True)
    make_key(folder / "host_key")
    make_key(folder / "user_key")
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants its empty folder there
    for _ in range(5):
        server = _started(binary, folder, free_port(), settings)
        if server is not None:
            (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {server.host_key}\n")
            return server
    raise RuntimeError((folder / "log").read_text())


def _started(binary: str, folder: Path, port: int, settings: str) -> Sshd | None:
    config = folder / "sshd_config"
    config.write_text(
        f"{settings}\nPort {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPidFile {folder}/pid\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        "UseDNS no\nPrintMotd no\nMaxStartups 100\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([binary, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=log)
    server = Sshd(folder, port, process)
    for _ in range(200):
        if process.poll() is not None:
            return None  # another took the port first
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return server
    process.kill()
    process.wait()
    return None
