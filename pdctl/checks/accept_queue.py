"""accept-queue-full: a listener whose process does not take the connections the kernel has completed for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.listings import (
    SERVERS,
    WILDCARDS,
    Listing,
    by_subject,
    held_by,
    owners_of,
    place,
    ports_of,
    rows_by_port,
)
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.host import Nstat, SocketRow, Stacks
from pdctl.model.window import Window

SMALL_BACKLOG = 16  # a listener of a library's own; only a known port of an instance counts below this
OVERFLOWS = ("TcpExtListenOverflows", "TcpExtListenDrops")


@dataclass(frozen=True, slots=True, eq=False)
class Looks:
    """One listener over the window: each listing that held it."""

    owner: str
    seen: tuple[tuple[Listing, SocketRow], ...]

    @property
    def last(self) -> SocketRow:
        return self.seen[-1][1]


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each listener of an instance, by its newest listing."""
    for looks in listeners(window, cluster):
        full = [pair for pair in looks.seen if is_full(pair[1])]
        if full and is_full(looks.last):
            yield finding(window, looks, full)
        elif full:
            yield RuledOut(
                "accept-queue-full", looks.owner, f"the queue of port {looks.last.local_port} emptied: a burst"
            )


def is_full(row: SocketRow) -> bool:
    """Recv-Q of a listener is its queue, Send-Q the size; where the size was not listed (0) nothing is concluded."""
    return row.send_q > 0 and row.recv_q >= row.send_q


def listeners(window: Window, cluster: Cluster) -> Iterator[Looks]:
    """Listeners that are a front end of an instance: on one of its ports, or held by a process of its own."""
    owners = owners_of(window, cluster)
    found_: dict[tuple[str, str, int], list[tuple[Listing, SocketRow]]] = {}
    for subject, listings in by_subject(window).items():
        for listing in listings:
            for row in listing.rows:
                owner = owners.of(row, listing) if row.state == "LISTEN" else None
                instance = owners.instance(owner)
                if owner is None or not (row.local_port in (ports_of(instance) if instance else ()) or is_server(row)):
                    continue
                found_.setdefault((owner, subject, row.local_port), []).append((listing, row))
    for (owner, _, _), seen in found_.items():
        yield Looks(owner, tuple(seen))


def is_server(row: SocketRow) -> bool:
    return row.send_q >= SMALL_BACKLOG and (row.process or "").startswith(SERVERS)


def finding(window: Window, looks: Looks, full: list[tuple[Listing, SocketRow]]) -> Verdict:
    """The finding for one listener; it is certain once a second sign stands beside the queue."""
    listing, row = looks.seen[-1]
    where = f"{place(row.local, row.local_port)} ({held_by(row)})"
    evidence = [
        saw(
            f"listener {where}: accept queue {row.recv_q} of {row.send_q}",
            listing.at,
            recv_q=row.recv_q,
            send_q=row.send_q,
            pid=row.pid,
        )
    ]
    strong = [*waiting(window, listing.subject, row), *overflow_growth(window, looks.owner, listing.subject)]
    strong += [Evidence(f"full in {len(full)} listings", listing.at.seen.at, listing.subject)] if len(full) > 1 else []
    busy = list(main_stack(window, looks.owner, row.pid))
    weak = list(overflow_totals(window, looks.owner, listing.subject))
    sure = bool(strong or busy)
    doing = f"; its main thread is in {busy[0].values['in']}" if busy else ""
    return found(
        "accept-queue-full",
        looks.owner,
        f"the accept queue of {looks.owner} port {row.local_port} is full ({row.recv_q} of {row.send_q}): "
        f"its HTTP front end takes no connection{doing}",
        confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
        evidence=(*evidence, *strong, *busy, *weak),
        since=full[0][0].at.seen.at,
        limits=() if sure else ("one look at one listing: a burst would show the same for a moment",),
        next=(f"pdctl stacks {looks.owner}", f"pdctl sockets {looks.owner}", "pdctl explain accept-queue-full"),
    )


def waiting(window: Window, subject: str, listener: SocketRow) -> Iterator[Evidence]:
    """Connections on the listener's port whose bytes nobody reads, and handshakes that get no further."""
    for listing in reversed(by_subject(window)[subject]):
        mine = [r for r in rows_by_port(listing).get(listener.local_port, ()) if is_on(r, listener)]
        unread = [r for r in mine if r.state == "ESTAB" and r.recv_q > 0]
        if unread:
            size = sum(r.recv_q for r in unread)
            yield saw(f"{len(unread)} established connections with {size} unread bytes", listing.at, unread=len(unread))
        half = sum(r.state == "SYN-RECV" for r in mine)
        if half:
            yield saw(f"{half} handshakes wait in SYN-RECV", listing.at, syn_recv=half)
        if unread or half:
            return


def is_on(row: SocketRow, listener: SocketRow) -> bool:
    same_address = listener.local in WILDCARDS or row.local == listener.local
    return row.state != "LISTEN" and row.local_port == listener.local_port and same_address


def overflow_growth(window: Window, *subjects: str) -> Iterator[Evidence]:
    """The kernel's overflow counters grew inside the window (they count every listener of the host)."""
    for subject in subjects:
        counted = window.seen(subject, Fact.NSTAT, Nstat)
        if len(counted) < 2:
            continue
        for name in OVERFLOWS:
            first, last = counted[0].value.counters.get(name), counted[-1].value.counters.get(name)
            if first is not None and last is not None and last > first:
                yield saw(f"{name} grew by {last - first:.0f}", counted[-1], grown=last - first)
                break


def overflow_totals(window: Window, *subjects: str) -> Iterator[Evidence]:
    """A single count since boot: it fits, and proves nothing about now."""
    for subject in subjects:
        counted = window.seen(subject, Fact.NSTAT, Nstat)
        total = counted[0].value.counters.get(OVERFLOWS[0]) if len(counted) == 1 else None
        if total:
            yield saw(f"{OVERFLOWS[0]} is {total:.0f} since the host started", counted[0], total=total)


def main_stack(window: Window, owner: str, pid: int | None) -> Iterator[Evidence]:
    """What the main thread of the process behind the listener does, by its newest dump."""
    for seen in reversed(window.seen(owner, Fact.STACKS, Stacks)):
        for process in seen.value.processes:
            is_it = process.pid == pid if pid is not None else process.part in ("main", "router")
            main = process.main
            if is_it and main is not None and main.frames and main.state.startswith("active"):
                inner = " < ".join(f.function for f in main.frames[:3])
                yield saw(f"main thread of pid {process.pid} ({main.state}): {inner}", seen, **{"in": inner})
                return


CHECKS = (
    Check(
        "accept-queue",
        "listeners whose accept queue is full",
        ("accept-queue-full",),
        (Fact.SOCKETS,),
        judge,
    ),
)
