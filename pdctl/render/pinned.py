"""The answer of `pdctl pinned`: is something stuck between prefill and decode?

Yes: where, how many, since when at least, how sure. Cannot tell: why not, and what would settle it. No: by what.
"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.model.finding import Finding, Report, Severity, Status, by_weight
from pdctl.render.human import finding_lines, muted_lines, next_lines, other_lines, report_foot, verdict_lines
from pdctl.render.look import Look, Mark
from pdctl.render.text import listed
from pdctl.render.words import measured, place

# Findings that answer the question with yes: something sits on the way from prefill to decode and stays.
STUCK = frozenset({"request-pinned", "transfer-stuck", "prealloc-wedged", "rank-stuck", "queue-leaked"})
QUESTION = "request-pinned"  # not checked on an engine means that the question has no answer there
MOST_COMMANDS = 5


def pinned_lines(report: Report, look: Look) -> Iterator[str]:
    """The answer in a line, then what it rests on; in full for everything that is stuck."""
    ranked = by_weight(f for f in report.findings if f.muted is None)
    stuck = [f for f in ranked if f.name in STUCK]
    others = [f for f in ranked if f not in stuck]
    yield from _answer(report, stuck, others, look)
    for finding in stuck:
        yield ""
        yield from finding_lines(finding, look)
    yield from other_lines(others, look, "Also found" if stuck else "Found")
    yield from muted_lines(report, look)
    if not stuck:
        yield from _settle(others, look)
    yield from report_foot(report, look)


def _answer(report: Report, stuck: list[Finding], others: list[Finding], look: Look) -> Iterator[str]:
    said, mark, word = _said(report, stuck, others, look)
    yield from verdict_lines(mark, word, f"{look.say(report.cluster)}: {said}", look)


def _said(report: Report, stuck: list[Finding], others: list[Finding], look: Look) -> tuple[str, Mark, str]:
    if stuck:
        places = list(dict.fromkeys(place(f, look) for f in stuck))
        return f"stuck between prefill and decode at {listed(places, 4)}", Mark.BAD, "YES"
    muted = [place(f, look) for f in report.findings if f.muted is not None and f.name in STUCK]
    if muted:
        return f"stuck between prefill and decode at {listed(muted, 4)}, but muted", Mark.UNCHECKED, "YES"
    blind = [look.say(row.subject) for row in report.unchecked if row.what == QUESTION]
    if blind or report.status == Status.UNKNOWN or not measured(report):
        blind = list(dict.fromkeys(blind + [place(f, look) for f in others if f.severity == Severity.UNKNOWN]))
        where = f" at {listed(blind, 4)}" if blind else ""
        return f"whether something is stuck between prefill and decode{where}", Mark.UNKNOWN, "CANNOT TELL"
    what = "nothing is seen stuck between prefill and decode"
    if any(f.severity == Severity.CRITICAL for f in others):
        return f"{what}, but there is another fault", Mark.WARN, "NO"
    return what, Mark.OK, "NO"


def _settle(findings: list[Finding], look: Look) -> Iterator[str]:
    """The commands that would turn a cannot-tell into an answer."""
    commands = list(dict.fromkeys(c for f in findings if f.severity == Severity.UNKNOWN for c in f.next))
    if commands:
        yield ""
        yield "What would settle it"
    for command in commands[:MOST_COMMANDS]:
        yield from (look.paint(s, "bold") for s in next_lines(look.say(command), look.width, "    ", "      "))
