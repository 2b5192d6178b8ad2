"""What to ask of a host before and while something is restarted there: whether a script parses, what its disks hold,
which processes hold GPU memory, what a log said last."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host, Instance
from pdctl.model.plan import Disk

TIMEOUT = 10.0  # seconds
# Of a file that is not there yet, the folder it will be in.
_DISKS = (
    'for p in "$@"; do while [ -n "$p" ] && [ ! -e "$p" ]; do case $p in */*) p=${p%/*};; *) p=.;; esac; done; '
    'df -Pk -- "${p:-/}" 2>/dev/null | tail -n 1; done; exit 0'
)
_GPU_APPS = "--query-compute-apps=pid,used_gpu_memory"
LAST_BYTES = 4096
LONGEST = 300  # characters
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def syntax_ask(instance: Instance, host: Host, script: str, raw: bytes) -> CommandAsk:
    """Whether bash can parse the script's bytes; it runs nothing of them. They are handed over, because a script that
    only root may read was read through sudo."""
    ask = _ask(instance.name, host, ("bash", "-n"), shown=f"bash -n {shlex.quote(script)}")
    return replace(ask, stdin=raw)


def disks_ask(host: Host, paths: Sequence[str]) -> CommandAsk:
    """The file systems those paths are on. Read by ``read_disks``."""
    shown = f"df -Pk {' '.join(shlex.quote(path) for path in paths)}"
    return _ask(f"host:{host.name}", host, ("sh", "-c", _DISKS, "sh", *paths), shown=shown)


def read_disks(answer: Answer) -> tuple[Disk, ...] | None:
    """Each file system once; None where nothing could be seen."""
    if answer.error is not None or not answer.body:
        return None
    found: dict[str, Disk] = {}
    for line in answer.body.decode("utf-8", "replace").splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and words[1].isdigit() and words[3].isdigit():
            found[words[5]] = Disk(words[5], int(words[3]) * 1024, int(words[1]) * 1024)
    return tuple(found.values()) or None


def gpu_apps_ask(host: Host) -> CommandAsk:
    """Which processes hold how much GPU memory. Read by ``read_gpu_apps``."""
    return _ask(f"host:{host.name}", host, ("nvidia-smi", _GPU_APPS, "--format=csv,noheader,nounits"))


def read_gpu_apps(answer: Answer) -> dict[int, float] | None:
    """MiB by process, summed over GPUs (0 where the driver does not tell); None where nothing could be seen."""
    if answer.error is not None or answer.body is None:
        return None
    held: dict[int, float] = {}
    for line in answer.body.decode("utf-8", "replace").splitlines():
        pid, _, memory = (part.strip() for part in line.partition(","))
        if pid.isdigit():
            held[int(pid)] = held.get(int(pid), 0.0) + (float(memory) if memory.isdigit() else 0.0)
    return held


def listeners_ask(host: Host) -> CommandAsk:
    """Which process listens on which TCP port: what tells a router that hides its flags."""
    become = host.become is not None
    return _ask(f"host:{host.name}", host, ("ss", "-tlnp"), fact=Fact.SOCKETS, become=become)


def last_log_ask(instance: Instance, host: Host) -> CommandAsk | None:
    """The last lines of the instance's log: its file, else its unit's journal; None where it has neither."""
    if instance.log:
        argv: tuple[str, ...] = ("tail", "-c", str(LAST_BYTES), "--", instance.log)
    elif instance.unit:
        argv = ("journalctl", "--no-pager", "-q", "-o", "cat", "-n", "3", "-u", instance.unit)
    else:
        return None
    return _ask(instance.name, host, argv, fact=Fact.LOG, become=host.become is not None)


def last_line(answer: Answer) -> str | None:
    """The last line with anything in it, without colours (routers write them into files, too), cut where it is very
    long; None where none could be read."""
    if answer.error is not None or not answer.body:
        return None
    text = _COLOUR.sub("", answer.body.decode("utf-8", "replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else None


def _ask(
    subject: str, host: Host, argv: tuple[str, ...], *, shown: str | None = None, fact: Fact = Fact.FILE,
    become: bool = False,
) -> CommandAsk:  # fmt: skip
    return CommandAsk(subject, fact, host.name, argv, timeout=TIMEOUT, cap=1024 * 1024, become=become, shown=shown)
