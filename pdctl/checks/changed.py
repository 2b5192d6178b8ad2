"""changed-since: what changed inside the window, by each thing's own time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from pdctl.checks.backups import baseline
from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.change_words import said_of
from pdctl.checks.script_drift import changes_between
from pdctl.checks.scripts import scripts_of
from pdctl.checks.settings import listed
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.host import Checkout, Processes, ScriptFile, Unit, WatchedFile
from pdctl.model.window import At, Window

WATCHED = (Fact.SCRIPT, Fact.FILE, Fact.GIT)


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """One change: when, what in a few words, and where it was seen."""

    when: datetime
    what: str
    seen: Evidence
    touched: bool = False  # new time, same content


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Every instance or host of which scripts, files or checkouts were read."""
    subjects = dict.fromkeys(s for fact in WATCHED for s in window.subjects(fact))
    for subject in subjects:
        changes = sorted(changes_of(window, cluster, subject), key=lambda c: c.when)
        real = [c for c in changes if not c.touched]
        if real:
            yield finding(subject, changes, real)
        else:
            yield RuledOut("changed-since", subject, f"nothing that was read changed since {window.start}")


def changes_of(window: Window, cluster: Cluster, subject: str) -> Iterator[Changed]:
    yield from scripts(window, cluster, subject)
    yield from files(window, subject)
    yield from checkouts(window, subject)
    yield from starts(window, subject)


def scripts(window: Window, cluster: Cluster, subject: str) -> Iterator[Changed]:
    """Scripts written in the window: what they set differently from their backup, or that they were only touched."""
    found_ = scripts_of(window, cluster, subject)
    newest = {at.value.path: at for at in window.seen(subject, Fact.SCRIPT, ScriptFile)}
    for path, at in newest.items():
        if at.value.mtime is None or at.value.mtime < window.start:
            continue
        kept = baseline(found_.main.value, found_.backups) if found_ and path == found_.main.value.path else None
        touched = kept is not None and kept.file.text == at.value.text
        changes = changes_between(kept.file, at.value) if kept else ()
        more = f": {listed(changes)}" if changes else " (touched, not changed)" if touched else ""
        yield Changed(at.value.mtime, f"{path} written{more}", saw(f"{path}, mtime {at.value.mtime}", at), touched)


def files(window: Window, subject: str) -> Iterator[Changed]:
    """Watched files whose time is in the window, or whose content differs between two readings of it."""
    readings: dict[str, list[At[WatchedFile]]] = {}
    for at in window.seen(subject, Fact.FILE, WatchedFile):
        readings.setdefault(at.value.path, []).append(at)
    for path, looks in readings.items():
        first, last = looks[0], looks[-1]
        if path.endswith("-packages"):
            continue  # a folder of packages: each of them has its own row
        if last.value.mtime is not None and last.value.mtime >= window.start:
            seen = saw(f"{path}, mtime {last.value.mtime}", last)
            yield Changed(last.value.mtime, written(last.value), seen, last.value.same_as is not None)
        elif first.value.sha256 and last.value.sha256 and first.value.sha256 != last.value.sha256:
            yield Changed(last.seen.at, f"{path} changed without a new time", saw(f"{path} has other bytes", last))


def written(file: WatchedFile) -> str:
    """What became of a file, in words."""
    what, kind = said_of(file)
    if kind != "file":
        return what
    return f"{file.path} written" + (f" (touched, not changed: as {file.same_as})" if file.same_as else "")


def checkouts(window: Window, subject: str) -> Iterator[Changed]:
    """Commits of the window, and heads that moved between two readings of it."""
    looks = window.seen(subject, Fact.GIT, Checkout)
    if not looks:
        return
    first, last = looks[0], looks[-1]
    head = (last.value.head or "")[:12]
    if last.value.committed is not None and last.value.committed >= window.start:
        yield Changed(last.value.committed, f"commit {head} on {last.value.branch or 'no branch'}", saw(head, last))
    elif first.value.head != last.value.head:
        yield Changed(last.seen.at, f"the checkout moved to {head}", saw(f"head {head}", last))
    new = [name for name in last.value.dirty if name not in first.value.dirty]
    if new and last is not first:
        yield Changed(last.seen.at, f"edited and not committed: {', '.join(new[:4])}", saw("uncommitted changes", last))


def starts(window: Window, subject: str) -> Iterator[Changed]:
    """Processes and units that started in the window: what a change needs to take effect."""
    processes = window.last(subject, Fact.PROCESSES, Processes)
    for row in processes.value.rows if processes else ():
        if row.part in ("main", "router") and row.started is not None and row.started >= window.start:
            yield Changed(row.started, f"process {row.pid} started", saw(f"started {row.started}", processes))
    unit = window.last(subject, Fact.UNIT, Unit)
    if unit is not None and unit.value.since is not None and unit.value.since >= window.start:
        name = unit.value.properties.get("Id", "its unit")
        yield Changed(unit.value.since, f"{name} active", saw(f"active since {unit.value.since}", unit))


def finding(subject: str, changes: list[Changed], real: list[Changed], most: int = 3) -> Verdict:
    """The finding for one subject, newest change first."""
    newest = list(reversed(real))
    shown = "; ".join(f"{c.when:%Y-%m-%d %H:%M:%S} {c.what}" for c in newest[:most])
    more = f"; {len(newest) - most} more" if len(newest) > most else ""
    return found(
        "changed-since",
        subject,
        f"{len(real)} change(s) on {subject}: {shown}{more}",
        confidence=Confidence.CERTAIN,
        evidence=tuple(c.seen for c in reversed(changes)),
        since=real[0].when,
        limits=("a change that leaves no time behind is not seen, and a copy may keep an old one",),
        next=("pdctl changes", f"pdctl diff {subject}", "pdctl explain changed-since"),
    )


CHECKS = (
    Check(
        "changed",
        "scripts, files, checkouts and starts that changed in the window",
        ("changed-since",),
        WATCHED,
        judge,
    ),
)
