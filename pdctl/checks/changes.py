"""One time line of everything that changed since a moment, with who is suspect and who is not.

A change is a suspect where it works already: a process started after it, or it needs none (a kernel, a driver, a unit
that systemd restarted). What was only touched, what only changed comments, and what no process has started with since
is told with that reason, and is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from pdctl.checks.backups import Backup, backup_of, backups_of, baseline, is_backup_of
from pdctl.checks.change_steady import steady_of, unseen_in
from pdctl.checks.change_units import Life, life_of
from pdctl.checks.change_words import WHOLE_KERNEL, clock, grouped, package_named, said_of
from pdctl.checks.crashed import DEATHS, what_happened
from pdctl.checks.script_diff import compared
from pdctl.checks.script_drift import changes_between
from pdctl.checks.settings import listed
from pdctl.model.answer import Fact
from pdctl.model.change_view import Event, Timeline
from pdctl.model.cluster import Cluster
from pdctl.model.events import Log
from pdctl.model.host import Checkout, ScriptFile, WatchedFile
from pdctl.model.window import At, Window

HEAVY, LIKELY, LIGHT = 3, 2, 1
NEAR = timedelta(seconds=2)  # times are kept to the second in many places


@dataclass(frozen=True, eq=False)
class Scene:
    """What the events are made from. ``lives`` are the starts and ends of each instance, ``zones`` those of hosts."""

    window: Window
    cluster: Cluster
    lives: Mapping[str, Life]
    zones: Mapping[str, tzinfo]

    @property
    def since(self) -> datetime:
        return self.window.start

    def effect(self, subject: str, when: datetime) -> tuple[str, bool | None]:
        """Whether a change works: in words, and as True, False or (not known) None."""
        life = self.lives.get(subject)
        after = life.first_start_after(when - NEAR) if life is not None else None
        if life is None or life.started is None:
            return "whether anything has started with it is not known", None
        if after is not None:
            return f"in effect since {clock(after)}, when {subject} started", True
        return f"no effect yet: {subject} has run since {clock(life.started)}", False


def timeline_of(
    window: Window,
    cluster: Cluster,
    *,
    zones: Mapping[str, tzinfo] | None = None,
    ahead: Mapping[str, float] | None = None,
) -> Timeline:
    """The time line of a window that begins at the moment asked about. ``ahead``: seconds by which hosts' clocks are
    ahead of ours, by host; their times are set right by it."""
    names = [i.name for i in cluster.instances]
    lives = {name: life_of(window, name) for name in names}
    scene = Scene(window, cluster, lives, zones or {})
    events = [_placed(event, cluster) for event in _events(scene)]
    events = [_set_right(event, ahead or {}) for event in events if event.when >= window.start - NEAR]
    return Timeline(
        window.start,
        window.end,
        tuple(sorted(events, key=lambda e: (e.when, e.subject))),
        tuple(steady_of(window, names, lives, events)),
        tuple(unseen_in(window)),
    )


def _events(scene: Scene) -> Iterator[Event]:
    for subject in dict.fromkeys(s for fact in Fact for s in scene.window.subjects(fact)):
        yield from _scripts(scene, subject)
        yield from _files(scene, subject)
        yield from _checkouts(scene, subject)
        yield from _crashes(scene, subject)
    changed = {e.subject for e in _changes(scene)}
    for subject, life in scene.lives.items():
        yield from life.events(scene.since, subject in changed)


def _changes(scene: Scene) -> Iterator[Event]:
    """What a start could have brought into effect."""
    for subject in scene.lives:
        for event in (*_scripts(scene, subject), *_files(scene, subject), *_checkouts(scene, subject)):
            if event.when >= scene.since and event.weight > 0:
                yield event


# --- scripts -------------------------------------------------------------------------------------------------------


def _scripts(scene: Scene, subject: str) -> Iterator[Event]:
    files = {at.value.path: at for at in scene.window.seen(subject, Fact.SCRIPT, ScriptFile)}
    values = {path: at.value for path, at in files.items()}
    for path, at in files.items():
        main = next((p for p in files if is_backup_of(p, path)), None)
        if at.value.mtime is None:
            continue
        if main is not None:
            yield _backup(scene, subject, at, main)
        else:
            kept = backups_of(at.value, values.values(), scene.zones.get(subject))
            yield _script(scene, subject, at, kept)


def _backup(scene: Scene, subject: str, at: At[ScriptFile], main: str) -> Event:
    made = backup_of(at.value, main, scene.zones.get(subject))
    when = made.when or at.value.mtime
    assert when is not None
    return Event(when, "backup", subject, f"{at.value.path}: a backup was made", ask=at.seen.ask)


def _script(scene: Scene, subject: str, at: At[ScriptFile], kept: tuple[Backup, ...]) -> Event:
    """A script, or a file it reads in, that was written."""
    script = at.value
    assert script.mtime is not None
    old = _before(script, kept, scene.since)
    base = Event(script.mtime, "script", subject, f"{script.path}: written", ask=at.seen.ask)
    if old is None:
        effect, works = scene.effect(subject, script.mtime)
        what = f"{script.path}: written; there is no backup from before to compare with"
        return _judged(replace(base, what=what, effect=effect), works, "it may have changed settings")
    if old.file.text == script.text:
        return replace(
            base, what=f"{script.path}: touched, not changed", touched=True, why=f"byte-identical to {old.name}"
        )  # fmt: skip
    diff = compared(old.file, script)
    if not diff.differs:
        return replace(base, why=f"only comments or layout differ from {old.name}")
    changes = changes_between(old.file, script)
    what = listed(changes) if changes else "how it starts the engine, or other commands"
    effect, works = scene.effect(subject, script.mtime)
    return _judged(
        replace(base, what=f"{script.path}: {what} (against {old.name})", effect=effect),
        works,
        "it changed the settings",
    )


def _before(script: ScriptFile, kept: tuple[Backup, ...], since: datetime) -> Backup | None:
    """What it was like when the time asked about began: the newest backup from before, else the newest from before it
    was written. A copy made after that says nothing of what it was."""
    return baseline(script, kept, since) or baseline(script, kept, script.mtime)


def _judged(event: Event, works: bool | None, reason: str) -> Event:
    """A change that works is suspect; one that does not is none, and says so."""
    if works is False:
        return replace(event, weight=0, why=event.effect)
    return replace(event, weight=HEAVY if works else LIKELY, why=reason)


# --- files, packages, kernels --------------------------------------------------------------------------------------


def _files(scene: Scene, subject: str) -> Iterator[Event]:
    rows = [at for at in scene.window.seen(subject, Fact.FILE, WatchedFile) if at.value.mtime is not None]
    changed = [at for at in rows if at.value.mtime is not None and at.value.mtime >= scene.since]
    packages = [at for at in changed if package_named(at.value.path)]
    for together in grouped(packages):
        yield _packages(scene, subject, together)
    for at in changed:
        if not package_named(at.value.path) and not at.value.path.endswith("-packages"):
            yield _file(scene, subject, at)


def _packages(scene: Scene, subject: str, rows: list[At[WatchedFile]]) -> Event:
    """Packages that were installed one right after the other."""
    when = max(at.value.mtime for at in rows if at.value.mtime is not None)
    named = sorted(package_named(at.value.path) or "" for at in rows)
    what = f"{len(rows)} Python package(s) installed: {', '.join(named[:6])}" + (" ..." if len(named) > 6 else "")
    effect, works = scene.effect(subject, when)
    event = Event(when, "package", subject, what, effect, ask=rows[0].seen.ask)
    if works is False:
        lazily = "not started since; what is imported late is new all the same"
        return replace(event, weight=LIGHT, why=lazily)
    return _judged(event, works, "the engine's libraries changed")


def _file(scene: Scene, subject: str, at: At[WatchedFile]) -> Event:
    file = at.value
    assert file.mtime is not None
    what, kind = said_of(file)
    event = Event(file.mtime, kind, subject, what, ask=at.seen.ask)
    if kind in ("boot", "driver", "kernel"):
        return replace(event, kind="boot" if kind == "kernel" else kind, weight=HEAVY, why=WHOLE_KERNEL[kind])
    if kind == "folder":
        return event  # the entries themselves tell more
    if file.same_as is not None:
        what = f"{file.path}: touched, not changed"
        return replace(event, what=what, touched=True, why=f"byte-identical to {file.same_as}")
    effect, works = scene.effect(subject, file.mtime)
    loose = " (not committed)" if _is_dirty(scene, subject, file.path) else ""
    return _judged(replace(event, what=f"{event.what}{loose}", effect=effect), works, "a watched file changed")


def _is_dirty(scene: Scene, subject: str, path: str) -> bool:
    """Whether git holds other bytes of a file, or none."""
    for at in scene.window.seen(subject, Fact.GIT, Checkout):
        top = f"{at.value.path}/" if at.value.path else None
        if top and path.startswith(top):
            inside = path.removeprefix(top)
            return any(inside == name or (name.endswith("/") and inside.startswith(name)) for name in at.value.dirty)
    return False


# --- checkouts -----------------------------------------------------------------------------------------------------


def _checkouts(scene: Scene, subject: str) -> Iterator[Event]:
    newest: dict[str | None, At[Checkout]] = {}
    for at in scene.window.seen(subject, Fact.GIT, Checkout):
        newest[at.value.path] = at
    for at in newest.values():
        yield from _moves(scene, subject, at)


def _moves(scene: Scene, subject: str, at: At[Checkout]) -> Iterator[Event]:
    """Where the head went, by the checkout's own log; else by the commit's date, which is not when it arrived."""
    checkout = at.value
    where = checkout.path or "the checkout"
    for move in checkout.moves:
        if move.at >= scene.since:
            effect, works = scene.effect(subject, move.at)
            loose = f"; {len(checkout.dirty)} file(s) are not committed" if checkout.dirty else ""
            what = f"{where}: head moved to {move.head[:12]} ({move.what}){loose}"
            event = Event(move.at, "git", subject, what, effect)
            yield _judged(replace(event, ask=at.seen.ask), works, "the code changed")
    if not checkout.moves and checkout.committed is not None and checkout.committed >= scene.since:
        effect, works = scene.effect(subject, checkout.committed)
        what = f"{where}: commit {(checkout.head or '')[:12]} was made; when it arrived is not known"
        event = Event(checkout.committed, "git", subject, what, effect, ask=at.seen.ask)
        yield _judged(event, works, "the code changed")


# --- crashes -------------------------------------------------------------------------------------------------------


def _crashes(scene: Scene, subject: str) -> Iterator[Event]:
    told: set[tuple[datetime, str]] = set()
    for at in scene.window.seen(subject, Fact.LOG, Log):
        for event in at.value.of(*DEATHS):
            when = at.value.utc(event)
            if when is not None and when >= scene.since and (when, event.text) not in told:
                told.add((when, event.text))
                why = "a crash is rarely the cause: what changed before it?"
                yield Event(when, "crash", subject, what_happened(event), "", LIGHT, why, ask=at.seen.ask)


# --- hosts ---------------------------------------------------------------------------------------------------


def _placed(event: Event, cluster: Cluster) -> Event:
    instance = cluster.instance(event.subject)
    host = event.subject.removeprefix("host:") if event.subject.startswith("host:") else None
    return replace(event, host=host or (instance.host if instance is not None else None))


def _set_right(event: Event, ahead: Mapping[str, float]) -> Event:
    off = ahead.get(event.host or "", 0.0)
    return replace(event, when=event.when - timedelta(seconds=off)) if off else event
