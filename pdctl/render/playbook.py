"""Playbooks, and the events of a run, as text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pdctl.model.playbook import END, Case, Condition, Playbook, Problem, Step
from pdctl.render.look import Look, Mark
from pdctl.render.text import moment, span, wrap, wrap_command
from pdctl.render.wire import plain

_SGR = re.compile(r"\x1b\[[\d;]*m")
_OF_STATUS = {"ok": Mark.OK, "warning": Mark.WARN, "critical": Mark.BAD, "unknown": Mark.UNKNOWN}
_OF_DONE = {"as-expected": Mark.OK, "otherwise": Mark.WARN, "broken": Mark.UNKNOWN, "interrupted": Mark.UNKNOWN}


# --- events of a run --------------------------------------------------------------------------------------------------


def event_lines(event: Mapping[str, Any], look: Look) -> list[str]:
    """The lines that tell an event. What a command printed is told as it comes, by ``kept_lines``."""
    lines = {"start": _start, "resume": _resume, "begin": _begin, "answer": _answer, "consent": _consent,
             "step": _step, "end": _end, "preview": _preview}.get(str(event["event"]))  # fmt: skip
    return list(lines(event, look)) if lines else []


def kept_lines(kind: str, text: str, look: Look) -> Iterator[str]:
    """A command that begins (``kind`` "command") or a line that it printed, without its colours."""
    if kind == "command":
        yield from wrap_command(look.say(text), look.width, "  $ ")
    else:
        yield f"  | {look.say(_SGR.sub('', text))}".rstrip()


def _moment(event: Mapping[str, Any]) -> str:
    """When it was: "2026-11-30 02:38:38 UTC"."""
    return moment(datetime.fromisoformat(str(event["at"])))


def _start(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    yield look.paint(look.say(f"playbook {event['playbook']}"), "bold")
    yield from wrap(look.say(str(event["about"])), look.width, "  ")
    what = "rehearsed on " if event.get("rehearsal") else "on "
    yield from wrap(look.say(f"{what}{event['target']}, {_moment(event)}, by {event['by']}"), look.width, "  ")
    yield from wrap(look.say(str(event["source"])), look.width, "  ")
    for name, value in (event.get("given") or {}).items():
        yield look.say(f"  {name}: {value}")


def _resume(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    yield ""
    said = f"resumed at {_moment(event)} by {event['by']}, with step {event['step']}"
    if event.get("begun"):
        said += f"; begun at {_moment({'at': event['begun']})} on {event.get('target')}"
    yield from wrap(look.say(said), look.width, "", "  ")
    if event.get("unfinished"):
        yield from wrap(look.say(str(event["unfinished"])), look.width, f"  {look.mark(Mark.WARN)} ")


def _begin(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    yield ""
    again = f", time {event['visit']}" if event["visit"] > 1 else ""
    title = look.paint(look.say(f"[{event['place']}/{event['of']}] {event['step']}{again}"), "bold")
    yield f"{title}  {look.paint(_moment(event)[11:], 'dim')}"
    if event["visit"] == 1:  # it has been read when the step comes again
        yield from paragraphs(str(event.get("say") or ""), look, "  ")


def _answer(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    yield look.say(f"  answer: {event['answer']}{'' if event['asked'] else ' (nobody was asked)'}")


def _consent(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    yield look.say(f"  {'agreed' if event['agreed'] else 'not agreed'}: {event['command']}")


def _preview(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    yield look.say(f"  what it would do ({event['command']}, exit {event['exit']})")


def _step(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    """What came of a step: one line, then a line a finding, then where it leads if not simply on."""
    if "command" in event:
        yield from _came_to(event, look)
    if event.get("go") is None:
        yield from wrap(look.say(f"stops here: {event['why']}"), look.width, f"  {look.mark(Mark.UNKNOWN)} ")
    elif event["go"] != END:
        yield look.say(f"  -> {event['go']}")


def _came_to(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    done, status = str(event["done"]), event.get("status")
    mark = _OF_STATUS[status] if status in _OF_STATUS else _OF_DONE.get(done, Mark.UNCHECKED)
    if done == "not-run":
        what = f"{event['command']}: " if event.get("command") else ""
        yield from wrap(look.say(f"{what}not run: {event['not_run']}"), look.width, f"  {look.mark(Mark.UNCHECKED)} ")
        return
    words = [str(status)] if status else []
    words += [f"exit {event['exit']}", span(float(event.get("took") or 0.0))]
    words += [f"{event['looks']} looks"] if (event.get("looks") or 0) > 1 else []
    words += [f"{event['unchecked']} not checked"] if event.get("unchecked") else []
    yield f"  {look.mark(mark)} {look.say(', '.join(words))}"
    for row in event.get("findings") or ():
        yield from _finding(row, look)
    if event.get("in_vain"):
        yield from wrap(look.say(f"waited in vain for {event['in_vain']}"), look.width, f"    {look.mark(Mark.WARN)} ")
    for unmet in event.get("unmet") or ():
        yield from wrap(look.say(f"not as expected: {unmet}"), look.width, f"    {look.mark(Mark.WARN)} ")


def _finding(row: Mapping[str, Any], look: Look) -> Iterator[str]:
    sign = {"critical": Mark.BAD, "warning": Mark.WARN, "info": Mark.INFO}.get(str(row["severity"]), Mark.UNKNOWN)
    muted = " (muted)" if row.get("muted") else ""
    since = f", since {row['since']}" if row.get("since") else ""
    said = f"{row['name']}, {row['confidence']}, {row['subject']}{muted}: {row['summary']}{since}"
    yield from wrap(look.say(said), look.width, f"    {look.mark(sign)} ", "      ")


def _end(event: Mapping[str, Any], look: Look) -> Iterator[str]:
    yield ""
    verdict = str(event["verdict"])
    how = "interrupted" if event.get("interrupted") else "stopped" if event.get("stopped") else "ended"
    said = f"{how} after {span(float(event['took']))}: {verdict}"
    yield f"{look.mark(_OF_STATUS[verdict])} {look.paint(look.say(said), 'bold')}  {look.paint(_moment(event), 'dim')}"
    if event.get("undone"):
        yield from wrap(
            look.say(f"not done: {', '.join(event['undone'])}"), look.width, f"  {look.mark(Mark.UNCHECKED)} "
        )
    if event.get("why") and not event.get("interrupted"):
        yield from wrap(look.say(str(event["why"])), look.width, "  ")


# --- playbooks --------------------------------------------------------------------------------------------------------


def playbook_lines(playbook: Playbook, look: Look, consents: Collection[str]) -> Iterator[str]:
    """A playbook as a person reads it before running it. ``consents`` are the steps that a person must agree to."""
    yield look.paint(look.say(playbook.name), "bold")
    yield from wrap(look.say(playbook.about), look.width, "  ")
    yield look.say(f"  {playbook.source}")
    for given in playbook.given:
        default = f" (else {given.default})" if given.default is not None else " (or none)" if given.optional else ""
        yield from wrap(look.say(f"--set {given.name}=...: {given.ask}{default}"), look.width, "  ", "      ")
    for number, step in enumerate(playbook.steps, 1):
        yield ""
        yield look.paint(look.say(f"{number}. {step.name}"), "bold")
        yield from _step_lines(step, look, step.name in consents)


def _step_lines(step: Step, look: Look, consents: bool) -> Iterator[str]:
    yield from paragraphs(step.say, look, "   ")
    if step.run:
        yield from wrap_command(look.say("pdctl " + " ".join(step.run)), look.width, "   $ ")
        if consents:
            yield f"   {look.mark(Mark.WARN)} asks a person each time; not run with --yes-read-only"
    if step.wait and step.wait.seconds is not None:
        yield look.say(f"   wait {step.wait.seconds:g} s")
    elif step.wait:
        until = f"{_any(step.wait.gone)} is gone" if step.wait.gone else f"{_any(step.wait.there)} is there"
        often = f"every {step.wait.every:g} s, for {step.wait.at_most:g} s at most"
        yield from wrap(look.say(f"until {until}, {often}"), look.width, "   ")
    if step.optional:
        yield "   if it can be done"
    if not step.expect.is_empty:
        other = f", otherwise {step.otherwise}" if step.otherwise else ", otherwise stop"
        yield from wrap(look.say(f"expected: {condition_words(step.expect)}{other}"), look.width, "   ")
    if step.ask:
        yield from wrap(look.say(step.ask.text), look.width, "   ? ")
        for answer, go in step.ask.answers.items():
            alone = " (when nobody is asked)" if answer == step.ask.unattended else ""
            yield look.say(f"     {answer} -> {go}{alone}")
    for case in step.next:
        yield from wrap(look.say(_case_words(case)), look.width, "   ", "      ")
    if step.ends:
        yield look.say(f"   end: {step.end.value if step.end else 'as found'}")


def _case_words(case: Case) -> str:
    how = f" ({case.at_most} times at most)" if case.at_most is not None else ""
    return f"{'else' if case.test.is_empty else f'if {condition_words(case.test)}'} -> {case.go}{how}"


def condition_words(test: Condition) -> str:
    parts = [f"{_any(test.found)} found"] if test.found else []
    parts += [f"no {_any(test.missing)}"] if test.missing else []
    parts += [f"{' and '.join(test.ruled_out)} ruled out"] if test.ruled_out else []
    parts += [f"exit {_any(tuple(map(str, test.exit)))}"] if test.exit else []
    parts += [f"status {_any(tuple(s.value for s in test.status))}"] if test.status else []
    parts += ["not run"] if test.not_run else []
    return (f"{test.of}: " if test.of else "") + ", ".join(parts)


def _any(words: Sequence[str]) -> str:
    return " or ".join(words)


def paragraphs(text: str, look: Look, indent: str) -> Iterator[str]:
    """Text for people, wrapped. An empty line parts paragraphs; "- " begins an item, which goes on in the lines that
    are indented below it."""
    for block in _blocks(text):
        if block.startswith("- pdctl "):
            yield from wrap_command(look.say(block[2:]), look.width, f"{indent}- ")
            continue
        first = indent + ("- " if block.startswith("- ") else "")
        yield from wrap(look.say(block.removeprefix("- ")), look.width, first)


def _blocks(text: str) -> list[str]:
    out: list[list[str]] = [[]]
    for line in text.splitlines():
        item = line.startswith("- ")
        in_item = bool(out[-1]) and out[-1][0].startswith("- ")
        if item or not line.strip() or (in_item and not line.startswith(" ")):
            out.append([])
        if line.strip():
            out[-1].append(line.strip())
    return [" ".join(lines) for lines in out if lines]


def playbook_value(playbook: Playbook, consents: Collection[str]) -> dict[str, Any]:
    """A playbook as JSON."""
    steps = [{**asdict(step), "consent": step.name in consents} for step in playbook.steps]
    value = {**asdict(playbook), "schema": "pdctl.playbook-text/1", "steps": steps}
    return {str(key): plain(item) for key, item in value.items()}


def problem_lines(source: str, problems: Sequence[Problem], look: Look) -> Iterator[str]:
    """What is wrong with a playbook, a line or two each: file, line, key, what is wrong, what would be right."""
    for problem in problems:
        key = f"{problem.key}: " if problem.key else ""
        said = look.say(f"{source}:{problem.line}: {key}{problem.wrong}")
        yield from wrap(said, look.width, f"{look.mark(Mark.BAD)} ", "    ")
        for line in problem.right.splitlines():
            yield from wrap(look.say(line), look.width, "    ", "      ")
