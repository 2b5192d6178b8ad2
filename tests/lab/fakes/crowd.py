"""Holds many connections to itself, in processes of a few thousand each: python crowd.py PORT COUNT

A connection is two sockets.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

PORT, COUNT = int(sys.argv[1]), int(sys.argv[2])
EACH = 4_000  # connections of one process: within the usual limit of open files


def hold(port: int, count: int, source: str) -> None:
    """Connections to a listener of its own, both ends of which this process holds."""
    listener = socket.create_server(("127.0.0.1", port), backlog=1024)
    held = []
    for _ in range(count):
        client = socket.socket()
        client.bind((source, 0))
        client.connect(("127.0.0.1", port))
        held += [client, listener.accept()[0]]
    print("ready", flush=True)
    signal.pause()


left, number = COUNT, 0
while left > EACH:
    if os.fork() == 0:
        hold(PORT + 1 + number, EACH, f"127.0.1.{1 + number}")
    left, number = left - EACH, number + 1
hold(PORT, left, "127.0.0.2")
