"""What a restart stands on at each host: whether it answers, its lock, its disks, processes that lost their engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pdctl.facts import asks_ground, asks_host
from pdctl.facts.base import Unreadable
from pdctl.facts.kin import kin_of
from pdctl.facts.proc_listing import Listed, read_listing
from pdctl.facts.titles import CONTROLLER, DETOKENIZER, MAIN, SCHEDULER, TOKENIZER, part_of
from pdctl.looks.hosts import HostLook
from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Cluster, Host, Instance
from pdctl.model.plan import Leftover, Lock, Owner, Site
from pdctl.plans.restart import host_of
from pdctl.reach.lock import look_ask, read_lock

CHILDREN = (SCHEDULER, DETOKENIZER, CONTROLLER, TOKENIZER)
ALWAYS_WRITTEN = ("/", "/tmp", "/dev/shm")
SILENT = (Why.SSH, Why.READ_TIMEOUT, Why.CONNECT_TIMEOUT, Why.CONNECT_REFUSED)


def sites_of(
    look: HostLook, cluster: Cluster, instances: Sequence[Instance], lock_path: str, own: Owner | None
) -> Iterator[Site]:
    hosts = {h.name: h for i in instances if (h := host_of(i, cluster)) is not None}
    asks = {name: _site_asks(host, instances, cluster, lock_path) for name, host in hosts.items()}
    answers = {(a.subject, a.ask): a for a in look.ask(ask for theirs in asks.values() for ask in theirs)}
    for name, host in hosts.items():
        mine = [answers.get((ask.subject, str(ask))) for ask in asks[name]]
        yield _site(host, cluster, look, mine, own)


def _site_asks(host: Host, instances: Sequence[Instance], cluster: Cluster, lock_path: str) -> list[CommandAsk]:
    theirs = [i for i in instances if host_of(i, cluster) == host]
    paths = dict.fromkeys((*ALWAYS_WRITTEN, *(p for i in theirs for p in (i.log, i.script) if p)))
    return [
        look_ask(host, lock_path),
        asks_ground.disks_ask(host, tuple(paths)),
        asks_host.processes_ask(host),
        asks_ground.gpu_apps_ask(host),
    ]


def _site(
    host: Host, cluster: Cluster, look: HostLook, answers: Sequence[Answer | None], own: Owner | None
) -> Site:  # fmt: skip
    lock_answer, disks_answer, listing, gpus = answers
    if lock_answer is None or (lock_answer.error in SILENT and lock_answer.status is None):
        detail = lock_answer.detail or str(lock_answer.error) if lock_answer is not None else "no answer"
        return Site(host.name, False, detail)
    lock: Lock = read_lock(lock_answer, own)
    unseen: dict[str, str] = {}
    disks = asks_ground.read_disks(disks_answer) if disks_answer is not None else None
    if disks is None:
        unseen["disk space"] = disks_answer.detail or "no answer" if disks_answer is not None else "no answer"
    held = asks_ground.read_gpu_apps(gpus) if gpus is not None else None
    if held is None:
        unseen["GPU memory"] = gpus.detail or "no answer" if gpus is not None else "no answer"
    leftovers: tuple[Leftover, ...] = ()
    strangers: tuple[Leftover, ...] = ()
    rows = _rows(listing)
    if rows is None:
        unseen["leftover processes"] = listing.detail or "no listing" if listing is not None else "no answer"
    else:
        kin = _own_pids(rows, host, cluster, look)
        leftovers = tuple(leftovers_of(rows, kin, held or {}))
        strangers = tuple(strangers_of(rows, kin | {left.pid for left in leftovers}, held or {}))
    return Site(host.name, True, None, _boot(lock_answer), lock, disks or (), leftovers, unseen, strangers)


def _boot(answer: Answer) -> str | None:
    lines = (answer.body or b"").decode("utf-8", "replace").splitlines()
    return next((line[5:].strip() or None for line in lines if line.startswith("boot ")), None)


def _rows(answer: Answer | None) -> tuple[Listed, ...] | None:
    if answer is None or answer.error is not None or answer.body is None:
        return None
    try:
        return read_listing(answer.body)
    except Unreadable:
        return None


def _own_pids(rows: Sequence[Listed], host: Host, cluster: Cluster, look: HostLook) -> set[int]:
    """The processes of the inventory's instances on the host."""
    theirs = [i for i in cluster.instances if host_of(i, cluster) == host]
    own = {row.pid for i in theirs for row in kin_of(i, rows).rows}
    return own | {row.pid for f in look.found.values() if f.host == host for row in f.kin.rows}


def leftovers_of(rows: Iterable[Listed], own: set[int], held: Mapping[int, float]) -> Iterator[Leftover]:
    """Schedulers and other children of engines whose engine is gone: their parent is no process of any engine."""
    by_pid = {row.pid: row for row in rows}
    for row in by_pid.values():
        if row.pid in own or row.state in ("Z", "X") or part_of(row.title) not in CHILDREN:
            continue
        if not _has_engine(row, by_pid):
            yield Leftover(row.pid, row.title, held.get(row.pid))


def strangers_of(rows: Iterable[Listed], own: set[int], held: Mapping[int, float]) -> Iterator[Leftover]:
    """Processes that hold GPU memory and are of no instance: a new engine may not find the memory its old one had. One
    that the host does not list may be in a container, or dead and its memory not yet given back."""
    titles = {row.pid: row.title for row in rows}
    for pid, memory in held.items():
        if pid not in own:
            yield Leftover(pid, titles.get(pid, "not among the host's processes"), memory or None)


def _has_engine(row: Listed, by_pid: Mapping[int, Listed]) -> bool:
    seen: set[int] = set()
    pid = row.ppid
    while pid in by_pid and pid not in seen:
        seen.add(pid)
        above = by_pid[pid]
        if part_of(above.title) == MAIN:
            return True
        pid = above.ppid
    return False
