"""A check's outcome in each form: for Nagios, for node_exporter, for CI, for people and as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as Xml

import pytest
from prometheus_client.parser import text_string_to_metric_families
from render_reports import END, FULL, GOLDEN, HOSTILE, PINNED, SECRET, STARVED, UNREADABLE, report

from pdctl.model.checkrun import CheckRun, StageRun
from pdctl.model.finding import InstanceReport, Report, Unchecked
from pdctl.render.check import check_json, check_jsonl, check_lines
from pdctl.render.junit import junit_text
from pdctl.render.look import Look
from pdctl.render.nagios import MOST, nagios_lines, perfdata
from pdctl.render.prom import prom_text

STAGES = (
    StageRun("reach", "everybody answers", ("endpoint-unreadable",)),
    StageRun("queues", "requests move", ("request-pinned", "decode-starved", "gauge-stale", "watchdog-silent")),
    StageRun("sockets", "connections", ("half-open",), why="the inventory names no hosts"),
)
SEEN = (
    InstanceReport("prefill-0", "prefill", "0.5.19", True, details={"inflight": 2.0, "token-usage": 0.25}),
    InstanceReport("decode-0", "decode", "0.5.19", False, "refused", {"transfer": 2.0}),
)
MUTED = {"who": "ops", "why": "INC-42", "until": "2026-11-30T00:00:00+00:00"}
PART = re.compile(r"'((?:[^']|'')*)'=(U|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(s)?((?:;[^; ]*){0,4})")


def run(of: Report, **more: object) -> CheckRun:
    made = CheckRun(of, STAGES, 0.2345, 20.0, END, 3, 180.0, END - timedelta(minutes=5))
    return replace(made, **more)  # type: ignore[arg-type]


def parts(line: str) -> dict[str, tuple[str, str]]:
    """Performance data as a reader of the guidelines takes it apart: label -> (value with unit, the rest)."""
    text = line.partition(" | ")[2]
    found = list(PART.finditer(text))
    assert " ".join(m[0] for m in found) == text, "every bit of it is a value"
    return {m[1].replace("''", "'"): (m[2] + (m[3] or ""), m[4]) for m in found}


# --- nagios ------------------------------------------------------------------------------------------------------


def test_nagios_gets_one_line_with_the_worst_first_then_performance_data() -> None:
    first, *rest = nagios_lines(run(replace(FULL, instances=SEEN)))
    assert first.startswith(
        "PDCTL CRITICAL - prod-a: request-pinned at prefill-0 DP2: 2 requests sit in prefill-0's inflight queue and "
        "will not leave by themselves (and 2 more) | "
        "'time'=0.234s;;20;0 'critical'=1;;;0 'unknown'=1;;;0 'warning'=1;;;0"
    )
    values = parts(first)
    assert values["prefill-0 inflight"] == ("2", "") and values["answered"] == ("1", ";;;0;2")
    assert rest[0].startswith("critical: request-pinned at prefill-0 DP2") and "|" not in "".join(rest)
    assert "not checked: script-drift at : the inventory names no host" in rest


def test_a_value_that_could_not_be_read_now_is_undetermined_and_not_the_last_one() -> None:
    (line, *_) = nagios_lines(run(report(instances=SEEN)))
    assert parts(line)["decode-0 transfer"] == ("U", "")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_undetermined(value: float) -> None:
    odd = InstanceReport("p", "prefill", None, True, details={"x": value})
    assert parts(next(nagios_lines(run(report(instances=(odd,))))))["p x"] == ("U", "")


def test_labels_hold_quotes_and_no_equals_sign() -> None:
    odd = InstanceReport("it's a=b|c", "prefill", None, True, details={"x": 1.0})
    assert parts(next(nagios_lines(run(report(instances=(odd,))))))["it's a:b/c x"] == ("1", "")


def test_of_very_many_instances_whole_values_are_left_out_and_counted() -> None:
    many = tuple(replace(SEEN[0], name=f"prefill-{n}") for n in range(300))
    told = list(perfdata(run(report(instances=many))))
    assert len(" ".join(told)) < MOST + 60
    values = parts("x | " + " ".join(told))
    shown = sum(1 for label in values if label.startswith("prefill-"))
    assert values["values left out"][0] == str(600 - shown)


def test_ok_and_nothing_measured_are_told_apart() -> None:
    assert next(nagios_lines(run(GOLDEN["ok"]))).startswith(
        "PDCTL OK - prod-a: nothing wrong seen in what was checked; 7"
    )
    assert next(nagios_lines(run(GOLDEN["nothing"]))).startswith("PDCTL NOT CHECKED - prod-a: nothing was measured")


def test_muted_findings_are_shown_and_do_not_lead() -> None:
    first, *rest = nagios_lines(run(report(replace(PINNED, muted=MUTED), STARVED)))
    assert first.startswith("PDCTL WARNING - prod-a: decode-starved") and parts(first)["muted"][0] == "1"
    assert any(line.startswith("muted: request-pinned at prefill-0 DP2 (until 2026") for line in rest)


def test_a_long_summary_does_not_push_performance_data_away() -> None:
    long = replace(PINNED, summary="x" * 5000)
    first = next(nagios_lines(run(report(long))))
    assert first.index(" | ") <= 500 and parts(first)["critical"][0] == "1"


def test_hostile_text_stays_on_its_line_and_secrets_do_not_show() -> None:
    lines = list(nagios_lines(run(HOSTILE)))
    for line in lines:
        assert line.isascii() and line.isprintable() and SECRET not in line
    assert parts(lines[0])


# --- prometheus --------------------------------------------------------------------------------------------------


def series(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.timestamp is None
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, "the collector refuses a series given twice"
            found[key] = sample.value
    return found


def named(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    return [(dict(labels), value) for (n, labels), value in series(text).items() if n == name]


def test_findings_are_series_with_whether_they_are_muted() -> None:
    text = prom_text(run(report(PINNED, replace(STARVED, muted=MUTED))))
    base = {"cluster": "prod-a"}
    pinned = {"name": "request-pinned", "severity": "critical", "subject": "prefill-0", "muted": "false"}
    starved = {"name": "decode-starved", "severity": "warning", "subject": "decode-0", "muted": "true"}
    found = {labels["name"]: (labels, value) for labels, value in named(text, "pdctl_finding")}
    assert found == {"request-pinned": (base | pinned, 1.0), "decode-starved": (base | starved, 1.0)}
    assert named(text, "pdctl_check_status") == [({"cluster": "prod-a"}, 2.0)]


def test_its_own_duration_and_last_success_are_there() -> None:
    text = prom_text(run(FULL))
    assert named(text, "pdctl_check_duration_seconds")[0][1] == pytest.approx(0.2345)
    assert named(text, "pdctl_check_last_run_timestamp_seconds")[0][1] == END.timestamp()
    assert named(text, "pdctl_check_last_success_timestamp_seconds")[0][1] == END.timestamp() - 300


def test_a_check_that_never_saw_has_no_last_success() -> None:
    assert named(prom_text(run(FULL, last_success=None)), "pdctl_check_last_success_timestamp_seconds") == []


def test_what_was_not_read_has_no_series() -> None:
    text = prom_text(run(report(instances=(*SEEN, InstanceReport("router-0", "router")))))
    up = {labels["instance"]: value for labels, value in named(text, "pdctl_instance_up")}
    assert up == {"prefill-0": 1.0, "decode-0": 0.0}
    assert {labels["instance"] for labels, _ in named(text, "pdctl_reading")} == {"prefill-0"}


def test_two_ranks_with_the_same_finding_are_one_series() -> None:
    assert (
        len(named(prom_text(run(report(PINNED, replace(PINNED, rank=replace(PINNED.rank, dp=3))))), "pdctl_finding"))
        == 1
    )


def test_hostile_labels_are_escaped_and_masked() -> None:
    text = prom_text(run(HOSTILE))
    assert series(text) and SECRET not in text and text.replace("\n", "").isprintable()


# --- junit -------------------------------------------------------------------------------------------------------


def cases(text: str) -> dict[str, str]:
    """Every case with what became of it."""
    root = Xml.fromstring(text)
    out = {}
    for case in root.iter("testcase"):
        children = [child.tag for child in case]
        out[f"{case.get('classname')} {case.get('name')}"] = children[0] if children else "passed"
    return out


def test_bad_is_a_failure_blind_an_error_and_not_run_skipped() -> None:
    told = cases(junit_text(run(report(PINNED, UNREADABLE))))
    assert told == {
        "pdctl.reach endpoint-unreadable at prefill-0": "error",
        "pdctl.queues request-pinned at prefill-0 DP2": "failure",
        "pdctl.queues decode-starved": "passed",
        "pdctl.queues gauge-stale": "passed",
        "pdctl.queues watchdog-silent": "passed",
        "pdctl.sockets half-open": "skipped",
    }


def test_a_question_left_open_did_not_pass() -> None:
    left = replace(STAGES[1], open={"decode-starved": "decode-0: too few samples"})
    told = cases(junit_text(run(report(), stages=(left,))))
    assert told["pdctl.queues decode-starved"] == "skipped" and told["pdctl.queues gauge-stale"] == "passed"


def test_where_nothing_was_read_nothing_passed() -> None:
    blind = report(instances=(replace(SEEN[1], reachable=False),))
    assert set(cases(junit_text(run(blind))).values()) == {"skipped"}


def test_muted_is_skipped_and_warnings_pass_when_only_critical_fails() -> None:
    assert (
        cases(junit_text(run(report(replace(PINNED, muted=MUTED)))))["pdctl.queues request-pinned at prefill-0 DP2"]
        == "skipped"
    )
    name = "pdctl.queues decode-starved at decode-0"
    assert cases(junit_text(run(report(STARVED))))[name] == "failure"
    assert cases(junit_text(run(report(STARVED)), "critical"))[name] == "system-out"


def test_counts_are_those_of_the_cases() -> None:
    root = Xml.fromstring(junit_text(run(report(PINNED, UNREADABLE))))
    assert [root.get(k) for k in ("tests", "failures", "errors")] == ["6", "1", "1"]
    assert [suite.get("skipped") for suite in root] == ["0", "0", "1"]


# What each element may have and must have, by junit-10.xsd of Jenkins' xUnit plugin, which refuses a file beyond it.
SCHEMA = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": ({"name", "tests", "failures", "errors", "time", "skipped", "timestamp"}, {"name", "tests"}),
    "testcase": ({"name", "time", "classname"}, {"name"}),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
    "system-out": (set(), set()),
}


def test_a_strict_reader_finds_nothing_it_does_not_know() -> None:
    muted = replace(STARVED, muted=MUTED)
    for told in (report(PINNED, UNREADABLE, muted), report()):
        for element in Xml.fromstring(junit_text(run(told))).iter():
            known, needed = SCHEMA[element.tag]
            assert needed <= set(element.keys()) <= known, element.tag


def test_what_belongs_to_no_stage_is_not_lost() -> None:
    stray = replace(PINNED, name="role-mismatch")
    assert cases(junit_text(run(report(stray))))["pdctl.other role-mismatch at prefill-0 DP2"] == "failure"


def test_hostile_text_is_valid_xml_without_secrets() -> None:
    text = junit_text(run(HOSTILE))
    assert Xml.fromstring(text) is not None and SECRET not in text and "\x1b" not in text


# --- people and JSON ---------------------------------------------------------------------------------------------


def test_where_all_is_well_people_get_the_verdict_and_the_stages() -> None:
    lines = list(check_lines(run(report(unchecked=(Unchecked("x", "y", "z"),))), Look(ascii=True)))
    assert lines[0] == "+ OK  prod-a: nothing wrong seen in what was checked; 1 not checked"
    assert "  + reach    everybody answers" in lines
    assert "  - sockets  not run: the inventory names no hosts" in lines
    assert lines[-1] == "It took 0.23 s; 3 earlier runs of the last 3 min were judged with it."


def test_a_stage_shows_its_worst_finding_or_that_it_left_a_question_open() -> None:
    stages = (STAGES[0], replace(STAGES[1], open={"gauge-stale": "x: y"}))
    told = "\n".join(check_lines(run(report(PINNED, STARVED), stages=stages), Look(ascii=True)))
    assert "  x queues   request-pinned at prefill-0, and 1 more" in told
    told = "\n".join(check_lines(run(report(), stages=stages), Look(ascii=True)))
    assert "  - queues   nothing wrong seen; not told everywhere: gauge-stale" in told


def test_a_stage_in_which_nothing_could_be_read_gets_no_tick() -> None:
    blind = report(instances=(replace(SEEN[1], reachable=False),))
    told = list(check_lines(run(blind), Look(ascii=True)))
    assert "  - queues   nothing could be read" in told


def test_json_is_the_report_and_how_the_run_went() -> None:
    value = json.loads(check_json(run(FULL, kept="/var/x.tar.zst", notes=("a note",))))
    assert value["schema"] == "pdctl.report/1" and len(value["findings"]) == 3
    assert value["check"]["stages"][2] == {
        "name": "sockets", "ran": False, "why": "the inventory names no hosts", "open": {},
    }  # fmt: skip
    assert value["check"]["earlier_runs"] == 3 and value["check"]["evidence"] == "/var/x.tar.zst"
    assert value["check"]["last_success"] == "2026-11-29T20:32:39Z"


def test_json_lines_end_with_the_summary() -> None:
    rows = [json.loads(line) for line in check_jsonl(run(FULL)).splitlines()]
    assert [row["kind"] for row in rows[-2:]] == ["check", "summary"]


@pytest.mark.parametrize("name", GOLDEN)
def test_every_form_of_every_report_can_be_made(name: str) -> None:
    made = run(GOLDEN[name], ended=datetime(2026, 11, 30, tzinfo=UTC))
    assert list(nagios_lines(made)) and prom_text(made) and junit_text(made) and list(check_lines(made, Look()))
    assert json.loads(check_json(made))["status"] == GOLDEN[name].status.value
