"""What `pdctl script` would write: the script as it is, the edit, and what it changes, before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from pdctl.checks.backups import backups_of
from pdctl.checks.diff_view import diff_view, short_name
from pdctl.checks.script_diff import compared
from pdctl.errors import UsageError
from pdctl.execute.rewrite import Rewriter, new_run
from pdctl.facts.edit import Edited, Source, remove_flag, set_flag, set_variable, unset_variable
from pdctl.facts.edit_text import Refused
from pdctl.facts.script import script_of
from pdctl.facts.script_sources import sources_of
from pdctl.looks.files import FileLook, Place, texts
from pdctl.looks.hosts import HostLook, HostPlan, looking
from pdctl.looks.scripts import Options, Seen, baseline_of, place_of
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.host import ScriptFile
from pdctl.model.script_view import DiffView
from pdctl.plans.script_write import Current, Writing, backup_name

Edit = Callable[[Source], Edited]


@dataclass(frozen=True, slots=True)
class Bench:
    """A script and what is known around it. ``scripts`` are its backups and the files it reads in, by path."""

    place: Place
    current: Current
    scripts: dict[str, ScriptFile]
    seen: Seen

    def source(self) -> Source:
        """The script as an editor wants it."""
        files = {w: self.scripts[p].text for w, p in self._sources().items() if p in self.scripts}
        return Source(self.current.raw, self.place.path, self.place.instance, files)

    def _sources(self) -> dict[str, str]:
        whole = self.scripts.get(self.place.path)
        return sources_of(whole) if whole is not None else {}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What would be written, and what that changes. ``raw`` None: nothing, only the backup is made."""

    writing: Writing
    diff: DiffView
    notes: tuple[str, ...] = ()


@contextmanager
def bench(cluster: Cluster, name: str, timeout: float) -> Iterator[tuple[Rewriter, Bench]]:
    """A script of an instance, or a file anywhere (PATH, HOST:PATH), with what edits it. Raises UsageError."""
    place = _place(cluster, name)
    known = {host.name for host in cluster.hosts}
    whole = cluster if place.host.name in known else replace(cluster, hosts=(*cluster.hosts, place.host))
    with looking(whole, [place.instance] if place.instance else [], HostPlan(timeout)) as look:
        rewriter = Rewriter(look.hosts, look.clock)
        current = rewriter.read(place)
        place = replace(place, path=current.path)  # of a link: backups lie beside what it leads to
        files = FileLook(look)
        files.times([place.host])
        files.scripts([place])
        yield rewriter, Bench(place, current, texts(look.window(), place.subject), _seen(look, files, place))


def _seen(look: HostLook, files: FileLook, place: Place) -> Seen:
    return Seen(look.window(), {place.subject: files.zone(place.host)})


def _place(cluster: Cluster, name: str) -> Place:
    instance = cluster.instance(name)
    if instance is None:
        if "/" not in name and ":" not in name:
            known = ", ".join(i.name for i in cluster.instances) or "none"
            raise UsageError(f"{cluster.name} has no instance {name!r}", f"It has: {known}. Or name a file: HOST:PATH.")
        return place_of(cluster, name)
    return _place_of_instance(cluster, instance)


def _place_of_instance(cluster: Cluster, instance: Instance) -> Place:
    if not instance.script:
        raise UsageError(
            f"the inventory names no script of {instance.name}", 'script = "/opt/serve/prefill.sh" in its [[instance]].'
        )
    with looking(cluster, [instance], HostPlan()) as look:
        found = look.found[instance.name]
        if found.host is None:
            raise UsageError(f"{instance.name}: {found.why}", 'host = "NAME" in its [[instance]].')
        return Place(instance.name, found.host, instance.script, instance)


# --- proposals -----------------------------------------------------------------------------------------------------


def edited(bench: Bench, edit: Edit, now: datetime) -> Proposal:
    """The script with one edit. Raises UsageError with the reason where it is refused."""
    try:
        made = edit(bench.source())
    except Refused as refused:
        raise UsageError(f"{bench.place.path}: not edited: {refused.reason}", refused.hint) from None
    return proposed(bench, made.raw, now, made.notes)


def proposed(bench: Bench, raw: bytes, now: datetime, notes: Sequence[str] = ()) -> Proposal:
    """New bytes for the script, with a backup of the old ones."""
    same = raw == bench.current.raw
    writing = Writing(
        bench.place.subject,
        bench.place.host,
        bench.current,
        None if same else raw,
        None if same else _backup_name(bench, now),
        new_run(),
    )
    return Proposal(writing, _diff(bench, raw), (*notes, *_warnings(bench.current), *_elsewhere(bench.place)))


def backed_up(bench: Bench, now: datetime) -> Proposal:
    """A backup and nothing else."""
    writing = Writing(
        bench.place.subject, bench.place.host, bench.current, None, _backup_name(bench, now), new_run()
    )  # fmt: skip
    text = bench.current.raw.decode("utf-8", "replace")
    kept = backups_of(_script(bench, bench.current.raw), bench.scripts.values())
    same = [b.name for b in kept if b.file.text == script_of("", None, text).text]
    notes = (f"{same[-1]} has the same bytes already",) if same else ()
    return Proposal(writing, _diff(bench, bench.current.raw), notes)


def restored(rewriter: Rewriter, bench: Bench, options: Options, now: datetime) -> Proposal:
    """A backup's bytes in place of the script's. Raises UsageError where the backup is not one."""
    from pdctl.checks.scripts import Scripts
    from pdctl.model.answer import Fact

    found = {at.value.path: at for at in bench.seen.window.seen(bench.place.subject, Fact.SCRIPT, ScriptFile)}
    main = found.get(bench.place.path)
    if main is None:
        raise UsageError(f"{bench.place.path}: cannot be listed, so its backups are not known")
    zone = bench.seen.zone(bench.place.subject)
    scripts = Scripts(main, backups_of(main.value, bench.scripts.values(), zone), found)
    kept = baseline_of(bench.seen, bench.place.subject, scripts, options)
    if kept is None:
        raise UsageError(f"{bench.place.path} has no backup", "pdctl diff --list shows what is taken for one.")
    raw = rewriter.read(bench.place, kept.file.path).raw
    return proposed(bench, raw, now, (f"restored from {kept.name}",))


def _backup_name(bench: Bench, now: datetime) -> str:
    return backup_name(bench.current.path, now, frozenset(bench.scripts))


def _script(bench: Bench, raw: bytes) -> ScriptFile:
    return bench.source().read(raw)


def _diff(bench: Bench, raw: bytes) -> DiffView:
    name = short_name(bench.place.path)
    sides = compared(_script(bench, bench.current.raw), _script(bench, raw))
    names = (f"{name} as it is", f"{name} as it would be")
    return replace(diff_view(sides, bench.place.subject, names, with_text=True), unsure=())


def _elsewhere(place: Place) -> Iterator[str]:
    """The copies of the script on the further hosts of an engine that spans several."""
    for host in place.instance.nodes if place.instance is not None else ():
        yield f"{place.subject} spans {host} as well, whose script is another file: {host}:{place.path}"


def _warnings(current: Current) -> Iterator[str]:
    if current.links > 1:
        yield f"{current.path} has {current.links} names (hard links): the others keep the old text"
    if current.path != current.asked:
        yield f"{current.asked} is a link: {current.path} is what is written"


def variable_edit(name: str, value: str | None) -> Edit:
    """``NAME=value``, or NAME taken out."""
    if value is None:
        return lambda source: unset_variable(source, name)
    return lambda source: set_variable(source, name, value)


def flag_edit(name: str, values: Sequence[str], remove: bool) -> Edit:
    """One option of the launch command."""
    return lambda source: remove_flag(source, name) if remove else set_flag(source, name, values)
