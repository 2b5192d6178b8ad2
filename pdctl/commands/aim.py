"""What to run next, run on what this run looked at: a report's commands get the options that named it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from pdctl.inventory.where import FILE

if TYPE_CHECKING:
    from pdctl.model.finding import Report

Pairs = tuple[tuple[str, str], ...]

# The options by which this run was told what to look at, none for the inventory that is found by itself. Set by
# common.target: a run has one.
NAMED: ContextVar[Pairs] = ContextVar("NAMED", default=())

_SITE = ("--config", "--prefill", "--decode", "--router")
_DEMO = ("--demo", "--release")
# Which of those options each command takes: a test holds it against the commands, whose import costs time.
TAKES: Mapping[str, frozenset[str]] = {
    "triage": frozenset({*_SITE, "--proxy", "--from", *_DEMO}),
    "pinned": frozenset({*_SITE, "--proxy", "--from", *_DEMO}),
    "check": frozenset({*_SITE, "--proxy", "--from", *_DEMO}),
    "sample": frozenset({*_SITE, "--from", *_DEMO}),
    "ps": frozenset({*_SITE, "--from"}),
    "sockets": frozenset({*_SITE, "--proxy", "--from"}),
    "stacks": frozenset({*_SITE, "--from"}),
    "probe": frozenset({*_SITE, "--proxy", "--from", *_DEMO}),
    "logs": frozenset({*_SITE, "--from"}),
    "changes": frozenset({"--config", "--from"}),
    "diff": frozenset({"--config", "--from"}),
    "restart": frozenset({"--config"}),
}
OPTIONS = frozenset().union(*TAKES.values())


def named_by(options: Mapping[str, object]) -> Pairs:
    """The options that were given, each with its value, in order; those that may be repeated as often as they were."""
    return tuple(_pairs(options))


def _pairs(options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        for one in value if isinstance(value, Sequence) and not isinstance(value, str) else (value,):
            if one is not None:
                yield name, str(one)


def aimed(report: Report) -> Report:
    """The report with each of its commands as it must be typed to run on what this run looked at. A recording's names
    are anybody's: those that a shell would take for something else get quotes."""
    odd = [name for row in report.instances if (name := row.name) and shlex.quote(name) != name]
    odd_names = re.compile("|".join(map(re.escape, sorted(odd, key=len, reverse=True)))) if odd else None
    findings = (replace(f, next=tuple(_aimed(row, odd_names) for row in f.next)) for f in report.findings)
    return report.with_findings(findings)


def handed_out(report: Report) -> Report:
    """The report aimed, and left as JSON for whoever runs this command, before it is shown in any form."""
    from pdctl import outlet

    report = aimed(report)
    outlet.keep_report(report)
    return report


def _aimed(row: str, odd_names: re.Pattern[str] | None) -> str:
    """A command with the options it takes; a sentence, and a command that takes none of them, as it is."""
    words = row.split(" ", 2)
    if words[0] != "pdctl" or len(words) == 1:
        return row
    takes = TAKES.get(words[1], frozenset())
    command = odd_names.sub(lambda match: shlex.quote(match[0]), row) if odd_names else row
    return command + "".join(f" {name} {shlex.quote(value)}" for name, value in NAMED.get() if name in takes)


def triage_of(inventory: str | os.PathLike[str]) -> str:
    """The command that looks at the cluster of an inventory just written."""
    written = os.fspath(inventory)
    return "pdctl triage" if os.path.normpath(written) == FILE else f"pdctl triage --config {shlex.quote(written)}"
