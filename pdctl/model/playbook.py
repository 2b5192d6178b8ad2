"""Playbooks: runbooks as data. What a step does, what is expected of it, where it leads, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdctl.model.finding import Status

END = "end"  # the step that every playbook has: going there ends the run


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a playbook: at which line (from 1), at which key, and what would be right."""

    line: int
    key: str
    wrong: str
    right: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that must hold of what a step came to; an empty part asks nothing. ``found``: one of these findings is
    in its report, unmuted. ``missing``: none of these is. ``ruled_out``: the report says of each that what was seen
    speaks against it. ``exit``: its exit status is one of these. ``status``: the report's overall status is one of
    these. ``not_run``: the step was not done. ``of``: it is what that earlier step last came to."""

    found: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    exit: tuple[int, ...] = ()
    status: tuple[Status, ...] = ()
    not_run: bool = False
    of: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every finding it asks about."""
        return (*self.found, *self.missing, *self.ruled_out)

    @property
    def is_empty(self) -> bool:
        return not (self.names or self.exit or self.status or self.not_run)


@dataclass(frozen=True, slots=True)
class Case:
    """A way on: the first case whose test holds is taken, ``at_most`` so many times in a run (None: any number)."""

    test: Condition
    go: str
    at_most: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait ``seconds``; or until a finding is ``gone`` or ``there`` in the report of the step's command, looking
    ``every`` so many seconds, ``at_most`` so long."""

    seconds: float | None = None
    gone: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    every: float = 10.0
    at_most: float = 300.0


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the operator: each answer leads to a step. ``unattended`` is the answer where nobody is asked."""

    text: str
    answers: Mapping[str, str]
    unattended: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``run`` is a command of pdctl as a list of words, empty where the step runs none; ``optional``: the run
    goes on, and may end well, where it could not be done; ``end`` the verdict it ends with, ``as_found`` that it ends
    with whatever was found."""

    name: str
    line: int
    say: str = ""
    run: tuple[str, ...] = ()
    wait: Wait | None = None
    ask: Question | None = None
    expect: Condition = field(default_factory=Condition)
    otherwise: str | None = None
    next: tuple[Case, ...] = ()
    end: Status | None = None
    as_found: bool = False
    optional: bool = False

    @property
    def ends(self) -> bool:
        return self.end is not None or self.as_found


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the run is given: by the operator, on the command line, or ``default``. ``optional``: there may be
    none; what needs it is not run then."""

    name: str
    ask: str
    default: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Playbook:
    """A playbook whose every step leads somewhere. ``digest`` tells one text from another."""

    name: str
    about: str
    steps: tuple[Step, ...]
    given: tuple[Given, ...] = ()
    source: str = ""
    digest: str = ""

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def after(self, name: str) -> str:
        """The step that follows in the order of the file, ``END`` after the last."""
        names = [step.name for step in self.steps]
        place = names.index(name) + 1
        return names[place] if place < len(names) else END


class Done(StrEnum):
    """What became of a step."""

    AS_EXPECTED = "as-expected"
    OTHERWISE = "otherwise"
    NOT_RUN = "not-run"
    BROKEN = "broken"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Found:
    """A finding as a step's report tells it."""

    name: str
    severity: str
    confidence: str
    subject: str
    summary: str
    since: str | None = None
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What a step's command came to. ``status`` and ``findings`` are None and empty where no report came, which is
    known from ``status``; ``exit`` is None where nothing was run, and ``why`` says why."""

    exit: int | None = None
    status: Status | None = None
    findings: tuple[Found, ...] = ()
    why: str = ""
    interrupted: bool = False
    ruled_out: tuple[str, ...] = ()

    def names(self) -> frozenset[str]:
        """The names of its findings, muted ones aside."""
        return frozenset(f.name for f in self.findings if not f.muted)
