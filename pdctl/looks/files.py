"""Looking at files of hosts: scripts with their backups and the files they read in, and the processes they started.

with looking(cluster, instances, plan) as look:
    files = FileLook(look)
    files.times(); files.scripts(places_of(look)); files.processes()
    window = with_sources(look.window(), cluster)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

from pdctl.checks.backups import backup_of, backups_of, is_backup_of
from pdctl.facts import asks_files
from pdctl.facts.asks_files import Entry, HostTime
from pdctl.facts.proc_listing import Listed
from pdctl.facts.script_sources import followed, missing
from pdctl.facts.titles import MAIN, ROUTER_PART, part_of
from pdctl.looks.hosts import HostLook
from pdctl.model.answer import Answer, Fact, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Host, Instance
from pdctl.model.host import ScriptFile
from pdctl.model.window import Window

MOST_BACKUPS = 64  # of one script; the newest are read
SOURCE_ROUNDS = 3  # files that read in files


@dataclass(frozen=True, slots=True)
class Place:
    """A script: whose it is called, on which host, at which path, and of which instance (None: of none)."""

    subject: str
    host: Host
    path: str
    instance: Instance | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """A host's clock: its zone, and how many seconds it is ahead of this machine, give or take ``within``."""

    zone: tzinfo
    name: str
    ahead_s: float
    within_s: float


def places_of(look: HostLook) -> tuple[Place, ...]:
    """The scripts that the inventory names, of instances whose host is known."""
    return tuple(Place(i.name, host, i.script, i) for i, host in look.placed() if i.script)


class FileLook:
    """Asks for files through a look at hosts. ``clocks`` are the hosts' clocks by name, once asked."""

    def __init__(self, look: HostLook) -> None:
        self.look = look
        self.clocks: dict[str, Clock] = {}

    # --- clocks ---

    def times(self, hosts: Iterable[Host] | None = None) -> None:
        """Asks hosts for their clocks and zones."""
        wanted = {f"host:{h.name}": h for h in (self.look.used_hosts if hosts is None else hosts)}
        for answer in self.look.ask(asks_files.times_ask(subject, host) for subject, host in wanted.items()):
            told = asks_files.read_times(answer)
            if told is not None:
                self.clocks[wanted[answer.subject].name] = _clock(told, answer)
                zone = told.zone or f"{told.offset:+d} min"
                self.look.see([replace(answer, body=zone.encode(), more={"path": "/etc/localtime"})])

    def zone(self, host: Host) -> tzinfo:
        """The host's zone, UTC where it is not known."""
        clock = self.clocks.get(host.name)
        return clock.zone if clock is not None else UTC

    # --- scripts ---

    def scripts(self, places: Sequence[Place], *, backups: bool = True) -> None:
        """Reads scripts with their backups and, in rounds, the files that they read in with theirs."""
        have: dict[str, set[str]] = {place.subject: set() for place in places}
        wanted = list(places)
        for _ in range(SOURCE_ROUNDS + 1):
            self._read(wanted, have, backups)
            wanted = self._sourced(places, have)
            if not wanted:
                return

    def _read(self, places: Sequence[Place], have: Mapping[str, set[str]], backups: bool) -> None:
        asks = []
        for place, entries, failure in self._listings(places):
            have[place.subject].add(place.path)
            if failure is None:
                chosen = _chosen(place, entries, backups)
                asks += [asks_files.text_ask(place.subject, Fact.SCRIPT, place.host, entry) for entry in chosen]
            elif failure.error in (Why.OTHER, Why.NO_SUCH_TOOL):  # no GNU find there: the script alone, undated
                asks.append(asks_files.undated_text_ask(place.subject, Fact.SCRIPT, place.host, place.path))
            else:
                self.look.see([failure])
        self.look.see(self.look.ask(dict.fromkeys(asks)))

    def _listings(self, places: Sequence[Place]) -> list[tuple[Place, tuple[Entry, ...], Answer | None]]:
        """Each place with what lies beside it, or with the answer that says why nothing is known of it."""
        asks = {p: asks_files.backups_listing_ask(p.subject, p.host, p.path) for p in places}
        answers = {(a.subject, a.ask): a for a in self.look.ask(dict.fromkeys(asks.values()))}
        out = []
        for place, ask in asks.items():
            answer = answers[ask.subject, str(ask)]
            entries = asks_files.read_entries(answer.body or b"")
            out.append((place, entries, _failure(place, answer, entries)))
        return out

    def _sourced(self, places: Sequence[Place], have: Mapping[str, set[str]]) -> list[Place]:
        """Files that scripts read in and that were not asked for yet."""
        window = self.look.window()
        out = []
        for place in places:
            known = texts(window, place.subject)
            for script in known.values():
                whole = followed(script, lambda path, k=known: k[path].text if path in k else None, place.instance)  # type: ignore[misc]
                for path in missing(whole, have[place.subject]):
                    have[place.subject].add(path)
                    out.append(replace(place, path=path))
        return out

    # --- processes ---

    def processes(self, *, units: bool = True) -> None:
        """The processes of each instance, what units say, and each main process's command line and environment."""
        if units:
            self.look.units()
        self.look.processes()
        if self.look.unfound:
            self.look.sockets()  # a router hides its flags: the port it listens on tells it
            self.look.processes()
        asks = []
        for found in self.look.found.values():
            main = main_of(found.kin.rows)
            if main is not None and found.host is not None:
                for fact in (Fact.CMDLINE, Fact.ENVIRON):
                    name, host = found.instance.name, found.host
                    asks.append(asks_files.process_ask(name, fact, host, main.pid, main.title))
        self.look.see(self.look.ask(asks))


def main_of(rows: Sequence[Listed]) -> Listed | None:
    """The youngest process that starts an engine or router."""
    mains = [row for row in rows if part_of(row.title) in (MAIN, ROUTER_PART)]
    return max(mains, key=lambda row: row.started, default=None)


def _clock(told: HostTime, answer: Answer) -> Clock:
    middle = answer.at.timestamp() - answer.took / 2
    zone, name = zone_of(told)
    return Clock(zone, name, told.epoch - middle, answer.took / 2)


def zone_of(told: HostTime) -> tuple[tzinfo, str]:
    """The zone by its name, where this machine knows it, so that days on which clocks were turned are right; else by
    its offset of today."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if told.zone is not None:
        try:
            return ZoneInfo(told.zone), told.zone
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    fixed = timezone(timedelta(minutes=told.offset))
    return fixed, str(fixed)


def _failure(place: Place, answer: Answer, entries: Sequence[Entry]) -> Answer | None:
    """The answer to keep where a script could not be found, None where it was."""
    if any(entry.path == place.path for entry in entries):
        return None
    about = {"path": place.path}
    if answer.error is not None:
        return replace(answer, fact=Fact.SCRIPT, body=None, more=about)
    detail = f"{place.path}: no such file"
    return replace(answer, fact=Fact.SCRIPT, body=None, error=Why.NOT_FOUND, detail=detail, more=about)


def _chosen(place: Place, entries: Sequence[Entry], backups: bool) -> list[Entry]:
    """The script, and the newest of its backups."""
    main = [e for e in entries if e.path == place.path]
    kept = [e for e in entries if is_backup_of(place.path, e.path)] if backups else []
    dated = sorted(kept, key=lambda e: backup_of(ScriptFile(e.path, e.mtime, ""), place.path).when or e.mtime)
    return [*main, *dated[-MOST_BACKUPS:]]


# --- what was read -------------------------------------------------------------------------------------------------


def texts(window: Window, subject: str) -> dict[str, ScriptFile]:
    """The newest reading of each script file of a subject, by path."""
    return {at.value.path: at.value for at in window.seen(subject, Fact.SCRIPT, ScriptFile)}


def with_sources(window: Window, cluster: Cluster, zones: Mapping[str, tzinfo] | None = None) -> Window:
    """The window with each script read together with the files it reads in. Of these a backup takes the state they had
    at its own time, as far as they have backups of their own; where they have none, that is among what is unsure."""
    subjects = [s for s in window.subjects(Fact.SCRIPT) if any(f.sources for f in texts(window, s).values())]
    if not subjects:
        return window
    rows = tuple(
        _with_sources(row, window, cluster, (zones or {}).get(row.subject))
        if row.fact is Fact.SCRIPT and row.subject in subjects
        else row
        for row in window.observations
    )
    return Window(window.start, window.end, rows, window.live, window.note)


def _with_sources(
    row: Observation[Any], window: Window, cluster: Cluster, zone: tzinfo | None
) -> Observation[Any]:  # fmt: skip
    if not isinstance(row.got, Seen) or not isinstance(row.got.value, ScriptFile) or not row.got.value.sources:
        return row
    script, known = row.got.value, texts(window, row.subject)
    own = next((path for path in known if is_backup_of(path, script.path)), None)
    moment = backup_of(script, own, zone).when if own is not None else None
    states = _States(known, moment, zone)
    whole = followed(script, states.text_of, cluster.instance(row.subject))
    if whole is script:
        return row
    notes = tuple(
        f"{path} was written after this backup and has no older copy: today's is taken" for path in states.newer
    )
    return replace(row, got=Seen(replace(whole, unsure=(*whole.unsure, *notes))))


class _States:
    """The files that are read in, as they were at a moment (None: as they are)."""

    def __init__(self, known: Mapping[str, ScriptFile], moment: datetime | None, zone: tzinfo | None) -> None:
        self._known = known
        self._moment = moment
        self._zone = zone
        self.newer: list[str] = []

    def text_of(self, path: str) -> str | None:
        file = self._known.get(path)
        if file is None or self._moment is None or (file.mtime is not None and file.mtime <= self._moment):
            return file.text if file is not None else None
        kept = backups_of(file, self._known.values(), self._zone)
        older = [b for b in kept if b.when is not None and b.when <= self._moment]
        if older:
            return older[-1].file.text
        if path not in self.newer:
            self.newer.append(path)
        return file.text
