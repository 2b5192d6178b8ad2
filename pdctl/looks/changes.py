"""Looking for what changed since a moment: scripts, watched paths, checkouts, units, processes, packages, kernel.

One look asks everything once. What a watched file is equal to (a backup, git's own copy) is found out for the files
that changed, so that "touched" is told from "changed".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path, PurePosixPath

from pdctl.checks.backups import is_backup_of
from pdctl.facts import asks_changes, asks_files, asks_host
from pdctl.facts.asks_files import Entry, HostTime
from pdctl.looks.files import Clock, FileLook, Place, main_of, places_of, with_sources, zone_of
from pdctl.looks.hosts import HostLook, HostPlan, looking
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Cluster, Host, Instance
from pdctl.model.host import Checkout, WatchedFile
from pdctl.model.when import resolve
from pdctl.model.window import Window
from pdctl.reach.capture import Capture

MOST_FILES = 300  # of one watched path; the newest
MOST_COMPARED = 40  # files of one instance whose bytes are compared
NO_PACKAGES = "no site-packages found"


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen. ``window`` begins at the moment asked about; ``clocks`` are the hosts', by name; ``truncated``
    the watched paths of which only the newest files were taken."""

    window: Window
    since: datetime
    clocks: Mapping[str, Clock]
    unplaced: Mapping[str, str] = field(default_factory=dict)
    truncated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def look_since(
    cluster: Cluster, wanted: Sequence[Instance], since: str, timeout: float, record: Path | None, *, logs: bool = True
) -> Looked:
    """What changed since a moment, as somebody at the first host means it. Raises ValueError for what is no moment."""
    with looking(cluster, wanted, HostPlan(timeout, record)) as look:
        work = ChangeLook(look)
        work.times()
        host = next(iter(look.used_hosts), None)
        moment = resolve(since, look.clock.wall(), work.zone(host) if host else UTC)
        work.everything(moment, logs=logs)
        zones = {i.name: work.zone(h) for i, h in look.placed()}
        window = with_sources(since_moment(look.window(), moment), cluster, zones)
        return Looked(window, moment, work.clocks, look.unplaced, tuple(work.truncated), tuple(look.notes))


def look_recorded(capture: Capture, since: str) -> Looked:
    """The same from a recording, the moment as somebody at its host meant it when it was taken."""
    from pdctl.replay import read_window

    window = read_window(capture)
    zone, name = _recorded_zone(window)
    moment = resolve(since, window.end, zone)
    clocks = {"": Clock(zone, name, 0.0, 0.0)}
    notes = (window.note,) if window.note else ()
    return Looked(with_sources(since_moment(window, moment), capture.cluster), moment, clocks, notes=notes)


def _recorded_zone(window: Window) -> tuple[tzinfo, str]:
    """The zone of the first host whose clock was asked, UTC where none was."""
    for subject in window.subjects(Fact.FILE):
        for at in window.seen(subject, Fact.FILE, WatchedFile):
            if at.value.path == "/etc/localtime" and at.value.line:
                return zone_of(HostTime(0.0, 0, at.value.line))
    return UTC, "UTC"


def since_moment(window: Window, since: datetime) -> Window:
    """The same observations in a window that begins at the moment: what checks judge is what lies in it."""
    shift = (window.start - since).total_seconds()
    rows = tuple(replace(row, t=row.t + shift) for row in window.observations)
    return Window(since, window.end, rows, window.live, window.note)


class ChangeLook(FileLook):
    """Asks for everything that may have changed."""

    def __init__(self, look: HostLook) -> None:
        super().__init__(look)
        self.truncated: list[str] = []

    def everything(self, since: datetime, *, logs: bool) -> None:
        places = places_of(self.look)
        self._systems()
        self.scripts(places)
        self._units(since)
        self.processes(units=False)
        self._packages(since)
        self._checkouts(places)
        self._watched(since)
        if logs:
            asks = [asks_host.log_ask(i, h) for i, h in self.look.placed() if i.log or i.unit]
            self.look.see(self.look.ask(asks))

    def _systems(self) -> None:
        hosts = {f"host:{host.name}": host for host in self.look.used_hosts}
        for answer in self.look.ask(asks_changes.system_ask(s, h) for s, h in hosts.items()):
            told = list(asks_changes.system_answers(answer)) if answer.error is None else []
            self.look.see(told or [replace(answer, body=None, more={"path": "/proc/version"})])

    def _units(self, since: datetime) -> None:
        """What systemd says of each unit, and what it said since."""
        placed = [(i, h) for i, h in self.look.placed() if i.unit]
        units = {a.subject: a for a in self.look.ask(asks_host.unit_ask(i, h) for i, h in placed)}
        said = {a.subject: a for a in self.look.ask(asks_changes.unit_messages_ask(i, h, since) for i, h in placed)}
        for name, unit in units.items():
            whole = asks_changes.with_messages(unit, said[name]) if unit.error is None and name in said else unit
            self.look.see([whole])

    def _packages(self, since: datetime) -> None:
        asks = []
        for found in self.look.found.values():
            main = main_of(found.kin.rows)
            if main is not None and found.host is not None:
                program = main.argv[0] if main.argv else ""
                asks.append(asks_changes.packages_ask(found.instance, found.host, main.pid, program))
        for answer in self.look.ask(asks):
            rows = list(asks_changes.package_answers(answer, since)) if answer.error is None else []
            self.look.see(rows or [self._no_packages(answer)])

    @staticmethod
    def _no_packages(answer: Answer) -> Answer:
        """The answer that says why nothing is known of an engine's packages."""
        why = answer.error or Why.EMPTY
        return replace(
            answer, body=None, error=why, detail=answer.detail or NO_PACKAGES, more={"path": "site-packages"}
        )

    def _checkouts(self, places: Sequence[Place]) -> None:
        """The checkouts that scripts and watched paths lie in; a path in none is no news."""
        script = {place.subject: place.path for place in places}
        asks = []
        for instance, host in self.look.placed():
            paths = [*instance.watch, *([script[instance.name]] if instance.name in script else [])]
            if paths:
                asks.append(asks_changes.checkouts_ask(instance.name, host, paths))
        for answer in self.look.ask(asks):
            whole = list(asks_changes.checkout_answers(answer)) if answer.error is None else [answer]
            self.look.see(whole)

    # --- watched paths ---

    def _watched(self, since: datetime) -> None:
        for instance, host in self.look.placed():
            asks = [asks_files.changed_ask(instance.name, host, path, since) for path in instance.watch]
            for answer in self.look.ask(asks):
                entries = asks_files.read_entries(answer.body or b"")
                if answer.error is not None:
                    self.look.see([replace(answer, body=None)])
                self._changed(instance, host, str(answer.more.get("path", "")), entries, since, answer)

    def _changed(
        self, instance: Instance, host: Host, watched: str, entries: Sequence[Entry], since: datetime, answer: Answer
    ) -> None:
        newest = sorted(entries, key=lambda e: e.mtime, reverse=True)
        if len(newest) > MOST_FILES:
            self.truncated.append(f"{instance.name}: {watched}: {len(newest)} files changed, the newest {MOST_FILES}")
        kept = newest[:MOST_FILES]
        changed = [e for e in kept if e.kind == "f" and e.mtime >= since][:MOST_COMPARED]
        same = self._same_as(instance, host, changed)
        for entry in kept:
            about: dict[str, object] = dict(entry.about())
            if entry.path in same:
                about["same_as"] = same[entry.path]
            self.look.see([replace(answer, body=None, error=None, detail=None, status=0, more=about)])

    def _same_as(self, instance: Instance, host: Host, changed: Sequence[Entry]) -> dict[str, str]:
        """What files that changed are byte for byte equal to: git's own copy, or a backup."""
        return {**self._as_backup(instance, host, changed), **self._as_head(instance, host, changed)}

    def _as_backup(self, instance: Instance, host: Host, changed: Sequence[Entry]) -> dict[str, str]:
        asks = [asks_files.siblings_ask(instance.name, host, entry.path) for entry in changed]
        beside = {e.path for a in self.look.ask(dict.fromkeys(asks)) for e in asks_files.read_entries(a.body or b"")}
        pairs = [(e.path, other) for e in changed for other in sorted(beside) if is_backup_of(e.path, other)]
        if not pairs:
            return {}
        paths = list(dict.fromkeys(path for pair in pairs for path in pair))
        answers = self.look.ask([asks_files.digests_ask(instance.name, host, paths)])
        digests = asks_files.read_digests(answers[0].body or b"")
        return {
            path: PurePosixPath(other).name
            for path, other in pairs
            if path in digests and digests[path] == digests.get(other)
        }

    def _as_head(self, instance: Instance, host: Host, changed: Sequence[Entry]) -> dict[str, str]:
        tops = {at.value.path: at.value for at in self.look.window().seen(instance.name, Fact.GIT, Checkout)}
        out: dict[str, str] = {}
        for top, checkout in tops.items():
            inside = [e.path for e in changed if top and e.path.startswith(f"{top}/")]
            if top and inside:
                answer = self.look.ask([asks_changes.tracked_ask(instance.name, host, top, inside)])[0]
                tracked = (answer.body or b"").decode("utf-8", "surrogateescape").split("\0")
                clean = {f"{top}/{name}" for name in tracked if name and name not in checkout.dirty}
                out |= dict.fromkeys(clean & set(inside), "git HEAD")
        return out


def skews(clocks: Mapping[str, Clock], least_s: float = 1.0) -> Iterable[tuple[str, float]]:
    """Hosts whose clock is ahead of (or behind) this machine's by more than can be an error of the measurement."""
    for name, clock in clocks.items():
        if abs(clock.ahead_s) > clock.within_s + least_s:
            yield name, clock.ahead_s
