"""connection-leak: a process that does not close what its peers have closed, without bound."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.listings import Listing, Owners, by_subject, held_by, owners_of, place
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.host import Limits, SocketRow
from pdctl.model.window import At, Window

LEAST = 20  # fewer sockets than this are a pool's, whatever they do
GROWTH = 10  # sockets more than at the first look
MANY_AT_ONCE = 200  # twice the usual size of a client pool: too many for one that is only lazy
MANY_AND_STEADY = 1000
KEPT = 0.9  # share of the first look's sockets that are still there at the last

Tuple4 = tuple[str, int, str, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The CLOSE-WAIT sockets of one process in one listing."""

    listing: Listing
    rows: tuple[SocketRow, ...]

    @property
    def ends(self) -> frozenset[Tuple4]:
        return frozenset((r.local, r.local_port, r.peer, r.peer_port) for r in self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """One process over the window. ``looks`` holds every listing that could show it, those without a socket too."""

    owner: str
    looks: tuple[Look, ...]

    @property
    def counts(self) -> list[int]:
        return [len(look.rows) for look in self.looks]

    @property
    def row(self) -> SocketRow:
        return self.looks[-1].rows[0]


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each process that holds sockets in CLOSE-WAIT at the newest look."""
    owners = owners_of(window, cluster)
    for holder in holders(window, owners):
        grows, kept = grown(holder.counts), share_kept(holder)
        if grows and (kept is None or kept >= KEPT or len(holder.looks) >= 3):
            yield finding(window, owners, holder, grows=True, kept=kept)
        elif is_excessive(holder):
            yield finding(window, owners, holder, grows=False, kept=kept)
        elif len(holder.looks) > 1 and not grows:
            shown = " ".join(str(c) for c in holder.counts)
            yield RuledOut("connection-leak", holder.owner, f"{held_by(holder.row)}: CLOSE-WAIT {shown}, no growth")


def holders(window: Window, owners: Owners) -> Iterator[Holder]:
    for listings in by_subject(window).values():
        able = [li for li in listings if li.at.value.connections]
        with_owners = [li for li in able if li.at.value.owners]
        looks: dict[tuple[str, int | None], dict[int, Look]] = defaultdict(dict)
        chosen = with_owners or able
        for index, listing in enumerate(chosen):
            for key, rows in waiting_by_holder(listing, owners).items():
                looks[key][index] = Look(listing, rows)
        for (owner, _), seen in looks.items():
            if len(chosen) - 1 in seen:
                whole = tuple(seen.get(i, Look(listing, ())) for i, listing in enumerate(chosen))
                yield Holder(owner, whole)


def waiting_by_holder(listing: Listing, owners: Owners) -> dict[tuple[str, int | None], tuple[SocketRow, ...]]:
    """CLOSE-WAIT rows by owner and pid; rows without a pid are one group an owner."""
    groups: dict[tuple[str, int | None], list[SocketRow]] = defaultdict(list)
    for row in listing.rows:
        if row.state == "CLOSE-WAIT":
            groups[(owners.of(row, listing) or listing.subject, row.pid)].append(row)
    return {key: tuple(rows) for key, rows in groups.items()}


def grown(counts: list[int]) -> bool:
    """Whether the number rose over the looks without falling back, by more than a pool's worth."""
    if len(counts) < 2 or counts[-1] < LEAST or counts[-1] - counts[0] < GROWTH:
        return False
    rising = all(later >= 0.95 * earlier for earlier, later in pairwise(counts))
    return rising and (len(counts) > 2 or counts[0] > 0)


def share_kept(holder: Holder) -> float | None:
    """Which share of the first look's sockets is still held at the last; None where there was none, or one look."""
    first, last = holder.looks[0].ends, holder.looks[-1].ends
    return len(first & last) / len(first) if len(holder.looks) > 1 and first else None


def is_excessive(holder: Holder) -> bool:
    """So many at one look that no pool explains them; where several looks show a standstill, many more are needed."""
    return holder.counts[-1] >= (MANY_AT_ONCE if len(holder.looks) == 1 or holder.counts[0] == 0 else MANY_AND_STEADY)


def finding(window: Window, owners: Owners, holder: Holder, *, grows: bool, kept: float | None) -> Verdict:
    """The finding for one process."""
    counts, last = holder.counts, holder.looks[-1]
    shown = " ".join(str(c) for c in counts)
    (peer, port), most = Counter((r.peer, r.peer_port) for r in last.rows).most_common(1)[0]
    evidence = [saw(f"{held_by(holder.row)}: CLOSE-WAIT {shown}", last.listing.at, counts=counts, pid=holder.row.pid)]
    if kept is not None and kept >= KEPT:
        evidence.append(saw(f"{kept:.0%} of the first look's sockets are still not closed", last.listing.at))
    evidence += list(descriptors(window, holder, counts[-1]))
    sure = grows and kept is not None and kept >= KEPT
    to = named_peer(owners, peer, port, most, len(last.rows))
    what = "grow" if grows else "stand"
    return found(
        "connection-leak",
        holder.owner,
        f"sockets in CLOSE-WAIT {what} at {held_by(holder.row)}: {shown}{to}",
        confidence=Confidence.CERTAIN if sure else Confidence.LIKELY if grows else Confidence.POSSIBLE,
        evidence=evidence,
        since=holder.looks[0].listing.at.seen.at,
        against=unread(last.rows),
        limits=() if grows else ("one look, or no growth between looks: whether the number rises was not seen",),
        next=(f"pdctl sockets {holder.owner} --for 60", f"pdctl ps {holder.owner}", "pdctl explain connection-leak"),
    )


def named_peer(owners: Owners, peer: str, port: int | None, most: int, total: int) -> str:
    """The peer of most of them, with its name where it serves there; clients are counted by address."""
    name = owners.at_address(peer, port)
    if most * 2 >= total:
        return f", {'all' if most == total else most} to {place(peer, port)}{f' ({name})' if name else ''}"
    return ""


def unread(rows: tuple[SocketRow, ...]) -> tuple[str, ...]:
    """A FIN counts as one byte: more than that was never read, as by a process that hangs."""
    hung = sum(row.recv_q > 1 for row in rows)
    if hung * 2 < len(rows):
        return ()
    return (f"{hung} of them hold unread data: the process may hang rather than forget to close",)


def descriptors(window: Window, holder: Holder, waiting: int) -> Iterator[Evidence]:
    """Open files of the process: how near its limit is."""
    pid = holder.row.pid
    seen: list[At[Limits]] = [
        at for at in window.seen(holder.owner, Fact.LIMITS, Limits) if at.seen.more.get("pid") in (None, pid)
    ]
    if not seen or seen[-1].value.open_files is None or seen[-1].value.open_files < waiting:
        return
    limits = seen[-1].value
    of = f" of {limits.soft_limit} allowed" if limits.soft_limit else ""
    yield saw(f"{limits.open_files} open files{of}", seen[-1], open_files=limits.open_files)


CHECKS = (
    Check(
        "connection-leak",
        "sockets in CLOSE-WAIT that grow",
        ("connection-leak",),
        (Fact.SOCKETS,),
        judge,
    ),
)
