"""half-open: a connection that one end holds and the other end no longer has, told from both ends' listings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.listings import WILDCARDS, Listing, Owners, by_subject, is_loopback, owners_of, place
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, RuledOut, Unchecked
from pdctl.model.host import SocketRow
from pdctl.model.window import Window

TOGETHER_S = 1.0  # two listings this near may be laid over each other without proof of order
MARGIN_MS = 1000  # a connection must have been silent this much longer than the listings are apart

End = tuple[str, int, str, int]  # local address and port, peer address and port


@dataclass(eq=False)
class Side:
    """Everything one host or network namespace listed: its addresses and its connections, listing by listing."""

    subject: str
    listings: list[Listing]
    served: frozenset[str] = frozenset()  # addresses of the inventory's URLs that are at home here
    addresses: set[str] = field(default_factory=set)
    services: set[int] = field(default_factory=set)
    ends: list[dict[End, SocketRow]] = field(default_factory=list)
    known: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for listing in self.listings:
            self.ends.append({end: row for row in listing.rows if (end := end_of(row)) is not None})
            self.services |= {row.local_port for row in listing.rows if row.state == "LISTEN"}
        self.addresses = {end[0] for ends in self.ends for end in ends} | self.served

        self.known = {part for ends in self.ends for end in ends for part in parts_of(end)}

    def ever(self, end: End) -> bool:
        """Whether the connection was listed, one address translated or not (a published container port changes the
        server's own address)."""
        return any(part in self.known for part in parts_of(end))


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """A connection held at ``held`` and absent at ``gone``; ``proof`` says what shows that it is not only the time
    between the listings, None where nothing does."""

    row: SocketRow
    held: Listing
    gone: Listing
    proof: str | None


def end_of(row: SocketRow) -> End | None:
    """The four-tuple of a connection between hosts; None for listeners and for loopback."""
    if row.state == "LISTEN" or row.peer_port is None or is_loopback(row.local) or row.local in WILDCARDS:
        return None
    return (row.local, row.local_port, row.peer, row.peer_port)


def parts_of(end: End) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """A four-tuple without its local address, and without its peer's."""
    local, port, peer, peer_port = end
    return ("any", port, peer, peer_port), (local, port, "any", peer_port)


def mirrored(end: End) -> End:
    return (end[2], end[3], end[0], end[1])


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Every ordered pair of sides of which one lists connections to an address of the other."""
    owners = owners_of(window, cluster)
    sides = []
    for subject, listings in by_subject(window).items():
        able = [x for x in listings if x.at.value.connections]
        if able:
            sides.append(Side(subject, able, served_at(owners, able[0])))
    for here in sides:
        for there in sides:
            if here is not there and here.addresses.isdisjoint(there.addresses):
                yield from judge_sides(here, there, owners)


def served_at(owners: Owners, listing: Listing) -> frozenset[str]:
    """The addresses at which the instances of a listing are reached, as far as the inventory gives addresses."""
    hosts = (urlsplit(i.url or "").hostname or "" for i in owners.near(listing))
    return frozenset(h for h in hosts if (h[:1].isdigit() or ":" in h) and not is_loopback(h) and h not in WILDCARDS)


def judge_sides(here: Side, there: Side, owners: Owners) -> Iterator[Verdict]:
    """What ``here`` holds towards ``there`` and ``there`` lacks."""
    towards = {end for ends in here.ends for end, row in ends.items() if end[2] in there.addresses and is_held(row)}
    missing = {end for end in towards if not there.ever(mirrored(end))}
    if not towards:
        return
    if not missing:
        yield RuledOut("half-open", f"{here.subject}->{there.subject}", f"all {len(towards)} connections at both ends")
        return
    if not comparable(here, there, towards, missing):
        text = "the two ends see other addresses (translation, a proxy, another namespace): nothing can be paired"
        yield Unchecked("connections held at one end only", f"{here.subject}->{there.subject}", text)
        return
    lost = [found_ for end in sorted(missing) if (found_ := lost_of(end, here, there)) is not None]
    proven = [x for x in lost if x.proof is not None]
    if proven or (lost and one_sided(here, there)):
        yield finding(here, there, proven or lost, owners)


def is_held(row: SocketRow) -> bool:
    return row.state == "ESTAB"


def comparable(here: Side, there: Side, towards: set[End], missing: set[End]) -> bool:
    """Whether the two listings speak of the same addresses: a connection is in both, or the far side lists the service
    and nobody on it whose address is unknown here."""
    if any(there.ever(mirrored(end)) for ends in here.ends for end in ends):
        return True
    ports = {end[3] for end in missing}
    strangers = {end[2] for ends in there.ends for end in ends if end[1] in ports}
    return bool(ports & there.services) and strangers <= here.addresses


def lost_of(end: End, here: Side, there: Side) -> Lost | None:
    """How a connection that the far side never listed was seen here, and what proves it; None where the listings are
    too far apart to say anything."""
    held = [(listing, ends[end]) for listing, ends in zip(here.listings, here.ends, strict=True) if end in ends]
    times = [listing.t for listing, row in held if is_held(row)]
    if times and min(times) < max(times):
        inside = [g for g in there.listings if min(times) < g.t < max(times)]
        beside = [g for g in there.listings if min(times) <= g.t <= max(times)]
        if inside or len(beside) > 1:
            gone = (inside or beside)[0]
            return Lost(held[0][1], held[0][0], gone, "it was listed here before and after the other end's listing")
    for listing, row in held:
        for gone in there.listings:
            apart = abs(listing.t - gone.t)
            silent = min((ms for ms in (row.last_send_ms, row.last_recv_ms) if ms is not None), default=0)
            if silent > apart * 1000 + MARGIN_MS:
                return Lost(row, listing, gone, f"nothing was sent or received on it for {silent / 1000:.0f} s")
    near = next(((x, row, g) for x, row in held for g in there.listings if abs(x.t - g.t) <= TOGETHER_S), None)
    return Lost(near[1], near[0], near[2], None) if near else None


def one_sided(here: Side, there: Side) -> bool:
    """Whether one look at each end is all there is, and nothing came or went the other way between the two: traffic
    that turns over differs in both directions."""
    if len(here.listings) > 1 or len(there.listings) > 1:
        return False
    back = [end for end, row in there.ends[0].items() if end[2] in here.addresses and is_held(row)]
    return all(here.ever(mirrored(end)) for end in back)


def finding(here: Side, there: Side, lost: list[Lost], owners: Owners) -> Verdict:
    """The finding for one pair of sides."""
    by_peer: dict[str, list[Lost]] = defaultdict(list)
    for one in lost:
        by_peer[service_of(one.row, there)].append(one)
    names = tuple(dict.fromkeys(owners.of(x.row, x.held) or here.subject for x in lost))
    to = [owners.at_address(x.row.peer, x.row.peer_port) for x in lost]
    far = next((name for name in to if name), None) or there.subject
    first = lost[0]
    bracketed = first.proof is not None and first.proof.startswith("it was listed")
    shown = ", ".join(f"{len(x)} with {peer}" for peer, x in sorted(by_peer.items()))
    return found(
        "half-open",
        f"{names[0]}->{far}",
        f"{names[0]} holds {len(lost)} connection(s) that {far} no longer has: {shown}",
        confidence=Confidence.CERTAIN if bracketed else Confidence.LIKELY if first.proof else Confidence.POSSIBLE,
        evidence=(
            saw(f"established here: {examples(lost)}", first.held.at, count=len(lost)),
            saw(f"absent there{f'; {first.proof}' if first.proof else ''}", first.gone.at),
        ),
        since=first.held.at.seen.at,
        limits=() if first.proof else ("one look at each end: a connection just closed would show the same",),
        next=(f"pdctl sockets {names[0]} --for 60", f"pdctl sockets {far}", "pdctl explain half-open"),
    )


def service_of(row: SocketRow, there: Side) -> str:
    """The peer by the port that serves: the far side's where it listens, else its address alone."""
    return place(row.peer, row.peer_port if row.peer_port in there.services else None)


def examples(lost: list[Lost], most: int = 3) -> str:
    shown = [f"{place(x.row.local, x.row.local_port)} - {place(x.row.peer, x.row.peer_port)}" for x in lost[:most]]
    return ", ".join(shown) + (f" and {len(lost) - most} more" if len(lost) > most else "")


CHECKS = (
    Check(
        "half-open",
        "connections that only one end holds",
        ("half-open",),
        (Fact.SOCKETS,),
        judge,
    ),
)
