"""``pdctl init``: writes pdctl.toml from URLs, after asking each endpoint who it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pdctl.commands.aim import triage_of
from pdctl.commands.common import AsciiOpt, DecodeOpt, PrefillOpt, ProxyOpt, RouterOpt, TimeoutOpt
from pdctl.errors import UsageError
from pdctl.exits import OF_STATUS
from pdctl.inventory.where import FILE
from pdctl.model.cluster import Cluster, Instance, KeySource
from pdctl.model.finding import Status

if TYPE_CHECKING:
    from pdctl.gather import Gatherer
    from pdctl.inventory.identify import Identity
    from pdctl.model.answer import Fact, Observation
    from pdctl.model.ask import HttpAsk

    Answers = dict[tuple[str, Fact], Observation[object]]

START = "For example: pdctl init --prefill URL --decode URL --router URL, or pdctl init --host root@gpu1"
WriteOpt = Annotated[Path, typer.Option("--write", "-w", metavar="FILE", help="Where to; - prints it instead.")]
ForceOpt = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]
NameOpt = Annotated[str, typer.Option("--name", metavar="NAME", help="What to call the cluster.")]
KeyEnvOpt = Annotated[
    str | None, typer.Option("--api-key-env", metavar="VARIABLE", help="The variable that holds the engines' API key.")
]
HostOpt = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="[USER@]HOST[:PORT]", help="Look for engines and routers there; or: local."),
]
BecomeOpt = Annotated[
    bool, typer.Option("--become", help="With --host: use sudo there where it asks no password, and write that down.")
]


def init(
    prefill: PrefillOpt = None,
    decode: DecodeOpt = None,
    router: RouterOpt = None,
    proxy: ProxyOpt = None,
    hosts: HostOpt = None,
    become: BecomeOpt = False,
    write: WriteOpt = Path(FILE),
    force: ForceOpt = False,
    name: NameOpt = "cluster",
    api_key_env: KeyEnvOpt = None,
    timeout: TimeoutOpt = 5.0,
    ascii_only: AsciiOpt = False,
) -> None:
    """Writes an inventory from URLs. Each engine is asked for its release, role and ranks, each router for its workers;
    workers you did not name are added.

    With --host (repeatable) engines and routers are looked for on hosts, over SSH or here (local): by processes, units,
    scripts and sockets. Nothing is changed there.

    Exit status 0 when all of them told who they are, 1 when one is not what you said, 3 when one could not be asked.
    The file is written in any case, and says so.
    """
    from pdctl import outlet
    from pdctl.inventory.urls import cluster_of_urls
    from pdctl.inventory.write import render_cluster

    if not any((prefill, decode, router, proxy, hosts)):
        raise UsageError("no URL to start from", START)
    _refuse_overwriting(write, force)
    if hosts:
        if any((prefill, decode, router, proxy)):
            raise UsageError("--host finds engines by itself, URLs name them", "Give one or the other.")
        _of_hosts(hosts, name=name, become=become, write=write, force=force, timeout=timeout, key=api_key_env,
                  ascii_only=ascii_only)  # fmt: skip
    cluster = cluster_of_urls(prefill or (), decode or (), router or (), proxy or ())
    identities, remarks = asked(replace(cluster, name=name, instances=_with_key(cluster, api_key_env)), timeout)
    text = render_cluster(replace(cluster, name=name, instances=_instances(identities)), _notes(identities, remarks))
    _put(text, write, force)
    summary = _summary(identities, remarks, write, ascii_only)
    if str(write) == "-":
        for line in summary:
            outlet.say(line)
    else:
        outlet.write_lines(summary)
    raise typer.Exit(_status(identities))


def _of_hosts(
    specs: list[str], *, name: str, become: bool, write: Path, force: bool, timeout: float, key: str | None,
    ascii_only: bool,
) -> NoReturn:  # fmt: skip
    """Writes the inventory of what runs on hosts, and ends the command."""
    from pdctl.commands.discovering import found_on, status_of, summary
    from pdctl.inventory.write import render_cluster

    found = found_on(specs, name, become=become, timeout=timeout)
    cluster = replace(found.cluster, instances=_with_key(found.cluster, key))
    if cluster.instances:
        _put(render_cluster(cluster, {**found.notes, "": found.remarks}), write, force)
    to_stdout = str(write) == "-"
    written = None if to_stdout or not cluster.instances else str(write)
    summary(found, written, to_stderr=to_stdout, ascii_only=ascii_only)
    raise typer.Exit(OF_STATUS[status_of(found)])


def asked(cluster: Cluster, timeout: float) -> tuple[tuple[Identity, ...], tuple[str, ...]]:
    """Who the cluster's endpoints are, with the workers that its routers add, and remarks on what was left out."""
    from pdctl.gather import Gatherer
    from pdctl.inventory import identify
    from pdctl.reach.clock import SystemClock

    with Gatherer(cluster, clock=SystemClock()) as gatherer:
        seen = _ask(cluster.instances, gatherer, timeout)
        added, remarks = identify.missing_workers(cluster, seen)
        seen |= _ask(added, gatherer, timeout)
    found = [identify.identify(instance, seen) for instance in (*cluster.instances, *added)]
    return identify.settled(found, identify.bootstrap_ports(cluster, seen)), remarks


def _ask(instances: Iterable[Instance], gatherer: Gatherer, timeout: float) -> Answers:
    """Every instance asked at once, and those asked again by an older name whose release knows only that."""
    from pdctl import facts
    from pdctl.facts.asks import asks_for
    from pdctl.model.answer import Fact

    by_name = {instance.name: instance for instance in instances}
    wanted = (Fact.METRICS, Fact.WORKERS, Fact.SERVER_INFO)
    asks = [replace(ask, timeout=timeout) for i in by_name.values() for ask in asks_for(i, wanted)]
    seen: Answers = {}
    for answer in gatherer.gather(asks, 2 * timeout):
        seen[answer.subject, answer.fact] = facts.read(answer, by_name[answer.subject])
    for answer in gatherer.gather([*_older_names(asks, seen)], timeout):
        row = facts.read(answer, by_name[answer.subject])
        if row.missed is None:
            seen[answer.subject, answer.fact] = row
    return seen


def _older_names(asks: Iterable[HttpAsk], seen: Answers) -> Iterator[HttpAsk]:
    """/get_server_info is the name before 0.5.6; /list_workers that of sglang-router 0.1.9. /model_info tells the role
    (release 0.5.23) without the scheduler, which is all that is left where the scheduler hangs. What lists workers is a
    router, whatever it was given as."""
    from pdctl.facts.asks import server_info_fallback
    from pdctl.model.answer import Fact, Why

    for ask in asks:
        row = seen.get((ask.subject, ask.fact))
        missed = row.missed if row is not None else None
        if missed is None:
            continue
        if ask.fact is Fact.SERVER_INFO and missed.why is Why.READ_TIMEOUT:
            yield replace(ask, url=ask.url.removesuffix("/server_info") + "/model_info")
        elif ask.fact is Fact.WORKERS and missed.why is Why.NOT_FOUND:
            yield replace(ask, url=ask.url.removesuffix("/workers") + "/list_workers")
        elif missed.why is Why.NOT_FOUND and (older := server_info_fallback(ask)):
            yield older
            yield replace(ask, fact=Fact.WORKERS, url=ask.url.removesuffix("/server_info") + "/workers")


def _with_key(cluster: Cluster, variable: str | None) -> tuple[Instance, ...]:
    key = KeySource(env=variable) if variable else None
    return tuple(replace(i, api_key=key) if i.is_engine else i for i in cluster.instances)


def _instances(identities: Iterable[Identity]) -> tuple[Instance, ...]:
    return tuple(identity.instance for identity in identities)


def _notes(identities: Iterable[Identity], remarks: Iterable[str]) -> Mapping[str, Iterable[str]]:
    """What is worth keeping in the file: what each said of itself, and what is left to do."""
    notes: dict[str, Iterable[str]] = {"": remarks}
    for identity in identities:
        learnt = (", ".join(identity.facts),) if identity.facts else ()
        wrong = (identity.mismatch,) if identity.mismatch else ()
        notes[identity.instance.name] = (*learnt, *wrong, *identity.todo)
    return notes


def _summary(identities: Iterable[Identity], remarks: Iterable[str], write: Path, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.look import Mark, look
    from pdctl.render.text import wrap

    shown = look(ascii_only)
    if str(write) == "-":
        shown = replace(shown, colour=False)  # the file takes stdout, and these lines go to stderr
    for row in identities:
        mark = Mark.UNKNOWN if not row.told else Mark.BAD if row.mismatch else Mark.OK
        head = f"{shown.mark(mark)} {row.instance.name}"
        said = "; ".join((f"{row.instance.url}: {', '.join(row.facts) or 'not known'}", *filter(None, [row.mismatch])))
        yield from wrap(shown.say(said), shown.width, f"{head}  ", "    ")
        for todo in row.todo:
            yield from wrap(shown.say(todo), shown.width, "    - ", "      ")
    for remark in remarks:
        yield from wrap(shown.say(remark), shown.width, f"{shown.mark(Mark.UNCHECKED)} ", "  ")
    if str(write) != "-":
        yield shown.say(f"wrote {write}; next: {triage_of(write)}")


def _status(identities: Iterable[Identity]) -> int:
    rows = tuple(identities)
    if not all(row.told for row in rows):
        return OF_STATUS[Status.UNKNOWN]
    return OF_STATUS[Status.WARNING if any(row.mismatch for row in rows) else Status.OK]


def _refuse_overwriting(path: Path, force: bool) -> None:
    """Before anything is asked: an answer that cannot be kept is not worth a request."""
    if str(path) != "-" and path.exists() and not force:
        raise UsageError(
            f"{path} is there already", "--force overwrites it, --write FILE takes another, --write - prints."
        )


def _put(text: str, path: Path, force: bool) -> None:
    from pdctl import outlet

    if str(path) == "-":
        outlet.write(text)
        return
    try:
        if not force:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            return
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(text, "utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
