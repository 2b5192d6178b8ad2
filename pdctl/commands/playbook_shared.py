"""What the subcommands of ``pdctl playbook`` share: names for the shell, and everything that is wrong with a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pdctl.commands.command_line import CommandLine
    from pdctl.model.playbook import Playbook, Problem, Step


def playbook_names(incomplete: str) -> list[str]:
    """Names of playbooks, for the shell."""
    from pdctl.runbook.shelf import shelved

    return [row.name for row in shelved() if row.name.startswith(incomplete)]


NameArg = Annotated[
    str, typer.Argument(metavar="NAME", help="A playbook's name, or its file.", autocompletion=playbook_names)
]


def read(name: str, line: CommandLine) -> Playbook:
    """The playbook of that name or path, its steps' arguments checked as well. Raises UsageError."""
    from pdctl.plans.playbook import Faulty
    from pdctl.runbook.shelf import faulty_error, find, opened

    playbook = opened(find(name))
    problems = tuple(argument_problems(playbook, line))
    if problems:
        raise faulty_error(Faulty(playbook.source, problems))
    return playbook


def problems_in(path: Path, line: CommandLine) -> tuple[Problem, ...]:
    """Everything wrong with a playbook's file. Raises UsageError where it cannot be read at all."""
    from pdctl.plans.playbook import Faulty, read_playbook
    from pdctl.runbook.shelf import text_of

    try:
        playbook = read_playbook(text_of(path), path.stem, str(path))
    except Faulty as faulty:
        return faulty.problems
    return tuple(argument_problems(playbook, line))


def argument_problems(playbook: Playbook, line: CommandLine) -> Iterator[Problem]:
    """Steps whose words are no command line of this pdctl, told without running any."""
    from pdctl.model.playbook import Problem

    for step in playbook.steps:
        words = _sample(playbook, step)
        wrong = line.problem(words) if words else None
        if wrong is not None:
            yield Problem(step.line, "run", f"step {step.name}: {wrong}", f"See pdctl {step.run[0]} --help.")


def _sample(playbook: Playbook, step: Step) -> tuple[str, ...]:
    """The step's words with something in each place; none where nothing is known to fit there."""
    from pdctl.plans.playbook_commands import filled, places

    given = {row.name: row.default for row in playbook.given if row.default is not None}
    if any(name != "subject" and name not in given for name in places(step.run)):
        return ()
    return filled(step.run, ("instance",), given)


def consents(playbook: Playbook) -> frozenset[str]:
    """The steps that a person must agree to."""
    from pdctl.plans.playbook_commands import consent_for

    return frozenset(step.name for step in playbook.steps if step.run and consent_for(step.run))
