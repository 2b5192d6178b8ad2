"""The report as one line: for a chat, a prompt, a mail's subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pdctl.model.finding import WORST_FIRST, Finding, Report, Severity, by_weight
from pdctl.render.look import Look
from pdctl.render.text import counted
from pdctl.render.words import nothing_wrong, place, status_word

_NOUN = {Severity.CRITICAL: "critical", Severity.UNKNOWN: "unknown", Severity.WARNING: "warning", Severity.INFO: "info"}


def short_line(report: Report, look: Look | None = None) -> str:
    """One line: the status, the cluster, the weightiest finding, and a count of everything that is not in it.

    ``CRITICAL prod-a request-pinned prefill-0: 2 requests ... (+2 warnings, 1 unknown, 3 not checked)``
    """
    look = look or Look()
    ranked = by_weight(f for f in report.findings if f.muted is None)
    lead = next((f for f in ranked if f.severity != Severity.INFO), None)
    others = [f for f in ranked if f is not lead]
    head = f"{status_word(report)} {look.say(report.cluster)}"
    fine = nothing_wrong(report)
    said = f" {lead.name} {place(lead, look)}: {look.say(lead.summary)}" if lead else f": {fine}"
    rest = ", ".join(_rest(report, others, counted_already=lead is None and "not checked" in fine))
    return f"{head}{said}{f' (+{rest})' if rest else ''}"


def _rest(report: Report, others: list[Finding], counted_already: bool) -> Iterator[str]:
    by_severity = Counter(f.severity for f in others)
    for severity in WORST_FIRST:
        if by_severity[severity]:
            noun = _NOUN[severity]
            yield counted(by_severity[severity], noun, noun + "s" if severity == Severity.WARNING else noun)
    muted = sum(1 for f in report.findings if f.muted is not None)
    if muted:
        yield f"{muted} muted"
    if report.unchecked and not counted_already:
        yield f"{len(report.unchecked)} not checked"
