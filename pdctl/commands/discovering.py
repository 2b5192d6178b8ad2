"""``pdctl init --host``: what runs on hosts, asked over HTTP as well who it is, and told to people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pdctl.errors import UsageError
from pdctl.model.finding import Status

if TYPE_CHECKING:
    from pdctl.inventory.discovery import Discovered
    from pdctl.inventory.workers import Target
    from pdctl.model.answer import Fact, Observation
    from pdctl.model.cluster import Cluster, Host
    from pdctl.render.look import Look

    Answers = dict[tuple[str, Fact], Observation[object]]


def found_on(specs: Sequence[str], name: str, *, become: bool, timeout: float) -> Discovered:
    """What was found on the hosts. Routers' own lists of workers say under which address an engine is known; what
    engines say of themselves is noted. Raises UsageError for what names no host."""
    from pdctl.inventory.discovery import cluster_of_hosts, hosts_of
    from pdctl.looks.discover import discover

    try:
        hosts = hosts_of(specs, "sudo" if become else None)
    except ValueError as error:
        raise UsageError(f"--host: {error}", "For example: --host root@gpu1 --host local") from None
    seen = discover(hosts)
    first = cluster_of_hosts(seen, name)
    answers = _answers(first.cluster, hosts, timeout)
    workers = _workers(first.cluster, answers)
    found = cluster_of_hosts(seen, name, workers)
    if [i.name for i in found.cluster.instances] != [i.name for i in first.cluster.instances]:
        answers = _answers(found.cluster, hosts, timeout)  # a router told the role of one that was left out
    return _with_identities(found, answers)


def _answers(cluster: Cluster, hosts: Sequence[Host], timeout: float) -> Answers:
    """What every instance says of itself, asked from its own host."""
    from pdctl import facts
    from pdctl.facts.asks import asks_for
    from pdctl.gather import Gatherer
    from pdctl.model.answer import Fact
    from pdctl.reach.clock import SystemClock
    from pdctl.reach.hosts import Hosts

    clock = SystemClock()
    remote = {host.name for host in hosts if host.ssh is not None}
    wanted = (Fact.METRICS, Fact.WORKERS, Fact.SERVER_INFO)
    with Hosts(cluster, clock=clock) as reach, Gatherer(cluster, clock=clock, commands=reach, via=reach.dial) as asker:
        asks = [
            replace(ask, timeout=timeout)
            for i in cluster.instances
            for ask in asks_for(i, wanted, via=i.host if i.host in remote else None)
        ]
        answers = asker.gather(asks, 3 * timeout) if asks else ()
        return {(a.subject, a.fact): facts.read(a, cluster.instance(a.subject)) for a in answers}


def _workers(cluster: Cluster, answers: Answers) -> tuple[Target, ...]:
    from pdctl.inventory.workers import targets_of
    from pdctl.model.answer import Fact, Seen
    from pdctl.model.router import Workers

    out: list[Target] = []
    for router in cluster.routers:
        row = answers.get((router.name, Fact.WORKERS))
        if row is not None and isinstance(row.got, Seen) and isinstance(row.got.value, Workers):
            out += targets_of(row.got.value.rows, router.host or "")
    return tuple(out)


def _with_identities(found: Discovered, answers: Answers) -> Discovered:
    from pdctl.inventory.identify import identify

    notes = dict(found.notes)
    rows = {instance: identify(instance, answers) for instance in found.cluster.instances}
    for instance, who in rows.items():
        said = [f"by its own account: {', '.join(who.facts)}"] if who.facts else []
        more = (*said, *([who.mismatch] if who.mismatch else ()), *(who.todo if instance.url else ()))
        if not who.told and instance.url is None:
            more = ()
        notes[instance.name] = tuple(dict.fromkeys((*notes[instance.name], *more)))
    untold = frozenset(i.name for i, who in rows.items() if not who.told)
    otherwise = frozenset(i.name for i, who in rows.items() if who.mismatch)
    return replace(found, notes=notes, untold=untold, otherwise=otherwise)


def status_of(found: Discovered) -> Status:
    """Unknown where a host, an address or who an instance is could not be told; a warning where one is not what it
    seems, or nothing runs; else ok."""
    looked = [remark for remark in found.remarks if "not looked at:" in remark or "could not be listed" in remark]
    if looked or found.untold or any(instance.url is None for instance in found.cluster.instances):
        return Status.UNKNOWN
    return Status.OK if found.cluster.instances and not found.otherwise else Status.WARNING


def summary(found: Discovered, written: str | None, *, to_stderr: bool, ascii_only: bool) -> None:
    """Says what was found; what could not be told goes to stderr, whatever the rest does."""
    from pdctl import outlet
    from pdctl.commands.aim import triage_of
    from pdctl.render.look import look

    shown = look(ascii_only)
    if to_stderr:
        shown = replace(shown, colour=False)
    for line in _found_lines(found, shown):
        outlet.say(line) if to_stderr else outlet.write_lines([line])
    for line in _remark_lines(found, replace(shown, colour=False)):
        outlet.say(line)
    if written is not None:
        outlet.write_lines([shown.say(f"wrote {written}; next: {triage_of(written)}")])
    elif not found.cluster.instances:
        outlet.say("pdctl: nothing was found to write down")


def _found_lines(found: Discovered, look: Look) -> Iterator[str]:
    from pdctl.render.look import Mark
    from pdctl.render.text import wrap

    for instance in found.cluster.instances:
        unsure = instance.url is None or instance.name in found.untold
        mark = look.mark(Mark.UNKNOWN if unsure else Mark.BAD if instance.name in found.otherwise else Mark.OK)
        places = [instance.url or "no url", *(p for p in (instance.unit, instance.script, instance.log) if p)]
        yield from wrap(look.say(", ".join(places)), look.width, f"{mark} {instance.name}  ", "    ")
        for note in found.notes.get(instance.name, ()):
            yield from wrap(look.say(note), look.width, "    - ", "      ")


def _remark_lines(found: Discovered, look: Look) -> Iterator[str]:
    from pdctl.render.look import Mark
    from pdctl.render.text import wrap

    for remark in found.remarks:
        yield from wrap(look.say(remark), look.width, f"{look.mark(Mark.UNCHECKED)} ", "  ")
