"""What changes something on a host: each act once, under the host's lock, with a line in the host's syslog.

The script around an act looks whether the lock is still ours, leaves a mark that it was begun (so that one attempt of
one run is never made twice, whatever becomes of the connection), tells syslog, and only then acts. The mark is a
folder: ``rc`` is the exit status once there is one, ``out`` what the command said, ``pid`` the job that still runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host
from pdctl.model.plan import Owner
from pdctl.reach.command import SUDO

NO_MARK = 96
NOT_OURS = 97
BEGUN_BEFORE = 98
TIMEOUT = 25.0  # seconds: an act tells systemd or starts a job, and does not wait
SAID = 2000  # characters of what a job said last

# $1 lock, $2 token, $3 mark, $4 what syslog is told; then the words.
_GUARD = (
    'lock=$1 token=$2 mark=$3 said=$4; shift 4; grep -qF -- "$token" "$lock" 2>/dev/null || '
    f'{{ echo "the lock of this host is not ours any more" >&2; exit {NOT_OURS}; }}; '
    '(umask 077; mkdir -p -- "${mark%/*}") || exit; [ -O "${mark%/*}" ] || '
    f'{{ echo "${{mark%/*}} belongs to another user" >&2; exit {NO_MARK}; }}; '
    'no=$( (umask 077; mkdir -- "$mark") 2>&1) || '
    f'{{ [ -d "$mark" ] && {{ echo "begun before" >&2; exit {BEGUN_BEFORE}; }}; echo "$no" >&2; exit {NO_MARK}; }}; '
    'logger -t pdctl -- "$said" 2>/dev/null || echo "syslog did not take the line" >&2; '
)
_AT_ONCE = (
    _GUARD
    + '"$@" >"$mark/out" 2>&1; rc=$?; echo "$rc" >"$mark/rc"; cat -- "$mark/out"; '
    + '[ "$rc" = 0 ] || cat -- "$mark/out" >&2; exit "$rc"'
)
_RUN = 'm=$1; shift; echo "$$" >"$m/pid"; "$@" >"$m/out" 2>&1 </dev/null; echo "$?" >"$m/rc"'
_JOB = (
    _GUARD + 'own=$(command -v setsid); : >"$mark/job"; '
    f'$own sh -c {shlex.quote(_RUN)} sh "$mark" "$@" >/dev/null 2>&1 </dev/null & exit 0'
)
_MARK = (
    'm=$1; [ -d "$m" ] || { echo none; exit 0; }; echo begun; [ -f "$m/rc" ] && echo "rc $(cat "$m/rc")"; '
    'if [ -f "$m/job" ] && [ ! -f "$m/rc" ]; then '
    '[ ! -s "$m/pid" ] || kill -0 "$(cat "$m/pid")" 2>/dev/null && echo runs; fi; '
    f'[ -f "$m/out" ] && {{ echo said; tail -c {SAID} "$m/out"; }}; exit 0'
)
# $1 the script, $2 the backup's name; then the command that makes it. An older backup beside it that is the same is as
# good as a new one.
_BACKUP = (
    'f=$1 b=$2; shift 2; for o in "$f".*; do [ -f "$o" ] && cmp -s -- "$f" "$o" && { echo "same $o"; exit 0; }; done; '
    '"$@" && echo "made $b"'
)
_TIDY = 'case $1 in */pdctl.*) rm -rf -- "$1";; esac'


@dataclass(frozen=True, slots=True)
class Permit:
    """What an act needs to be allowed: the host's lock and whose it is, the run's folder of marks on the host."""

    lock: str
    owner: Owner
    marks: str

    def mark(self, step: str, attempt: int) -> str:
        """The mark of one attempt at one step."""
        plain = "".join(c if c.isalnum() or c in "-." else "-" for c in step)
        return f"{self.marks}/{plain}.{attempt}"


def permit_of(lock: str, owner: Owner) -> Permit:
    """The permit of a run: its marks are beside the lock."""
    return Permit(lock, owner, f"{lock.rpartition('/')[0]}/pdctl.{owner.run}")


def unit_ask(host: Host, permit: Permit, step: str, attempt: int, words: Sequence[str], said: str) -> CommandAsk:
    """Runs a short command to its end; its exit status is the act's."""
    return _act(host, permit, step, attempt, _AT_ONCE, words, said)


def job_ask(host: Host, permit: Permit, step: str, attempt: int, words: Sequence[str], said: str) -> CommandAsk:
    """Starts a command that may take long, as a job of the host's own: it goes on whatever becomes of the connection,
    and its mark tells how it ended."""
    return _act(host, permit, step, attempt, _JOB, words, said)


def backup_ask(
    host: Host, permit: Permit, step: str, attempt: int, script: str, backup: str, words: Sequence[str], said: str
) -> CommandAsk:
    """Makes a backup of a script by the command given. It prints ``made BACKUP``, or ``same PATH`` where a backup that
    lies beside it is the same already and none is made."""
    whole = ("sh", "-c", _BACKUP, "sh", script, backup, *words)
    return _act(host, permit, step, attempt, _AT_ONCE, whole, said, shown=f"cp {shlex.quote(script)} {backup}")


def _act(
    host: Host, permit: Permit, step: str, attempt: int, script: str, words: Sequence[str], said: str, *,
    shown: str | None = None,
) -> CommandAsk:  # fmt: skip
    root = SUDO if host.become == "sudo" else ()
    argv = ("sh", "-c", script, "sh", permit.lock, permit.owner.token, permit.mark(step, attempt), said, *root, *words)
    return CommandAsk(
        f"host:{host.name}", Fact.FILE, host.name, argv, timeout=TIMEOUT,
        shown=shown or " ".join(shlex.quote(word) for word in (*root, *words)),
    )  # fmt: skip


def mark_ask(host: Host, mark: str, subject: str) -> CommandAsk:
    """What is known of an act that may have been begun."""
    return CommandAsk(subject, Fact.FILE, host.name, ("sh", "-c", _MARK, "sh", mark), timeout=10.0, shown=f"ls {mark}")


def tidy_ask(host: Host, permit: Permit) -> CommandAsk:
    """Removes the run's marks."""
    argv = ("sh", "-c", _TIDY, "sh", permit.marks)
    return CommandAsk(f"host:{host.name}", Fact.FILE, host.name, argv, timeout=10.0, shown=f"rm -r {permit.marks}")


@dataclass(frozen=True, slots=True)
class Mark:
    """How an act stands: whether it was ever begun, whether its job runs, how it ended and what it said last."""

    begun: bool
    runs: bool = False
    status: int | None = None
    said: str = ""


def read_mark(answer: Answer) -> Mark | None:
    """The mark; None where it could not be seen."""
    if answer.error is not None or answer.body is None:
        return None
    text = answer.body.decode("utf-8", "replace")
    head, _, said = text.partition("\nsaid\n")
    lines = head.splitlines()
    if not lines or lines[0] not in ("none", "begun"):
        return None
    status = next((line[3:] for line in lines if line.startswith("rc ")), "")
    return Mark(lines[0] == "begun", "runs" in lines, int(status) if status.isdigit() else None, said.strip())
