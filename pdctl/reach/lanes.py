"""Threads that wait for answers. A lane that hangs is left behind: it can delay neither the others nor the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]


class Lanes:
    """Runs jobs in the order given, ``parallel`` at once, more when told that those are all waiting. The threads are
    kept for the next jobs; as daemons they never hold the process open."""

    def __init__(self, parallel: int) -> None:
        self._limit = max(1, parallel)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0
        self._queued = 0

    def run(self, job: Job) -> None:
        """Queues a job. A job must not raise."""
        with self._lock:
            self._queued += 1
            self._staff()
        self._jobs.put(job)

    def grow(self) -> bool:
        """Twice the lanes, if jobs wait because every lane is taken. Returns whether any did."""
        with self._lock:
            if self._queued <= self._free:
                return False
            self._limit = min(2 * self._limit, self._threads + self._queued)
            self._staff()
            return True

    @property
    def is_short(self) -> bool:
        """Whether jobs wait because every lane is taken."""
        return self._queued > self._free

    def close(self) -> None:
        """Lets each lane end once its job is done; jobs not begun are dropped."""
        with self._lock:
            while not self._jobs.empty():
                self._jobs.get()
            for _ in range(self._threads):
                self._jobs.put(None)

    def _staff(self) -> None:
        while self._queued > self._free and self._threads < self._limit:
            self._threads += 1
            self._free += 1
            threading.Thread(target=self._work, name=f"pdctl-lane-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            with self._lock:
                self._free -= 1
                self._queued -= 1
            job()
            with self._lock:
                self._free += 1
