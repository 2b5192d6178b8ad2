"""A check's outcome as Nagios and Icinga read it: one line with performance data, then the rest for people.

    PDCTL CRITICAL - prod-a: request-pinned at prefill-0: 2 request(s) stand ... | 'time'=0.21s;;20;0 'critical'=1;...

Performance data as the Nagios plugin guidelines have it: 'label'=value[unit];[warn];[crit];[min];[max], a quote within
a label doubled, no "=" in one, U for a value that could not be read. What Nagios keeps of a plugin's output is bounded,
so values of instances are left out, whole ones and from the end, beyond ``MOST`` characters; how many is a value too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pdctl.model.checkrun import CheckRun
from pdctl.model.finding import Finding, InstanceReport, Severity, by_weight
from pdctl.render.look import Look
from pdctl.render.words import nothing_wrong, place, status_word

MOST = 3000  # characters of performance data
LINE = 500  # characters of the first line's text: more goes below
PLAIN = Look(ascii=True)


def nagios_lines(run: CheckRun) -> Iterator[str]:
    """The plugin's output, line by line."""
    report = run.report
    shown = [f for f in by_weight(report.findings) if f.muted is None and f.severity is not Severity.INFO]
    said = f"PDCTL {status_word(report)} - {_text(report.cluster)}: {_lead(run, shown)}"
    yield f"{said if len(said) <= LINE else said[: LINE - 4] + ' ...'} | {' '.join(perfdata(run))}"
    for finding in shown:
        yield _text(f"{finding.severity.value}: {_said(finding)}")
        for command in finding.next[:1]:
            yield _text(f"  next: {command}")
    for finding in (f for f in report.findings if f.muted is not None):
        why = ", ".join(f"{key} {value}" for key, value in sorted((finding.muted or {}).items()))
        yield _text(f"muted: {finding.name} at {place(finding, PLAIN)} ({why})")
    for row in report.unchecked:
        yield _text(f"not checked: {row.what} at {row.subject}: {row.why}")
    for note in (*run.notes, *((f"evidence kept: {run.kept}",) if run.kept else ())):
        yield _text(note)


def _lead(run: CheckRun, shown: list[Finding]) -> str:
    if not shown:
        return _text(nothing_wrong(run.report))
    more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
    return _text(_said(shown[0])) + more


def _said(finding: Finding) -> str:
    return f"{finding.name} at {place(finding, PLAIN)}: {finding.summary}"


def _text(text: str) -> str:
    """On one line, with nothing in it that ends the text: the bar begins performance data."""
    return PLAIN.say(text).replace("|", "/")


def perfdata(run: CheckRun) -> Iterator[str]:
    """The values: the run's own, the counts of findings, then each instance's queues, as many as there is room for."""
    own = tuple(_own(run))
    yield from own
    rest = [value for instance in run.report.instances for value in _of_instance(instance)]
    room = MOST - sum(len(value) + 1 for value in own)
    kept = 0
    for value in rest:
        room -= len(value) + 1
        if room < 0:
            break
        yield value
        kept += 1
    if kept < len(rest):
        yield _value("values left out", len(rest) - kept, low="0")


def _own(run: CheckRun) -> Iterator[str]:
    report = run.report
    yield _value("time", round(run.took_s, 3), "s", crit=f"{run.deadline_s:g}", low="0")
    for severity in (Severity.CRITICAL, Severity.UNKNOWN, Severity.WARNING):
        count = sum(1 for f in report.findings if f.muted is None and f.severity is severity)
        yield _value(severity.value, count, low="0")
    yield _value("muted", sum(1 for f in report.findings if f.muted is not None), low="0")
    yield _value("not checked", len(report.unchecked), low="0")
    answered = sum(1 for i in report.instances if i.reachable)
    yield _value("answered", answered, low="0", high=str(len(report.instances)))


def _of_instance(instance: InstanceReport) -> Iterator[str]:
    for key, value in sorted(instance.details.items()):
        if isinstance(value, int | float):
            yield _value(f"{instance.name} {key}", value if instance.reachable is not False else None)


def _value(
    label: str, value: float | None, unit: str = "", warn: str = "", crit: str = "", low: str = "", high: str = ""
) -> str:
    known = value is not None and math.isfinite(value)
    shown = f"{value:.10g}{unit}" if known else "U"
    name = _text(label).replace("'", "''").replace("=", ":")
    return f"'{name}'={';'.join([shown, warn, crit, low, high]).rstrip(';')}"
