"""Mutes on disk: whose they are, what is learned of them, and what happens when they can't be read or written."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pdctl.checkup import lastfound, mutes
from pdctl.checkup.lastfound import last_found, note_found
from pdctl.checkup.mutes import add, applied, lift, mutes_of
from pdctl.errors import PdctlError, UsageError
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.finding import Confidence, Finding, Report, Severity, Status
from pdctl.model.mute import Mute, print_of

NOW = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    instances = (Instance("prefill-0", Role.PREFILL, "http://192.0.2.1:1"),)
    return Cluster("prod", instances, source=str(tmp_path / "pdctl.toml"))


def finding(summary: str = "2 request(s) stand", name: str = "request-pinned") -> Finding:
    return Finding(name, Severity.CRITICAL, Confidence.LIKELY, "prefill-0", summary)


def report(*findings: Finding, end: datetime = NOW) -> Report:
    return Report("prod", end, end, 1, findings)


def mute(was: Finding | None = None, name: str = "request-pinned", hours: float = 1.0) -> Mute:
    prints = (print_of(was),) if was else None
    return Mute(name, "prefill-0", NOW - HOUR, NOW + hours * HOUR, "ops", "INC-42", was=prints)


def own_file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "pdctl" / "mutes.json"


def test_where_nothing_is_muted_nothing_is_read_or_said(cluster: Cluster) -> None:
    assert applied(report(finding()), cluster) == (report(finding()), ())


def test_a_mute_is_kept_for_this_user_and_applied(cluster: Cluster, tmp_path: Path) -> None:
    path = add([mute(finding())], cluster, NOW, shared=False)
    assert path == own_file(tmp_path) and path.stat().st_mode & 0o777 == 0o600
    muted, said = applied(report(finding()), cluster)
    assert muted.status is Status.OK and said == ()


def test_one_cluster_is_not_muted_by_anothers(cluster: Cluster) -> None:
    add([mute(finding())], cluster, NOW, shared=False)
    other = Cluster("stage", cluster.instances, source=cluster.source)
    assert mutes_of(other).rows == []


def test_a_shared_one_stands_beside_the_inventory_for_every_user(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = add([mute(finding())], cluster, NOW, shared=True)
    assert path == tmp_path / "pdctl.mutes.json" and path.stat().st_mode & 0o777 == 0o644
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-users"))
    assert [(m.finding, m.shared) for m in mutes_of(cluster).rows] == [("request-pinned", True)]


def test_without_an_inventory_file_there_is_nothing_to_stand_beside(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="no inventory file"):
        add([mute()], Cluster("command line", cluster.instances), NOW, shared=True)


def test_muting_the_same_again_takes_the_place_of_the_old_and_what_is_over_is_left_out(cluster: Cluster) -> None:
    add([mute(name="draining", hours=-0.5), mute()], cluster, NOW - HOUR, shared=False)
    add([mute(hours=3.0)], cluster, NOW, shared=False)
    assert [(m.finding, m.until) for m in mutes_of(cluster).rows] == [("request-pinned", NOW + 3 * HOUR)]


def test_getting_worse_lifts_it_for_good_and_is_said_once(cluster: Cluster) -> None:
    add([mute(finding())], cluster, NOW, shared=False)
    muted, said = applied(report(finding("3 request(s) stand")), cluster)
    assert muted.status is Status.CRITICAL and "it counts 3" in said[0]
    again, said = applied(report(finding()), cluster)
    assert again.status is Status.CRITICAL and said == ()
    assert mutes_of(cluster).rows == []


def test_muting_anew_after_that_works(cluster: Cluster) -> None:
    add([mute(finding())], cluster, NOW, shared=False)
    applied(report(finding("3 request(s) stand")), cluster)
    anew = Mute(
        "request-pinned", "prefill-0", NOW, NOW + HOUR, "ops", "known", was=(print_of(finding("3 request(s)")),)
    )
    add([anew], cluster, NOW, shared=False)
    assert applied(report(finding("3 request(s) stand")), cluster)[0].status is Status.OK


def test_one_muted_unseen_gets_worse_from_what_was_seen_first_shared_or_not(cluster: Cluster) -> None:
    for shared in (False, True):
        made = replace(mute(), made=NOW - HOUR + timedelta(seconds=shared))
        add([made], cluster, NOW, shared=shared)
        assert applied(report(finding()), cluster)[0].status is Status.OK
        assert applied(report(finding()), cluster)[0].status is Status.OK
        assert applied(report(finding("3 request(s) stand")), cluster)[0].status is Status.CRITICAL
        lift(cluster, "request-pinned", ())


def test_what_is_learned_of_a_shared_one_does_not_touch_the_shared_file(cluster: Cluster, tmp_path: Path) -> None:
    path = add([mute()], cluster, NOW, shared=True)
    before = path.read_bytes()
    applied(report(finding()), cluster)
    applied(report(finding("3 request(s) stand")), cluster)
    assert path.read_bytes() == before and own_file(tmp_path).exists()


def test_lifting_names_what_it_ended(cluster: Cluster) -> None:
    add([mute(), mute(name="draining")], cluster, NOW, shared=False)
    add([mute()], cluster, NOW, shared=True)
    assert [m.finding for m in lift(cluster, "request-pinned", ("prefill-0",))] == ["request-pinned"] * 2
    assert [m.finding for m in mutes_of(cluster).rows] == ["draining"]
    assert lift(cluster, "request-pinned", ()) == []


# --- what cannot be read or written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"schema": "pdctl.mutes/9", "mutes": []}', '{"mutes": 3}', "\x00", "null", "[" * 100_000],
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_file_that_is_damaged_mutes_nothing_and_that_is_said(
    text: str, shared: bool, cluster: Cluster, tmp_path: Path
) -> None:
    path = add([mute(finding())], cluster, NOW, shared=shared)
    path.write_text(text)
    judged, said = applied(report(finding()), cluster)
    assert judged.status is Status.CRITICAL
    assert len(said) == 1 and str(path) in said[0] and "mutes nothing" in said[0]
    with pytest.raises(PdctlError):
        add([mute()], cluster, NOW, shared=shared)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"finding": "request-pinned", "on": "prefill-0", "who": "a", "why": "b", "made": "today", "until": "x"},
        {"finding": "x", "on": "y", "who": "a", "why": "b", "made": "2026-11-29T20:00:00", "until": "2026-12-01"},
    ],
)
def test_one_mute_that_is_damaged_leaves_the_others(row: dict[str, str], cluster: Cluster) -> None:
    path = add([mute(finding())], cluster, NOW, shared=True)
    value = json.loads(path.read_text())
    value["mutes"].append(row)
    path.write_text(json.dumps(value))
    judged, said = applied(report(finding()), cluster)
    assert judged.status is Status.OK and len(said) == 1 and "left out" in said[0]


@pytest.mark.parametrize("known", [3, [], {"x": 1}, {"KEY": {"was": [{}]}}, {"KEY": {"was": 3}}, {"KEY": None}])
def test_what_was_learned_and_is_damaged_is_as_if_not_learned(known: object, cluster: Cluster) -> None:
    path = add([mute()], cluster, NOW, shared=False)
    value = json.loads(path.read_text())
    told = {mute().key if k == "KEY" else k: v for k, v in known.items()} if isinstance(known, dict) else known
    path.write_text(json.dumps(value | {"first_seen": told}))
    assert applied(report(finding()), cluster)[0].status is Status.OK


def test_a_disk_that_is_full_is_told_when_muting_and_changes_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    add([mute(finding())], cluster, NOW, shared=False)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for module in (mutes, lastfound):
        monkeypatch.setattr(module, "replace_whole", full)
    with pytest.raises(PdctlError, match="No space left"):
        add([mute(name="draining")], cluster, NOW, shared=False)
    assert [m.finding for m in mutes_of(cluster).rows] == ["request-pinned"]
    # and a run that learns something goes on without keeping it
    assert applied(report(finding("3 request(s) stand")), cluster)[0].status is Status.CRITICAL
    note_found(report(finding()))


def test_a_user_without_a_home_has_no_mutes_and_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: str) -> Path:
        raise FileNotFoundError(2, "no home directory is known for this user")

    monkeypatch.setattr(mutes, "state_folder", none)
    judged, said = applied(report(finding()), cluster)
    assert judged.status is Status.CRITICAL and "no home" in said[0]


# --- what was found last -----------------------------------------------------------------------------------------


def test_a_mute_starts_from_the_finding_as_it_was_last_seen(cluster: Cluster) -> None:
    note_found(report(finding("5 request(s) stand"), end=NOW - timedelta(minutes=30)))
    note_found(report(finding("4 request(s) stand")))
    assert last_found(cluster, "request-pinned", "prefill-0", NOW) == ((print_of(finding("4 request(s)")),), NOW)
    assert last_found(cluster, "request-pinned", "prefill-1", NOW) is None


def test_a_later_run_that_looked_at_less_does_not_forget_it_but_an_hour_does(cluster: Cluster) -> None:
    note_found(report(finding()))
    later = NOW + timedelta(minutes=30)
    note_found(report(end=later))
    assert last_found(cluster, "request-pinned", "prefill-0", later) is not None
    assert last_found(cluster, "request-pinned", "prefill-0", NOW + timedelta(minutes=61)) is None


@pytest.mark.parametrize("text", ["", "[]", '{"found": [{}]}', '{"found": [{"at": 3}]}', "nonsense"])
def test_a_damaged_file_of_what_was_found_is_as_none(text: str, cluster: Cluster, tmp_path: Path) -> None:
    note_found(report(finding()))
    (tmp_path / "state/pdctl/last/prod.json").write_text(text)
    assert last_found(cluster, "request-pinned", "prefill-0", NOW) is None
    note_found(report(finding()))
    assert last_found(cluster, "request-pinned", "prefill-0", NOW) is not None


def test_a_cluster_of_any_name_has_a_file_of_its_own_in_that_folder(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("../../etc/x", "a b", "", "ü" * 300):
        note_found(Report(name, NOW, NOW, 1, (finding(),)))
    files = list((tmp_path / "state/pdctl/last").iterdir())
    assert len(files) == 4 and all(f.parent == tmp_path / "state/pdctl/last" for f in files)
