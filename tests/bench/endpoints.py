"""Many loopback endpoints out of one small process, so that a benchmark measures the asker and not the asked.

usage: python endpoints.py COUNT BYTES DELAY_S [ASKED_FILE]     prints the ports, serves until stdin closes;
ASKED_FILE, if named, gets the arrival of each request on exit: "monotonic-seconds port" a line.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def page_of(size: int) -> bytes:
    """A metrics page of just ``size`` bytes: gauges of four ranks, then histograms, as an engine's page has them."""
    labels = [f'engine_type="prefill",model_name="m",pp_rank="0",tp_rank="{rank}"' for rank in range(4)]
    page = [f"sglang:{name}{{{block}}} 1.0" for name in GAUGES for block in labels]
    number = 0
    while sum(map(len, page)) + len(page) < size:
        name = f"sglang:stage_{number}_seconds"
        page.append(f"# TYPE {name} histogram")
        page += [f'{name}_bucket{{{block},le="{le}.0"}} 12.0' for block in labels for le in range(20)]
        page += [f"{name}_{part}{{{block}}} 12.0" for part in ("sum", "count") for block in labels]
        number += 1
    whole = "\n".join(page)[: size - 1].rpartition("\n# TYPE")[0]
    return whole.encode() + b"\n#" + b" " * (size - len(whole) - 3) + b"\n"


GAUGES = (
    "num_running_reqs", "num_queue_reqs", "num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs",
    "token_usage", "num_used_tokens", "max_total_num_tokens", "gen_throughput", "realtime_tokens_total",
)  # fmt: skip


class Endpoints:
    """Serves one page on many ports; each answer goes out ``delay`` seconds after its request came."""

    def __init__(self, count: int, size: int, delay: float) -> None:
        body = page_of(size)
        self._response = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        self._delay = delay
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, socket.socket]] = []
        self._rest: dict[socket.socket, memoryview] = {}
        self._number = 0
        self.arrivals: list[tuple[float, int]] = []
        self.ports = [self._listen() for _ in range(count)]

    def _listen(self) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return int(listener.getsockname()[1])

    def _accept(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(sock, selectors.EVENT_READ, self._read)

    def _read(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
            return
        now = time.monotonic()
        self.arrivals.append((now, sock.getsockname()[1]))
        if self._delay:
            self._number += 1
            heapq.heappush(self._due, (now + self._delay, self._number, sock))
        else:
            self._send(sock, memoryview(self._response))

    def _send(self, sock: socket.socket, data: memoryview) -> None:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(sock)
            return
        if data:
            self._rest[sock] = data
            self._selector.modify(sock, selectors.EVENT_WRITE, self._write)

    def _write(self, sock: socket.socket) -> None:
        self._selector.modify(sock, selectors.EVENT_READ, self._read)
        self._send(sock, self._rest.pop(sock))

    def _drop(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        sock.close()

    def serve(self) -> None:
        """Until stdin closes."""
        self._selector.register(sys.stdin, selectors.EVENT_READ, None)
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    return
                key.data(key.fileobj)
            while self._due and self._due[0][0] <= time.monotonic():
                self._send(heapq.heappop(self._due)[2], memoryview(self._response))


@contextlib.contextmanager
def endpoints(count: int, size: int, delay: float = 0.0, asked: Path | None = None) -> Iterator[list[int]]:
    """The ports of so many endpoints, served by a process of their own while the block runs."""
    words = [sys.executable, __file__, str(count), str(size), str(delay), *([str(asked)] if asked else [])]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield json.loads(child.stdout.readline())
    finally:
        child.stdin.close()
        child.wait(10)
        child.stdout.close()


def main() -> None:
    served = Endpoints(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    print(json.dumps(served.ports), flush=True)
    served.serve()
    if len(sys.argv) > 4:
        Path(sys.argv[4]).write_text("".join(f"{at!r} {port}\n" for at, port in served.arrivals))


if __name__ == "__main__":
    main()
