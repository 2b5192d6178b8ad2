"""What `pdctl diff` looks at, and the comparisons it shows: live, from a recording, or two files anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path, PurePosixPath

from pdctl.checks.backups import Backup, baseline
from pdctl.checks.diff_view import backup_views, diff_view, setting_views, warnings_of
from pdctl.checks.role_table import settings_of
from pdctl.checks.script_diff import compared
from pdctl.checks.script_drift import compared as drift_of
from pdctl.checks.scripts import Scripts, scripts_of
from pdctl.errors import UsageError
from pdctl.looks.files import FileLook, Place, places_of, texts, with_sources
from pdctl.looks.hosts import HostPlan, looking
from pdctl.model.cluster import LOCAL, Cluster, Host, Instance, Role
from pdctl.model.finding import Finding, Report, RuledOut, by_weight
from pdctl.model.host import ScriptFile
from pdctl.model.script_view import DiffView, Shown
from pdctl.model.when import SAID, resolve
from pdctl.model.window import Window
from pdctl.reach.capture import Capture

MATTERS = (Role.PREFILL, Role.DECODE)


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: a moment or a backup to compare with, the text too, the running process too, the list."""

    at: str | None = None
    against: str | None = None
    text: bool = False
    live: bool = True
    listing: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read. ``zones`` are those of the subjects' hosts, ``unplaced`` why instances could not be looked for."""

    window: Window
    zones: dict[str, tzinfo] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def zone(self, subject: str) -> tzinfo | None:
        return self.zones.get(subject)


def look_now(
    cluster: Cluster, wanted: Sequence[Instance], options: Options, timeout: float, record: Path | None
) -> Seen:
    """Scripts with their backups and, unless told not to, the processes, as they are now."""
    with looking(cluster, wanted, HostPlan(timeout, record)) as look:
        files = FileLook(look)
        files.times()
        files.scripts(places_of(look))
        if options.live and not options.listing:
            files.processes()
        zones = {i.name: files.zone(h) for i, h in look.placed()}
        return Seen(with_sources(look.window(), cluster, zones), zones, look.unplaced, look.notes)


def look_recorded(capture: Capture, wanted: Sequence[Instance]) -> Seen:
    """The same from a recording."""
    from pdctl.replay import read_window

    window = with_sources(read_window(capture), capture.cluster)
    return Seen(window, notes=[window.note] if window.note else [])


# --- the baseline --------------------------------------------------------------------------------------------------


def baseline_of(seen: Seen, subject: str, scripts: Scripts, options: Options) -> Backup | None:
    """The backup to compare with: the one named, the newest before the moment asked about, else the newest before the
    script itself. Raises UsageError where the name or the moment leaves none."""
    if options.against is not None:
        return _named(scripts, subject, options.against)
    if options.at is None:
        return baseline(scripts.main.value, scripts.backups)
    moment = moment_of(options.at, seen, subject)
    kept = baseline(scripts.main.value, scripts.backups, moment)
    if kept is None and scripts.backups:
        oldest = scripts.backups[0]
        when = f"{oldest.when.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if oldest.when else "of unknown time"
        raise UsageError(
            f"{subject}: no backup from before {moment.isoformat()}", f"The oldest is {oldest.name}, {when}."
        )
    return kept


def moment_of(text: str, seen: Seen, subject: str) -> datetime:
    """A moment as somebody at the subject's host means it."""
    try:
        return resolve(text, seen.window.end, seen.zone(subject) or UTC)
    except ValueError as error:
        raise UsageError(f"{text!r} is no moment that has been: {error}", f"Write {SAID}.") from None


def _named(scripts: Scripts, subject: str, name: str) -> Backup:
    found = [b for b in scripts.backups if name in (b.name, b.file.path)]
    found = found or [b for b in scripts.backups if name in b.name]
    if len(found) == 1:
        return found[0]
    have = ", ".join(b.name for b in found or scripts.backups) or "none"
    what = f"{len(found)} backups match" if found else "no backup is called"
    raise UsageError(f"{subject}: {what} {name!r}", f"There are: {have}.")


# --- what is shown -------------------------------------------------------------------------------------------------


def own_shown(seen: Seen, cluster: Cluster, wanted: Iterable[Instance], options: Options) -> Shown:
    """Each script against its baseline, or the list of its backups; in a whole look the settings roles must share."""
    diffs, lists = [], {}
    several = list(wanted)
    for instance in several:
        scripts = scripts_of(seen.window, cluster, instance.name, seen.zone(instance.name))
        if scripts is None:
            continue
        kept = baseline_of(seen, instance.name, scripts, options)
        if options.listing:
            lists[instance.name] = (scripts.main.value.path, backup_views(scripts, kept))
        elif kept is not None:
            diffs.append(_against(instance.name, scripts, kept, options))
    return Shown(tuple(diffs), lists)


def _against(name: str, scripts: Scripts, kept: Backup, options: Options) -> DiffView:
    script = scripts.main.value
    names = (f"{kept.name}{_when(kept.when)}", f"{script.path}{_when(script.mtime)}")
    return diff_view(
        compared(kept.file, script), name, names, warnings=warnings_of(scripts, kept), with_text=options.text
    )  # fmt: skip


def _when(moment: datetime | None) -> str:
    return f" ({moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC)" if moment is not None else ""


def pair_shown(seen: Seen, cluster: Cluster, wanted: Sequence[Instance], options: Options) -> Shown:
    """Two instances: what their scripts mean differently; of two roles, what they must agree on, too."""
    files = [scripts_of(seen.window, cluster, i.name, seen.zone(i.name)) for i in wanted]
    diffs: tuple[DiffView, ...] = ()
    if files[0] is not None and files[1] is not None:
        one, other = files[0].main.value, files[1].main.value
        names = (f"{wanted[0].name} {one.path}", f"{wanted[1].name} {other.path}")
        title = "instances" if wanted[0].role is wanted[1].role else "roles"
        diffs = (diff_view(compared(one, other), title, names, with_text=options.text),)
    roles = [i.role for i in wanted]
    settings = {}
    if sorted(roles) == sorted(MATTERS):
        prefill, decode = sorted(wanted, key=lambda i: i.role is Role.DECODE)
        pair = f"{prefill.name}->{decode.name}"
        settings[pair] = setting_views(settings_of(seen.window, cluster, prefill.name, decode.name))
    return Shown(diffs, {}, settings)


def judged_against(
    report: Report, seen: Seen, cluster: Cluster, wanted: Iterable[Instance], options: Options
) -> Report:
    """The report on these instances alone, script-drift judged against the baseline that was asked for."""
    names = {i.name for i in wanted}
    if options.listing:
        blind = tuple(f for f in report.findings if f.name == "endpoint-unreadable")
        return replace(report, findings=blind, ruled_out=(), unchecked=())
    findings = [f for f in report.findings if f.name != "script-drift" and set(f.subject.split("->")) & names]
    ruled_out = [r for r in report.ruled_out if r.what != "script-drift" and set(r.subject.split("->")) & names]
    for name in sorted(names):
        scripts = scripts_of(seen.window, cluster, name, seen.zone(name))
        kept = baseline_of(seen, name, scripts, options) if scripts is not None else None
        if scripts is None or kept is None:
            continue
        verdict = drift_of(name, scripts, kept)
        if isinstance(verdict, Finding):
            findings.append(verdict)
        elif isinstance(verdict, RuledOut):
            ruled_out.append(verdict)
    unchecked = tuple(u for u in report.unchecked if u.subject == cluster.name or set(u.subject.split("->")) & names)
    return replace(report, findings=tuple(by_weight(findings)), ruled_out=tuple(ruled_out), unchecked=unchecked)


# --- files anywhere ------------------------------------------------------------------------------------------------


def files_shown(cluster: Cluster, names: Sequence[str], options: Options, timeout: float) -> Shown:
    """Two files, each PATH here or HOST:PATH. Raises PdctlError where one cannot be read."""
    places = [place_of(cluster, name) for name in names]
    known = {host.name for host in cluster.hosts}
    more = tuple(p.host for p in places if p.host.name not in known and p.host.name != LOCAL)
    whole = replace(cluster, hosts=(*cluster.hosts, *dict.fromkeys(more)))
    with looking(whole, (), HostPlan(timeout)) as look:
        FileLook(look).scripts(places, backups=False)
        window = with_sources(look.window(), whole)
    one, other = (_read(window, place) for place in places)
    names_shown = (names[0], names[1])
    return Shown((diff_view(compared(one, other), "files", names_shown, with_text=options.text),))


def place_of(cluster: Cluster, name: str) -> Place:
    """Where a file is: ``HOST:PATH`` with a host of the inventory or any that SSH reaches, else a path here."""
    host, colon, path = name.partition(":")
    if colon and "/" not in host and path:
        known = next((h for h in cluster.hosts if h.name == host), None)
        return Place(name, known or Host(host, ssh=host), path)
    return Place(name, Host(LOCAL), str(PurePosixPath(Path.cwd()) / name))


def _read(window: Window, place: Place) -> ScriptFile:
    from pdctl.model.answer import Fact

    found = texts(window, place.subject).get(place.path)
    if found is not None:
        return found
    missed = window.missed(place.subject, Fact.SCRIPT)
    why = missed[-1].missed if missed else None
    raise UsageError(f"{place.subject}: cannot be read: {why.detail or why.why if why else 'no answer'}")
