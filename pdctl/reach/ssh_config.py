"""~/.ssh/config as OpenSSH reads it, as far as reaching a host needs: one ``Target`` for each host named.

paramiko reads the file; what it lacks (``Include``, the system-wide file) is done to the text before.
"""

from __future__ import annotations

import getpass
import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdctl.errors import PdctlError

if TYPE_CHECKING:
    from paramiko import SSHConfig

DEFAULT_PORT = 22
DEEPEST_INCLUDE = 16  # OpenSSH's own limit
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
USER_CONFIG = "~/.ssh/config"
SYSTEM_CONFIG = "/etc/ssh/ssh_config"
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


class SshFailure(PdctlError):
    """A host cannot be reached over SSH; the message says why in one line and names the host."""

    kind = "ssh"
    exit_status = 64


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection goes and what it may use. ``name`` is the host as the inventory spells it; ``connect_timeout``
    is seconds or None; ``jumps`` are reached one through the other, first first."""

    name: str
    hostname: str
    port: int
    user: str
    identities: tuple[str, ...] = ()
    identities_only: bool = False
    agent: bool = True
    jumps: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout: float | None = None
    known_hosts: tuple[str, ...] = ()
    key_alias: str | None = None

    @property
    def key_name(self) -> str:
        """The name its key goes by in known_hosts."""
        if self.key_alias is not None:
            return self.key_alias
        return self.hostname if self.port == DEFAULT_PORT else f"[{self.hostname}]:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """``[user@]host[:port]`` taken apart."""

    host: str
    user: str | None = None
    port: int | None = None


_SPEC = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[^]]+)\]|(?P<host>[^:@]+|[^:@]*:[^:@]*:[^@]*))(?::(?P<port>\d+))?/?"
)


def read_address(spec: str) -> Address:
    """``[user@]host[:port]``, ``[user@][v6]:port`` or ``ssh://...``. Raises SshFailure for anything else."""
    match = _SPEC.fullmatch(spec.strip())
    host = (match["six"] or match["host"]) if match else None
    if match is None or not host or host.startswith("-"):
        raise SshFailure(f"{spec!r} is no SSH host", "write [user@]host[:port]")
    return Address(host, match["user"] or None, int(match["port"]) if match["port"] else None)


class SshConfig:
    """What the user's and the system's configuration say of a host."""

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._config = _parsed(text)

    @classmethod
    def read(cls, path: str | None = None) -> SshConfig:
        """The given file alone, else the user's followed by the system's: the first value found counts."""
        if path is not None:
            return cls(_included(Path(path).expanduser(), Path("~/.ssh").expanduser()))
        user = _included(Path(USER_CONFIG).expanduser(), Path("~/.ssh").expanduser())
        return cls(f"{user}\nHost *\n{_included(Path(SYSTEM_CONFIG), Path('/etc/ssh'))}")

    def target(self, spec: str, *, jumped: bool = False) -> Target:
        """The target ``spec`` names. ``jumped``: reached through a given host, so its own proxy does not count."""
        address = read_address(spec)
        said = self._lookup(address)
        user = said.get("user") or _own_name()
        port = _number(said, "port", DEFAULT_PORT)
        hostname = str(said.get("hostname") or address.host)
        jumps, command = ((), None) if jumped else _proxy(said, address.host)
        return Target(
            name=spec,
            hostname=hostname,
            port=port,
            user=str(user),
            identities=_identities(said, hostname, str(user)),
            identities_only=said.get("identitiesonly", "no").lower() == "yes",
            agent=said.get("identityagent", "").lower() != "none",
            jumps=jumps,
            proxy_command=command,
            connect_timeout=float(_number(said, "connecttimeout", 0)) or None,
            known_hosts=_known_hosts(said, hostname, port, str(user)),
            key_alias=said.get("hostkeyalias"),
        )

    def _lookup(self, address: Address) -> Mapping[str, Any]:
        from paramiko.ssh_exception import CouldNotCanonicalize

        given = [f"User {address.user}"] if address.user else []
        given += [f"Port {address.port}"] if address.port else []
        # The first value found counts: what the inventory gives comes first, so that %r and %p stand for it, too.
        config = _parsed("\n".join(["Host *", *given, self._text])) if given else self._config
        try:
            return config.lookup(address.host)
        except (CouldNotCanonicalize, ValueError, OSError, ImportError) as error:
            raise SshFailure(f"SSH configuration of {address.host}: {error}") from None


def _parsed(text: str) -> SSHConfig:
    from paramiko import SSHConfig
    from paramiko.ssh_exception import ConfigParseError

    try:
        return SSHConfig.from_text(text)
    except (ConfigParseError, ValueError) as error:
        raise SshFailure(f"SSH configuration: {error}") from None


def _number(said: Mapping[str, Any], key: str, default: int) -> int:
    value = said.get(key)
    if value is None or str(value).lower() == "none":
        return default
    try:
        return int(value)
    except ValueError:
        raise SshFailure(f"SSH configuration: {key} {value!r} is no number") from None


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise SshFailure(f"no user to log in as: {error}", "write user@host") from None


def _proxy(said: Mapping[str, Any], host: str) -> tuple[tuple[str, ...], str | None]:
    """The jump hosts, or else the proxy command; ProxyJump wins where both are there. A host that is its own jump
    host (``Host *`` with the jump host among them) is reached directly, as OpenSSH does it."""
    jump = str(said.get("proxyjump") or "none")
    if jump.lower() != "none":
        jumps = tuple(part.strip() for part in jump.split(",") if part.strip())
        return tuple(j for j in jumps if read_address(j).host != host), None
    command = str(said.get("proxycommand") or "none")
    return (), None if command.lower() == "none" else command.removeprefix("exec ")


def _identities(said: Mapping[str, Any], host: str, user: str) -> tuple[str, ...]:
    named = said.get("identityfile") or DEFAULT_IDENTITIES
    return tuple(_expanded(path.strip('"'), host, None, user) for path in named if path.lower() != "none")


def _known_hosts(said: Mapping[str, Any], host: str, port: int, user: str) -> tuple[str, ...]:
    of_user = str(said["userknownhostsfile"]).split() if "userknownhostsfile" in said else USER_KNOWN_HOSTS
    of_system = str(said["globalknownhostsfile"]).split() if "globalknownhostsfile" in said else SYSTEM_KNOWN_HOSTS
    named = (*of_user, *of_system)
    return tuple(_expanded(path.strip('"'), host, port, user) for path in named if path.lower() != "none")


def _expanded(path: str, host: str, port: int | None, user: str) -> str:
    home = str(Path("~").expanduser())
    tokens = {"%%": "%", "%d": home, "%h": host, "%p": str(port or ""), "%r": user, "%u": user}
    text = re.sub(r"%[%dhpru]", lambda m: tokens[m[0]], path)
    return str(Path(os.path.expandvars(text)).expanduser())


# --- Include -----------------------------------------------------------------------------------------------------


def _included(path: Path, base: Path, depth: int = 0) -> str:
    """The file's text with each ``Include`` replaced by what it names. After it the block around it begins anew, as
    the included file may have begun blocks of its own."""
    try:
        text = path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise SshFailure(f"{path}: {error.strerror}", "it holds how hosts are reached, so nothing is tried") from None
    if depth >= DEEPEST_INCLUDE:
        raise SshFailure(f"{path}: files include one another more than {DEEPEST_INCLUDE} deep")
    block = "Host *"
    lines: list[str] = []
    for line in text.splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in ("host", "match"):
            block = line.strip()
        if word.lower() != "include":
            lines.append(line)
            continue
        lines += [_included(found, base, depth + 1) for found in _matches(rest, base)]
        lines.append(block)
    return "\n".join(lines)


def _matches(patterns: str, base: Path) -> list[Path]:
    found: list[Path] = []
    for pattern in patterns.split():
        path = os.path.expanduser(pattern.strip('"'))  # noqa: PTH111 (a pattern, not a path)
        full = path if os.path.isabs(path) else str(base / path)  # noqa: PTH117
        found += [Path(name) for name in sorted(glob.glob(full))]  # noqa: PTH207
    return found
