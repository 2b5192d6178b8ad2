"""Backups: which files are one, when each is from, which is the baseline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pdctl.checks.backups import backup_of, backups_of, baseline, is_backup_of
from pdctl.model.host import ScriptFile

SCRIPT = "/srv/serve.sh"
NOON = datetime(2026, 11, 12, 12, 0, tzinfo=UTC)


def file(name: str, mtime: datetime | None = NOON) -> ScriptFile:
    return ScriptFile(name if name.startswith("/") else f"/srv/{name}", mtime, "x")


@pytest.mark.parametrize(
    "name",
    ["serve.sh.bak", "serve.sh.orig", "serve.sh~", "serve.sh.1", "serve.sh.bak.3", "serve.sh.old", "serve.sh.save",
     "serve.sh.TAG_132203.bak", "serve.sh.2026-11-11T23:50:00.bak", "serve.sh.20261110-2201.bak", "serve.sh.20261110",
     "serve.sh.bak-20261110", "serve_20261110.sh", "serve.bak.sh", "serve-old.sh", "serve.sh.1794453000",
     "serve.sh.before_rollback", "/srv/backup/serve.sh", "/srv/bak/serve.sh"],
)  # fmt: skip
def test_names_of_backups(name: str) -> None:
    assert is_backup_of(SCRIPT, file(name).path)


@pytest.mark.parametrize(
    "name",
    [
        "serve.sh",
        "serve2.sh",
        "serve_decode.sh",
        "server.sh",
        "serve.sh.md",
        "/opt/serve.sh",
        "prefill.sh.bak",
        "serve.py.bak",
    ],
)
def test_other_files(name: str) -> None:
    assert not is_backup_of(SCRIPT, file(name).path)


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("serve.sh.2026-11-11T23:50:00.bak", datetime(2026, 11, 11, 23, 50, tzinfo=UTC)),
        ("serve.sh.20261110-2201.bak", datetime(2026, 11, 10, 22, 1, tzinfo=UTC)),
        ("serve.sh.20261110_220159.bak", datetime(2026, 11, 10, 22, 1, 59, tzinfo=UTC)),
        ("serve.sh.2026.11.10-22.01", datetime(2026, 11, 10, 22, 1, tzinfo=UTC)),
        ("serve.sh.bak.1794453000", datetime(2026, 11, 12, 3, 10, tzinfo=UTC)),
        ("serve.sh.20261101", datetime(2026, 11, 1, 23, 59, tzinfo=UTC)),
    ],
)
def test_the_time_in_a_name_counts_and_a_disagreement_is_said(name: str, when: datetime) -> None:
    copied_later = backup_of(file(name, NOON + timedelta(minutes=7)), SCRIPT)
    assert copied_later.when == when
    assert copied_later.disagrees
    assert not backup_of(file(name, when), SCRIPT).disagrees
    assert backup_of(file(name, None), SCRIPT).when == when


def test_a_time_of_day_alone_is_completed_from_mtime() -> None:
    kept = backup_of(file("serve.sh.TAG_132203.bak", datetime(2026, 11, 12, 13, 22, 4, tzinfo=UTC)), SCRIPT)
    assert kept.when == datetime(2026, 11, 12, 13, 22, 4, tzinfo=UTC)
    assert not kept.disagrees
    drifted = backup_of(file("serve.sh.TAG_132203.bak", datetime(2026, 11, 12, 18, 7, tzinfo=UTC)), SCRIPT)
    assert drifted.when == datetime(2026, 11, 12, 13, 22, 3, tzinfo=UTC)


def test_a_name_in_the_hosts_own_zone_is_the_moment_of_its_mtime() -> None:
    kept = backup_of(file("serve.sh.20261112-0750.bak", datetime(2026, 11, 11, 23, 50, 30, tzinfo=UTC)), SCRIPT)
    assert kept.when == datetime(2026, 11, 11, 23, 50, 30, tzinfo=UTC)
    assert not kept.disagrees


def test_dates_that_are_none_and_names_without_one_use_mtime() -> None:
    assert backup_of(file("serve.sh.20261399.bak"), SCRIPT).when == NOON
    assert backup_of(file("serve.sh.bak"), SCRIPT).when == NOON


def test_the_baseline_is_the_newest_before_the_script_or_the_moment_asked() -> None:
    script = ScriptFile(SCRIPT, NOON, "x")
    hours = {"serve.sh.1": 30, "serve.sh.bak": 2, "serve.sh.orig": -1}
    kept = backups_of(script, [file(n, NOON - timedelta(hours=h)) for n, h in hours.items()] + [file("other.sh")])
    assert [b.name for b in kept] == ["serve.sh.1", "serve.sh.bak", "serve.sh.orig"]
    newest = baseline(script, kept)
    assert newest is not None and newest.name == "serve.sh.bak"
    asked = baseline(script, kept, NOON - timedelta(hours=24))
    assert asked is not None and asked.name == "serve.sh.1"
    assert baseline(script, kept, NOON - timedelta(days=9)) is None
    restored = ScriptFile(SCRIPT, NOON - timedelta(days=30), "x")
    last = baseline(restored, kept)
    assert last is not None and last.name == "serve.sh.orig"
    assert baseline(script, ()) is None


KOLKATA = timezone(timedelta(hours=5, minutes=30))


def test_names_are_meant_in_the_hosts_zone_where_it_is_known() -> None:
    kept = backup_of(file("serve.sh.20261112-0750.bak", datetime(2026, 11, 12, 2, 20, 30, tzinfo=UTC)), SCRIPT, KOLKATA)
    assert kept.when == datetime(2026, 11, 12, 2, 20, 30, tzinfo=UTC) and not kept.disagrees
    other = backup_of(file("serve.sh.20261112-0750.bak", datetime(2026, 11, 12, 4, 20, tzinfo=UTC)), SCRIPT, KOLKATA)
    assert other.when == datetime(2026, 11, 12, 2, 20, tzinfo=UTC) and other.disagrees, "two hours are no zone there"
    bare = backup_of(file("serve.sh.TAG_132203.bak", datetime(2026, 11, 12, 7, 52, 3, tzinfo=UTC)), SCRIPT, KOLKATA)
    assert bare.when == datetime(2026, 11, 12, 7, 52, 3, tzinfo=UTC) and not bare.disagrees


@pytest.mark.parametrize("name", ["serve.sh.2026-11-12T02:20:00Z.bak", "serve.sh.20261112-0220.bak"])
def test_a_name_in_utc_is_known_as_such(name: str) -> None:
    kept = backup_of(file(name, datetime(2026, 11, 12, 2, 20, 8, tzinfo=UTC)), SCRIPT, KOLKATA)
    assert kept.when == datetime(2026, 11, 12, 2, 20, 8, tzinfo=UTC) and not kept.disagrees


@pytest.mark.parametrize(
    ("name", "mtime", "when"),
    [
        ("serve.sh.261112.bak", datetime(2026, 11, 12, 9, 1, tzinfo=UTC), datetime(2026, 11, 12, 9, 1, tzinfo=UTC)),
        ("serve.sh.261110.bak", NOON, datetime(2026, 11, 10, 23, 59, tzinfo=UTC)),
        ("serve.sh.991399.bak", NOON, NOON),
        ("serve.sh.091500.bak", NOON, datetime(2026, 11, 12, 9, 15, tzinfo=UTC)),
    ],
)
def test_six_digits_are_a_time_of_day_or_else_a_day(name: str, mtime: datetime, when: datetime) -> None:
    assert backup_of(file(name, mtime), SCRIPT).when == when
