"""Running a playbook from where it stands to its end, every step told to the operator and to the transcript."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pdctl.model.finding import Status
from pdctl.model.playbook import END, Done, Playbook, Result, Step
from pdctl.plans.playbook_course import MOST_STEPS, Course, Way, done_of, undone_in, verdict_of, way_on
from pdctl.reach.clock import Clock
from pdctl.render.look import Look
from pdctl.render.playbook import event_lines, kept_lines
from pdctl.render.text import rfc3339
from pdctl.runbook.did import Did
from pdctl.runbook.hands import Hands, Options, Runs
from pdctl.runbook.order import Desk, Order
from pdctl.runbook.transcript import SCHEMA, Event, Transcript, unfinished

PLAIN = Look()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. ``stopped``: before its end, at a step that it can go on from."""

    verdict: Status
    why: str = ""
    stopped: bool = False
    interrupted: bool = False


class Runner:
    """One run of one playbook."""

    def __init__(
        self, playbook: Playbook, order: Order, transcript: Transcript, desk: Desk, look: Look, *,
        runs: Runs, options: Options, clock: Clock, told: Callable[[Event], object] | None = None,
    ) -> None:  # fmt: skip
        """``told`` is handed every event as it is written."""
        self.playbook = playbook
        self._told = told
        self.order = order
        self.transcript = transcript
        self.desk = desk
        self.look = look
        self.clock = clock
        self.events: list[Event] = []
        self._told_failure = False
        self.hands = Hands(order, desk, runs=runs, options=options, clock=clock, note=self._note, keep=self._keep,
                           say=look.say)  # fmt: skip
        self._begun = clock.now()

    def run(self, course: Course) -> Ended:
        """Does the steps from where ``course`` stands. Ctrl-C ends it with the transcript whole."""
        last: Step | None = None
        why = ""
        try:
            while course.next not in (None, END):
                if course.steps >= MOST_STEPS:
                    course, why = Course(None, results=course.results, visits=course.visits), "too many steps"
                    break
                last = self.playbook.step(str(course.next))
                way, result = self._visit(last, course)
                course, why = course.visited(last, result, way), way.why
                if result is not None and result.interrupted:
                    return self._end(Ended(Status.UNKNOWN, "interrupted", stopped=True, interrupted=True))
        except KeyboardInterrupt:
            return self._end(Ended(Status.UNKNOWN, "interrupted", stopped=True, interrupted=True))
        stopped = course.next is None
        verdict = verdict_of(self.playbook, last, course, stopped)
        return self._end(Ended(verdict, why if stopped else "", stopped), undone_in(self.playbook, course))

    def tell(self, event: Mapping[str, object]) -> None:
        """Adds an event: to the transcript, to what is shown, to what is handed back."""
        row = {"event": event["event"], "at": rfc3339(self.clock.wall()), **event}
        written = self.transcript.add(row, event_lines(row, PLAIN))
        self.events.append(written)
        if self._told is not None:
            self._told(written)
        self.desk.show(event_lines(written, self.look))
        self._tell_failure()

    def _keep(self, kind: str, text: str) -> None:
        """Writes what a command prints as it comes, so that it is there whatever ends the run."""
        self.transcript.add_lines(kept_lines(kind, text, PLAIN))

    def _tell_failure(self) -> None:
        """Says once, and when it happens, that the transcript is not whole."""
        if self.transcript.failed is not None and not self._told_failure:
            self._told_failure = True
            self.desk.show([self.look.say(f"  no more is written down: {self.transcript.failed}")])

    def _note(self, event: dict[str, object], output: str) -> None:
        self.tell({**event, "output": output} if output else event)

    # --- one step -----------------------------------------------------------------------------------------------------

    def _visit(self, step: Step, course: Course) -> tuple[Way, Result | None]:
        begun = self.clock.now()
        visit = course.visits.get(step.name, 0) + 1
        place = [s.name for s in self.playbook.steps].index(step.name) + 1
        head = {"step": step.name, "visit": visit, "number": course.steps + 1}
        where = {"place": place, "of": len(self.playbook.steps), "runs": bool(step.run)}
        self.tell({"event": "begin", **head, **where, "say": self._said(step)})
        if step.ask is not None:
            way, done = self._asked(step)
            did, result = Did(Result()), None
        elif step.run:
            did = self.hands.do(step, course.subjects, course.steps + 1)
            result = did.result
            way = way_on(self.playbook, step, result, course, self.order.rounds)
            done = done_of(step, result)[0]
        else:
            self._rest(step)
            did, result = Did(Result()), None
            way = way_on(self.playbook, step, None, course, self.order.rounds)
            done = Done.AS_EXPECTED
        self.tell({"event": "step", **head, **_told(step, did, done, way), "took": round(self.clock.now() - begun, 3)})
        return way, result

    def _said(self, step: Step) -> str:
        """The step's text, each command in a line of its own as it must be typed to reach what this run looks at."""
        return "\n".join(
            "- " + "; ".join(map(self._aimed, line[2:].split("; "))) if line.startswith("- pdctl ") else line
            for line in step.say.splitlines()
        )

    def _aimed(self, command: str) -> str:
        words = command.split()
        known = self.hands.options(words[1]) if words[:1] == ["pdctl"] and len(words) > 1 else frozenset()
        named = [word for name, value in self.order.target.named if name in known for word in (name, value)]
        return " ".join((command, *map(shlex.quote, named)))

    def _rest(self, step: Step) -> None:
        """Waits for a time. A recording does not change meanwhile."""
        if step.wait is None or step.wait.seconds is None:
            return
        seconds = min(step.wait.seconds, self.order.look_s or step.wait.seconds)
        if self.order.target.recording:
            self.desk.show([f"  (a recording: {seconds:g} s are not waited for)"])
            return
        self.desk.show([f"  waiting for {seconds:g} s"])
        self.clock.sleep(seconds)

    def _asked(self, step: Step) -> tuple[Way, Done]:
        """The operator's answer, or the one for when nobody is there."""
        question = step.ask
        assert question is not None
        if not self.order.attended:
            answer = question.unattended if self.order.unattended else None
            if answer is None:
                return Way(None, why="it asks, and nobody is there to answer"), Done.NOT_RUN
        else:
            answer = self._answer(question.text, tuple(question.answers))
            if answer is None:
                return Way(None, why="it asks, and nobody answered"), Done.NOT_RUN
        self.tell({"event": "answer", "step": step.name, "answer": answer, "asked": self.order.attended})
        return Way(question.answers[answer]), Done.AS_EXPECTED

    def _answer(self, text: str, answers: tuple[str, ...]) -> str | None:
        """One of the answers, by its whole word or a beginning that only one has; asked again until it is one."""
        self.desk.show(["", self.look.say(text)])
        for _ in range(20):
            said = self.desk.ask(f"[{'/'.join(answers)}] ")
            if said is None:
                return None
            word = said.strip().lower()
            near = [a for a in answers if a.lower() == word] or [a for a in answers if word and a.startswith(word)]
            if len(near) == 1:
                return near[0]
        return None

    def _end(self, ended: Ended, undone: Sequence[str] = ()) -> Ended:
        self.tell(
            {
                "event": "end",
                "verdict": ended.verdict.value,
                "why": ended.why,
                "stopped": ended.stopped,
                "interrupted": ended.interrupted,
                "undone": list(undone),
                "took": round(self.clock.now() - self._begun, 3),
            }
        )
        return ended


def _told(step: Step, did: Did, done: Done, way: Way) -> dict[str, Any]:
    """What the transcript says of a step that is done."""
    result = did.result
    told: dict[str, Any] = {"done": done.value, "go": way.go, "case": way.case, "why": way.why}
    if way.subjects:
        told["subjects"] = list(way.subjects)
    if step.run:
        told |= {
            "command": did.command,
            "not_run": result.why if done is Done.NOT_RUN else "",
            "exit": result.exit,
            "status": result.status.value if result.status else None,
            "findings": [asdict(found) for found in result.findings],
            "ruled_out": list(result.ruled_out),
            "unchecked": did.unchecked,
            "unmet": list(done_of(step, result)[1]),
            "looks": did.looks,
            "in_vain": did.in_vain,
            "output": did.output,
        }
    return told


def starting(
    playbook: Playbook, order: Order, pairs: Sequence[tuple[str, str]], by: str, version: str
) -> dict[str, object]:
    """The first event of a transcript. ``pairs`` are the options that name the target, to go on with."""
    target = order.target
    return {
        "event": "start",
        "schema": SCHEMA,
        "pdctl": version,
        "playbook": playbook.name,
        "about": playbook.about,
        "source": playbook.source,
        "digest": playbook.digest,
        "cluster": target.cluster,
        "target": target.shown,
        "options": [list(pair) for pair in pairs or (target.options if not target.demo else ())],
        "rehearsal": target.recording or target.demo,
        "given": dict(order.given),
        "limits": {
            "for": order.look_s,
            "rounds": order.rounds,
            "record": str(order.record.absolute()) if order.record else None,
        },
        "attended": order.attended,
        "by": by,
    }


def resuming(events: Sequence[Event], course: Course, by: str) -> dict[str, object]:
    """The event of going on. A step that was begun and did not end may have done something."""
    left = unfinished(events)
    said = ""
    if left is not None and left.get("runs", True):
        said = f"step {left['step']} was begun at {left['at']} and did not end: it may have done its work"
    first = events[0] if events else {}
    begun = {"begun": first.get("at"), "target": first.get("target")}
    return {"event": "resume", "step": course.next, "by": by, **begun, "unfinished": said}
