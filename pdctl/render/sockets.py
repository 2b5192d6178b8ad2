"""``pdctl sockets`` for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pdctl.model.host_view import ListenerRow, PeerRow, SocketView
from pdctl.render.grid import grid
from pdctl.render.look import Look, Mark
from pdctl.render.text import counted, span, wrap
from pdctl.render.wire import text

MOST = 15  # rows of one instance; the rest is counted and in -o json
HEAD = ("", "PEER", "CONDITION", "COUNT", "CHANGE", "QUIET FOR", "BYTES", "HELD BY")


def sockets_lines(views: Sequence[SocketView], look: Look) -> Iterator[str]:
    """Each instance: what it listens on, its connections by peer and condition, and what to make of them."""
    for number, view in enumerate(views):
        if number:
            yield ""
        on = f" on {view.host}" if view.host else ""
        looked = f", {view.looks} listings over {span(view.seconds)}" if view.looks > 1 else ""
        head = f"{look.paint(look.say(view.name), 'bold')} ({look.say(view.role)}{look.say(on)}){looked}"
        yield from wrap(head, look.width)
        if view.why:
            yield from wrap(f"not seen: {look.say(view.why)}", look.width, f"  {look.mark(Mark.UNKNOWN)} ", "    ")
            continue
        yield from _body(view, look)


def _body(view: SocketView, look: Look) -> Iterator[str]:
    telling = [row for row in view.listeners if row.named or row.waiting] or list(view.listeners[:MOST])
    for listener in telling:
        yield from wrap(look.say(_listener(listener)), look.width, "  ", "    ")
    if len(telling) < len(view.listeners):
        others = counted(len(view.listeners) - len(telling), "port")
        yield f"  and on {others} of its own parts, where nothing waits"
    if not view.listeners:
        yield "  listens on nothing that was listed"
    shown = view.peers[:MOST]
    if shown:
        yield from grid(HEAD, [_cells(row, look) for row in shown], look, right=(3, 4))
    else:
        yield "  no connections"
    if len(view.peers) > MOST:
        rest = view.peers[MOST:]
        yield f"  and {counted(sum(r.count for r in rest), 'connection')} in {len(rest)} more rows, in -o json"
    for note in view.notes:
        yield from wrap(look.say(note), look.width, "  ", "    ")


def _listener(row: ListenerRow) -> str:
    at = f"[{row.address}]:{row.port}" if ":" in row.address else f"{row.address}:{row.port}"
    if row.backlog is None:
        return f"listens on {at}: {row.waiting} waiting to be accepted, of a backlog not listed ({row.holder})"
    full = " FULL" if row.waiting >= row.backlog else ""
    return f"listens on {at}: {row.waiting} of {row.backlog} waiting to be accepted{full} ({row.holder})"


def _cells(row: PeerRow, look: Look) -> tuple[str, ...]:
    change = "" if row.change is None else f"{row.change:+d}" if row.change else "0"
    quantity = " ".join(
        [*([f"{row.unread} unread"] if row.unread else []), *([f"{row.unacked} unacked"] if row.unacked else [])]
    )
    return (
        "to" if row.outward else "from", look.say(row.peer), row.condition, str(row.count), change, _quiet(row.quiet),
        quantity, look.say(", ".join(row.holders)),
    )  # fmt: skip


def _quiet(quiet: tuple[int, int] | None) -> str:
    if quiet is None:
        return ""
    least, most = (span(ms / 1000) for ms in quiet)
    return least if least == most else f"{least} to {most}"


def sockets_value(view: SocketView) -> dict[str, Any]:
    """What JSON holds of an instance, beside its report."""
    return {
        "host": text(view.host) if view.host else None,
        "why_no_sockets": text(view.why) if view.why else None,
        "listings": view.looks,
        "listeners": [_listener_value(row) for row in view.listeners],
        "connections": [_peer_value(row) for row in view.peers],
        "notes": [text(note) for note in view.notes],
    }  # fmt: skip


def _listener_value(row: ListenerRow) -> dict[str, Any]:
    return {
        "address": text(row.address), "port": row.port, "waiting": row.waiting, "backlog": row.backlog,
        "holder": text(row.holder),
    }  # fmt: skip


def _peer_value(row: PeerRow) -> dict[str, Any]:
    return {
        "peer": text(row.peer), "direction": "out" if row.outward else "in", "condition": row.condition,
        "count": row.count, "change": row.change, "quiet_ms": list(row.quiet) if row.quiet else None,
        "unread_bytes": row.unread, "unacked_bytes": row.unacked, "holders": [text(h) for h in row.holders],
    }  # fmt: skip
