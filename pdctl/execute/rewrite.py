"""Carries out the writing of one file on a host: reads it, checks the new text, does the steps, keeps a journal.

Every step is written down before it is done and after; what cannot be written down is not done. The first failure ends
it, and what is on the host then is said.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pdctl.errors import PdctlError, StepFailed, UsageError
from pdctl.execute import journal
from pdctl.looks.files import Place
from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk
from pdctl.plans.script_write import (
    Act,
    Current,
    Step,
    Writing,
    read_ask,
    read_current,
    steps_of,
    syntax_ask,
    tidy_ask,
    why_failed,
    wrong_after,
)
from pdctl.reach.clock import Clock
from pdctl.reach.hosts import Hosts

UNCHANGED = "Nothing was changed."
KEPT = "The script is as it was; the backup is kept."
OPEN = "Whether it was written is not known: read it again (pdctl diff) before anything else."


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was done, with the seconds it took."""

    step: Step
    took: float


class Rewriter:
    """Works on one host's files. ``tell`` is called with each step before it is done."""

    def __init__(self, hosts: Hosts, clock: Clock, tell: Callable[[Step], object] | None = None) -> None:
        self._hosts = hosts
        self._clock = clock
        self._tell = tell or (lambda step: None)

    def read(self, place: Place, path: str | None = None) -> Current:
        """The file as it is. Raises UsageError where it cannot be read."""
        wanted = path or place.path
        answer = self._run(read_ask(place.subject, place.host, wanted))
        if answer.error is not None:
            raise UsageError(f"{place.subject}: {wanted}: cannot be read: {why_failed(answer)}")
        try:
            return read_current(answer, wanted)
        except ValueError as error:
            raise UsageError(f"{place.subject}: {wanted}: cannot be read: {error}") from None

    def syntax(self, place: Place, raw: bytes) -> str | None:
        """What bash says of a script's syntax, None where it is right. Raises PdctlError where bash was not asked."""
        answer = self._run(syntax_ask(place.subject, place.host, raw))
        if answer.error is None:
            return None
        if answer.error is Why.NO_SUCH_TOOL or answer.status is None:
            raise PdctlError(f"{place.subject}: bash -n could not be run: {why_failed(answer)}", UNCHANGED)
        said = str(answer.more.get("stderr", "")).strip().splitlines()
        return (said[0] if said else why_failed(answer)).removeprefix("/dev/stdin: ").removeprefix("bash: ")

    def carry_out(self, writing: Writing, act: str, about: Mapping[str, object]) -> list[Done]:
        """Does the steps. Raises StepFailed with what is on the host now; JournalError before anything was done."""
        writing = replace(writing, who=journal.who())
        self._note("script-begun", writing, act=act, backup=writing.backup, **about)
        done: list[Done] = []
        try:
            for step in steps_of(writing):
                self._tell(step)
                done.append(self._do(step, writing, act))
        except KeyboardInterrupt:
            self._run(tidy_ask(writing))
            self._note("script-interrupted", writing, act=act, done=[d.step.act.value for d in done])
            raise
        self._note("script-done", writing, act=act, backup=writing.backup, **about)
        return done

    def _do(self, step: Step, writing: Writing, act: str) -> Done:
        answer = self._run(step.ask)
        why = self._wrong(step, answer, writing)
        if why is None:
            return Done(step, answer.took)
        if answer.status is None:
            self._run(tidy_ask(writing))
        self._note("script-failed", writing, act=act, step=step.act.value, why=why)
        raise StepFailed(f"{step.says}: {why}", _left(step, answer))

    def _wrong(self, step: Step, answer: Answer, writing: Writing) -> str | None:
        """Why a step is not done, None where it is."""
        if answer.error is not None or answer.status != 0:
            return why_failed(answer)
        if step.act is not Act.VERIFY or writing.raw is None:
            return None
        try:
            after = read_current(answer, writing.current.asked)
        except ValueError as error:
            return str(error)
        return wrong_after(writing.current, after, writing.raw)

    def _note(self, kind: str, writing: Writing, **fields: object) -> None:
        host, path = writing.host.name, writing.current.path
        about = {"run": writing.run, "subject": writing.subject, "host": host, "path": path, **fields}
        journal.append(kind, journal_file=None, **about)

    def _run(self, ask: CommandAsk) -> Answer:
        now = self._clock.now()
        return self._hosts.run(ask, started=now, deadline=now + ask.timeout + 30.0)


def new_run() -> str:
    """A word that names one run, in the journal and in names of files on their way."""
    return secrets.token_hex(4)


def _left(step: Step, answer: Answer) -> str:
    """What is on the host after a step failed."""
    if step.act is Act.BACKUP:
        return UNCHANGED
    if step.act is Act.VERIFY:
        return OPEN
    return KEPT if answer.status is not None else OPEN
