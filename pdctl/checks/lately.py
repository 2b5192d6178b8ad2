"""What the newest part of a long window shows and the whole does not.

Rules that ask whether anything moved "in the window" are made for half a minute of looking. In a window of a quarter
of an hour they see the traffic of before the fault, and say nothing until that has passed out of it: an engine that
stopped producing tokens, transfers of a pair that broke, a decode whose memory filled up. So the newest looks are
judged by themselves as well, and what they find is a finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from pdctl.model.finding import Finding, Report, Severity, by_weight
from pdctl.model.window import Window

LATELY_S = 120.0  # what rules made for half a minute of looking have room in
# A fault that is known. What a few looks cannot tell, more looks may.
TAKEN = frozenset({Severity.CRITICAL, Severity.WARNING})


def with_lately(report: Report, later: Iterable[Report]) -> Report:
    """The report on the whole window with the faults that reports on its newest parts hold besides. What the whole
    ruled out or left open of those faults is taken back."""
    known = {_key(f) for f in report.findings}
    added: list[Finding] = []
    for part in later:
        for finding in part.findings:
            if finding.severity in TAKEN and _key(finding) not in known:
                known.add(_key(finding))
                added.append(finding)
    about = {(f.name, f.subject) for f in added}
    return replace(
        report,
        findings=tuple(by_weight([*report.findings, *added])),
        ruled_out=tuple(r for r in report.ruled_out if (r.what, r.subject) not in about),
        unchecked=tuple(u for u in report.unchecked if (u.what, u.subject) not in about),
    )


def tail(window: Window, seconds: float) -> Window:
    """The last so many seconds of a window. What was asked before and not again since (settings, scripts, logs) still
    holds, with a ``t`` below 0."""
    cut = window.seconds - seconds
    if cut <= 0:
        return window
    later = [o for o in window.observations if o.t >= cut]
    seen = {(o.subject, o.fact) for o in later}
    held = {(o.subject, o.fact): o for o in window.observations if (o.subject, o.fact) not in seen}
    rows = tuple(replace(o, t=o.t - cut) for o in (*held.values(), *later))
    return replace(window, start=window.start + timedelta(seconds=cut), observations=rows)


def newest_of(window: Window) -> Window:
    """What is to be judged by itself as well: the last ``LATELY_S`` seconds of a window that is much longer, else the
    window itself."""
    return tail(window, LATELY_S) if window.seconds > 2 * LATELY_S else window


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.name, finding.subject, str(finding.rank)
