"""The keys of a playbook: their types, and for each an example of what is right."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from pdctl.model.finding import Status

Words = list[str] | str
Codes = list[int] | int
Times = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Verdict(StrEnum):
    """How a run ends: with a status, or with the worst that was found."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"
    AS_FOUND = "as-found"


class ConditionRow(msgspec.Struct):
    found: Words = []
    missing: Words = []
    ruled_out: Words = []
    exit: Codes = []
    status: list[Status] | Status = []
    not_run: bool = False


class CaseRow(ConditionRow):
    of: str | None = None
    go: str = ""
    at_most: Times | None = None


class WaitRow(msgspec.Struct):
    time: str | None = None
    gone: Words = []
    there: Words = []
    every: str | None = None
    at_most: str | None = None


class StepRow(msgspec.Struct):
    step: str
    say: str | None = None
    run: list[str] | None = None
    wait: WaitRow | None = None
    ask: str | None = None
    answers: dict[str, str] = {}
    unattended: str | None = None
    expect: ConditionRow | None = None
    otherwise: str | None = None
    next: list[CaseRow] = []
    end: Verdict | None = None
    optional: bool = False


class GivenRow(msgspec.Struct):
    ask: str
    default: str | None = None
    optional: bool = False


# Each key with an example of what is right.
TOP = {
    "about": "about: Is a request stuck, and what frees it?",
    "given": "given: {since: {ask: 'When did it last work?', default: 24h}}",
    "steps": "steps: a list, each item begins with  - step: NAME",
}
STEP = {
    "step": "step: look",
    "say": "say: text for people",
    "run": "run: [pinned, --for, 30s]",
    "wait": "wait: {time: 30s}  or, beside a run,  wait: {gone: draining, every: 10s, at_most: 5m}",
    "ask": "ask: Do clients still hang?",
    "answers": 'answers: {"yes": look, "no": end}',
    "unattended": 'unattended: "no"',
    "expect": "expect: {exit: 0, missing: [request-pinned]}",
    "otherwise": "otherwise: NAME of the step to go to when that is not so",
    "next": "next: a list of ways on, such as  - {found: request-pinned, go: stacks}",
    "optional": "optional: true",
    "end": "end: ok, warning, critical, unknown or as-found",
}
CONDITION = {
    "found": "found: request-pinned  or a list of findings",
    "missing": "missing: request-pinned  or a list of findings",
    "ruled_out": "ruled_out: request-pinned  or a list of findings",
    "exit": "exit: 0  or a list of exit statuses",
    "status": "status: ok  or a list of ok, warning, critical, unknown",
    "not_run": "not_run: true",
}
CASE = {
    **CONDITION,
    "of": "of: NAME of an earlier step",
    "go": "go: NAME of a step, or end",
    "at_most": "at_most: 20, how often in a run (1 to 1000)",
}
WAIT = {
    "time": "time: 30s",
    "gone": "gone: draining",
    "there": "there: request-pinned",
    "every": "every: 10s",
    "at_most": "at_most: 5m",
}
GIVEN = {"ask": "ask: When did it last work?", "default": "default: 24h", "optional": "optional: true"}
