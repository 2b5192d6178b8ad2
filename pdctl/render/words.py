"""Words that every way of showing a report shares."""

from __future__ import annotations

from pdctl.model.finding import Finding, Report, Severity, Status
from pdctl.model.registry import CHANGE, DEVICES, FLOW, REGISTRY, ROUTER, SEEING
from pdctl.render.look import Look, Mark

MARK_OF = {
    Severity.CRITICAL: Mark.BAD,
    Severity.UNKNOWN: Mark.UNKNOWN,
    Severity.WARNING: Mark.WARN,
    Severity.INFO: Mark.INFO,
}
MARK_OF_STATUS = {
    Status.CRITICAL: Mark.BAD,
    Status.UNKNOWN: Mark.UNKNOWN,
    Status.WARNING: Mark.WARN,
    Status.OK: Mark.OK,
}

_PART = {
    FLOW: "in the request flow",
    DEVICES: "in a rank or its device",
    ROUTER: "in the router or the connections",
    CHANGE: "in what was changed or configured",
    SEEING: "in what can be seen",
}


def part_of(name: str) -> str:
    """Which part of the cluster a finding of this name is about."""
    return _PART[REGISTRY[name].group] if name in REGISTRY else ""


def place(finding: Finding, look: Look) -> str:
    """Where a finding sits: "prefill-0", "prefill-0 DP2", "prefill-0->decode-1"."""
    return look.say(f"{finding.subject} {finding.rank}".rstrip())


def measured(report: Report) -> bool:
    """Whether anything was seen at all: without that, nothing may look fine."""
    return report.samples > 0 and any(i.reachable is not False for i in report.instances)


def status_word(report: Report) -> str:
    """The status in capitals; a run that measured nothing does not get to say OK."""
    return report.status.value.upper() if report.status != Status.OK or measured(report) else "NOT CHECKED"


def nothing_wrong(report: Report) -> str:
    """What an ok status says, and no more than that."""
    if not measured(report):
        return "nothing was measured, so nothing is known"
    if report.broken:
        return "a check broke, which is a fault of pdctl; nothing wrong seen in the others"
    unchecked = f"; {len(report.unchecked)} not checked" if report.unchecked else ""
    muted = " but for what is muted" if any(f.muted is not None for f in report.findings) else ""
    return f"nothing wrong seen in what was checked{muted}{unchecked}"
