"""A check's outcome as JUnit XML, which CI systems show: a suite a stage, a case a finding the stage looks for.

critical and warning are failures (by ``--fail-on``), unknown is an error, what was not run or is muted is skipped. A
finding that the stage looked for and did not make is a case that passed only where it could be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from pdctl.model.checkrun import CheckRun, StageRun
from pdctl.model.finding import Evidence, Finding, Severity
from pdctl.render.look import Look
from pdctl.render.text import rfc3339

PLAIN = Look(ascii=True)
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(run: CheckRun, fail_on: str = "warning") -> str:
    """The document. ``fail_on``: "critical" makes warnings pass, with their text as output."""
    root = Xml.Element("testsuites", name=f"pdctl check {_text(run.report.cluster)}", time=f"{run.took_s:.3f}")
    for stage in run.stages:
        root.append(_suite(run, stage, fail_on))
    left = [f for f in run.report.findings if run.stage_of(f.name) is None]
    if left:
        other = StageRun("other", "what belongs to no stage", tuple(dict.fromkeys(f.name for f in left)))
        root.append(_suite(run, other, fail_on))
    for key in ("tests", "failures", "errors"):  # a strict reader knows no more of the root
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode")


def _suite(run: CheckRun, stage: StageRun, fail_on: str) -> Xml.Element:
    suite = Xml.Element("testsuite", name=stage.name, timestamp=rfc3339(run.ended).removesuffix("Z")[:19])
    cases = [case for name in stage.findings for case in _cases(run, stage, name, fail_on)]
    suite.extend(cases)
    counts = {"tests": len(cases)}
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[key] = sum(1 for case in cases if case.find(tag) is not None)
    for key, count in counts.items():
        suite.set(key, str(count))
    return suite


def _cases(run: CheckRun, stage: StageRun, name: str, fail_on: str) -> Iterator[Xml.Element]:
    found = [f for f in run.report.findings if f.name == name and run.stage_of(name) in (stage.name, None)]
    for finding in found:
        yield _case_of(stage, finding, fail_on)
    if found:
        return
    case = Xml.Element("testcase", classname=f"pdctl.{stage.name}", name=name)
    seen = any(i.reachable for i in run.report.instances)
    why = stage.why or stage.open.get(name) or (None if seen else "nothing could be read")
    if why is not None:
        Xml.SubElement(case, "skipped", message=_text(why))
    yield case


def _case_of(stage: StageRun, finding: Finding, fail_on: str) -> Xml.Element:
    where = _text(f"{finding.subject} {finding.rank}".rstrip())
    case = Xml.Element("testcase", classname=f"pdctl.{stage.name}", name=f"{finding.name} at {where}")
    summary, body = _text(finding.summary), "\n".join(_lines(finding))
    if finding.muted is not None:
        why = ", ".join(f"{key} {value}" for key, value in sorted(finding.muted.items()))
        Xml.SubElement(case, "skipped", message=_text(f"muted ({why}): {finding.summary}"))
    elif finding.severity is Severity.UNKNOWN:
        Xml.SubElement(case, "error", type=finding.name, message=summary).text = body
    elif finding.severity is Severity.CRITICAL or (finding.severity is Severity.WARNING and fail_on == "warning"):
        Xml.SubElement(case, "failure", type=finding.severity.value, message=summary).text = body
    else:
        Xml.SubElement(case, "system-out").text = f"{summary}\n{body}"
    return case


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.value}, {finding.confidence.value}"
    yield from (f"seen: {_text(_evidence(e))}" for e in finding.evidence)
    yield from (f"not shown: {_text(limit)}" for limit in finding.limits)
    yield from (f"next: {_text(command)}" for command in finding.next)


def _evidence(seen: Evidence) -> str:
    return ", ".join(part for part in (seen.saw, seen.instance, seen.ask) if part)


def _text(text: str) -> str:
    return _NOT_XML.sub("?", PLAIN.say(text))
