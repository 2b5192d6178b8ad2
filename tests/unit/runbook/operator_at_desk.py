"""An operator who has said beforehand what they will answer, and commands that have said what they will come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdctl.model.playbook import Playbook
from pdctl.plans.playbook import read_playbook
from pdctl.plans.playbook_course import Course, begun
from pdctl.reach.clock import FakeClock
from pdctl.reach.own import Ran
from pdctl.render.look import Look
from pdctl.runbook.order import Order, Target
from pdctl.runbook.run import Ended, Runner, starting
from pdctl.runbook.transcript import Transcript, read_events

LIVE = Target((("--config", "/etc/prod.toml"),), "prod", ("prefill-0", "decode-0"), "prod")
KNOWN = frozenset({"--config", "--from", "--for", "--record", "--ascii"})
TARGETLESS = ("explain", "findings")


def playbook(body: str, given: str = "") -> Playbook:
    return read_playbook(f"about: x\n{given}steps:\n{body}", "try", "try.yaml")


def report(*names: str, status: str = "", subject: str = "prefill-0", exit_status: int | None = None) -> Ran:
    """A command that found these."""
    status = status or ("critical" if names else "ok")
    rows = [
        {"name": n, "severity": "critical", "confidence": "certain", "subject": subject, "summary": "s"} for n in names
    ]
    codes = {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}
    value: dict[str, Any] = {"status": status, "findings": rows, "unchecked": [], "ruled_out": []}
    return Ran(codes[status] if exit_status is None else exit_status, f"report: {status}", value)


@dataclass
class Desk:
    """Answers in the order given; nobody is there once they are used up."""

    answers: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def show(self, lines: Sequence[str]) -> None:
        self.shown += lines

    def output(self, line: str) -> None:
        self.shown.append(line)

    def ask(self, question: str) -> str | None:
        self.asked.append(question)
        return self.answers.pop(0) if self.answers else None


@dataclass
class Commands:
    """Stands in for pdctl's own commands: what each comes to, by its first word, in turn (the last again and again)."""

    come_to: Mapping[str, list[Ran | BaseException]]
    ran: list[list[str]] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)

    def __call__(self, words: Sequence[str], *, on_line: Callable[[str], None], limit: float | None) -> Ran:
        self.ran.append(list(words))
        self.limits.append(limit)
        queue = self.come_to[words[0]]
        came = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(came, BaseException):
            raise came
        for line in came.output.splitlines():
            on_line(line)
        return came


@dataclass
class Played:
    """A run that is over."""

    ended: Ended
    events: list[dict[str, Any]]
    text: str
    commands: Commands
    desk: Desk
    clock: FakeClock
    path: Path

    @property
    def steps(self) -> list[str]:
        return [event["step"] for event in self.events if event["event"] == "step"]

    def step(self, name: str) -> dict[str, Any]:
        return [event for event in self.events if event["event"] == "step" and event["step"] == name][-1]


def play(
    book: Playbook, commands: Commands, path: Path, *, order: Order | None = None, desk: Desk | None = None,
    course: Course | None = None,
) -> Played:  # fmt: skip
    order, desk, clock = order or Order(LIVE), desk or Desk(), FakeClock()
    transcript = Transcript(path, fresh=course is None)

    def options(name: str) -> frozenset[str]:
        return frozenset() if name in TARGETLESS else KNOWN

    try:
        runner = Runner(book, order, transcript, desk, Look(), runs=commands, options=options, clock=clock)
        if course is None:
            runner.tell(starting(book, order, (), "op@host", "0"))
        ended = runner.run(course or begun(book))
    finally:
        transcript.close()
    text = path.with_suffix(".txt").read_text("utf-8")
    return Played(ended, read_events(path), text, commands, desk, clock, path)
