"""A playbook read from YAML: typed, every key known, every step leading somewhere, every way back bounded.

What is wrong is told with line, key and what would be right, all of it at once. Held for every playbook that is read:
- A step runs a command of pdctl that stands in ``playbook_commands``; there is no other kind of command.
- No option of consent and none that names another target or form stands in a step.
- Every way to an earlier step is taken a bounded number of times, or by a person's answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from pdctl.model.finding import Status
from pdctl.model.playbook import Case, Condition, Given, Playbook, Problem, Question, Step, Wait
from pdctl.plans.playbook_rules import problems_of
from pdctl.plans.playbook_schema import (
    CASE,
    CONDITION,
    GIVEN,
    STEP,
    TOP,
    WAIT,
    CaseRow,
    ConditionRow,
    GivenRow,
    StepRow,
    Verdict,
    WaitRow,
)
from pdctl.plans.playbook_words import closest, listed, seconds_of, telling
from pdctl.plans.yaml_lines import Lined, Malformed, Path, read_yaml

T = TypeVar("T")
_AT = re.compile(r" - at `(?:key` in `)?\$(?P<path>[^`]*)`$")
_ROW = re.compile(r"\.(\w+)|\[(\d+)\]")


class Faulty(Exception):
    """The text is no playbook; ``problems`` are in the order of the file."""

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(f"{source}: {len(problems)} problem(s)")
        self.source = source
        self.problems = problems


def read_playbook(text: str, name: str, source: str) -> Playbook:
    """The playbook in a YAML text. ``source`` is its path, for messages. Raises Faulty with everything wrong."""
    try:
        lined = read_yaml(text)
    except Malformed as error:
        raise Faulty(source, (Problem(error.line, "", error.wrong, error.right),)) from None
    reader = _Reader(lined)
    playbook = reader.playbook(name, source, sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
    problems = reader.problems or list(problems_of(playbook, lined)) if playbook else reader.problems
    if problems or playbook is None:
        raise Faulty(source, tuple(sorted(problems, key=lambda p: p.line)))
    return playbook


class _Reader:
    """Values into rows into the model; what is wrong is collected, so that people see all of it at once."""

    def __init__(self, lined: Lined) -> None:
        self.lined = lined
        self.problems: list[Problem] = []

    def playbook(self, name: str, source: str, digest: str) -> Playbook | None:
        top = self.lined.value
        if not isinstance(top, dict):
            self._say((), "", "a playbook is a list of keys with values", TOP["about"])
            return None
        top = self._known(top, (), TOP, "the file")
        about, steps, given = top.get("about"), top.get("steps"), top.get("given")
        if not isinstance(about, str) or not about.strip():
            self._say(("about",), "about", "is missing" if about is None else "must be text", TOP["about"])
        rows = [self._step(index, row) for index, row in enumerate(self._list(steps))]
        asked = tuple(self._given(given)) if given is not None else ()
        if self.problems or not isinstance(about, str):
            return None
        return Playbook(name, " ".join(about.split()), tuple(row for row in rows if row), asked, source, digest)

    def _list(self, steps: object) -> list[object]:
        if isinstance(steps, list) and steps:
            return steps
        self._say(("steps",), "steps", "is missing" if steps is None else "must be a list of steps", TOP["steps"])
        return []

    def _step(self, index: int, row: object) -> Step | None:
        path: Path = ("steps", index)
        if not isinstance(row, dict):
            self._say(path, "steps", f"step {index + 1} must be keys with values", TOP["steps"])
            return None
        row = self._known(row, path, STEP, f"step {row.get('step') or index + 1}")
        self._nested(row, path)
        if self._types(row, path):
            return None
        typed = self._convert(row, StepRow, path, STEP)
        return None if typed is None else _step_of(typed, self.lined.line(path), self._durations(typed, path))

    def _nested(self, row: dict[str, Any], path: Path) -> None:
        """Takes unknown keys out of what stands inside a step, and says so."""
        for key, known in (("wait", WAIT), ("expect", CONDITION)):
            if isinstance(row.get(key), dict):
                row[key] = self._known(row[key], (*path, key), known, key)
        if isinstance(row.get("next"), list):
            row["next"] = [
                self._known(case, (*path, "next", n), CASE, "next") if isinstance(case, dict) else case
                for n, case in enumerate(row["next"])
            ]

    def _types(self, row: Mapping[str, object], path: Path) -> bool:
        """Whether any part of a step has a wrong type; says of each that has, so that people see all at once."""
        before = len(self.problems)
        for key, value in row.items():
            parts = list(enumerate(value)) if key == "next" and isinstance(value, list) else [(None, value)]
            for number, part in parts:
                one = {key: part if number is None else [part]}
                self._convert({"step": "a", **one}, StepRow, path, STEP, number)
        return len(self.problems) > before

    def _known(self, row: Mapping[str, object], path: Path, known: Mapping[str, str], who: str) -> dict[str, Any]:
        for key in row:
            if key not in known:
                right = f"{closest(key, known)}Keys here: {listed(known)}."
                self._say((*path, key), key, f"{who} has no such key", right)
        return {key: value for key, value in row.items() if key in known}

    def _convert(
        self, row: object, kind: type[T], path: Path, known: Mapping[str, str], number: int | None = None
    ) -> T | None:
        """The row as its type. ``number``: it holds that one of the cases of ``next`` alone."""
        try:
            return msgspec.convert(row, kind, strict=False)
        except msgspec.ValidationError as error:
            message = str(error)
            at = _AT.search(message)
            inner = (
                tuple(k or (int(n) if number is None else number) for k, n in _ROW.findall(at["path"])) if at else ()
            )
            key = next((part for part in reversed(inner) if isinstance(part, str)), "")
            wrong = message[: at.start()] if at else message
            self._type_problem((*path, *inner), key, wrong, known)
            return None

    def _type_problem(self, path: Path, key: str, wrong: str, known: Mapping[str, str]) -> None:
        if missing := re.search(r"missing required field `(\w+)`", wrong):
            self._say(path, missing[1], "is missing", known.get(missing[1], ""))
            return
        examples = {**GIVEN, **WAIT, **CASE, **known}
        self._say(path, key, telling(wrong), examples.get(key, ""))

    def _durations(self, row: StepRow, path: Path) -> dict[str, float]:
        """The times of a wait in seconds."""
        out: dict[str, float] = {}
        for key in ("time", "every", "at_most"):
            text = getattr(row.wait, key) if row.wait else None
            if text is None:
                continue
            seconds = seconds_of(text)
            if seconds is None:
                self._say((*path, "wait", key), key, f'"{text}" is no time', "Write 30s, 500ms, 5m or 1h.")
            out[key] = seconds or 0.0
        return out

    def _given(self, given: object) -> Iterator[Given]:
        if not isinstance(given, dict):
            self._say(("given",), "given", "must be keys with values", TOP["given"])
            return
        for name, row in given.items():
            path: Path = ("given", name)
            if not isinstance(row, dict):
                self._say(path, name, "must be keys with values", TOP["given"])
                continue
            typed = self._convert(self._known(row, path, GIVEN, name), GivenRow, path, GIVEN)
            if typed is not None:
                yield Given(name, " ".join(typed.ask.split()), typed.default, typed.optional)

    def _say(self, path: Path, key: str, wrong: str, right: str) -> None:
        self.problems.append(Problem(self.lined.line(path), key, wrong, right))


def _step_of(row: StepRow, line: int, times: Mapping[str, float]) -> Step:
    return Step(
        row.step,
        line,
        (row.say or "").strip(),
        tuple(row.run or ()),
        _wait_of(row.wait, times) if row.wait else None,
        Question((row.ask or "").strip(), row.answers, row.unattended) if row.ask or row.answers else None,
        _condition(row.expect) if row.expect else Condition(),
        row.otherwise,
        tuple(_case(case) for case in row.next),
        Status(row.end.value) if row.end not in (None, Verdict.AS_FOUND) else None,
        row.end is Verdict.AS_FOUND,
        row.optional,
    )


def _wait_of(row: WaitRow, times: Mapping[str, float]) -> Wait:
    usual = Wait()
    return Wait(
        times.get("time"),
        _texts(row.gone),
        _texts(row.there),
        times.get("every", usual.every),
        times.get("at_most", usual.at_most),
    )


def _condition(row: ConditionRow) -> Condition:
    codes = row.exit if isinstance(row.exit, list) else [row.exit]
    statuses = row.status if isinstance(row.status, list) else [row.status]
    found, missing, ruled_out = (_texts(words) for words in (row.found, row.missing, row.ruled_out))
    of = row.of if isinstance(row, CaseRow) else None
    return Condition(found, missing, ruled_out, tuple(codes), tuple(statuses), row.not_run, of)


def _case(row: CaseRow) -> Case:
    return Case(_condition(row), row.go, row.at_most)


def _texts(words: list[str] | str) -> tuple[str, ...]:
    return tuple(words) if isinstance(words, list) else (words,)
