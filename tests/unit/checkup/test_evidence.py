"""Evidence of failing moments: the newest few are kept, and nothing else in the folder is touched."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pdctl.checkup.evidence import AGAIN_S, KEPT, Evidence, is_new
from pdctl.errors import CaptureError
from pdctl.model.answer import Answer, Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.reach import bundle
from pdctl.reach.capture import open_capture

NOW = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)
CLUSTER = Cluster("prod a/b", (Instance("prefill-0", Role.PREFILL, "http://192.0.2.1:1"),))


def answer(t: float) -> Answer:
    return Answer("prefill-0", Fact.METRICS, "GET x", t, NOW + timedelta(seconds=t), 0.1, 200, body=b"a 1\n")


def test_a_moment_is_kept_as_a_capture_in_the_order_of_time(tmp_path: Path) -> None:
    path = Evidence(tmp_path / "new", CLUSTER).keep([answer(2.0), answer(1.0)], NOW)
    assert path == tmp_path / "new" / "prod-a-b-20261129T200000Z.tar.zst"
    with open_capture(path) as capture:
        assert [a.t for a in capture.answers()] == [1.0, 2.0] and not capture.cut_short
    assert os.listdir(path.parent) == [path.name]


def test_the_newest_few_stay_and_what_is_not_ours_is_not_touched(tmp_path: Path) -> None:
    others = [
        "notes.txt",
        "prod-a-b-manual.tar.zst",
        "stage-20261129T200000Z.tar.zst",
        "prod-a-b-20261129T200000Z.tar.gz",
    ]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / "prod-a-b-20200101T000000Z.tar.zst").symlink_to(tmp_path / "notes.txt")
    kept = [Evidence(tmp_path, CLUSTER).keep([answer(0.0)], NOW + timedelta(minutes=n)) for n in range(KEPT + 3)]
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {*others, "prod-a-b-20200101T000000Z.tar.zst", *(p.name for p in kept[3:])}


def test_two_checks_that_fail_in_the_same_second_leave_each_others_evidence_alone(tmp_path: Path) -> None:
    half = tmp_path / "prod-a-b-20261129T200001Z.partial"
    half.mkdir()
    kept = [Evidence(tmp_path, CLUSTER).keep([answer(float(n))], NOW) for n in range(2)]
    assert [p.name for p in kept] == [f"prod-a-b-20261129T20000{n}Z.tar.zst" for n in (0, 2)]
    assert half.is_dir()
    for n, path in enumerate(kept):
        with open_capture(path) as capture:
            assert [a.t for a in capture.answers()] == [float(n)]


def test_what_a_killed_run_left_half_made_goes_once_it_is_old(tmp_path: Path) -> None:
    for name, age in (("prod-a-b-20261129T190000Z.partial", 2 * AGAIN_S), ("prod-a-b-20261129T195900Z.partial", 0.0)):
        (tmp_path / name).mkdir()
        stamp = datetime.now().timestamp() - age
        os.utime(tmp_path / name, (stamp, stamp))
    Evidence(tmp_path, CLUSTER).keep([answer(0.0)], NOW)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["prod-a-b-20261129T195900Z.partial"]


def test_on_a_full_disk_nothing_new_is_there_and_nothing_old_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Evidence(tmp_path, CLUSTER).keep([answer(0.0)], NOW)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(bundle, "pack", full)
    with pytest.raises((CaptureError, OSError)):
        Evidence(tmp_path, CLUSTER).keep([answer(0.0)], NOW + timedelta(minutes=1))
    assert os.listdir(tmp_path) == [old.name]


@pytest.mark.parametrize(
    "before, at, new",
    [
        (None, None, True),
        ("a@x", 1000.0, False),
        ("a@x;b@y", 1000.0, True),
        ("a@x", 1000.0 - AGAIN_S, True),
        ("a@x", 9999.0, True),
        ("a@x", None, True),
    ],
)
def test_the_same_fault_a_minute_later_is_no_new_moment(before: str | None, at: float | None, new: bool) -> None:
    assert is_new("a@x", before, at, 1001.0) is new
