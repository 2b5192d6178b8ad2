"""``/proc/net/tcp`` and ``/proc/net/tcp6``: the kernel's own listing, in hexadecimal."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

from pdctl.model.host import SocketRow

_STATES = {
    "01": "ESTAB", "02": "SYN-SENT", "03": "SYN-RECV", "04": "FIN-WAIT-1", "05": "FIN-WAIT-2", "06": "TIME-WAIT",
    "07": "UNCONN", "08": "CLOSE-WAIT", "09": "LAST-ACK", "0A": "LISTEN", "0B": "CLOSING", "0C": "SYN-RECV",
}  # fmt: skip
_HEADER = re.compile(r"\s*sl\s+local_address")
_ROW = re.compile(
    r"^\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) ([0-9A-F]{2}) "
    r"([0-9A-F]{8}):([0-9A-F]{8}) ([0-9A-F]{2}):[0-9A-F]{8}",
    re.M,
)
_TIMERS = {"01": "on", "02": "keepalive", "03": "timewait", "04": "persist"}


def is_proc_net(text: str) -> bool:
    return _HEADER.match(text) is not None


def read_proc_net(text: str) -> Iterator[SocketRow]:
    """The rows of one or both files. A listener's recv_q is its accept queue; its backlog is not in these files, so
    send_q of a listener is 0: not known."""
    for local, port, peer, peer_port, state, sent, received, timer in _ROW.findall(text):
        yield SocketRow(
            _STATES.get(state, "UNCONN"), int(received, 16), int(sent, 16), _address(local), int(port, 16),
            _address(peer), int(peer_port, 16) or None, timer=_TIMERS.get(timer),
        )  # fmt: skip


def _address(digits: str) -> str:
    """Words of four bytes, each in the machine's (little-endian) order."""
    raw = bytes.fromhex(digits)
    straight = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    if len(straight) == 4:
        return socket.inet_ntop(socket.AF_INET, straight)
    if straight[:12] == b"\0" * 10 + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, straight[12:])
    return socket.inet_ntop(socket.AF_INET6, straight)
