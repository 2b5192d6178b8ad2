"""Ends commands that are still running on a host when their time is up: one session for all that are due."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from paramiko import SSHException

from pdctl.reach.remote import killing

if TYPE_CHECKING:
    from pdctl.reach.ssh_live import Connection

KILL_TIME = 4.0  # seconds for one round
SAID = 4096  # bytes of its output that are read


class Due:
    """A process group to end. ``gone`` once the host has said that nothing of it is left."""

    def __init__(self, group: int, sudo: bool) -> None:
        self.group = group
        self.sudo = sudo
        self.over = threading.Event()
        self.gone = False


class Reaper:
    """One connection's ending of commands. A command keeps its slot until it has ended, as the server counts it, too;
    so the session used here is one beyond the slots."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._due: list[Due] = []
        self._thread: threading.Thread | None = None

    def end(self, group: int, *, sudo: bool, wait: float) -> bool:
        """Has the group ended, and its slot given back; whether that is known to have come about within ``wait``
        seconds. Goes on in the background otherwise."""
        due = Due(group, sudo)
        with self._lock:
            self._due.append(due)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="pdctl-reaper", daemon=True)
                self._thread.start()
        due.over.wait(wait)
        return due.gone

    def finish(self, patience: float) -> None:
        """Waits for what is under way."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(patience)

    def _work(self) -> None:
        while batch := self._take():
            for sudo in (False, True):
                some = [due for due in batch if due.sudo is sudo]
                if some:
                    self._round(some, sudo)
            for due in batch:
                self._connection.slots.give()
                due.over.set()

    def _take(self) -> list[Due]:
        with self._lock:
            batch, self._due = self._due, []
            if not batch:
                self._thread = None
            return batch

    def _round(self, batch: list[Due], sudo: bool) -> None:
        left = self._left(killing([due.group for due in batch], sudo=sudo))
        for due in batch:
            due.gone = left is not None and due.group not in left

    def _left(self, line: bytes) -> set[int] | None:
        """The groups that are still there after the line has run; None when that is not known."""
        from pdctl.reach.ssh_live import Lost, Refused

        try:
            channel = self._connection.open("session", None, time.monotonic() + KILL_TIME)
        except (Lost, Refused):
            return None
        try:
            channel.settimeout(KILL_TIME)
            channel.exec_command(line)
            said = b""
            while len(said) < SAID and (data := channel.recv(SAID)):
                said += data
        except (OSError, EOFError, SSHException):
            return None
        finally:
            channel.close()
        _, mark, numbers = said.decode("utf-8", "replace").rpartition("left:")
        return {int(n) for n in numbers.split() if n.isdigit()} if mark else None
