"""connection-scoped-hang: fresh requests work, engines and router are idle, and requests on older connections, or
through a proxy, get no answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.listings import Listing, by_subject, owners_of, place, ports_of
from pdctl.checks.probe_lost import lost_on
from pdctl.checks.probe_parts import parts_of
from pdctl.checks.probe_paths import Path, named, paths_of
from pdctl.checks.probe_waits import explained
from pdctl.checks.quiet import all_quiet, fresh_answers, idle_engines
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.host import SocketRow
from pdctl.model.probe import Attempt
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window

HUNG = frozenset({"read-timeout"})
CUT = frozenset({"truncated", "reset"})
LONG_S = 20.0  # bytes that lie unread this long are not about to be read


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """By probes where there are any, and by what lies unread on sockets of the instances' ports."""
    paths = tuple(paths_of(window))
    told = False
    for path in paths:
        told_otherwise = (*lost_on(window, cluster, path), *explained(window, cluster, path))
        hung = tuple(a for a in hung_attempts(path) if a not in told_otherwise)
        works = working_fresh(path, paths)
        if hung and inside(path, paths, cluster):
            continue
        if hung and works:
            told = True
            yield from by_probe(window, cluster, path, hung, works)
        elif path.reused and not hung_attempts(path) and path.fresh:
            yield RuledOut("connection-scoped-hang", path.to, _ended(path))
    if not told:
        yield from by_sockets(window, cluster, paths)


def _ended(path: Path) -> str:
    one = len(path.reused) == 1
    return "a request on a reused connection ends" if one else f"{len(path.reused)} requests on reused connections end"


def hung_attempts(path: Path) -> tuple[Attempt, ...]:
    """Requests that got no answer in time on a connection that was used before, or through a proxy; and answers that
    broke off in the middle of one there."""
    older = path.reused if path.via == "direct" else (*path.fresh, *path.reused)
    return tuple(a for a in older if a.error in HUNG or (a.error in CUT and (a.first_byte_s or a.tokens)))


def working_fresh(path: Path, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The paths whose fresh requests all work, asked one at a time: this one, or for a proxy the direct way to the same
    instance."""
    same = [p for p in paths if p.to == path.to or path.via == "proxy"]
    ordered = sorted(same, key=lambda p: (p is not path, p.to != path.to))
    return tuple(p for p in ordered if p.alone and all(a.good for a in p.alone))[:1]


def inside(path: Path, paths: tuple[Path, ...], cluster: Cluster) -> bool:
    """Whether what hangs through a proxy hangs at a router behind it too: the router's finding names the place."""
    if path.via != "proxy":
        return False
    routers = {router.name for router in cluster.routers}
    return any(p.via == "direct" and p.to in routers and hung_attempts(p) and p.alone for p in paths)


def at_one_place(hung: tuple[Attempt, ...]) -> str | None:
    """Where on their connections requests hang, when each time at the same place; None where they don't."""
    places = {a.nth for a in hung}
    if len(hung) < 2 or len(places) != 1 or places & {None, 1}:
        return None
    return f"each time the request with number {places.pop()} on its connection"


def by_probe(
    window: Window, cluster: Cluster, path: Path, hung: tuple[Attempt, ...], works: tuple[Path, ...]
) -> Iterator[Verdict]:
    """The finding for one path. Without a measured idle cluster the hang may be a queue's."""
    meanwhile = [part for _, part in parts_of(window, path, hung)] or [window]
    quiets = [all_quiet(part, cluster) for part in meanwhile]
    quiet = quiets[-1] if None not in quiets else None
    engines, busy = idle_engines(meanwhile[-1], cluster)
    unseen = quiet is None and not busy and not engines
    if busy and held_by_router(meanwhile[-1], cluster, path, len(hung)):
        return  # it has the requests: whatever keeps them is behind it
    if unseen and (len(hung) < 2 or not any(a.control and a.good for a in path.fresh)):
        return
    if quiet is None and all(a.error in HUNG for a in hung) and len(hung) < 2:
        yield Unchecked("a hang on one connection", path.to, "one request hung, and the cluster was not seen idle")
        return
    evidence = [
        saw(f"{len(hung)} of {tried(path)} hang: {shown(hung)}", path.seen, hung=len(hung)),
        *(saw(text, path.seen) for text in (at_one_place(hung),) if text),
        *fresh_answers(window, cluster, works),
        *(quiet or ()),
        *unread_for_long(window, cluster),
    ]
    behind = "" if named(path, cluster) == path.to else "through its proxy "
    used = all(a.connection == "reused" for a in hung)
    where = f"{behind}{'on a connection that was used before ' if used else ''}hang"
    yield found(
        "connection-scoped-hang",
        path.to,
        f"requests to {path.to} {where}, while fresh ones are answered"
        + (" and every engine is idle" if quiet else ""),
        confidence=Confidence.CERTAIN if quiet and len(hung) > 1 else Confidence.LIKELY,
        evidence=evidence,
        since=path.seen.seen.at,
        against=() if quiet or unseen else (not_idle(busy),),
        limits=(
            *(("no engine was seen, so that they are idle is not known",) if unseen else ()),
            "whether the client's side, a proxy or the server's side lost the connection: the sockets of both tell",
        ),
        next=(
            f"pdctl sockets {path.to}",
            f"pdctl probe {path.to}",
            "pdctl explain connection-scoped-hang",
        ),
    )


def held_by_router(window: Window, cluster: Cluster, path: Path, hung: int) -> bool:
    """Whether the router that was asked counted as many requests under way as hung, all the while."""
    pages = window.seen(path.to, Fact.METRICS, RouterMetrics)
    active = [p.value.active_total for p in pages if p.value.active_total is not None]
    return bool(active) and min(active) >= hung


def not_idle(busy: list[str]) -> str:
    return f"not seen idle: {', '.join(busy) or 'a router'}; the hang may be a queue there"


def tried(path: Path) -> str:
    if path.via == "proxy":
        return f"{len(path.fresh) + len(path.reused)} requests through the proxy"
    return f"{len(path.reused)} requests on reused connections"


def shown(attempts: tuple[Attempt, ...], most: int = 4) -> str:
    words = []
    for a in attempts[:most]:
        told = [
            f"round {a.round}" if a.round is not None else "",
            f"{a.idle_s:g} s idle" if a.idle_s is not None else "",
        ]
        told += [f"no answer in {a.took:.3g} s" if a.error in HUNG and a.took else str(a.error)]
        words.append(" ".join(t for t in told if t))
    return ", ".join(words) + (" .." if len(attempts) > most else "")


def by_sockets(window: Window, cluster: Cluster, paths: tuple[Path, ...]) -> Iterator[Verdict]:
    """Bytes that lie unread for long on established connections to an idle instance. Idle keep-alive connections hold
    none and are no alarm."""
    unread = list(unread_for_long(window, cluster))
    if not unread:
        return
    quiet = all_quiet(window, cluster)
    if quiet is None:
        return
    works = list(fresh_answers(window, cluster, paths))
    owner = str(unread[0].values["owner"])
    yield found(
        "connection-scoped-hang",
        owner,
        f"{unread[0].values['count']} connection(s) to {owner} hold a request that nobody reads, while every engine is "
        "idle",
        confidence=Confidence.CERTAIN if works else Confidence.LIKELY,
        evidence=(*unread, *quiet, *works),
        since=unread[0].at,
        limits=() if works else ("no fresh request was tried: a front end that reads nothing at all looks the same",),
        next=(f"pdctl probe {owner}", f"pdctl stacks {owner}", "pdctl explain connection-scoped-hang"),
    )


def unread_for_long(window: Window, cluster: Cluster) -> Iterator[Evidence]:
    """Per instance: connections on its ports with the same unread bytes over two listings, or silent for long. A full
    accept queue is another finding: its connections were never taken."""
    owners = owners_of(window, cluster)
    for listings in by_subject(window).values():
        if any(r.state == "LISTEN" and 0 < r.send_q <= r.recv_q for li in listings for r in li.rows):
            continue
        waiting: dict[str, list[SocketRow]] = {}
        before = unread_before(listings)
        for row in listings[-1].rows:
            owner = owners.of(row, listings[-1])
            instance = owners.instance(owner)
            if instance is not None and row.local_port in ports_of(instance) and is_stuck(row, before):
                waiting.setdefault(instance.name, []).append(row)
        for owner, rows in waiting.items():
            size = sum(r.recv_q for r in rows)
            text = f"{len(rows)} connection(s) to {owner} with {size} bytes unread for over {LONG_S:.0f} s, as from "
            text += place(rows[0].peer, rows[0].peer_port)
            yield saw(text, listings[-1].at, owner=owner, count=len(rows))


Unread = tuple[str, int | None, int | None, int]  # peer, its port, the port here, unread bytes


def unread(row: SocketRow) -> Unread:
    return row.peer, row.peer_port, row.local_port, row.recv_q


def unread_before(listings: list[Listing]) -> frozenset[Unread]:
    """What lay unread on each connection in the listings that are ``LONG_S`` older than the newest, or more."""
    old = [li for li in listings[:-1] if listings[-1].t - li.t >= LONG_S]
    return frozenset(unread(row) for li in old for row in li.rows if row.recv_q)


def is_stuck(row: SocketRow, before: frozenset[Unread]) -> bool:
    if row.state != "ESTAB" or row.recv_q == 0:
        return False
    if row.last_recv_ms is not None:
        return row.last_recv_ms >= LONG_S * 1000
    return unread(row) in before


CHECKS = (
    Check(
        "connection-hang",
        "requests that hang on older connections while the cluster is idle",
        ("connection-scoped-hang",),
        (Fact.PROBE, Fact.SOCKETS),
        judge,
    ),
)
