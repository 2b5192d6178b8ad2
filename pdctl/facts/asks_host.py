"""Which commands to ask of a host for its processes, units, sockets, limits, stacks, logs and GPUs.

Nothing is installed there: /bin/sh, coreutils and grep are enough, better tools are used where they are. What a command
says is read by the fact of the same name; a listing of all processes is first split by instance (``kin.py``).
"""

from __future__ import annotations

import shlex

from pdctl.model.answer import Fact
from pdctl.model.ask import MEGABYTE, CommandAsk
from pdctl.model.cluster import Host, Instance

TIMEOUT = 10.0  # seconds
SOCKETS_TIMEOUT = 30.0  # ss -p looks into every process of the host
MANY_SOCKETS = 5_000
LOG_BYTES = 8 * MEGABYTE
LOG_LINES = 50_000

# One pass over /proc: grep puts the file's name before each line, so no process can pass for another by its title.
_LISTING = (
    'cd /proc || exit 1; echo "clock $(date +%s) $(getconf CLK_TCK) $(getconf PAGESIZE)"; grep -a "^btime" stat; '
    "grep -aH '' [0-9]*/stat [0-9]*/cmdline [0-9]*/cgroup 2>/dev/null; ls -l [0-9]*/exe 2>/dev/null; exit 0"
)
_LISTING_SHOWN = "grep -aH '' /proc/[0-9]*/stat /proc/[0-9]*/cmdline /proc/[0-9]*/cgroup"
_SOCKETS = (
    "command -v ss >/dev/null 2>&1 || { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; exit 0; }; n=0; "
    'while read -r kind _ value _; do [ "$kind" = TCP: ] && n=$value; done </proc/net/sockstat; '
    f'[ "$n" -gt {MANY_SOCKETS} ] && exec ss -tanpo; exec ss -tanpieo'
)
_LIMITS = 'cat "/proc/$1/limits" || exit; open=$(ls "/proc/$1/fd") || exit 0; set -- $open; echo "fd_count $#"'
_THREADS = "cd \"/proc/$1/task\" || exit; grep -aH '' */stat; grep -aH '' */wchan 2>/dev/null; exit 0"
_STATES = 'cd /proc; for p in "$@"; do grep -aH \'\' "$p/stat" 2>/dev/null; done; exit 0'
_GPU_QUERY = "index,utilization.gpu,power.draw,memory.used"


def host_subject(host: Host) -> str:
    """The subject of a fact about a host."""
    return f"host:{host.name}"


def processes_ask(host: Host) -> CommandAsk:
    """Every process of the host. Read by ``proc_listing.read_listing``."""
    return _of_host(host, Fact.PROCESSES, ("sh", "-c", _LISTING), shown=_LISTING_SHOWN, become=True)


def sockets_ask(host: Host) -> CommandAsk:
    """Every TCP socket of the host with its process and the kernel's figures of each (how long since it sent and
    received); without those on a host with very many sockets, where they cost more than they tell; by the kernel's own
    tables, which name no process and no backlog, where there is no ss."""
    return _of_host(
        host, Fact.SOCKETS, ("sh", "-c", _SOCKETS), shown="ss -tanpieo", timeout=SOCKETS_TIMEOUT, cap=256 * MEGABYTE,
        become=True,
    )  # fmt: skip


def nstat_ask(host: Host) -> CommandAsk:
    """The kernel's network counters."""
    return _of_host(host, Fact.NSTAT, ("nstat", "-az"))


def gpu_ask(host: Host) -> CommandAsk:
    """Load, power and memory of each GPU."""
    return _of_host(host, Fact.GPU, ("nvidia-smi", f"--query-gpu={_GPU_QUERY}", "--format=csv"))


def unit_ask(instance: Instance, host: Host) -> CommandAsk:
    """What systemd says of the instance's unit, times in UTC."""
    argv = ("env", "TZ=UTC", "systemctl", "show", "--no-pager", "--", instance.unit or "")
    shown = f"TZ=UTC systemctl show {shlex.quote(instance.unit or '')}"
    return _of_instance(instance, host, Fact.UNIT, argv, shown=shown)


def limits_ask(instance: Instance, host: Host, pid: int, title: str = "") -> CommandAsk:
    """The limits of a process and how many files it has open."""
    argv = ("sh", "-c", _LIMITS, "sh", str(pid))
    shown = f"cat /proc/{pid}/limits; ls /proc/{pid}/fd | wc -l"
    return _of_instance(instance, host, Fact.LIMITS, argv, shown=shown, become=True, about=_who(pid, title))


def threads_ask(instance: Instance, host: Host, pid: int) -> CommandAsk:
    """Each thread's name, state and where in the kernel it waits. Read by ``proc_listing.read_threads``."""
    argv = ("sh", "-c", _THREADS, "sh", str(pid))
    shown = f"grep -aH '' /proc/{pid}/task/*/stat /proc/{pid}/task/*/wchan"
    return _of_instance(instance, host, Fact.FILE, argv, shown=shown, become=True, about=_who(pid, ""))


def states_ask(host: Host, pids: tuple[int, ...]) -> CommandAsk:
    """Whether processes are stopped. Read by ``proc_listing.read_states``."""
    argv = ("sh", "-c", _STATES, "sh", *map(str, pids))
    return _of_host(host, Fact.PROCESSES, argv, shown=f"grep -aH '' {' '.join(f'/proc/{p}/stat' for p in pids)}")


def log_ask(instance: Instance, host: Host) -> CommandAsk:
    """The end of the instance's log: its file, else its unit's journal."""
    if instance.log:
        argv: tuple[str, ...] = ("tail", "-c", str(LOG_BYTES), "--", instance.log)
    else:
        newest = ("-n", str(LOG_LINES), "-u", instance.unit or "")
        argv = ("journalctl", "--no-pager", "-a", "-o", "short-iso-precise", *newest)
    return _of_instance(instance, host, Fact.LOG, argv, cap=4 * LOG_BYTES, become=True)


def _who(pid: int, title: str) -> tuple[tuple[str, object], ...]:
    return (("pid", pid), *((("title", title),) if title else ()))


def _of_host(
    host: Host, fact: Fact, argv: tuple[str, ...], *, shown: str | None = None, timeout: float = TIMEOUT,
    cap: int = 64 * MEGABYTE, become: bool = False,
) -> CommandAsk:  # fmt: skip
    return CommandAsk(
        host_subject(host), fact, host.name, argv, timeout=timeout, cap=cap, become=become and host.become is not None,
        shown=shown,
    )  # fmt: skip


def _of_instance(
    instance: Instance, host: Host, fact: Fact, argv: tuple[str, ...], *, shown: str | None = None,
    cap: int = 64 * MEGABYTE, become: bool = False, about: tuple[tuple[str, object], ...] = (),
) -> CommandAsk:  # fmt: skip
    return CommandAsk(
        instance.name, fact, host.name, argv, timeout=TIMEOUT, cap=cap, become=become and host.become is not None,
        about=about, shown=shown,
    )  # fmt: skip
