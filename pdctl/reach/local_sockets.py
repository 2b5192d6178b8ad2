"""This machine's sockets where there is no ss: psutil's, which name their processes, in the shape of ss."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk
from pdctl.reach.clock import Clock
from pdctl.reach.command import MORE_PATH, Outcome, answer_of

# psutil's names of states, as ss prints them.
_STATES = {
    "ESTABLISHED": "ESTAB", "SYN_SENT": "SYN-SENT", "SYN_RECV": "SYN-RECV", "FIN_WAIT1": "FIN-WAIT-1",
    "FIN_WAIT2": "FIN-WAIT-2", "TIME_WAIT": "TIME-WAIT", "CLOSE": "UNCONN", "CLOSE_WAIT": "CLOSE-WAIT",
    "LAST_ACK": "LAST-ACK", "LISTEN": "LISTEN", "CLOSING": "CLOSING",
}  # fmt: skip
SHOWN = "psutil.net_connections(kind='tcp')"


def has_ss() -> bool:
    return shutil.which("ss") is not None or shutil.which("ss", path=MORE_PATH) is not None


def listing(ask: CommandAsk, *, clock: Clock, started: float) -> Answer:
    """The answer to an ask for sockets. Bytes that wait are not listed: every queue reads 0."""
    from dataclasses import replace

    import psutil

    begun = clock.now()
    ask = replace(ask, shown=SHOWN)
    try:
        lines = "\n".join(_lines(psutil.net_connections(kind="tcp")))
        outcome = Outcome(0, lines.encode())
    except psutil.AccessDenied:
        outcome = Outcome(error=Why.PERMISSION, detail="this system lists sockets to root alone")
    return answer_of(ask, outcome, clock=clock, started=started, begun=begun)


def _lines(connections: list[Any]) -> Iterator[str]:
    yield "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process"
    names: dict[int, str] = {}
    for one in connections:
        who = f' users:(("{_name(one.pid, names)}",pid={one.pid},fd={one.fd}))' if one.pid is not None else ""
        yield f"{_STATES.get(one.status, 'UNCONN')} 0 0 {_place(one.laddr)} {_place(one.raddr)}{who}"


def _place(address: Any) -> str:
    if not address:
        return "*:*"
    return f"[{address.ip}]:{address.port}" if ":" in address.ip else f"{address.ip}:{address.port}"


def _name(pid: int, names: dict[int, str]) -> str:
    import psutil

    if pid not in names:
        try:
            names[pid] = psutil.Process(pid).name().replace('"', "'")
        except psutil.Error:
            names[pid] = "?"
    return names[pid]
