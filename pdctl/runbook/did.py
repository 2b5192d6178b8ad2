"""What came of a step's command, and how its command line is shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pdctl.model.finding import Status
from pdctl.model.playbook import Found, Result
from pdctl.plans.playbook_course import JUDGED
from pdctl.reach.own import Ran

LIMIT_S = 1_800.0  # of one command that only reads
OUTPUT = 200_000  # characters of one step's output in the transcript


@dataclass(slots=True)
class Did:
    """What came of a step's command: its result, the command line as shown, what it printed, how often it was run, and
    what was waited for ``in_vain``."""

    result: Result
    command: str = ""
    output: str = ""
    unchecked: int = 0
    looks: int = 0
    in_vain: str = ""


@dataclass(frozen=True, slots=True)
class CutOff:
    """A change that was agreed to at ``at`` (RFC 3339) in a step, and that nothing is known of the end of."""

    step: str
    at: str


def ended_well(history: str, since: str) -> str | None:
    """The restart that came to a good end after ``since``, by what ``pdctl history -o json`` printed of the last one;
    None where it did not, or that cannot be read."""
    try:
        (run,) = json.loads(history)["runs"]
        late = datetime.fromisoformat(run["at"]) >= datetime.fromisoformat(since)
        return str(run["run"]) if late and (run["kind"], run["end"]) == ("restart", "done") else None
    except (ValueError, KeyError, TypeError):
        return None


def did_of(ran: Ran, shown: str, looks: int) -> Did:
    """What a command that was shown as ``shown`` came to, after so many looks."""
    report: Mapping[str, Any] = ran.report or {}
    status = report.get("status")
    why = f"ended at its limit of {LIMIT_S:.0f} s" if ran.late else ""
    result = Result(
        ran.exit,
        Status(status) if status in tuple(Status) else None,
        tuple(found_in(report)),
        why or _last_words(ran),
        ran.interrupted,
        tuple(dict.fromkeys(str(row.get("what")) for row in report.get("ruled_out") or () if isinstance(row, dict))),
    )
    return Did(result, shown, ran.output[:OUTPUT], len(report.get("unchecked") or ()), looks)


def _last_words(ran: Ran) -> str:
    """What a command that did not do its work said last."""
    if ran.exit in JUDGED:
        return ""
    said = [line for line in ran.output.splitlines() if line.startswith("pdctl: ")]
    return said[-1].removeprefix("pdctl: ") if said else ""


def found_in(report: Mapping[str, Any]) -> list[Found]:
    """The findings of a report as JSON tells them."""
    return [
        Found(
            str(row.get("name")),
            str(row.get("severity")),
            str(row.get("confidence")),
            str(row.get("subject")),
            str(row.get("summary")),
            row.get("since"),
            row.get("muted") is not None,
        )
        for row in report.get("findings") or ()
        if isinstance(row, dict)
    ]


def shown_command(words: Sequence[str]) -> str:
    """A command line of pdctl that can be pasted."""
    return f"pdctl {shlex.join(words)}"
