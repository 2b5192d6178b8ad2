"""The report for people: one screen, whole words, marks that differ by shape and never stand without a word.

Lines are plain text with colours put in by ``Look`` (importing rich.table would cost 20 to 140 ms on the way to an
answer); rich is used for the live table of `pdctl sample` alone, in ``screen.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby

from pdctl.model.finding import Confidence, Evidence, Finding, Report, Severity, by_weight
from pdctl.render.cluster import cluster_lines, window_line
from pdctl.render.look import Look, Mark
from pdctl.render.scope import ruled_out_lines, unchecked_lines
from pdctl.render.text import columns, counted, moment, span, wrap, wrap_command
from pdctl.render.words import MARK_OF, MARK_OF_STATUS, measured, nothing_wrong, part_of, place, status_word

MOST_EVIDENCE = 5  # of the leading finding; the rest is counted and in -o json


def triage_lines(report: Report, look: Look) -> Iterator[str]:
    """The whole report on one screen: the verdict, the leading finding with its evidence and next commands, the other
    findings, what is ruled out and by what, what was not checked and why, the cluster and the window."""
    ranked = by_weight(f for f in report.findings if f.muted is None)
    lead = next((f for f in ranked if f.severity != Severity.INFO), None)
    yield from headline(report, lead, look)
    if lead:
        yield ""
        yield from finding_lines(lead, look, report)
    yield from other_lines([f for f in ranked if f is not lead], look, "Also found" if lead else "Found")
    yield from muted_lines(report, look)
    yield from report_foot(report, look)


def report_foot(report: Report, look: Look) -> Iterator[str]:
    """What bounds the verdict: ruled out, not checked, the cluster's instances, the window."""
    yield from ruled_out_lines(report.ruled_out, look)
    yield from unchecked_lines(report.unchecked, look)
    yield from cluster_lines(report, look)
    yield from window_line(report, look)


def headline(report: Report, lead: Finding | None, look: Look) -> Iterator[str]:
    """The verdict in a line: the status word, the cluster, and where the fault sits."""
    mark = MARK_OF_STATUS[report.status] if lead or measured(report) else Mark.UNCHECKED
    said = _verdict(report, lead, look) if lead else nothing_wrong(report)
    if lead and report.broken:
        said += "; a check broke, which is a fault of pdctl"
    yield from verdict_lines(mark, status_word(report), f"{look.say(report.cluster)}: {said}", look)


def verdict_lines(mark: Mark, word: str, said: str, look: Look) -> Iterator[str]:
    """A mark, a word in its colour, and what it says."""
    yield from wrap(said, look.width, f"{look.mark(mark)} {look.paint(word, mark)}  ", "  ")


def _verdict(report: Report, lead: Finding, look: Look) -> str:
    more = sum(1 for f in report.findings if f.muted is None and f.severity == lead.severity) - 1
    rest = f", and {more} more {lead.severity.value}" if more else ""
    if lead.severity == Severity.UNKNOWN:
        return f"cannot tell how {place(lead, look)} is doing{rest}"
    return f"the fault sits {part_of(lead.name)} at {place(lead, look)}{rest}"


def finding_lines(finding: Finding, look: Look, report: Report | None = None) -> Iterator[str]:
    """One finding in full: what, how sure, since when, what was seen, what speaks against, what is not shown, next.
    With a report, the place is taken as told by its headline."""
    where = "" if report else f" at {place(finding, look)}"
    name = look.paint(finding.name, "bold")
    yield from wrap(
        f"{name}{where}, {finding.confidence.value}: {look.say(finding.summary)}", look.width, "  " if report else ""
    )
    yield from _since(finding, look, report)
    yield from _evidence(finding.evidence, look)
    yield from _points("Against it", finding.against, look)
    yield from _points("Not shown by this", finding.limits, look)
    yield from _commands(finding.next, look)


def _since(finding: Finding, look: Look, report: Report | None) -> Iterator[str]:
    if finding.since is None:
        return
    long = ""
    if report is not None and finding.since.tzinfo is not None:
        seconds = (report.end - finding.since).total_seconds()
        long = f", {span(seconds)} before the window's end" if seconds > 0 else ""
    yield from wrap(f"since at least {moment(finding.since)}{long}", look.width, "  ")


def _evidence(rows: tuple[Evidence, ...], look: Look) -> Iterator[str]:
    if rows:
        yield "  Seen"
    for source, group in groupby(rows[:MOST_EVIDENCE], key=lambda e: (e.instance, e.at, e.ask)):
        for row in group:
            yield from wrap(look.say(row.saw), look.width, "    - ")
        yield from _source(*source, look)
    if len(rows) > MOST_EVIDENCE:
        yield f"    - and {len(rows) - MOST_EVIDENCE} more, in -o json"


def _source(instance: str | None, at: datetime | None, ask: str | None, look: Look) -> Iterator[str]:
    """Where and when it was seen, and how to see it again: on one line if it fits, else the ask on its own."""
    where = ", ".join([*([look.say(instance)] if instance else []), *([moment(at)] if at else [])])
    again = look.say(ask) if ask else ""
    one = f"      {where}{': ' if where and again else ''}{again}"
    if columns(one) <= look.width or not (where and again):
        lines: Iterable[str] = [one] if one.strip() else []
    else:
        is_url = again.startswith(("GET ", "POST "))
        again_lines = [f"      {again}"] if is_url else wrap_command(again, look.width, "      ", "        ")
        lines = [*wrap(f"{where}:", look.width, "      "), *again_lines]
    yield from (look.paint(line, "dim") for line in lines)


def _points(title: str, rows: Iterable[str], look: Look) -> Iterator[str]:
    for index, row in enumerate(rows):
        if index == 0:
            yield f"  {title}"
        yield from wrap(look.say(row), look.width, "    - ")


def _commands(rows: tuple[str, ...], look: Look) -> Iterator[str]:
    if rows:
        yield "  Next"
    for row in rows:
        yield from (look.paint(line, "bold") for line in next_lines(look.say(row), look.width, "    ", "      "))


def next_lines(said: str, width: int, first: str, rest: str) -> Iterator[str]:
    """What to do next: a command that can be pasted as shown, or (with a capital) a sentence."""
    return wrap(said, width, first, rest) if said[:1].isupper() else wrap_command(said, width, first, rest)


def other_lines(findings: list[Finding], look: Look, title: str) -> Iterator[str]:
    """Further findings under a title with their number, each in few lines."""
    if findings:
        yield ""
        yield f"{title}: {len(findings)}"
    for finding in findings:
        yield from brief_lines(finding, look)


def brief_lines(finding: Finding, look: Look) -> Iterator[str]:
    """One finding in few lines: severity, confidence, name, place, summary, its first limit where it is no certain
    one, and its first next command."""
    head = f"{finding.severity.value}, {finding.confidence.value}: {finding.name} at {place(finding, look)}"
    yield from wrap(head, look.width, f"  {look.mark(MARK_OF[finding.severity])} ", "      ")
    yield from wrap(look.say(finding.summary), look.width, "    ")
    if finding.confidence != Confidence.CERTAIN:
        for limit in finding.limits[:1]:
            yield from wrap(look.say(limit), look.width, "    not shown: ", "      ")
    for row in finding.next[:1]:
        yield from next_lines(look.say(row), look.width, "    next: ", "      ")


def muted_lines(report: Report, look: Look) -> Iterator[str]:
    """Findings that somebody muted, with who, until when and why: never hidden, not counted in the status."""
    findings = [f for f in report.findings if f.muted is not None]
    if findings:
        yield ""
        yield f"Muted: {counted(len(findings), 'finding')}, not counted in the status"
    for finding in findings:
        why = ", ".join(f"{key} {value}" for key, value in sorted((finding.muted or {}).items()))
        head = f"{finding.name} at {place(finding, look)}, {finding.severity.value}"
        yield from wrap(look.say(f"{head}{f' ({why})' if why else ''}"), look.width, f"  {look.mark(Mark.UNCHECKED)} ")
