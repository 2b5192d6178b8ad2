"""A slow wire: relays Ethernet frames between two tap devices, each way late by so many milliseconds, in order.

    python delay.py TAP_A TAP_B MILLISECONDS

Stands in for ``tc netem``, which not every kernel has.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MOST = 256  # frames taken at a time


def tap(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def relay(first: int, second: int, late: float) -> None:
    waiting: dict[int, deque[tuple[float, bytes]]] = {first: deque(), second: deque()}
    other = {first: second, second: first}
    while True:
        due = min((frames[0][0] for frames in waiting.values() if frames), default=None)
        timeout = None if due is None else max(0.0, due - time.monotonic())
        for device in select.select([first, second], [], [], timeout)[0]:
            _take(device, waiting[other[device]], time.monotonic() + late)
        for device, frames in waiting.items():
            _send(device, frames)


def _take(device: int, frames: deque[tuple[float, bytes]], due: float) -> None:
    for _ in range(MOST):
        try:
            frames.append((due, os.read(device, 65536)))
        except BlockingIOError:
            return


def _send(device: int, frames: deque[tuple[float, bytes]]) -> None:
    while frames and frames[0][0] <= time.monotonic():
        try:
            os.write(device, frames.popleft()[1])
        except OSError:  # a full queue loses a frame, as a wire does
            continue


if __name__ == "__main__":
    relay(tap(sys.argv[1]), tap(sys.argv[2]), float(sys.argv[3]) / 1000)
