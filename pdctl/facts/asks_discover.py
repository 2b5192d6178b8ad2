"""What else to ask of a host on which engines and routers are looked for: names, units, files, links of a process."""

from __future__ import annotations

from pdctl.model.answer import Fact
from pdctl.model.ask import MEGABYTE, CommandAsk
from pdctl.model.cluster import Host

TIMEOUT = 10.0  # seconds
_NAMES = "hostname; hostname -f 2>/dev/null; hostname -I 2>/dev/null; exit 0"
_LINKS = (
    'for n in "$1/fd/2" "$1/fd/1" "$1/ns/net" self/ns/net "$1/ns/mnt" self/ns/mnt; do '
    'readlink "/proc/$n" 2>/dev/null || echo; done'
)
# A path as the process sees it: through its own root, from its own folder.
_THEIRS = (
    'case $2 in /*) cat -- "/proc/$1/root$2" 2>/dev/null || exec cat -- "$2";; '
    '*) cd "/proc/$1/cwd" && exec cat -- "$2";; esac'
)


def names_ask(host: Host) -> CommandAsk:
    """What the host calls itself, and its addresses: words."""
    return _ask(host, f"host:{host.name}", Fact.FILE, ("sh", "-c", _NAMES), "hostname; hostname -f; hostname -I")


def unit_show_ask(host: Host, unit: str) -> CommandAsk:
    """What systemd says of a unit, times in UTC. Read by ``unit.read``."""
    argv = ("env", "TZ=UTC", "systemctl", "show", "--no-pager", "--", unit)
    return _ask(host, f"{host.name}/{unit}", Fact.UNIT, argv, f"TZ=UTC systemctl show {unit}")


def links_ask(host: Host, pid: int) -> CommandAsk:
    """Where a process's output goes and whether it is in a container. Read by ``served.read_links``."""
    shown = f"readlink /proc/{pid}/fd/2 /proc/{pid}/fd/1 /proc/{pid}/ns/net /proc/{pid}/ns/mnt"
    return _ask(host, f"{host.name}/pid:{pid}", Fact.FILE, ("sh", "-c", _LINKS, "sh", str(pid)), shown)


def config_ask(host: Host, pid: int, path: str) -> CommandAsk:
    """The text of a file named on a process's command line."""
    argv = ("sh", "-c", _THEIRS, "sh", str(pid), path)
    return _ask(host, f"{host.name}/config:{pid}", Fact.FILE, argv, f"cat {path}")


def script_ask(host: Host, pid: int, path: str) -> CommandAsk:
    """The beginning of what may be a script, or a program."""
    argv = ("head", "-c", str(MEGABYTE // 4), "--", path)
    return _ask(host, f"{host.name}/script:{pid}", Fact.FILE, argv, f"cat {path}")


def _ask(host: Host, subject: str, fact: Fact, argv: tuple[str, ...], shown: str) -> CommandAsk:
    become = host.become is not None
    return CommandAsk(subject, fact, host.name, argv, TIMEOUT, 4 * MEGABYTE, become=become, shown=shown)
