"""Mutes: what they fit, when they hold, and what lifts them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pdctl.model.finding import Confidence, Evidence, Finding, Report, Severity, Status
from pdctl.model.mute import Mute, apply, count_of, print_of, worse
from pdctl.model.rank import Rank

NOW = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def finding(
    name: str = "request-pinned", subject: str = "prefill-0", summary: str = "2 request(s) stand", **more: object
) -> Finding:
    made = Finding(name, Severity.CRITICAL, Confidence.LIKELY, subject, summary)
    return replace(made, **more)  # type: ignore[arg-type]


def report(*findings: Finding, end: datetime = NOW) -> Report:
    return Report("test", end - timedelta(seconds=30), end, 9, findings)


def mute(was: Finding | None = None, **more: object) -> Mute:
    prints = None if was is None else (print_of(was),)
    made = Mute("request-pinned", "prefill-0", NOW - HOUR, NOW + HOUR, "ops", "INC-42", was=prints)
    return replace(made, **more)  # type: ignore[arg-type]


def test_a_muted_finding_stays_in_the_report_with_who_why_and_until_and_out_of_the_status() -> None:
    muted = apply(report(finding()), [mute(finding())]).report
    assert [f.name for f in muted.findings] == ["request-pinned"]
    assert muted.findings[0].muted == {"who": "ops", "why": "INC-42", "until": "2026-11-29T21:00:00+00:00"}
    assert muted.status is Status.OK and report(finding()).status is Status.CRITICAL


@pytest.mark.parametrize(
    "other",
    [
        finding(name="rank-stuck"),
        finding(subject="prefill-1"),
        finding(subject="prefill-01"),
        finding(subject="prefill-0x->decode-0"),
    ],
)
def test_what_it_is_not_about_is_not_muted(other: Finding) -> None:
    assert apply(report(other), [mute()]).report.findings[0].muted is None


@pytest.mark.parametrize("subject", ["prefill-0->decode-3", "decode-3->prefill-0"])
def test_a_mute_of_an_instance_is_about_its_pairs_too(subject: str) -> None:
    assert apply(report(finding(subject=subject)), [mute()]).report.findings[0].muted is not None


@pytest.mark.parametrize("end", [NOW + HOUR, NOW + 2 * HOUR, NOW - 2 * HOUR])
def test_it_holds_from_when_it_was_made_until_it_is_over(end: datetime) -> None:
    """By the time of the report: a recording of yesterday is judged as it was yesterday."""
    assert apply(report(finding(), end=end), [mute()]).report.findings[0].muted is None


def test_a_greater_count_lifts_it_and_says_so() -> None:
    now = finding(summary="3 request(s) stand in prefill-0's inflight queue and did not leave in 900 s")
    done = apply(report(now), [mute(finding())])
    assert done.report.status is Status.CRITICAL
    assert [str(row) for row in done.lifted] == [
        "the mute of request-pinned on prefill-0 (by ops) is lifted: it counts 3, and 2 when it was muted"
    ]


def test_a_smaller_or_equal_count_a_longer_time_and_more_certainty_do_not_lift_it() -> None:
    for summary in ("2 request(s) stand for 9000 s", "1 request(s) stand"):
        now = finding(summary=summary, confidence=Confidence.CERTAIN)
        assert apply(report(now), [mute(finding())]).lifted == ()


def test_a_higher_severity_lifts_it() -> None:
    was = finding(severity=Severity.WARNING)
    assert worse((print_of(was),), (print_of(finding()),)) == "it is critical now"
    assert worse((print_of(finding()),), (print_of(was),)) is None


def test_another_rank_lifts_it_unless_the_whole_instance_was_muted() -> None:
    one, two = finding(rank=Rank(dp=1)), finding(rank=Rank(dp=2))
    done = apply(report(one, two), [mute(one)])
    assert "DP2" in done.lifted[0].why
    assert apply(report(one, two), [mute(finding())]).lifted == ()


def test_a_sticky_one_stays() -> None:
    now = finding(summary="9 request(s) stand")
    done = apply(report(now), [mute(finding(), sticky=True)])
    assert done.lifted == () and done.report.findings[0].muted is not None


def test_one_muted_before_it_was_seen_starts_from_what_is_seen_first() -> None:
    done = apply(report(finding()), [mute()])
    assert done.report.findings[0].muted is not None
    assert [(m.key, prints) for m, prints in done.first_seen] == [(mute().key, (print_of(finding()),))]


@pytest.mark.parametrize(
    "summary, values, count",
    [
        ("2 request(s) stand in prefill-0's inflight queue and did not leave in 66 s", {}, 2.0),
        ("37 transfer slots of decode-0 are held without progress for 20 s", {}, 37.0),
        ("4 of 120 completions took 61 s to 300 s and ended with success", {}, 4.0),
        ("decode-0 holds 12 connection(s) that prefill-0 no longer has", {}, 12.0),
        ("the scheduler of prefill-0 does not turn", {}, None),
        ("release 0.5.9 does not report how many requests are being handed over", {}, None),
        ("systemd restarted it by itself", {"restarts": 5, "seconds": 900}, 5.0),
        ("they wait", {"count": 400, "owner": "python3", "flag": True}, 400.0),
        ("sockets in CLOSE-WAIT grow at python3 (pid 7): 120 180 400", {"counts": [120, 180, 400], "pid": 7}, 400.0),
        ("it stands", {"pid": 4711, "idle": 3600.5, "timestamp": 1.7e9}, None),
    ],
)
def test_what_counts_as_a_count(summary: str, values: dict[str, object], count: float | None) -> None:
    assert count_of(finding(summary=summary, evidence=(Evidence("seen", values=values),))) == count
