"""A hard end: whatever hangs, the process is gone when time is up, and has said so."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

LAST_WORDS = 0.5  # seconds for saying it: the stream it is said on may hang as well


class Watchdog:
    """Ends the process ``seconds`` after it was made, unless closed before: calls ``say``, which returns the exit
    status, and leaves without waiting for threads, buffers or locks. What a killed process leaves is left."""

    def __init__(self, seconds: float, say: Callable[[], int], status: int) -> None:
        self._say = say
        self._status = status
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(seconds,), name="pdctl-watchdog", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Calls it off."""
        self._closed.set()

    def _watch(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            return
        last = threading.Thread(target=self._speak, daemon=True)
        last.start()
        last.join(LAST_WORDS)
        os._exit(self._status)

    def _speak(self) -> None:
        self._status = self._say()
