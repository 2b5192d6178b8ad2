"""Takes connections and never says a word: python mute.py PORT"""

from __future__ import annotations

import socket
import sys

with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=16) as listener:
    held = []
    while True:
        held.append(listener.accept())
