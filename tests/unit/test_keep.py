"""Keeping what was seen: a full disk ends the recording and not the run; what nobody asked to be kept stays small."""

from __future__ import annotations

import resource
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pdctl.errors import CaptureError
from pdctl.keep import KEPT, default_record, keeping
from pdctl.model.answer import Answer, Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.reach.capture import open_capture

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER = Cluster("a/../b", (Instance("prefill-0", Role.PREFILL, "http://127.0.0.1:9"),))


def answer(t: float) -> Answer:
    ask = "GET http://127.0.0.1:9/metrics"
    return Answer(
        "prefill-0", Fact.METRICS, t=t, at=NOW + timedelta(seconds=t), took=0.1, ask=ask, status=200, body=b"x 1\n"
    )


def test_a_full_disk_ends_the_recording_and_not_the_run(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk. What was kept until then opens as a whole capture."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with keeping(tmp_path / "c", CLUSTER) as keeper:
        keeper.add(answer(0.0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            for n in range(1, 50):
                keeper.add(answer(float(n)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        keeper.add(answer(50.0))
    (said,) = keeper.notes
    with open_capture(tmp_path / "c") as capture:
        answers = list(capture.answers())
    assert said.startswith(f"recording stopped after {len(answers)} answers: ")
    assert said.endswith("cannot be recorded to: File too large")
    assert 5 < len(answers) < 20
    assert [each.t for each in answers] == [float(n) for n in range(len(answers))]
    assert all(each.body == b"x 1\n" for each in answers)
    assert capture.notes == ()


def test_a_recording_nobody_asked_for_goes_to_the_state_folder_and_only_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = []
    for second in range(KEPT + 3):
        place = default_record(CLUSTER, NOW + timedelta(seconds=second))
        assert place is not None and place.parent == tmp_path / "pdctl" / "captures"
        assert "/" not in place.name and place.name.startswith("a")
        place.mkdir()
        made.append(place)
    assert len(list(made[0].parent.iterdir())) == KEPT


def test_a_disk_that_is_full_from_the_start_keeps_nobody_from_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, and is an error only where somebody asked for the recording."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place = default_record(CLUSTER, NOW)
    assert place is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with keeping(place, CLUSTER) as keeper:
            keeper.add(answer(0.0))
        with pytest.raises(CaptureError, match="cannot be recorded to"), keeping(tmp_path / "mine", CLUSTER):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert keeper.path is None
    assert keeper.notes == [f"nothing is kept: {place}: cannot be recorded to: File too large"]


def test_without_a_home_nothing_is_kept_and_looking_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    assert default_record(CLUSTER, NOW) is None
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    assert default_record(CLUSTER, NOW) is None and not (tmp_path / "nonexistent").exists()
