"""Running pdctl's own commands, each as a process of its own: what it prints, its exit status, its report.

A process of its own ends when it is told to, keeps its errors to itself, and is seen exactly as a person would see it.
"""

from __future__ import annotations

import codecs
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

LARGEST_OUTPUT = 400_000  # characters kept of what a command prints
LARGEST_REPORT = 64 * 1024 * 1024
GRACE_S = 5.0  # an interrupted command has this long to say what it saw
KILLED = -9


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a command. ``report`` is None where it left none; ``late``: it was ended at its limit."""

    exit: int
    output: str
    report: Mapping[str, Any] | None = None
    took: float = 0.0
    interrupted: bool = False
    late: bool = False


def run_own(
    words: Sequence[str],
    *,
    on_line: Callable[[str], None],
    limit: float | None,
    report_variable: str,
    environment: Mapping[str, str],
    held: tuple[int, ...] = (),
) -> Ran:
    """Runs ``pdctl WORDS``, passing on each line it prints. ``limit`` in seconds; None never ends it, not even Ctrl-C:
    then it is waited for, because it may be in the middle of a change. Such a command holds the open files ``held``
    as well: a lock on one of them lasts as long as the command does, whatever ends this process."""
    begun = time.monotonic()
    with TemporaryDirectory(prefix="pdctl-step-") as folder:
        report = Path(folder) / "report.json"
        env = {**os.environ, **environment, report_variable: str(report)}
        command = [sys.executable, "-m", "pdctl", *words]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
            pass_fds=held if limit is None else (),
        )  # fmt: skip
        with child, _Reader(child, on_line) as reader:
            interrupted, late = _waited(child, reader, begun, limit)
            reader.rest()
        exit_status = child.returncode if child.returncode >= 0 else 128 - child.returncode
        took = time.monotonic() - begun
        return Ran(exit_status, reader.text, _report(report), took, interrupted, late)


def _waited(child: subprocess.Popen[bytes], reader: _Reader, begun: float, limit: float | None) -> tuple[bool, bool]:
    """Reads until the command ends. Returns whether it was interrupted, and whether it was ended at its limit."""
    interrupted = late = False
    until = None if limit is None else begun + limit
    while True:
        try:
            if reader.until(until):
                return interrupted, late
            late = not interrupted
            _end(child, reader)
            return interrupted, late
        except KeyboardInterrupt:
            interrupted = True
            if limit is not None:
                until = min(until or 0.0, time.monotonic() + GRACE_S)


def _end(child: subprocess.Popen[bytes], reader: _Reader) -> None:
    """Ends a command: first so that it can say what it saw, then for good."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            child.send_signal(sign)
        if reader.until(time.monotonic() + GRACE_S):
            return


def _report(path: Path) -> Mapping[str, Any] | None:
    try:
        if path.stat().st_size > LARGEST_REPORT:
            return None
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


class _Reader:
    """Passes on lines as they come; keeps the first and the last of them."""

    def __init__(self, child: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> None:
        assert child.stdout is not None
        self._pipe = child.stdout
        self._on_line = on_line
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._part = ""
        self._lines: list[str] = []
        self._size = 0
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> _Reader:
        self._selector.register(self._pipe, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def until(self, until: float | None) -> bool:
        """Reads until the command prints no more (True) or the time is over (False)."""
        while True:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            if not self._selector.select(left):
                continue
            piece = os.read(self._pipe.fileno(), 65536)
            if not piece:
                return True
            self._take(self._decoder.decode(piece))

    def rest(self) -> None:
        if self._part:
            self._line(self._part)
            self._part = ""

    def _take(self, text: str) -> None:
        *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self._line(line)
        if len(self._part) > LARGEST_OUTPUT:
            self.rest()

    def _line(self, line: str) -> None:
        self._on_line(line)
        self._size += len(line) + 1
        if self._size <= LARGEST_OUTPUT:
            self._lines.append(line)
        elif self._lines[-1] != "...":
            self._lines.append("...")
