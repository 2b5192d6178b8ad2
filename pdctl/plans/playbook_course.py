"""The course of a playbook's run: what a step came to, where it leads, and how the run ends.

Held for every run:
- A test of findings or of the status never holds of a step whose report did not come, nor does ``missing``: what was
  not looked at is not gone.
- A step that was not run, or whose command broke, leads on only by a case that says so.
- No run ends well that left a step undone: an ``ok`` becomes ``unknown`` then.
- An end that cannot tell (``unknown``) hides nothing critical that the last looks found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pdctl.model.finding import Status
from pdctl.model.playbook import END, Condition, Done, Playbook, Result, Step
from pdctl.plans.playbook_commands import COMMANDS
from pdctl.plans.playbook_rules import is_way_back

JUDGED = (0, 1, 2, 3)  # the exit statuses of a command that did what it was asked
MOST_STEPS = 2_000  # of one run, whatever the playbook says
WORST_FIRST = (Status.CRITICAL, Status.UNKNOWN, Status.WARNING, Status.OK)


@dataclass(frozen=True, slots=True)
class Way:
    """Where a step leads: a step's name, ``END``, or None where the run stops; ``case`` is the number of the case that
    was taken, ``why`` what people should know of it, ``subjects`` the findings' subjects that led there."""

    go: str | None
    case: int | None = None
    why: str = ""
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """Where a run stands: the step to do next (None: it stopped), how often each case was taken, the subjects that led
    here, what each step last came to, and how many steps were done."""

    next: str | None
    taken: Mapping[tuple[str, int], int] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    results: Mapping[str, Result] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return sum(self.visits.values())

    def visited(self, step: Step, result: Result | None, way: Way) -> Course:
        """The course after a step."""
        taken = dict(self.taken)
        if way.case is not None:
            taken[step.name, way.case] = taken.get((step.name, way.case), 0) + 1
        results = {**self.results, step.name: result} if result is not None else self.results
        visits = {**self.visits, step.name: self.visits.get(step.name, 0) + 1}
        return replace(
            self, next=way.go, taken=taken, subjects=way.subjects or self.subjects, results=results, visits=visits
        )


def begun(playbook: Playbook) -> Course:
    """The course of a run at its beginning."""
    return Course(playbook.steps[0].name)


def reports(step: Step) -> bool:
    return bool(step.run) and COMMANDS[step.run[0]].reports


def done_of(step: Step, result: Result) -> tuple[Done, tuple[str, ...]]:
    """What became of a step, and which of its expectations were not met."""
    if result.interrupted:
        return Done.INTERRUPTED, ()
    if result.exit is None:
        return Done.NOT_RUN, ()
    unmet = tuple(_unmet(step.expect, result))
    if _is_broken(result, reports(step)):
        covered = bool(step.expect.exit) and not unmet and result.exit in step.expect.exit
        return (Done.AS_EXPECTED, ()) if covered else (Done.BROKEN, unmet)
    return (Done.OTHERWISE, unmet) if unmet else (Done.AS_EXPECTED, ())


def _unmet(test: Condition, result: Result) -> list[str]:
    """What of a condition does not hold, in words."""
    names, seen = result.names(), result.status is not None
    out: list[str] = []
    if test.exit and result.exit not in test.exit:
        out.append(f"exit {result.exit}, not {_either(test.exit)}")
    if test.status and result.status not in test.status:
        out.append(f"status {result.status or 'none: no report came'}, not {_either(test.status)}")
    if test.found and not names.intersection(test.found):
        out.append(f"{_either(test.found)} was not found" if seen else "no report came")
    out += [f"{name} was not ruled out" for name in test.ruled_out if name not in result.ruled_out]
    if test.missing and not seen:
        out.append(f"no report came, so nothing says that {_either(test.missing)} is not there")
    out += [f"{name} was found" for name in test.missing if name in names]
    return out


def _either(words: tuple[object, ...]) -> str:
    return " or ".join(str(word) for word in words)


def holds(test: Condition, result: Result, reporting: bool = False) -> bool:
    """Whether a case's test holds of what a step came to; ``reporting``: its command should have left a report."""
    if test.not_run:
        return result.exit is None
    if _is_broken(result, reporting) and not test.exit:
        return False
    return not _unmet(test, result)


def _is_broken(result: Result, reporting: bool) -> bool:
    """Whether a command did not do what it was asked, or was not run."""
    return result.exit is None or result.exit not in JUDGED or (reporting and result.status is None)


def way_on(playbook: Playbook, step: Step, result: Result | None, course: Course, rounds: int | None = None) -> Way:
    """Where a step leads. ``result`` is None for a step that runs nothing; ``rounds`` bounds every way back."""
    if step.ends:
        return Way(END)
    if result is not None:
        done, unmet = done_of(step, result)
        if done is Done.INTERRUPTED:
            return Way(None, why="interrupted")
        if done is Done.OTHERWISE and step.otherwise:
            return Way(step.otherwise, why="; ".join(unmet), subjects=_subjects(step.expect, result))
        way = _case(playbook, step, result, course, rounds)
        if way is not None and done is not Done.OTHERWISE:
            return way
        if done in (Done.NOT_RUN, Done.BROKEN) and step.optional:
            return Way(playbook.after(step.name), why=_stopped(done, unmet, result))
        if done is not Done.AS_EXPECTED:
            return Way(None, why=_stopped(done, unmet, result))
    else:
        way = _case(playbook, step, Result(0), course, rounds)
        if way is not None:
            return way
    return Way(playbook.after(step.name))


def _case(playbook: Playbook, step: Step, result: Result, course: Course, rounds: int | None) -> Way | None:
    for number, case in enumerate(step.next):
        tested = course.results.get(case.test.of) if case.test.of else result
        most = case.at_most
        if most is not None and rounds is not None and is_way_back(playbook, step.name, case):
            most = rounds
        if most is not None and course.taken.get((step.name, number), 0) >= most:
            continue
        reporting = reports(playbook.step(case.test.of) if case.test.of else step)
        if tested is not None and holds(case.test, tested, reporting):
            return Way(case.go, number, subjects=_subjects(case.test, tested))
    return None


def _subjects(test: Condition, result: Result) -> tuple[str, ...]:
    """The subjects of the findings that the test was about."""
    wanted = {*test.found, *test.missing}
    return tuple(dict.fromkeys(f.subject for f in result.findings if f.name in wanted and not f.muted))


def _stopped(done: Done, unmet: tuple[str, ...], result: Result) -> str:
    if done is Done.OTHERWISE:
        return f"not as expected: {'; '.join(unmet)}"
    if done is Done.NOT_RUN:
        return f"not run: {result.why}"
    return f"its command did not do what it was asked (exit {result.exit}{', ' + result.why if result.why else ''})"


def gone(result: Result, names: tuple[str, ...]) -> bool:
    """Whether none of the findings is there any more, as far as a look that could see tells."""
    return result.status not in (None, Status.UNKNOWN) and not result.names().intersection(names)


def verdict_of(playbook: Playbook, last: Step | None, course: Course, stopped: bool) -> Status:
    """How a run ends: as its last step says, else with the worst that its steps' last reports hold."""
    worst = [status for result in course.results.values() if (status := result.status)]
    undone = any(not playbook.step(name).optional for name in undone_in(playbook, course))
    if undone or stopped:
        worst.append(Status.UNKNOWN)
    found = next((status for status in WORST_FIRST if status in worst), Status.UNKNOWN)  # nothing was judged
    if last is None or last.end is None or stopped:
        return found
    if last.end is Status.UNKNOWN:
        return Status.CRITICAL if found is Status.CRITICAL else Status.UNKNOWN
    return Status.UNKNOWN if undone and last.end in (Status.OK, Status.WARNING) else last.end


def undone_in(playbook: Playbook, course: Course) -> tuple[str, ...]:
    """The steps that were come to and not done, or whose command broke."""
    return tuple(
        name
        for name, result in course.results.items()
        if done_of(playbook.step(name), result)[0] in (Done.NOT_RUN, Done.BROKEN)
    )
