"""What of a time line stayed as it was, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pdctl.checks.change_units import Life
from pdctl.checks.change_words import clock
from pdctl.model.answer import Fact
from pdctl.model.change_view import Event, Steady
from pdctl.model.host import Checkout, ScriptFile, WatchedFile
from pdctl.model.window import At, Window


def steady_of(
    window: Window, names: Iterable[str], lives: Mapping[str, Life], events: Iterable[Event]
) -> Iterator[Steady]:
    """What was looked at of these instances and their hosts and did not change."""
    changed = {(e.subject, e.kind) for e in events}
    for subject in names:
        yield from _of_instance(window, subject, lives[subject], changed)
    for subject in window.subjects(Fact.FILE):
        boot = next((a for a in window.seen(subject, Fact.FILE, WatchedFile) if _is_boot(a)), None)
        if boot is not None and (subject, "boot") not in changed and (subject, "driver") not in changed:
            yield Steady(subject, "kernel and drivers", f"{boot.value.line}, up since {clock(boot.value.mtime)}")


def _is_boot(at: At[WatchedFile]) -> bool:
    return at.value.path == "/proc/version" and at.value.mtime is not None


def _of_instance(window: Window, subject: str, life: Life, changed: set[tuple[str, str]]) -> Iterator[Steady]:
    scripts = [a.value for a in window.seen(subject, Fact.SCRIPT, ScriptFile) if a.value.mtime is not None]
    if scripts and (subject, "script") not in changed:
        newest = max(scripts, key=lambda s: s.mtime or window.start)
        yield Steady(subject, "scripts", f"the newest, {newest.path}, is of {clock(newest.mtime)}")
    places = [a.value for a in window.seen(subject, Fact.FILE, WatchedFile) if a.value.path.endswith("-packages")]
    if places and (subject, "package") not in changed:
        newest_place = max(places, key=lambda f: f.mtime or window.start)
        yield Steady(subject, "packages", f"{newest_place.line}, the newest of {clock(newest_place.mtime)}")
    checkouts = [a.value for a in window.seen(subject, Fact.GIT, Checkout)]
    for checkout in checkouts:
        if (subject, "git") not in changed:
            dirty = f", {len(checkout.dirty)} file(s) not committed" if checkout.dirty else ", nothing uncommitted"
            yield Steady(
                subject, f"checkout {checkout.path or ''}".strip(), f"head {(checkout.head or '')[:12]}{dirty}"
            )
    if life.started is not None and (subject, "process") not in changed and (subject, "unit") not in changed:
        yield Steady(subject, "its process", f"runs since {clock(life.started)}")


def unseen_in(window: Window) -> Iterator[tuple[str, str, str]]:
    """What could not be looked at, and why, each once."""
    told = set()
    for row in window.observations:
        if row.missed is not None and row.fact in (
            Fact.SCRIPT,
            Fact.FILE,
            Fact.GIT,
            Fact.UNIT,
            Fact.PROCESSES,
            Fact.LOG,
        ):
            path = str(row.more.get("path", "")) or row.fact.value
            key = (row.subject, path, row.missed.detail or row.missed.why.value)
            if key not in told:
                told.add(key)
                yield key
