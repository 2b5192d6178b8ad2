"""A scheduler process without a scheduler: titled, ranked and with the frames of a real one's main loop."""

from __future__ import annotations

import os
import signal
import threading
import time

from sglang.titles import die_with_parent, retitle


def spawn(title: str, stuck: bool) -> int:
    """Forks a child with that title; its pid. A stuck one waits in another place than the others."""
    pid = os.fork()
    if pid:
        return pid
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    retitle(title)
    run_scheduler_process(stuck)
    os._exit(0)


def run_scheduler_process(stuck: bool) -> None:
    threading.Thread(target=transfer_worker, name="Thread-3 (transfer_worker)", daemon=True).start()
    event_loop_overlap_disagg_decode(stuck)


def event_loop_overlap_disagg_decode(stuck: bool) -> None:
    while True:
        if stuck:
            process_batch_result()
        recv_requests()


def recv_requests() -> None:
    broadcast_pyobj()


def broadcast_pyobj() -> None:
    broadcast()


def broadcast() -> None:
    time.sleep(3600)


def process_batch_result() -> None:
    all_reduce()


def all_reduce() -> None:
    time.sleep(3600)


def transfer_worker() -> None:
    threading.Event().wait()
