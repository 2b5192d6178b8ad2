"""An instance's sockets as ``pdctl sockets`` shows them: by peer and condition, beside what its router counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pdctl.checks.listings import HOST, Listing, Owners, held_by, listings_of, owners_of, place, ports_of
from pdctl.model.answer import Fact, Missed
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics
from pdctl.model.host import SocketRow
from pdctl.model.host_view import ListenerRow, PeerRow, SocketView
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window

BUSY_MS = 1000  # a connection that sent or received bytes this recently is at work
ACTIVE, IDLE, QUIET, UNREAD, UNACKED = "active", "idle", "open", "unread bytes", "unacknowledged bytes"
ORDER = (UNREAD, UNACKED, ACTIVE, QUIET, IDLE)
Key = tuple[str, bool, str]


@dataclass(frozen=True, slots=True)
class Held:
    """One connection of the instance in one listing."""

    row: SocketRow
    outward: bool
    peer: str

    @property
    def key(self) -> Key:
        return (self.peer, self.outward, condition_of(self.row))


def sockets_of(window: Window, cluster: Cluster, instance: Instance) -> SocketView:
    """The newest listing that can hold the instance's connections, how it differs from the oldest of the same kind,
    and the newest that shows its listeners (some listings hold the ones, some the others)."""
    owners = owners_of(window, cluster)
    listings = [x for x in listings_of(window) if may_hold(x.subject, instance)]
    if not listings:
        return SocketView(instance.name, instance.role, instance.host, why=_why(window, instance))
    able = [x for x in listings if x.at.value.connections] or listings
    same = [x for x in able if x.subject == able[-1].subject]
    first, newest = same[0], same[-1]
    served = frozenset().union(*(served_ports(instance, x, owners) for x in (*listings[-2:], first, newest)))
    now = connections(instance, newest, owners, served)
    before = connections(instance, first, owners, served) if first is not newest else None
    shows = next((rows for x in reversed(listings) if (rows := tuple(listeners(instance, x, owners)))), ())
    return SocketView(
        instance.name, instance.role, instance.host, shows, tuple(peers(now, before)), len(same), newest.t - first.t,
        tuple(notes(window, cluster, instance, now, newest)),
    )  # fmt: skip


def may_hold(subject: str, instance: Instance) -> bool:
    """Whether a listing can hold the instance's sockets: its own, its host's, any host's where that is not known."""
    if not subject.startswith(HOST):
        return subject == instance.name
    return instance.host is None or subject == f"{HOST}{instance.host}"


def owner_of(row: SocketRow, listing: Listing, owners: Owners) -> str | None:
    """As ``Owners.of``, which looks at nothing of a row but its process and port: asked once for each pair of them."""
    known = _owners(listing)
    key = (row.pid, row.local_port)
    if key not in known:
        known[key] = owners.of(row, listing)
    return known[key]


@lru_cache(maxsize=8)
def _owners(listing: Listing) -> dict[tuple[int | None, int], str | None]:
    return {}


def condition_of(row: SocketRow) -> str:
    """What a connection is doing: its state, or for an established one what its bytes say."""
    if row.state != "ESTAB":
        return row.state
    if row.recv_q > 0:
        return UNREAD
    if row.send_q > 0:
        return UNACKED
    quiet = quiet_ms(row)
    if quiet is None:
        return QUIET
    return ACTIVE if quiet < BUSY_MS else IDLE


def quiet_ms(row: SocketRow) -> int | None:
    """Milliseconds since bytes last went either way, None where the listing does not say."""
    known = [ms for ms in (row.last_send_ms, row.last_recv_ms) if ms is not None]
    return min(known) if known else None


def served_ports(instance: Instance, listing: Listing, owners: Owners) -> frozenset[int]:
    """The ports the instance serves: those it listens on, by the listing and by the inventory; and a port on which
    several peers are connected, as no port of a connection that was opened from here is."""
    mine = [r for r in listing.rows if owner_of(r, listing, owners) == instance.name]
    listening = {r.local_port for r in mine if r.state == "LISTEN"}
    peers: dict[int, set[tuple[str, int | None]]] = defaultdict(set)
    for row in mine:
        if row.state != "LISTEN":
            peers[row.local_port].add((row.peer, row.peer_port))
    return frozenset(listening | set(ports_of(instance)) | {port for port, ends in peers.items() if len(ends) > 1})


def connections(instance: Instance, listing: Listing, owners: Owners, served: frozenset[int]) -> list[Held]:
    """Everything of the instance that is no listener."""
    held = []
    for row in listing.rows:
        if row.state == "LISTEN" or owner_of(row, listing, owners) != instance.name:
            continue
        outward = row.local_port not in served
        held.append(Held(row, outward, _peer(row, outward, listing, owners)))
    return held


def _peer(row: SocketRow, outward: bool, listing: Listing, owners: Owners) -> str:
    """The other end: by the name of the instance that serves there, or that holds the other end in the same listing;
    else its address (a client's port says nothing)."""
    at = place(row.peer, row.peer_port if outward else None)
    name = owners.at_address(row.peer, row.peer_port) if outward else None
    if name is None and (other := _far_ends(listing).get((row.peer, row.peer_port, row.local, row.local_port))):
        name = owner_of(other, listing, owners) or (held_by(other) if other.pid is not None else None)
    if name is None:
        return at
    return f"{name} ({at})" if outward else f"{at} ({name})"


@lru_cache(maxsize=4)
def _far_ends(listing: Listing) -> dict[tuple[str, int | None, str, int | None], SocketRow]:
    """The connections of a listing by their four-tuple."""
    return {(r.local, r.local_port, r.peer, r.peer_port): r for r in listing.rows if r.state != "LISTEN"}


def listeners(instance: Instance, listing: Listing, owners: Owners) -> Iterator[ListenerRow]:
    """Its listeners: those on which something waits first, then the ports the inventory names, then the others (an
    engine has a dozen for its own parts)."""
    known = ports_of(instance)
    mine = [r for r in listing.rows if r.state == "LISTEN" and owner_of(r, listing, owners) == instance.name]
    for row in sorted(mine, key=lambda r: (not r.recv_q, r.local_port not in known, r.local_port)):
        named = row.local_port in known
        yield ListenerRow(row.local, row.local_port, row.recv_q, row.send_q or None, held_by(row), named)


def peers(now: Sequence[Held], before: Sequence[Held] | None) -> Iterator[PeerRow]:
    """Connections by peer and condition, those that wait first, then by number. What is gone since is there with 0."""
    groups: dict[Key, list[Held]] = defaultdict(list)
    for held in now:
        groups[held.key].append(held)
    was = Counter(held.key for held in before) if before is not None else None
    for key in was or ():
        groups.setdefault(key, [])
    for key, rows in sorted(groups.items(), key=lambda item: _weight(item[0], len(item[1]))):
        yield _peer_row(key, [held.row for held in rows], None if was is None else len(rows) - was[key])


def _weight(key: Key, count: int) -> tuple[int, int, str]:
    peer, _, condition = key
    place_ = ORDER.index(condition) if condition in ORDER else (-1 if condition == "CLOSE-WAIT" else len(ORDER))
    return (place_, -count, peer)


def _peer_row(key: Key, rows: Sequence[SocketRow], change: int | None) -> PeerRow:
    peer, outward, condition = key
    quiet = [ms for row in rows if (ms := quiet_ms(row)) is not None]
    return PeerRow(
        peer, outward, condition, len(rows), change, (min(quiet), max(quiet)) if quiet else None,
        sum(row.recv_q for row in rows), sum(row.send_q for row in rows),
        tuple(dict.fromkeys(held_by(row) for row in rows if row.pid is not None)),
    )  # fmt: skip


# --- beside what the instance says of itself ---------------------------------------------------------------------


def notes(window: Window, cluster: Cluster, instance: Instance, now: Sequence[Held], listing: Listing) -> Iterator[str]:
    if not listing.at.value.owners:
        yield "the listing names no processes (no ss, or not root): sockets are told by their port alone"
    if any(h.row.state == "ESTAB" for h in now) and not any(quiet_ms(h.row) is not None for h in now):
        yield "how long connections have been quiet was not listed: idle ones are not told from active ones"
    if instance.role is Role.ROUTER:
        yield from _router_note(window, cluster, instance, now)
    elif instance.is_engine:
        yield from _engine_note(window, instance, now)


def _router_note(window: Window, cluster: Cluster, instance: Instance, now: Sequence[Held]) -> Iterator[str]:
    page = window.last(instance.name, Fact.METRICS, RouterMetrics)
    active = page.value.active_total if page else None
    if active is None:
        yield "how many requests the router counts as active is not known: its metrics were not read"
        return
    out = [h for h in now if h.outward and h.row.state == "ESTAB"]
    yield f"the router counts {active:.0f} active; it holds {len(out)} connections to workers{_resting(out, active)}"


def _engine_note(window: Window, instance: Instance, now: Sequence[Held]) -> Iterator[str]:
    page = window.last(instance.name, Fact.METRICS, EngineMetrics)
    active = page.value.http_active if page else None
    inward = [h for h in now if h.row.local_port in ports_of(instance)[:1] and h.row.state == "ESTAB"]
    if active is not None and inward:
        said = f"the engine counts {active:.0f} HTTP requests under way on {len(inward)} connections"
        yield f"{said}{_resting(inward, active)}"


def _resting(rows: Sequence[Held], active: float) -> str:
    """Of connections, those on which nothing moves; a matter of keep-alive only as far as nobody waits for more."""
    idle = sum(condition_of(h.row) in (IDLE, QUIET) for h in rows)
    if not idle:
        return ""
    kept = idle - int(active)
    said = f", {idle} of them without bytes on the way"
    if active == 0:
        return f"{said}: kept-alive, no alarm"
    return f"{said}: {kept} more than are active, kept-alive" if kept > 0 else said


def _why(window: Window, instance: Instance) -> str | None:
    for subject in window.subjects(Fact.SOCKETS):
        got = window.timeline(subject, Fact.SOCKETS)[-1].got
        if may_hold(subject, instance) and isinstance(got, Missed):
            return got.detail or str(got.why)
    return "no listing of its sockets"
