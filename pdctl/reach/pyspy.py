"""py-spy on a host: the engine's own or the host's where there is one, else a copy of ours, for the moment.

A copy that was put there is removed when done; should we not get to it, a watch that was left beside it removes it.
"""

from __future__ import annotations

import shutil
import struct
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import MEGABYTE, CommandAsk
from pdctl.model.cluster import Host, Instance

Run = Callable[[CommandAsk], Answer]

PLACING = 60.0  # seconds: a few megabytes over whatever lies between
FINDING = 10.0
SURPLUS = 2  # seconds after a dump's own deadline at which the host itself ends it, where sudo stands in between

# Prints the first of the paths given that runs, else the one on PATH.
_FIND = (
    'for c in "$@"; do [ -x "$c" ] && "$c" --version >/dev/null 2>&1 && { echo "$c"; exit 0; }; done; command -v py-spy'
)
# Takes the program on stdin; $1 is the seconds after which it is to go by itself. Some places allow no execution.
_PLACE = (
    'umask 077; for base in /tmp /var/tmp "${XDG_RUNTIME_DIR:-}" /dev/shm "${HOME:-}"; do '
    '[ -n "$base" ] && [ -w "$base" ] && d=$(mktemp -d "$base/pdctl-XXXXXX" 2>/dev/null) || continue; '
    'if [ -n "$held" ]; then cp "$held/py-spy" "$d/py-spy"; rm -rf -- "$held"; else cat > "$d/py-spy"; fi; held=$d; '
    'chmod 700 "$d/py-spy"; "$d/py-spy" --version >/dev/null 2>"$d/why" && { ok=1; break; }; done; '
    '[ -n "$held" ] || { echo "no folder to write to" >&2; exit 1; }; '
    '[ -n "$ok" ] || { cat "$held/why" >&2; rm -rf -- "$held"; exit 126; }; '
    'setsid sh -c \'sleep "$1"; rm -rf -- "$2"\' sh "$1" "$held" >/dev/null 2>&1 </dev/null & '
    'echo $! > "$held/watch"; echo "$held"'
)
_REMOVE = 'kill -s KILL -- "-$(cat "$1/watch")" 2>/dev/null; rm -rf -- "$1"; [ ! -e "$1" ]'

# e_machine of an ELF file, and what uname -m says on such a machine.
_MACHINES = {62: ("x86_64", "amd64"), 183: ("aarch64", "arm64"), 3: ("i686", "i386"), 40: ("armv7l", "armv6l")}


@dataclass(frozen=True, slots=True)
class Spy:
    """A py-spy that can be run on a host. ``folder`` is what must be removed there afterwards."""

    path: str
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class NoSpy:
    """Why there is none."""

    why: str


@dataclass(frozen=True, slots=True)
class DumpPlan:
    """How to dump: seconds for one, local variables or native frames as well. Native frames need the process stopped
    for the moment; without them it never is."""

    timeout_s: float = 10.0
    locals: bool = False
    native: bool = False


def find_spy(run: Run, host: Host, beside: Sequence[str]) -> Spy | NoSpy:
    """A py-spy on the host: beside one of these interpreters, else on PATH, else ours, put there. ``beside`` are paths
    of interpreters as the host sees them."""
    candidates = dict.fromkeys(f"{path.rpartition('/')[0]}/py-spy" for path in beside if path.startswith("/"))
    found = run(_on(host, ("sh", "-c", _FIND, "sh", *candidates), FINDING))
    path = _last_line(found)
    if found.status == 0 and path:
        return Spy(path)
    if found.status is None:
        return NoSpy(found.detail or "the host did not answer")
    return _ours_here() if host.ssh is None else _place(run, host)


def remove_spy(run: Run, host: Host, spy: Spy) -> str | None:
    """Removes a copy that was put there; what went wrong, if something did."""
    if spy.folder is None:
        return None
    answer = run(_on(host, ("sh", "-c", _REMOVE, "sh", spy.folder), FINDING))
    if answer.status == 0:
        return None
    return f"{spy.folder} on {host.name} was not removed ({answer.detail}); it goes by itself in a few minutes"


def dump_ask(instance: Instance, host: Host, spy: Spy, pid: int, title: str, plan: DumpPlan) -> CommandAsk:
    """The dump of one process."""
    argv: tuple[str, ...] = (spy.path, "dump", "--pid", str(pid))
    argv += ("--native",) if plan.native else ("--nonblocking",)
    argv += ("--locals",) if plan.locals else ()
    become = host.become is not None
    if become:  # the wrapper's own watch may not end what root runs
        argv = ("timeout", "-s", "KILL", str(int(plan.timeout_s) + SURPLUS), *argv)
    shown = " ".join(argv) if spy.folder is None else " ".join(argv).replace(spy.path, "py-spy")
    return CommandAsk(
        instance.name, Fact.STACKS, host.name, argv, timeout=plan.timeout_s, cap=32 * MEGABYTE, become=become,
        about=(("pid", pid), ("title", title)), shown=shown,
    )  # fmt: skip


def resume_ask(host: Host, pid: int) -> CommandAsk:
    """Lets a process go on that a dump left stopped."""
    argv = ("kill", "-s", "CONT", str(pid))
    return CommandAsk(f"host:{host.name}", Fact.PROCESSES, host.name, argv, become=host.become is not None)


def _on(host: Host, argv: tuple[str, ...], timeout: float, stdin: bytes | None = None) -> CommandAsk:
    return CommandAsk(f"host:{host.name}", Fact.FILE, host.name, argv, timeout=timeout, stdin=stdin)


def _last_line(answer: Answer) -> str:
    lines = (answer.body or b"").decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


# --- our own -----------------------------------------------------------------------------------------------------


def _ours() -> Path | None:
    found = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    return Path(found) if found else None


def _ours_here() -> Spy | NoSpy:
    path = _ours()
    return Spy(str(path)) if path else NoSpy("no py-spy here (it comes with pdctl: pip install py-spy)")


def _place(run: Run, host: Host) -> Spy | NoSpy:
    path = _ours()
    if path is None:
        return NoSpy(f"no py-spy on {host.name}, and none here to put there")
    program = path.read_bytes()
    machine = _last_line(run(_on(host, ("uname", "-m"), FINDING)))
    if machine not in _machines_of(program):
        return NoSpy(f"no py-spy on {host.name}, and ours does not run on a {machine or 'machine like that'}")
    answer = run(_on(host, ("sh", "-c", _PLACE, "sh", str(int(PLACING * 10))), PLACING, stdin=program))
    folder = _last_line(answer)
    if answer.error is not None or not folder.startswith("/"):
        said = "nowhere may programs be run" if answer.error is Why.PERMISSION else answer.detail
        return NoSpy(f"no py-spy on {host.name}, and ours could not be put there: {said}")
    return Spy(f"{folder}/py-spy", folder)


def _machines_of(program: bytes) -> tuple[str, ...]:
    """The machines a Linux program runs on; none for anything else (a script, a program for another system)."""
    if program[:4] != b"\x7fELF" or len(program) < 20:
        return ()
    return _MACHINES.get(struct.unpack_from("<H", program, 18)[0], ())
