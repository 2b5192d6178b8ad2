"""The order in which findings are told."""

from __future__ import annotations

import pytest

from pdctl.model.finding import Confidence, Finding, Severity, by_weight


def finding(name: str, confidence: Confidence, severity: Severity = Severity.CRITICAL) -> Finding:
    return Finding(name, severity, confidence, "decode-0", "said")


@pytest.mark.parametrize("cause", ["scheduler-stopped", "queue-head-blocked", "ranks-diverged", "engine-crashed"])
def test_what_holds_transfer_slots_is_told_before_the_slots(cause: str) -> None:
    """Slots held at decode are the symptom of a stopped scheduler or blocked queue at prefill: the fault sits there."""
    told = by_weight([finding("transfer-stuck", Confidence.CERTAIN), finding(cause, Confidence.LIKELY)])
    assert [f.name for f in told] == [cause, "transfer-stuck"]


def test_a_cause_that_is_less_bad_stays_behind() -> None:
    rows = [
        finding("engine-crashed", Confidence.CERTAIN, Severity.WARNING),
        finding("transfer-stuck", Confidence.POSSIBLE),
    ]
    assert [f.name for f in by_weight(rows)] == ["transfer-stuck", "engine-crashed"]


def test_a_finding_for_each_of_thousands_of_instances_is_put_in_order_as_well() -> None:
    """Each compared with each other one, for each place in the order, would take an hour."""
    pinned, cause = finding("request-pinned", Confidence.CERTAIN), finding("device-hang", Confidence.POSSIBLE)
    many = [finding("accept-queue-full", Confidence.LIKELY)] * 5_000
    assert by_weight([pinned, *many, cause]) == [*many, cause, pinned]
