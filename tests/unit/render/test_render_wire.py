"""The report as JSON: the schema's keys in its order, valid whatever the values, masked, harmless on a terminal."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from render_reports import FULL, GOLDEN, HOSTILE, HOSTILE_SEEN, HOSTILE_TEXT, PINNED, RESTARTED, SECRET, STALE, report

from pdctl import __version__
from pdctl.model.finding import Confidence, Evidence, Finding, InstanceReport, Severity
from pdctl.model.rank import Rank
from pdctl.render.wire import report_json, report_jsonl


def refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def parsed(text: str) -> dict[str, object]:
    value = json.loads(text, parse_constant=refuse)
    assert isinstance(value, dict)
    return value


def test_the_keys_are_those_of_the_schema_in_its_order() -> None:
    value = parsed(report_json(FULL))
    assert list(value) == [
        "schema", "pdctl", "cluster", "status", "window", "findings", "unchecked", "ruled_out", "instances"
    ]  # fmt: skip
    assert value["schema"] == "pdctl.report/1"
    assert value["pdctl"] == __version__
    assert value["status"] == "critical"
    assert value["window"] == {"start": "2026-11-29T20:37:31Z", "end": "2026-11-29T20:37:39Z", "samples": 9}
    finding = value["findings"][0]  # type: ignore[index]
    assert list(finding) == [
        "name", "severity", "confidence", "subject", "rank", "summary", "since", "muted", "evidence", "against",
        "limits", "next",
    ]  # fmt: skip
    assert finding["name"] == "request-pinned"  # worst first, though given second
    assert finding["rank"] == {"dp": 2}
    assert finding["since"] == "2026-11-29T20:32:31Z"
    assert finding["muted"] is None
    assert list(finding["evidence"][0]) == ["saw", "at", "instance", "ask", "values"]
    assert list(value["unchecked"][0]) == ["what", "subject", "why"]  # type: ignore[index]
    assert list(value["ruled_out"][0]) == ["what", "subject", "by"]  # type: ignore[index]
    assert list(value["instances"][0])[:5] == ["name", "role", "version", "reachable", "why"]  # type: ignore[index]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_same_report_gives_the_same_bytes(name: str) -> None:
    assert report_json(GOLDEN[name]) == report_json(replace(GOLDEN[name]))


def evidence_of(values: dict[str, object]) -> dict[str, object]:
    finding = Finding(
        "half-open", Severity.WARNING, Confidence.LIKELY, "a->b", "s", evidence=(Evidence("e", values=values),)
    )
    return parsed(report_json(report(finding)))["findings"][0]["evidence"][0]["values"]  # type: ignore[index,return-value]


def test_numbers_that_json_has_no_word_for_stay_visible() -> None:
    got = evidence_of(
        {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5, "e": 2.0, "f": None, "g": True, "h": 1e300}
    )
    assert got == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5, "e": 2, "f": None, "g": True, "h": 1e300}


def test_values_of_every_kind_become_json() -> None:
    at = datetime(2026, 11, 29, 22, 0, 0, 500_000, tzinfo=timezone(timedelta(hours=2)))
    got = evidence_of(
        {"when": at, "rank": Rank(dp=1, tp=0), "severity": Severity.INFO, "set": {"b", "a"}, "rows": (1, [2.0]),
         "inner": {"z": 1, "a": {Rank(dp=0): 2}}, "bytes": b"\xff\x1b"}
    )  # fmt: skip
    assert got == {
        "when": "2026-11-29T20:00:00.500000Z", "rank": {"dp": 1, "tp": 0}, "severity": "info", "set": ["a", "b"],
        "rows": [1, [2]], "inner": {"a": {"DP0": 2}, "z": 1}, "bytes": "\\udcff\x1b",
    }  # fmt: skip
    assert list(got) == sorted(got)


def test_secrets_are_masked_by_name_and_by_shape() -> None:
    for text in (report_json(HOSTILE), report_jsonl(HOSTILE)):
        assert SECRET not in text
        assert "plain words" not in text  # the value of a key called api_key


def test_hostile_text_is_plain_ascii_and_comes_back_as_it_was() -> None:
    for text in (report_json(HOSTILE), *report_jsonl(HOSTILE).split("\n")):
        assert text.isascii()
        assert all(c == "\n" or c.isprintable() for c in text)
    summary = parsed(report_json(HOSTILE))["findings"][0]["summary"]  # type: ignore[index]
    assert summary.startswith(HOSTILE_TEXT.replace("\udc80", "\\udc80"))
    assert HOSTILE_SEEN not in summary


def test_del_is_written_as_an_escape() -> None:
    text = report_json(report(replace(PINNED, summary="a\x7fb")))
    assert "\x7f" not in text
    assert parsed(text)["findings"][0]["summary"] == "a\x7fb"  # type: ignore[index]


def test_details_of_an_instance_follow_its_own_keys_and_never_shadow_them() -> None:
    row = InstanceReport("p", "prefill", "0.5.19", True, None, {"url": "http://u:secretword@h/", "name": "other"})
    got = parsed(report_json(report(instances=(row,))))["instances"][0]  # type: ignore[index]
    assert got["name"] == "p"
    assert got["url"].startswith("http://u:***")


def test_jsonl_is_one_object_a_line_and_ends_in_a_summary() -> None:
    rows = [parsed(line) for line in report_jsonl(FULL).split("\n")]
    kinds = [row["kind"] for row in rows]
    assert kinds == ["finding"] * 3 + ["unchecked"] * 7 + ["ruled_out"] * 2 + ["instance"] * 3 + ["summary"]
    last = rows[-1]
    assert last["status"] == "critical"
    assert (last["findings"], last["unchecked"], last["ruled_out"], last["instances"]) == (3, 7, 2, 3)


def test_the_status_is_that_of_the_worst_unmuted_finding() -> None:
    assert parsed(report_json(report(RESTARTED)))["status"] == "ok"
    assert parsed(report_json(report(STALE)))["status"] == "unknown"
    assert parsed(report_json(report(replace(PINNED, muted={"until": "x"}), RESTARTED)))["status"] == "ok"


def test_a_muted_finding_says_so_in_its_own_field() -> None:
    got = parsed(report_json(report(replace(PINNED, muted={"until": "2026-12-01T00:00:00Z", "note": "INC-42"}))))
    assert got["findings"][0]["muted"] == {"note": "INC-42", "until": "2026-12-01T00:00:00Z"}  # type: ignore[index]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats()
        | st.integers()
        | st.text(st.characters(exclude_categories=()))
        | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )
)
def test_any_value_makes_valid_ascii_json(value: object) -> None:
    finding = replace(PINNED, evidence=(Evidence("e", datetime.now(UTC), "i", "a", {"v": value}),))
    text = report_json(report(finding))
    parsed(text)
    assert text.isascii()
