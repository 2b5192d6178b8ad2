"""What the types of a playbook cannot say: names that are there, ways that lead on, loops that end, tests that can
hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from pdctl.model.playbook import END, Case, Condition, Playbook, Problem, Step
from pdctl.model.registry import REGISTRY
from pdctl.plans.playbook_commands import COMMANDS, SUBJECT, consent_for, faults_of_words, places
from pdctl.plans.playbook_schema import STEP, WAIT
from pdctl.plans.playbook_words import closest, listed
from pdctl.plans.yaml_lines import Lined, Path

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}\Z")
EXITS = (0, 1, 2, 3, 64, 70, 75, 130)
LOOKS = "Wait with a look: run: [pinned, --for, 15s]"


def problems_of(playbook: Playbook, lined: Lined) -> Iterator[Problem]:
    """Everything wrong with a playbook whose types are right."""
    names = [step.name for step in playbook.steps]
    rules = _Rules(playbook, lined, names)
    for given in playbook.given:
        yield from rules.given(given.name)
    for index, step in enumerate(playbook.steps):
        yield from rules.name(index, step)
        yield from rules.kind(index, step)
        yield from rules.words(index, step)
        yield from rules.ways(index, step)
        yield from rules.conditions(index, step)
    yield from rules.reach()


class _Rules:
    def __init__(self, playbook: Playbook, lined: Lined, names: list[str]) -> None:
        self.playbook = playbook
        self.lined = lined
        self.names = names
        self.given_names = {given.name for given in playbook.given}

    def _say(self, path: Path, wrong: str, right: str = "") -> Problem:
        key = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
        return Problem(self.lined.line(path), key, wrong, right)

    def given(self, name: str) -> Iterator[Problem]:
        if not _NAME.match(name) or name == SUBJECT:
            yield self._say(("given", name), f'"{name}" is no name for a value', "Small letters, digits and dashes.")
        if not any(name in places(step.run) for step in self.playbook.steps):
            yield self._say(("given", name), "no step uses it", f"Write {{{name}}} where it belongs.")

    def name(self, index: int, step: Step) -> Iterator[Problem]:
        path: Path = ("steps", index, "step")
        if not _NAME.match(step.name) or step.name == END:
            yield self._say(path, f'"{step.name}" is no name for a step', "Small letters, digits and dashes; not end.")
        elif step.name in self.names[:index]:
            yield self._say(path, f'there is a step "{step.name}" already', "Each step has a name of its own.")

    def kind(self, index: int, step: Step) -> Iterator[Problem]:
        """A step does one thing, and what stands beside it belongs to that."""
        path: Path = ("steps", index)
        if not (step.say or step.run or step.wait or step.ask or step.ends or step.next):
            right = f"Give it one of: {STEP['say']}; {STEP['run']}; {STEP['ask']}; {STEP['wait']}"
            yield self._say(path, f"step {step.name} does nothing", right)
        if step.ask and (step.run or step.wait):
            yield self._say((*path, "ask"), "a step that asks does nothing else", "Make two steps of it.")
        if step.ends and (step.run or step.wait or step.ask or step.next):
            yield self._say((*path, "end"), "a step that ends says something at most", "Make a step of its own of it.")
        if not step.run and (not step.expect.is_empty or step.otherwise):
            yield self._say((*path, "expect"), "nothing is run, so nothing can be expected", STEP["run"])
        if step.optional and not step.run:
            yield self._say((*path, "optional"), "nothing is run, so nothing can be left out", STEP["run"])
        if step.otherwise and step.expect.is_empty:
            yield self._say((*path, "otherwise"), "otherwise than what?", STEP["expect"])
        yield from self._wait(path, step)
        yield from self._ask(path, step)

    def _wait(self, path: Path, step: Step) -> Iterator[Problem]:
        wait = step.wait
        if wait is None:
            return
        until = bool(wait.gone or wait.there)
        if (wait.seconds is not None) + bool(wait.gone) + bool(wait.there) != 1:
            right = f"One of: {WAIT['time']}; {WAIT['gone']}; {WAIT['there']}"
            yield self._say((*path, "wait"), "it waits for one thing", right)
        elif until and not step.run:
            yield self._say((*path, "wait"), "nothing looks for the finding", LOOKS)
        elif not until and step.run:
            yield self._say((*path, "wait"), "a step waits or runs", "Make two steps of it.")
        elif until:
            yield from self._repeated((*path, "wait"), step)
        yield from self._findings((*path, "wait", "gone"), wait.gone)
        yield from self._findings((*path, "wait", "there"), wait.there)

    def _repeated(self, path: Path, step: Step) -> Iterator[Problem]:
        """What a wait looks with is run again and again: it only reads, and says what it found."""
        kind = COMMANDS.get(step.run[0])
        if kind is None:
            return
        if not kind.reports:
            yield self._say(path, f"{step.run[0]} reports no findings, so it cannot be waited for them", LOOKS)
        if consent_for(step.run) is not None:
            yield self._say(path, f"{' '.join(step.run)} is agreed to each time, and a wait repeats it", LOOKS)

    def _ask(self, path: Path, step: Step) -> Iterator[Problem]:
        ask = step.ask
        if ask is None:
            return
        if not ask.text:
            yield self._say((*path, "answers"), "answers to no question", STEP["ask"])
        if not ask.answers:
            yield self._say((*path, "ask"), "a question without answers", STEP["answers"])
        if step.next:
            yield self._say((*path, "next"), "the answers say where to go", "Leave out next.")
        if ask.unattended is None:
            return
        if ask.unattended not in ask.answers:
            right = f"{closest(ask.unattended, ask.answers)}Answers: {listed(ask.answers)}."
            yield self._say((*path, "unattended"), f'there is no answer "{ask.unattended}"', right)
        elif self._is_loop(step.name, ask.answers[ask.unattended]):
            yield self._say((*path, "unattended"), "with nobody there this would go round for ever", "Go onward.")

    def words(self, index: int, step: Step) -> Iterator[Problem]:
        path: Path = ("steps", index, "run")
        if not step.run:
            return
        if fault := faults_of_words(step.run):
            yield self._say(path, *fault)
        yield from self._findings(path, named(step.run))
        for name in places(step.run):
            if name != SUBJECT and name not in self.given_names:
                known = listed(f"{{{n}}}" for n in (SUBJECT, *sorted(self.given_names)))
                yield self._say(path, f"nothing says what {{{name}}} is", f"There is {known}; see given.")
        if any(f"{{{SUBJECT}}}" in word and word != f"{{{SUBJECT}}}" for word in step.run):
            yield self._say(path, "{subject} stands for any number of words", 'Make it a word of its own: "{subject}"')

    def ways(self, index: int, step: Step) -> Iterator[Problem]:
        path: Path = ("steps", index)
        for n, case in enumerate(step.next):
            place: Path = (*path, "next", n)
            if not case.go:
                yield self._say(place, "it leads nowhere", "go: NAME of a step, or end")
                continue
            yield from self._goal((*place, "go"), case.go)
            if case.at_most is None and self._is_loop(step.name, case.go):
                yield self._say((*place, "go"), f"back to {case.go} for ever?", "Add at_most: 20")
            if n + 1 < len(step.next) and case.test.is_empty and case.at_most is None:
                yield self._say(place, "always holds, so what follows it never does", "Put it last.")
        if step.otherwise:
            yield from self._goal((*path, "otherwise"), step.otherwise)
            if self._is_loop(step.name, step.otherwise):
                yield self._say((*path, "otherwise"), "leads back for ever", "Go onward, or use next with at_most.")
        for answer, go in (step.ask.answers if step.ask else {}).items():
            yield from self._goal((*path, "answers", answer), go)

    def _goal(self, path: Path, go: str) -> Iterator[Problem]:
        if go != END and go not in self.names:
            right = f"{closest(go, self.names)}Steps: {listed(self.names)}, {END}."
            yield self._say(path, f'there is no step "{go}"', right)

    def _is_loop(self, here: str, go: str) -> bool:
        """Whether a way leads back, and from there here again with nothing that bounds it. Every loop has such a way
        that leads up in the file."""
        if go not in self.names or self.names.index(go) > self.names.index(here):
            return False
        return here in reached(self.playbook, go, unbounded)

    def conditions(self, index: int, step: Step) -> Iterator[Problem]:
        path: Path = ("steps", index)
        yield from self._condition((*path, "expect"), step, step.expect)
        if step.expect.not_run:
            yield self._say((*path, "expect", "not_run"), "nothing is run to be not run", "Use it in next.")
        for n, case in enumerate(step.next):
            yield from self._condition((*path, "next", n), step, case.test)

    def _condition(self, path: Path, step: Step, test: Condition) -> Iterator[Problem]:
        for key, names in (("found", test.found), ("missing", test.missing), ("ruled_out", test.ruled_out)):
            yield from self._findings((*path, key), names)
        for code in test.exit:
            if code not in EXITS:
                right = f"Exit statuses: {listed(map(str, EXITS))}."
                yield self._say((*path, "exit"), f"pdctl never ends with {code}", right)
        if test.of is not None and (test.of not in self.names[: self.names.index(step.name)]):
            yield self._say((*path, "of"), f'"{test.of}" is no earlier step', "of: NAME of a step that ran before")
        elif not test.is_empty:
            yield from self._testable(path, self.playbook.step(test.of) if test.of else step, test)

    def _testable(self, path: Path, step: Step, test: Condition) -> Iterator[Problem]:
        """A test must be one that what the step runs can meet."""
        kind = COMMANDS.get(step.run[0]) if step.run else None
        if not step.run:
            yield self._say(path, f"{step.name} runs nothing, so there is nothing to test", STEP["run"])
        elif kind is not None and not kind.reports and (test.names or test.status):
            right = "Test exit, or run a command that judges: triage, pinned, check, ..."
            yield self._say(path, f"{step.run[0]} reports no findings", right)

    def _findings(self, path: Path, names: tuple[str, ...]) -> Iterator[Problem]:
        for name in names:
            if name not in REGISTRY:
                right = f"{closest(name, REGISTRY)}All names: pdctl findings"
                yield self._say(path, f'there is no finding "{name}"', right)

    def reach(self) -> Iterator[Problem]:
        """Steps that nothing leads to."""
        there = reached(self.playbook, self.names[0], goals)
        for index, name in enumerate(self.names):
            if name not in there:
                yield self._say(("steps", index, "step"), f"nothing leads to {name}", "Go there, or leave it out.")


def named(words: tuple[str, ...]) -> tuple[str, ...]:
    """The findings that a command line names, where only a finding may stand."""
    rows = [(before, word) for before, word in pairwise(words) if not places((word,))]
    if words[0] == "explain":
        return tuple(word for _, word in rows if not word.startswith("-"))[:1]
    return tuple(word for before, word in rows if (words[0], before) == ("sample", "--until"))


def reached(playbook: Playbook, start: str, leads: Callable[[Playbook, Step], list[str]]) -> set[str]:
    """The steps that can be come to from ``start``, itself among them."""
    names = {step.name for step in playbook.steps}
    out: set[str] = set()
    todo = [start]
    while todo:
        name = todo.pop()
        if name in names and name not in out:
            out.add(name)
            todo += leads(playbook, playbook.step(name))
    return out


def goals(playbook: Playbook, step: Step) -> list[str]:
    """Where a step may lead."""
    bounded = [case.go for case in step.next if case.at_most is not None]
    return [*bounded, *(step.ask.answers.values() if step.ask else ()), *unbounded(playbook, step)]


def unbounded(playbook: Playbook, step: Step) -> list[str]:
    """Where a step may lead any number of times with nobody looking on."""
    out = [case.go for case in step.next if case.at_most is None] + ([step.otherwise] if step.otherwise else [])
    unattended = step.ask.unattended if step.ask else None
    if step.ask and unattended is not None and unattended in step.ask.answers:
        out.append(step.ask.answers[unattended])
    always = any(case.test.is_empty and case.at_most is None for case in step.next)
    if step.optional or not (always or step.ask or step.ends):
        out.append(playbook.after(step.name))
    return out


def is_way_back(playbook: Playbook, here: str, case: Case) -> bool:
    """Whether a case leads to this or an earlier step."""
    names = [step.name for step in playbook.steps]
    return case.go in names and names.index(case.go) <= names.index(here)
