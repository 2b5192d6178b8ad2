"""Which commands to ask of a host for an instance's log: what there is of it, and what comes.

A file is read up to a place that is known, and followed from there; a journal up to a cursor, and followed after it: no
line is lost or told twice in between.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import MEGABYTE, CommandAsk
from pdctl.model.cluster import Host, Instance

TIMEOUT = 60.0  # seconds
FILE_BYTES = 32 * MEGABYTE
JOURNAL_LINES = 100_000
FOLLOWED_S = 1e6  # seconds, eleven days
AGAIN_LINES = 2000  # asked for when a log is followed again after its connection was lost: those that came meanwhile
JOURNAL = ("journalctl", "--no-pager", "-a", "-o", "short-iso-precise")
_CURSOR = re.compile(rb"(?:\A|\n)-- cursor: (\S+)\s*\Z")
_PLACE = re.compile(rb"(\d+) (\d+) (\d+)\n")
# Where the text begins and ends in the file, when the file was written, then the text.
_FILE = (
    '[ -r "$1" ] || { cat -- "$1" >/dev/null; exit; }; s=$(stat -Lc "%s %Y" -- "$1") || exit; n=${s%% *}; b=$((n-$2)); '
    '[ "$b" -gt 0 ] || b=0; echo "$b $s"; tail -c "+$((b+1))" -- "$1" | head -c "$((n-b))"'
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What there was of a log: its whole lines, when its file was written (None: a journal), whether earlier lines were
    left out, and from where it goes on: a byte of the file, or a cursor of the journal (None: from its end)."""

    text: bytes
    written: datetime | None
    is_cut: bool
    goes_on: int | str | None


def history_ask(instance: Instance, host: Host, since: datetime | None = None) -> CommandAsk:
    """What there is of the log: the newest of its file, else of its unit's journal, from ``since`` on. Read by
    ``read_history``."""
    if instance.log:
        argv: tuple[str, ...] = ("sh", "-c", _FILE, "sh", instance.log, str(FILE_BYTES))
        return _ask(instance, host, argv, f"tail -c {FILE_BYTES} {shlex.quote(instance.log)}")
    begin = ("--since", f"@{since.timestamp():.0f}") if since is not None else ()
    argv = (*JOURNAL, "--show-cursor", "-n", str(JOURNAL_LINES), *begin, "-u", instance.unit or "")
    return _ask(instance, host, argv, None)


def read_history(instance: Instance, answer: Answer) -> Kept | None:
    """What a history answer holds; None where it is no such answer."""
    body = answer.body or b""
    if instance.log:
        place = _PLACE.match(body)
        if place is None:
            return None
        text = body[place.end() :]
        begin, written = int(place[1]), datetime.fromtimestamp(int(place[3]), UTC)
        whole = text[: text.rfind(b"\n") + 1]
        shown = whole.partition(b"\n")[2] if begin > 0 else whole
        return Kept(shown, written, begin > 0, begin + len(whole))
    cursor = _CURSOR.search(body)
    text = body[: cursor.start() + 1] if cursor else body
    text = b"" if text.strip() == b"-- No entries --" else text
    return Kept(
        text, None, text.count(b"\n") >= JOURNAL_LINES, cursor[1].decode("ascii", "replace") if cursor else None
    )


def follow_ask(instance: Instance, host: Host, goes_on: int | str | None) -> CommandAsk:
    """What the log grows by, from where its history ended, for ever."""
    if instance.log:
        begin = ("-c", f"+{int(goes_on or 0) + 1}") if goes_on is not None else ("-n", "0")
        argv: tuple[str, ...] = ("tail", *begin, "-F", "--", instance.log)
    elif goes_on is not None:
        argv = (*JOURNAL, "-f", "-n", "all", f"--after-cursor={goes_on}", "-u", instance.unit or "")
    else:
        argv = (*JOURNAL, "-f", "-n", "0", "-u", instance.unit or "")
    return _ask(instance, host, argv, None, FOLLOWED_S)


def again_ask(instance: Instance, host: Host) -> CommandAsk:
    """The same after its connection was lost: its newest lines, and what it grows by. The reader knows which of them
    it had."""
    count = ("-n", str(AGAIN_LINES))
    if instance.log:
        return _ask(instance, host, ("tail", *count, "-F", "--", instance.log), None, FOLLOWED_S)
    return _ask(instance, host, (*JOURNAL, "-f", *count, "-u", instance.unit or ""), None, FOLLOWED_S)


def _ask(
    instance: Instance, host: Host, argv: tuple[str, ...], shown: str | None, timeout: float = TIMEOUT
) -> CommandAsk:
    become = host.become is not None
    return CommandAsk(instance.name, Fact.LOG, host.name, argv, timeout, 2 * FILE_BYTES, become=become, shown=shown)
