"""TCP sockets as ``ss`` or ``/proc/net/tcp`` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import body_of
from pdctl.facts.proc_net import is_proc_net, read_proc_net
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import SocketRow, Sockets

_STATES = frozenset(
    {
        "LISTEN", "ESTAB", "CLOSE-WAIT", "FIN-WAIT-1", "FIN-WAIT-2", "SYN-SENT", "SYN-RECV", "TIME-WAIT", "LAST-ACK",
        "CLOSING", "UNCONN",
    }
)  # fmt: skip
_FILTERED = {
    "established": "ESTAB", "listening": "LISTEN", "close-wait": "CLOSE-WAIT", "fin-wait-1": "FIN-WAIT-1",
    "fin-wait-2": "FIN-WAIT-2", "syn-sent": "SYN-SENT", "syn-recv": "SYN-RECV", "time-wait": "TIME-WAIT",
    "last-ack": "LAST-ACK", "closing": "CLOSING",
}  # fmt: skip
_OWNER = re.compile(r'users:\(\("((?:[^"\\]|\\.)*)",(?:pid=)?(\d+),(?:fd=)?(\d+)')
_TIMER = re.compile(r"timer:\(([^)]*)\)")
_FIGURE = re.compile(r"\b(lastsnd|lastrcv|unacked):(\d+)")
_ASKED_STATE = re.compile(r"\bstate (\S+)")
_NAMED_PORTS = {"http": 80, "https": 443, "ssh": 22, "domain": 53, "http-alt": 8080, "webcache": 8080}


def read(answer: Answer, instance: Instance | None) -> Sockets:
    """Every TCP row of ``ss`` (any of -t -a -l -n -p -i -e -o -O -H, header or not, information lines joined to their
    row) or of ``/proc/net/tcp`` and ``tcp6``. A listing without rows is an answer. A row cut short and a row whose port
    is shown by a name nobody knows are left out. Raises ``Unreadable`` for text that is no listing."""
    text = body_of(answer).decode("utf-8", "replace")
    if is_proc_net(text):
        return Sockets(tuple(read_proc_net(text)), owners=False)
    rows = tuple(_read_rows(text, _only_state(answer.ask)))
    if not rows and text.strip() and not _is_header(text.lstrip()):
        raise Unreadable(Why.OTHER, f"no socket listing: {text.strip().splitlines()[0][:80]}")
    listeners, connections = _holds(answer.ask, rows)
    return Sockets(rows, listeners, connections, owners=any(row.pid is not None for row in rows))


def _holds(ask: str, rows: tuple[SocketRow, ...]) -> tuple[bool, bool]:
    """Whether the listing can hold listeners, and whether it can hold connections, by its options; an unknown ask is
    judged by what it brought."""
    words = ask.split()
    letters = "".join(w for w in words[1:] if w.startswith("-") and not w.startswith("--"))
    if not words or words[0].rsplit("/", 1)[-1] != "ss" or "state" in words:
        listening = {row.state == "LISTEN" for row in rows}
        return True in listening, False in listening
    both = "a" in letters or "--all" in words
    only = "l" in letters or "--listening" in words
    return both or only, both or not only


def _only_state(ask: str) -> str | None:
    """The one state a listing was narrowed to: ``ss`` then leaves out the State column."""
    found = _ASKED_STATE.search(ask)
    return _FILTERED.get(found[1]) if found else None


def _is_header(line: str) -> bool:
    return line.startswith(("State", "Netid", "Recv-Q"))


def _read_rows(text: str, only: str | None) -> Iterator[SocketRow]:
    """Rows, each with the information lines that follow it (they begin with a blank)."""
    fields: list[str] | None = None
    about = ""
    for line in text.splitlines():
        if line[:1] in (" ", "\t"):
            about += line
            continue
        if fields is not None and (row := _row(fields, about)) is not None:
            yield row
        fields, about = _fields(line, only), ""
        if fields is not None and len(fields) > 5:
            about = fields[5]
    if fields is not None and (row := _row(fields, about)) is not None:
        yield row


def _fields(line: str, only: str | None) -> list[str] | None:
    """State, Recv-Q, Send-Q, local, peer and the rest; None for a header, another protocol, or a line cut short."""
    fields = line.split(None, 5)
    if not fields or _is_header(line):
        return None
    if fields[0] in ("tcp", "mptcp"):
        fields = line.split(None, 6)[1:]
    elif only is not None and fields[0].isdecimal():
        fields = [only, *line.split(None, 4)]
    if len(fields) < 5 or fields[0] not in _STATES or not (fields[1].isdecimal() and fields[2].isdecimal()):
        return None
    return fields


def _row(fields: list[str], about: str) -> SocketRow | None:
    local, local_port = _endpoint(fields[3])
    peer, peer_port = _endpoint(fields[4])
    if local_port is None:
        return None
    ends = (fields[0], int(fields[1]), int(fields[2]), local, local_port, peer, peer_port)
    return SocketRow(*ends, *_about(about)) if about else SocketRow(*ends)


def _about(
    text: str,
) -> tuple[str | None, int | None, int | None, str | None, int | None, int | None, int | None]:
    """Process, pid, fd, timer, last_send_ms, last_recv_ms, unacked."""
    owner = _OWNER.search(text) if "users:" in text else None
    timer = _TIMER.search(text) if "timer:" in text else None
    figures = dict(_FIGURE.findall(text)) if ":" in text else {}
    sent, received, unacked = (int(figures[k]) if k in figures else None for k in ("lastsnd", "lastrcv", "unacked"))
    name, pid, fd = (owner[1], int(owner[2]), int(owner[3])) if owner else (None, None, None)
    return name, pid, fd, timer[1] if timer else None, sent, received, unacked


def _endpoint(text: str) -> tuple[str, int | None]:
    """``192.0.2.1%eth0:22``, ``[::1]:8000``, ``[::ffff:192.0.2.1]:80``, ``:::80``, ``*:*``."""
    address, _, port = text.rpartition(":")
    return plain_address(address), int(port) if port.isdecimal() else _NAMED_PORTS.get(port)


def plain_address(text: str) -> str:
    """An address without brackets, interface or v4-mapping prefix; ``*`` is any address of both families."""
    address = text.strip("[]").partition("%")[0].strip("[]")
    if address.startswith("::ffff:") and "." in address:
        return address[7:]
    return address or "*"
