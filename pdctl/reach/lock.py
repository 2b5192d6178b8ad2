"""One lock a host: who is restarting something there, since when, and whether that is still so.

The lock is a file whose content is there with it at once (a hard link to a file already written), so two who take it
at the same time cannot both have it. Its holder touches it; every act on the host first looks whether the lock is still
that of its own run, so whoever lost it (asleep, cut off, taken over) can do nothing more there. All times are compared
by the host's own clock.

A lock is stale, and may be taken over, where the host was booted since; where its holder ran on this machine and is
gone; or where its holder gave no sign of life for ``STALE_AFTER`` seconds. In a folder such as /tmp only its owner and
root may remove a file: another user's stale lock is taken over through the host's sudo, or stands in the way. All hosts
of a run are locked, whichever cluster the holder called it: two inventories may name one cluster differently.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host
from pdctl.model.plan import Hold, Lock, Owner
from pdctl.reach.command import SUDO

FOLDER = "/tmp"
FOLDER_VARIABLE = "PDCTL_LOCK_DIR"
NAME = "pdctl.lock"
STALE_AFTER = 120.0  # seconds without a sign of life
BEAT = 15.0  # seconds between two signs of life
TIMEOUT = 10.0

_SHOW = (
    'show() { echo "now $(date +%s)"; echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"; '
    'if [ -e "$1" ] || [ -L "$1" ]; then echo "beat $(stat -c %Y -- "$1")"; theirs "$1"; cat -- "$1"; '
    "else echo none; fi; }; "
    # Whose it is where it cannot be removed. $S is what makes a command root's, or nothing.
    'theirs() { [ "$(id -u)" = 0 ] || [ -O "$1" ] || [ ! -k "${1%/*}" ] || '
    '{ [ -n "$S" ] && $S mv --version >/dev/null 2>&1; } || echo "of $(stat -c %U -- "$1")"; }; '
)
_OURS = 'ours() { grep -qF -- "$2" "$1" 2>/dev/null; }; '
_LOOK = "S=$2; " + _SHOW + 'show "$1"'
# $1 lock, $2 the token whose lock may be taken over ("" for none), $3 the owner as JSON, $4 sudo or nothing.
_TAKE = (
    "S=$4; " + _SHOW + _OURS + 'try() { "$@" 2>/dev/null || $S "$@"; }; n="$1.$$.new"; o="$1.$$.old"; '
    "b=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null); "
    '(umask 022; set -C; printf "owner %s\\nsince %s %s\\n" "$3" "$(date +%s)" "$b" >"$n") || exit 1; '
    'if [ -n "$2" ] && ours "$1" "$2"; then try mv -- "$1" "$o" || { rm -f -- "$n"; exit 1; }; '
    'ours "$o" "$2" || try ln -- "$o" "$1"; try rm -f -- "$o"; fi; '
    'ln -- "$n" "$1" 2>/dev/null && r=taken || r=held; rm -f -- "$n"; echo "$r"; show "$1"'
)
_BEAT = "S=$3; " + _SHOW + _OURS + 'ours "$1" "$2" && touch -c -- "$1"; show "$1"'
_RELEASE = "S=$3; " + _SHOW + _OURS + 'ours "$1" "$2" && rm -f -- "$1"; show "$1"'


def lock_path(folder: str | None = None) -> str:
    """Where a host's lock is. ``$PDCTL_LOCK_DIR`` names another folder; everybody who restarts must name the same."""
    return f"{folder or os.environ.get(FOLDER_VARIABLE) or FOLDER}/{NAME}"


def new_owner(who: str, cluster: str, run: str) -> Owner:
    """This process as the owner of a lock."""
    return Owner(who, this_machine(), os.getpid(), _born(os.getpid()) or 0.0, cluster, run, secrets.token_hex(8))


def this_machine() -> str:
    """This machine as it runs now: its name and the id of its boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        boot = "unknown"
    return f"{socket.gethostname()} {boot}"


def is_gone(owner: Owner) -> bool:
    """Whether the owner ran on this machine and is there no more. False where nobody here can tell."""
    if owner.machine != this_machine() or owner.machine.endswith(" unknown"):
        return False
    born = _born(owner.pid)
    return born is None or abs(born - owner.born) > 1.0


def _born(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.Error:  # there, and not ours to look at
        return 0.0


# --- asks -------------------------------------------------------------------------------------------------------------


def look_ask(host: Host, path: str) -> CommandAsk:
    """How the lock stands."""
    return _ask(host, _LOOK, (path,), f"cat {path}")


def take_ask(host: Host, path: str, owner: Owner, stale: Owner | None) -> CommandAsk:
    """Takes the lock, in place of ``stale``'s where that is the one there. How it then stands tells whose it is."""
    words = json.dumps(asdict(owner), separators=(",", ":"))
    return _ask(host, _TAKE, (path, stale.token if stale else "", words), f"ln OWNER {path}")


def beat_ask(host: Host, path: str, owner: Owner) -> CommandAsk:
    """A sign of life."""
    return _ask(host, _BEAT, (path, owner.token), f"touch {path}")


def release_ask(host: Host, path: str, owner: Owner) -> CommandAsk:
    """Gives the lock up, if it is the owner's."""
    return _ask(host, _RELEASE, (path, owner.token), f"rm {path}")


def _ask(host: Host, script: str, words: tuple[str, ...], shown: str) -> CommandAsk:
    root = " ".join(SUDO) if host.become == "sudo" else ""
    argv = ("sh", "-c", script, "sh", *words, root)
    return CommandAsk(f"host:{host.name}", Fact.FILE, host.name, argv, timeout=TIMEOUT, shown=shown)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_lock(answer: Answer, own: Owner | None = None, gone: Callable[[Owner], bool] = is_gone) -> Lock:
    """How the lock stands by the answer to any of the asks. ``gone`` tells whether an owner is known to have ended."""
    if answer.error is not None or answer.body is None:
        return Lock(Hold.UNKNOWN, why=answer.detail or (answer.error.value if answer.error else "no answer"))
    said = _Said(answer.body.decode("utf-8", "replace"))
    if said.is_free:
        return Lock(Hold.FREE)
    age = None if said.now is None or said.since is None else max(0.0, said.now - said.since)
    quiet = None if said.now is None or said.beat is None else max(0.0, said.now - said.beat)
    owner = said.owner
    if owner is None:
        why = f"{NAME} holds no owner's name: remove it if nobody restarts anything"
        return Lock(Hold.UNKNOWN, None, age, quiet, why)
    if own is not None and owner.token == own.token:
        return Lock(Hold.OURS, owner, age, quiet)
    why_stale = _stale(owner, said, quiet, gone)
    return Lock(Hold.STALE if why_stale else Hold.HELD, owner, age, quiet, why_stale, said.of)


def _stale(owner: Owner, said: _Said, quiet: float | None, gone: Callable[[Owner], bool]) -> str | None:
    if said.boot and said.taken_boot and said.boot != said.taken_boot:
        return "the host was booted since it was taken"
    if gone(owner):
        return f"its pdctl (pid {owner.pid} on this machine) has ended"
    if quiet is not None and quiet > STALE_AFTER:
        return f"no sign of life for {quiet:.0f} s"
    return None


class _Said:
    """The lines of ``show``."""

    def __init__(self, text: str) -> None:
        rows = [line.partition(" ") for line in text.splitlines()]
        values = {key: rest for key, _, rest in rows}
        self.is_free = "none" in values and "beat" not in values
        self.now = _number(values.get("now"))
        self.beat = _number(values.get("beat"))
        self.boot = values.get("boot") or None
        since, _, boot = values.get("since", "").partition(" ")
        self.since, self.taken_boot = _number(since), boot or None
        self.owner = _owner(values.get("owner"))
        self.of = values.get("of") or None


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() else None


def _owner(text: str | None) -> Owner | None:
    try:
        value = json.loads(text or "")
        return Owner(
            str(value["who"]), str(value["machine"]), int(value["pid"]), float(value["born"]), str(value["cluster"]),
            str(value["run"]), str(value["token"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
