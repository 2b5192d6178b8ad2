"""Commands on this machine, under the contract of ``command.CommandReach``."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Iterator

from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.command import (
    MORE_PATH,
    NOT_EXECUTABLE,
    NOT_FOUND,
    SUDO,
    Collector,
    Outcome,
    Sink,
    answer_of,
    wants_sudo,
    words_of,
)

PIECE = 256 * 1024
GLANCE = 0.5  # seconds between questions to a sink whether it wants more
PATIENCE = 0.5  # seconds a killed process is waited for; one in uninterruptible sleep does not end


class LocalReach:
    """Runs commands as children of this process, each in a process group of its own."""

    def __init__(self, host: Host, clock: Clock | None = None) -> None:
        self._host = host
        self._clock = clock or SystemClock()

    def run(self, ask: CommandAsk, *, started: float, deadline: float) -> Answer:
        return self._run(ask, Collector(ask.cap), started, deadline)

    def follow(self, ask: CommandAsk, sink: Sink, *, started: float, deadline: float) -> Answer:
        return self._run(ask, Collector(ask.cap, sink), started, deadline)

    def close(self) -> None:
        """Nothing is kept open between commands."""

    def _run(self, ask: CommandAsk, into: Collector, started: float, deadline: float) -> Answer:
        begun = self._clock.now()
        until = min(deadline, begun + ask.timeout)
        outcome = self._outcome(ask, into, begun, until)
        return answer_of(ask, outcome, clock=self._clock, started=started, begun=begun)

    def _outcome(self, ask: CommandAsk, into: Collector, begun: float, until: float) -> Outcome:
        sudo = wants_sudo(ask, self._host.become)
        try:
            child = _child(words_of(ask, self._host.become), ask.stdin is not None)
        except FileNotFoundError as error:
            return Outcome(NOT_FOUND, error=Why.NO_SUCH_TOOL, detail=f"{_file(error)}: command not found")
        except PermissionError as error:
            return Outcome(NOT_EXECUTABLE, error=Why.PERMISSION, detail=f"{_file(error)}: {error.strerror}")
        except (OSError, ValueError) as error:
            return Outcome(error=Why.OTHER, detail=str(error))
        with _ended(child, sudo):
            return self._exchange(child, ask.stdin, into, begun, until)

    def _exchange(
        self, child: subprocess.Popen[bytes], stdin: bytes | None, into: Collector, begun: float, until: float
    ) -> Outcome:
        with _Streams(child, stdin, into) as streams:
            while streams.are_open:
                left = until - self._clock.now()
                if left <= 0:
                    return into.late(until - begun)
                streams.pump(min(left, GLANCE))
                into.idle()
                if into.too_large:
                    return into.over_cap()
                if into.stopped:
                    return into.outcome(0)
        return self._exit(child, into, begun, until)

    def _exit(self, child: subprocess.Popen[bytes], into: Collector, begun: float, until: float) -> Outcome:
        try:
            code = child.wait(max(0.0, until - self._clock.now()))
        except subprocess.TimeoutExpired:
            return into.late(until - begun)
        return into.outcome(code if code >= 0 else 128 - code)


def _file(error: OSError) -> str:
    return os.fsdecode(error.filename) if error.filename else "command"


def _child(words: list[str], with_stdin: bool) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:{MORE_PATH}".lstrip(":")}
    return subprocess.Popen(
        [os.fsencode(word) for word in words],
        stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        bufsize=0,
    )


@contextlib.contextmanager
def _ended(child: subprocess.Popen[bytes], sudo: bool) -> Iterator[None]:
    """Sees to it that nothing of the child's group is left when the block ends before the child does. The child is
    not reaped before that, so its number cannot have gone to another process."""
    try:
        yield
    finally:
        if child.returncode is None:
            _kill_group(child.pid, sudo)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _kill_group(group: int, sudo: bool) -> None:
    if sudo:  # the command runs as root, so only root may end it
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            words = [*SUDO, "kill", "-s", "KILL", "--", f"-{group}"]
            subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class _Streams:
    """The child's pipes, served in turn as each is ready: a full one never blocks another."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes | None, into: Collector) -> None:
        self._into = into
        self._left = memoryview(stdin or b"")
        self._selector = selectors.DefaultSelector()
        self._child = child
        self._watch(child.stdout, selectors.EVENT_READ)
        self._watch(child.stderr, selectors.EVENT_READ)
        self._watch(child.stdin, selectors.EVENT_WRITE)

    def _watch(self, stream: object, event: int) -> None:
        if stream is not None:
            os.set_blocking(stream.fileno(), False)  # type: ignore[attr-defined]
            self._selector.register(stream, event)  # type: ignore[arg-type]

    def __enter__(self) -> _Streams:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    @property
    def are_open(self) -> bool:
        return any(key.events == selectors.EVENT_READ for key in self._selector.get_map().values())

    def pump(self, timeout: float) -> None:
        """Moves what can be moved; waits up to ``timeout`` seconds for there to be something."""
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._child.stdin:
                self._write(key.fd)
            else:
                self._read(key.fd, key.fileobj)

    def _read(self, fd: int, stream: object) -> None:
        data = os.read(fd, PIECE)
        if not data:
            self._selector.unregister(stream)  # type: ignore[arg-type]
        elif stream is self._child.stdout:
            self._into.out(data)
        else:
            self._into.err(data)

    def _write(self, fd: int) -> None:
        try:
            self._left = self._left[os.write(fd, self._left[:PIECE]) :]
        except BrokenPipeError:  # it does not read all it was given, which is its own affair
            self._left = memoryview(b"")
        if not self._left:
            stdin = self._child.stdin
            assert stdin is not None
            self._selector.unregister(stdin)
            stdin.close()
