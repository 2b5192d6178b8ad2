"""One command over an SSH connection: both output streams at once, a deadline over the whole, and a sure end.

Whatever is still running on the host when its time is up is ended there, through a second session.
"""

from __future__ import annotations

import contextlib
import math
import select
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paramiko import Channel, SSHException

from pdctl.model.answer import Why
from pdctl.reach.command import Collector, Outcome
from pdctl.reach.remote import Opening, new_mark, wrapped
from pdctl.reach.ssh_live import Connection, Refused

PIECE = 256 * 1024
GLANCE = 0.5  # seconds between looks at whether the host is still there
CONFIRMED = 0.15  # seconds an answer waits for the news that its command has ended
GRACE = 1  # seconds after our own deadline at which the host's own watch ends the command
QUIET = 4.0  # seconds of silence at a deadline from which on it is the host that is missing, not the command's end


@dataclass(frozen=True, slots=True)
class Job:
    """A command to run: its words, its input, and until when (monotonic clock) it may take."""

    words: Sequence[str]
    stdin: bytes | None
    sudo: bool
    begun: float
    until: float


class Session:
    """One command's channel from opening to closing."""

    def __init__(self, connection: Connection, job: Job, into: Collector) -> None:
        self._connection = connection
        self._job = job
        self._into = into
        mark = new_mark()
        self._out, self._err = Opening(mark), Opening(mark)
        left = max(1, math.ceil(job.until - time.monotonic()) + GRACE)
        self._line = wrapped(job.words, mark, left)
        self._running = False

    def run(self) -> Outcome:
        """What came of it. Raises Lost when the connection turned out to be dead before anything was asked of it,
        so that the command can safely be tried over another; Refused when the host takes no session."""
        channel = self._connection.session(self._job.until)
        if channel is None:
            return self._into.outcome(error=Why.READ_TIMEOUT, detail="waited in vain for other commands on its host")
        try:
            outcome = self._run_on(channel)
        finally:
            ended = self._close(channel)
        if ended or outcome.detail is None:
            return outcome
        return replace(outcome, detail=f"{outcome.detail} (that it has ended on its host is not confirmed)")

    def _run_on(self, channel: Channel) -> Outcome:
        try:
            channel.exec_command(self._line)
        except (SSHException, EOFError, OSError) as error:
            if self._connection.is_alive:
                raise Refused(f"{self._connection.name} refused to run a command: {error}") from None
            return self._broken()
        self._running = True
        self._feed(channel)
        while not (channel.eof_received or channel.closed) or self._has_more(channel):
            if time.monotonic() >= self._job.until:
                return self._late()
            if not self._connection.is_alive:
                return self._broken()
            self._read(channel)
            self._into.idle()
            if self._into.too_large:
                return self._into.over_cap()
            if self._into.stopped:
                return self._into.outcome(0)
        return self._end(channel)

    @staticmethod
    def _has_more(channel: Channel) -> bool:
        return channel.recv_ready() or channel.recv_stderr_ready()

    def _read(self, channel: Channel) -> None:
        """Waits a moment for something to come and takes what is there of both streams."""
        left = min(GLANCE, max(0.0, self._job.until - time.monotonic()))
        with contextlib.suppress(OSError, ValueError):  # closed by the other side meanwhile
            poll = select.poll()
            poll.register(channel.fileno(), select.POLLIN)
            poll.poll(left * 1000)
        if channel.recv_ready() and (data := self._out.feed(channel.recv(PIECE))):
            self._into.out(data)
        if channel.recv_stderr_ready() and (data := self._err.feed(channel.recv_stderr(PIECE))):
            self._into.err(data)

    def _end(self, channel: Channel) -> Outcome:
        """The outcome once both streams have ended: the exit status may come after them."""
        while not channel.status_event.wait(min(GLANCE, max(0.0, self._job.until - time.monotonic()))):
            if time.monotonic() >= self._job.until:
                return self._late()
            if not self._connection.is_alive:
                return self._broken()
        self._into.err(self._err.noise)
        status = channel.exit_status
        if status == -1 and not self._connection.transport.is_active():
            return self._broken()
        if not self._out.is_over:
            return self._into.outcome(error=Why.SSH, detail=self._no_shell())
        if status == -1:
            return self._into.outcome(error=Why.OTHER, detail="ended by a signal on its host")
        self._running = False
        return self._into.outcome(status)

    # --- ends that are none ---

    def _late(self) -> Outcome:
        if self._connection.silent > QUIET:
            return self._into.outcome(error=Why.SSH, detail=self._connection.why_dead())
        return self._into.late(self._job.until - self._job.begun)

    def _broken(self) -> Outcome:
        return self._into.outcome(error=Why.SSH, detail=f"{self._connection.why_dead()} while the command ran")

    def _no_shell(self) -> str:
        said = (self._out.noise.strip() or self._err.noise.strip()).decode("utf-8", "replace").splitlines()
        return f"the login shell of {self._connection.name} runs no commands: {said[-1][:200] if said else 'no word'}"

    # --- stdin and closing ---

    def _feed(self, channel: Channel) -> None:
        if self._job.stdin is None:
            channel.shutdown_write()
            return
        data = self._job.stdin

        def write() -> None:
            with contextlib.suppress(OSError, EOFError, SSHException):
                channel.sendall(data)
                channel.shutdown_write()

        threading.Thread(target=write, name="pdctl-stdin", daemon=True).start()

    def _close(self, channel: Channel) -> bool:
        """Gives everything back; False when the command may still be running on the host."""
        with contextlib.suppress(OSError, EOFError, SSHException):
            channel.close()
        if not self._running:
            self._connection.slots.give()
            return True
        if self._out.group is None or not self._connection.is_alive:
            self._connection.slots.give()
            return False
        return self._connection.reaper.end(self._out.group, sudo=self._job.sudo, wait=CONFIRMED)
