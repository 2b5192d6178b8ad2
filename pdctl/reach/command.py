"""Commands on a host: one contract over every transport, one door for quoting, one reading of what came back.

A transport (``local.LocalReach``, ``ssh.SshReach``) only fills in an ``Outcome``; what it means is said here, so the
same command gives the same answer whichever way it went.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk, Secret
from pdctl.reach.clock import Clock

Sink = Callable[[bytes], None]

# Where administrators' tools live; a non-interactive shell's PATH often lacks them.
MORE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SUDO = ("sudo", "-n", "--")
STDERR_KEPT = 4096  # characters of each end of stderr that an answer carries

NOT_FOUND = 127  # what POSIX shells, env and timeout say of a command that is not there
NOT_EXECUTABLE = 126

_DENIED = re.compile(
    r"permission denied|operation not permitted|insufficient permission|must be (?:run as )?root|access denied"
    r"|a password is required|not in the sudoers|is not allowed to (?:execute|run)|authentication (?:is )?required",
    re.IGNORECASE,
)
_SUDO_ASKS = re.compile(r"^sudo: .*(?:password is required|terminal is required|askpass)", re.MULTILINE)
_SUDO_NOT_FOUND = re.compile(r"^sudo: .*: command not found", re.MULTILINE)


class CommandReach(Protocol):
    """Runs commands on one host. Safe to use from several threads."""

    def run(self, ask: CommandAsk, *, started: float, deadline: float) -> Answer:
        """What the command said. ``started`` and ``deadline`` are readings of the monotonic clock: when the window
        began, and when the answer must be there at the latest (``ask.timeout`` may end it sooner). Never raises:
        a failure is an answer with an error. Nothing of the command is left running when its time is up."""

    def follow(self, ask: CommandAsk, sink: Sink, *, started: float, deadline: float) -> Answer:
        """As ``run``, but each piece of stdout goes to ``sink`` as it comes and none is kept. When ``sink`` raises
        ``Stop`` the command is ended and the answer is a good one. While nothing comes, ``sink`` is called with nothing
        about twice a second, so that it can."""

    def close(self) -> None:
        """Ends every connection; a later command opens a new one."""


class Stop(Exception):
    """Raised by a sink that has seen enough."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transport saw. ``status`` is the exit status (128 + n for a command ended by signal n), None when the
    command did not end by itself; ``error`` says why not."""

    status: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    error: Why | None = None
    detail: str | None = None


class Collector:
    """The two output streams as they come, each with a cap. With a ``sink``, stdout is handed on and not kept."""

    def __init__(self, cap: int, sink: Sink | None = None) -> None:
        self._cap = cap
        self._sink = sink
        self._out = bytearray()
        self._err = bytearray()
        self.stopped = False

    def out(self, data: bytes) -> None:
        if self._sink is None:
            self._out += data
            return
        try:
            self._sink(data)
        except Stop:
            self.stopped = True

    def err(self, data: bytes) -> None:
        self._err += data

    def idle(self) -> None:
        """Asks a sink whether it wants more, while nothing comes."""
        if self._sink is not None:
            self.out(b"")

    @property
    def too_large(self) -> bool:
        return len(self._out) > self._cap or len(self._err) > self._cap

    def outcome(self, status: int | None = None, error: Why | None = None, detail: str | None = None) -> Outcome:
        return Outcome(status, bytes(self._out[: self._cap]), bytes(self._err[: self._cap]), error, detail)

    def late(self, allowed: float) -> Outcome:
        """``allowed`` is how many seconds the command was given."""
        return self.outcome(error=Why.READ_TIMEOUT, detail=f"not done within {allowed:.3g} s: ended")

    def over_cap(self) -> Outcome:
        return self.outcome(error=Why.TOO_LARGE, detail=f"over {self._cap} bytes of output: cut off and ended")


# --- in: the words to run ----------------------------------------------------------------------------------------


def words_of(ask: CommandAsk, become: str | None) -> list[str]:
    """The words to run, secrets in clear: for the moment of sending, never for showing. Raises ValueError for a word
    that no command line can carry."""
    words = [word.value if isinstance(word, Secret) else word for word in ask.argv]
    if not words or not words[0] or "=" in words[0]:
        raise ValueError("no command to run" if not words or not words[0] else f"{words[0]!r} is no name of a command")
    if any("\0" in word for word in words):
        raise ValueError("an argument holds a NUL byte")
    return [*SUDO, *words] if wants_sudo(ask, become) else words


def wants_sudo(ask: CommandAsk, become: str | None) -> bool:
    return ask.become and become == "sudo"


def shell_line(words: Iterable[str]) -> str:
    """The words as one line for any Bourne-like shell: each is quoted, and means itself."""
    return " ".join(shlex.quote(word) for word in words)


# --- out: the answer ---------------------------------------------------------------------------------------------


def answer_of(ask: CommandAsk, outcome: Outcome, *, clock: Clock, started: float, begun: float) -> Answer:
    """The answer that an outcome makes. A command that failed is an error even though it said something: its output
    may be half of what was asked for. What it said is there all the same."""
    judged = judge_outcome(outcome)
    stderr = _masked(_both_ends(outcome.stderr), ask)
    now = clock.now()
    return Answer(
        subject=ask.subject,
        fact=ask.fact,
        ask=str(ask),
        t=now - started,
        at=clock.wall(),
        took=now - begun,
        status=judged.status,
        error=judged.error,
        detail=_masked(judged.detail, ask) if judged.detail else None,
        body=outcome.stdout if outcome.stdout or judged.status is not None else None,
        more={**dict(ask.about), **({"stderr": stderr} if stderr else {})},
    )


def judge_outcome(outcome: Outcome) -> Outcome:
    """The outcome with the error that its exit status and stderr stand for, where it has none yet."""
    if outcome.error is not None or outcome.status in (0, None):
        return outcome
    text = outcome.stderr.decode("utf-8", "replace")
    error, detail = _failure(outcome.status or 0, text)
    return Outcome(outcome.status, outcome.stdout, outcome.stderr, error, detail)


def _failure(status: int, stderr: str) -> tuple[Why, str]:
    last = _last_line(stderr)
    if _SUDO_ASKS.search(stderr):
        return (
            Why.PERMISSION,
            f"sudo would ask for a password, and pdctl never gives one: allow it with NOPASSWD ({last})",
        )
    if status == NOT_FOUND or _SUDO_NOT_FOUND.search(stderr):
        return Why.NO_SUCH_TOOL, last or "command not found"
    if status == NOT_EXECUTABLE or _DENIED.search(stderr):
        return Why.PERMISSION, last or "permission denied"
    if status > 128:
        return Why.OTHER, f"ended by signal {status - 128}" + (f": {last}" if last else "")
    return Why.OTHER, f"exit status {status}" + (f": {last}" if last else "")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _both_ends(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if len(text) <= 2 * STDERR_KEPT:
        return text
    return f"{text[:STDERR_KEPT]}\n[... {len(text) - 2 * STDERR_KEPT} characters left out ...]\n{text[-STDERR_KEPT:]}"


def _masked(text: str, ask: CommandAsk) -> str:
    for word in ask.argv:
        if isinstance(word, Secret) and word.value:
            text = text.replace(word.value, "***")
    return text
