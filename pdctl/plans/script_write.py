"""Writing a file on a host as if in one instant, with what it replaces kept: the steps, and how their answers are read.

Held for every plan, wherever it is interrupted:
- The file under its name is at every moment the old one whole or the new one whole: the new one is written beside it,
  put on the disk, looked at again, and only then takes its name.
- Nothing is written before the old bytes are in a backup; a backup never takes the place of a file.
- A file whose bytes are not those that were shown is not touched. (Between the last look and the change of names lie
  microseconds in which nobody can look.)
- Mode, owner and what else the file system keeps of a file are those of the old one, or nothing is written.
- No step follows one that failed.

Only /bin/sh and GNU coreutils are needed there. The same commands run here and over SSH.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import PurePosixPath

from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import MEGABYTE, CommandAsk
from pdctl.model.cluster import Host

TIMEOUT = 30.0  # seconds
CHANGED, EXISTS, INCOMPLETE, UNLIKE = 73, 74, 76, 77  # exit statuses of the programs below
SAID = {
    CHANGED: "the file has changed since it was read",
    EXISTS: "a file of that name is there already",
    INCOMPLETE: "what arrived was not what was sent",
    UNLIKE: "mode and owner could not be kept: that needs the file's owner or root",
}

_HEAD = """set -eu
sum() { s=$(sha256sum < "$1"); printf %s "${s%% *}"; }
like() { [ "$(stat -c '%a %u %g' -- "$1")" = "$(stat -c '%a %u %g' -- "$2")" ]; }
done_with() { rm -f -- "$t"; }
tell() { [ -z "$1" ] || logger -t pdctl -- "$1" 2>/dev/null || echo "syslog did not take the line" >&2; }
"""
# $1 the path. Prints the file's own path (links followed), what stat says of it, and its bytes, NUL between.
_READ = """p=$(readlink -f -- "$1") && [ -f "$p" ] || { echo "$1: no such file" >&2; exit 66; }
s=$(stat -c '%a %u %g %U:%G %s %Y %h' -- "$p") && printf '%s\\0%s\\0' "$p" "$s" && cat -- "$p"
"""
# $1 the file, $2 the digest it must have, $3 the backup, $4 a word of this run, $5 what syslog is told.
_BACKUP = (
    _HEAD
    + """p=$1 want=$2 b=$3 d=${3%/*}; t=$d/.${3##*/}.pdctl-$4
umask 077
[ "$(sum "$p")" = "$want" ] || exit 73
if [ -e "$b" ] || [ -L "$b" ]; then exit 74; fi
trap done_with EXIT; trap 'exit 129' HUP INT TERM
cp --preserve=all -- "$p" "$t" 2>/dev/null || cp -p -- "$p" "$t"
touch -- "$t"
like "$p" "$t" || exit 77
[ "$(sum "$t")" = "$want" ] || exit 73
sync -- "$t"
tell "$5"
ln -T -- "$t" "$b" 2>/dev/null || { if [ -e "$b" ] || [ -L "$b" ]; then exit 74; fi; mv -n -T -- "$t" "$b"; }
if [ -e "$t" ] && [ "$(sum "$b")" != "$want" ]; then exit 74; fi
rm -f -- "$t"
sync -- "$d"
"""
)
# $1 the file, $2 the digest it must have, $3 the digest of the new bytes, $4 a word of this run, $5 what syslog is
# told; stdin: the new bytes.
_WRITE = (
    _HEAD
    + """p=$1 want=$2 new=$3 d=${1%/*}; t=$d/.${1##*/}.pdctl-$4
umask 077
[ "$(sum "$p")" = "$want" ] || exit 73
( set -C; : > "$t" ) || exit 74
trap done_with EXIT; trap 'exit 129' HUP INT TERM
cat > "$t"
[ "$(sum "$t")" = "$new" ] || exit 76
cp --attributes-only --preserve=all -- "$p" "$t"
touch -- "$t"
like "$p" "$t" || exit 77
sync -- "$t"
[ "$(sum "$t")" = "$new" ] || exit 76
tell "$5"
[ "$(sum "$p")" = "$want" ] || exit 73
mv -f -T -- "$t" "$p"
sync -- "$d"
"""
)


class Act(StrEnum):
    """What a step does."""

    BACKUP = "backup"
    WRITE = "write"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Current:
    """A file as it is: its own path (links followed) and the one asked for, its bytes, mode as in ``ls -l`` but octal,
    owner, how many names it has."""

    asked: str
    path: str
    raw: bytes
    mode: str
    uid: str
    gid: str
    owner: str
    mtime: datetime
    links: int = 1

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes, in hex."""
        return digest_of(self.raw)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the command, and in words what it does."""

    act: Act
    ask: CommandAsk
    says: str


@dataclass(frozen=True, slots=True)
class Writing:
    """What is to be written where. ``raw`` None: only a backup is made. ``backup`` None: none is. ``who`` does it, for
    the host's syslog; nobody: it is not told."""

    subject: str
    host: Host
    current: Current
    raw: bytes | None
    backup: str | None
    run: str
    who: str | None = None


def digest_of(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def steps_of(writing: Writing) -> Generator[Step, None, None]:
    """The steps, in order. The caller does one, and asks for the next only when it was done."""
    current = writing.current
    if writing.backup is not None:
        yield Step(Act.BACKUP, _backup_ask(writing, writing.backup), f"keep {current.path} as {writing.backup}")
    if writing.raw is not None:
        yield Step(Act.WRITE, _write_ask(writing, writing.raw), f"write {current.path}")
        yield Step(Act.VERIFY, read_ask(writing.subject, writing.host, current.path), "read it back")


def _backup_ask(writing: Writing, backup: str) -> CommandAsk:
    said = _said(writing, f"back up {writing.current.path}")
    words = (writing.current.path, writing.current.digest, backup, writing.run, said)
    shown = f"cp --preserve=all {writing.current.path} {backup}"
    return _ask(writing.subject, writing.host, _BACKUP, words, shown=shown)


def _write_ask(writing: Writing, raw: bytes) -> CommandAsk:
    said = _said(writing, f"write {writing.current.path}")
    words = (writing.current.path, writing.current.digest, digest_of(raw), writing.run, said)
    shown = f"write {writing.current.path} ({len(raw)} bytes, sha256 {digest_of(raw)[:12]})"
    return _ask(writing.subject, writing.host, _WRITE, words, shown=shown, stdin=raw)


def _said(writing: Writing, what: str) -> str:
    return f"{writing.who}: {what} (pdctl script, run {writing.run})" if writing.who is not None else ""


def read_ask(subject: str, host: Host, path: str) -> CommandAsk:
    """A file with all that is kept of it. Read by ``read_current``."""
    return _ask(subject, host, _READ, (path,), shown=f"stat {path}; cat {path}")


def tidy_ask(writing: Writing) -> CommandAsk:
    """Takes away what an interrupted step may have left beside the file."""
    names = (writing.current.path, writing.backup or writing.current.path)
    paths = [str(PurePosixPath(n).parent / f".{PurePosixPath(n).name}.pdctl-{writing.run}") for n in names]
    argv = ("rm", "-f", "--", *dict.fromkeys(paths))
    become = writing.host.become is not None
    return CommandAsk(writing.subject, Fact.FILE, writing.host.name, argv, timeout=5.0, become=become)


def syntax_ask(subject: str, host: Host, raw: bytes) -> CommandAsk:
    """Whether bash can read a script, without running any of it."""
    return CommandAsk(subject, Fact.FILE, host.name, ("bash", "-n"), timeout=TIMEOUT, stdin=raw, shown="bash -n")


def _ask(
    subject: str, host: Host, program: str, words: tuple[str, ...], *, shown: str, stdin: bytes | None = None
) -> CommandAsk:
    argv = ("sh", "-c", program, "pdctl", *words)
    become = host.become is not None
    return CommandAsk(
        subject, Fact.FILE, host.name, argv, timeout=TIMEOUT, cap=16 * MEGABYTE, become=become, stdin=stdin, shown=shown
    )  # fmt: skip


# --- names and answers ---------------------------------------------------------------------------------------------


def backup_name(path: str, at: datetime, taken: frozenset[str] = frozenset()) -> str:
    """A name for a backup made at that moment, none of those taken.

    >>> backup_name("/srv/serve.sh", datetime(2026, 11, 12, 3, 14, 7, tzinfo=UTC))
    '/srv/serve.sh.2026-11-12T03:14:07Z.bak'
    """
    stem = f"{path}.{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    name, number = f"{stem}.bak", 1
    while name in taken or PurePosixPath(name).name in taken:
        name, number = f"{stem}.{number}.bak", number + 1
    return name


def read_current(answer: Answer, asked: str) -> Current:
    """The file an answer holds. Raises ValueError for an answer that is none, or for a file that changed meanwhile."""
    parts = (answer.body or b"").split(b"\0", 2)
    fields = parts[1].decode("ascii", "replace").split() if len(parts) == 3 else []
    if len(fields) != 7:
        raise ValueError("the answer holds no file")
    mode, uid, gid, owner, size, mtime, links = fields
    if len(parts[2]) != int(size):
        raise ValueError("it changed while it was read")
    path = parts[0].decode("utf-8", "surrogateescape")
    stamp = datetime.fromtimestamp(int(mtime), UTC)
    return Current(asked, path, parts[2], mode, uid, gid, owner, stamp, int(links))


def why_failed(answer: Answer) -> str:
    """Why a step's command failed, in one line."""
    told = SAID.get(answer.status or 0)
    return told or answer.detail or (str(answer.error) if answer.error else "no reason given")


def wrong_after(current: Current, after: Current, raw: bytes) -> str | None:
    """What of a file that was read back is not as it was written; None where all is."""
    if after.digest != digest_of(raw):
        return f"it holds other bytes (sha256 {after.digest[:12]})"
    old, new = (current.mode, current.uid, current.gid), (after.mode, after.uid, after.gid)
    return None if old == new else f"mode and owner were {' '.join(old)} and are {' '.join(new)}"
