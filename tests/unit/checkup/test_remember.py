"""What earlier runs saw: joined in time, forgotten rather than doubted."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pdctl.checkup import remember
from pdctl.checkup.remember import Instant, Memory, joined, keep, memory_path, recall, remembered
from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge, ServerInfo
from pdctl.model.host import SocketRow, Sockets
from pdctl.model.rank import WHOLE
from pdctl.model.window import Window

START = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)
CLUSTER = Cluster("prod/a b", (Instance("prefill-0", Role.PREFILL, "http://192.0.2.1:1"),))


def at(seconds: float, jumped: float = 0.0) -> Instant:
    """A moment so many seconds after the start, by a wall clock that was set by ``jumped`` meanwhile."""
    return Instant(START.timestamp() + seconds + jumped, 5000.0 + seconds)


def page(value: float) -> EngineMetrics:
    return EngineMetrics({Gauge.INFLIGHT: {WHOLE: value}})


def seen(
    minute: float, value: object, t: float = 0.5, subject: str = "prefill-0", fact: Fact = Fact.METRICS
) -> Observation[Any]:
    got = value if isinstance(value, Missed) else Seen(value)
    return Observation(subject, fact, t, START + timedelta(seconds=60 * minute + t), 0.01, "GET x", got, 200)


def window(minute: float, *rows: Observation[Any]) -> Window:
    start = START + timedelta(minutes=minute)
    return Window(start, start + timedelta(seconds=1), rows, live=True)


def after_runs(rows: Sequence[Sequence[Observation[Any]]], keep_s: float = 900.0) -> Memory:
    """The memory after a run a minute."""
    memory = Memory()
    for minute, run in enumerate(rows):
        memory = remembered(memory, window(minute, *run), at(60 * minute), at(60 * minute + 1), keep_s)
    return memory


def saved(path: Path, memory: Memory, now: Instant) -> None:
    keep(path, memory, now)


def test_runs_a_minute_apart_become_one_window_with_one_time(tmp_path: Path) -> None:
    memory = after_runs([[seen(0, page(2.0))], [seen(1, page(2.0))]])
    saved(tmp_path / "m", memory, at(61))
    back = recall(tmp_path / "m", at(120))
    whole = joined(back, window(2, seen(2, page(3.0))), at(120))
    readings = whole.seen("prefill-0", Fact.METRICS, EngineMetrics)
    assert [(r.t, r.value.total(Gauge.INFLIGHT)) for r in readings] == [(0.5, 2.0), (60.5, 2.0), (120.5, 3.0)]
    assert (whole.start, whole.live) == (START, True)
    assert readings[-1].seen.at == START + timedelta(seconds=120.5)


def test_the_first_run_is_judged_alone(tmp_path: Path) -> None:
    now = window(0, seen(0, page(1.0)))
    memory = recall(tmp_path / "none", at(0))
    assert memory.forgot is None and joined(memory, now, at(0)) is now


def test_of_a_short_look_the_two_ends_are_remembered() -> None:
    memory = after_runs([[seen(0, page(float(n)), t=float(n)) for n in range(9)]])
    assert [row[2] for row in memory.runs[0].rows] == [0.0, 8.0]


def test_what_is_too_old_or_too_much_is_left_out() -> None:
    rows = [[seen(n, page(1.0))] for n in range(20)]
    assert len(after_runs(rows).runs) == remember.KEEP_RUNS
    assert [run.start.boot for run in after_runs(rows, keep_s=150.0).runs] == [5000.0 + 60 * n for n in (17, 18, 19)]


def test_several_runs_a_minute_reach_back_as_far_as_one_does() -> None:
    memory = Memory()
    moments = [60.0 * minute + second for minute in range(14) for second in (0.0, 1.0, 2.0)]
    for moment in moments:
        made = window(moment / 60, seen(moment / 60, page(1.0)))
        memory = remembered(memory, made, at(moment), at(moment + 0.5))
    kept = [run.start.boot - 5000.0 for run in memory.runs]
    assert len(kept) == remember.KEEP_RUNS and kept[0] == 0.0 and kept[-1] == moments[-1]
    assert max(b - a for a, b in pairwise(kept)) <= 62.0


def test_a_memory_read_later_than_it_reaches_is_empty_and_nothing_to_complain_of(tmp_path: Path) -> None:
    saved(tmp_path / "m", after_runs([[seen(0, page(1.0))]]), at(1))
    memory = recall(tmp_path / "m", at(1000))
    assert memory.runs == () and memory.forgot is None


def test_who_does_not_answer_now_is_not_judged_by_what_it_said_a_minute_ago() -> None:
    miss = Missed(Why.READ_TIMEOUT, "no answer")
    memory = after_runs([[seen(0, page(2.0))], [seen(1, miss)]])
    whole = joined(memory, window(2, seen(2, miss)), at(120))
    assert [o.got for o in whole.timeline("prefill-0", Fact.METRICS)] == [miss, miss]


def test_earlier_misses_of_one_that_answers_now_are_kept() -> None:
    miss = Missed(Why.READ_TIMEOUT, "no answer")
    whole = joined(after_runs([[seen(0, miss)]]), window(1, seen(1, page(0.0))), at(60))
    assert [isinstance(o.got, Missed) for o in whole.timeline("prefill-0", Fact.METRICS)] == [True, False]


def test_what_was_not_looked_at_now_is_not_judged_by_an_earlier_look() -> None:
    rows = [seen(0, page(2.0)), seen(0, Sockets(()), subject="host:h", fact=Fact.SOCKETS)]
    whole = joined(after_runs([rows]), window(1, seen(1, page(2.0))), at(60))
    assert whole.timeline("host:h", Fact.SOCKETS) == ()


def test_settings_are_remembered_once_as_they_were_last_told_and_when_they_are_not_told_again() -> None:
    info = [ServerInfo(v) for v in ("0.5.19", "0.5.23")]
    rows = [[seen(n, page(1.0)), seen(n, info[n], fact=Fact.SERVER_INFO)] for n in range(2)]
    memory = after_runs([*rows, [seen(2, Missed(Why.READ_TIMEOUT), fact=Fact.SERVER_INFO)]])
    miss = seen(3, Missed(Why.READ_TIMEOUT), fact=Fact.SERVER_INFO)
    whole = joined(memory, window(3, seen(3, page(1.0)), miss), at(180))
    assert [v.value.version for v in whole.seen("prefill-0", Fact.SERVER_INFO, ServerInfo)] == ["0.5.23"]
    assert len(whole.missed("prefill-0", Fact.SERVER_INFO)) == 2


def test_listings_of_very_many_sockets_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remember, "MOST_SOCKETS", 1)
    row = SocketRow("ESTAB", 0, 0, "a", 1, "b", 2)
    few, many = (Sockets((row,) * n) for n in (1, 2))
    rows = [seen(0, value, subject=name, fact=Fact.SOCKETS) for name, value in (("host:a", few), ("host:b", many))]
    assert [r[0] for r in after_runs([rows]).runs[0].rows] == ["host:a"]


# --- forgetting --------------------------------------------------------------------------------------------------


def written(tmp_path: Path) -> Path:
    path = tmp_path / "m"
    saved(path, after_runs([[seen(0, page(1.0))]]), at(1))
    return path


@pytest.mark.parametrize("jump", [-3600.0, -2.5, 2.5, 86400.0])
def test_a_clock_that_was_set_makes_it_forget(jump: float, tmp_path: Path) -> None:
    memory = recall(written(tmp_path), at(60, jumped=jump))
    assert memory.runs == () and f"by {abs(jump):.0f} s" in (memory.forgot or "")
    assert ("forward" if jump > 0 else "back") in (memory.forgot or "")


def test_a_clock_that_drifts_as_clocks_do_does_not(tmp_path: Path) -> None:
    assert len(recall(written(tmp_path), at(600, jumped=0.3)).runs) == 1


def test_a_machine_that_was_restarted_makes_it_forget(tmp_path: Path) -> None:
    now = Instant(START.timestamp() + 120, 30.0)
    assert "restarted" in (recall(written(tmp_path), now).forgot or "")


def test_a_run_in_which_the_clock_was_set_is_not_remembered_nor_are_those_before_it() -> None:
    memory = after_runs([[seen(0, page(1.0))]])
    memory = remembered(memory, window(1, seen(1, page(1.0))), at(60), at(65, jumped=3600.0))
    assert memory.runs == () and "forward" in (memory.forgot or "")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: b"\x00\xff" * 100,
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"METRICS", b"metrics") + b" ",
        lambda data: data.replace(b"200", b"201", 1),
        lambda data: b"[]\n" + data.partition(b"\n")[2],
        lambda data: b"null\n{}",
        lambda data: b"{" * 100_000,
    ],
)
def test_a_damaged_file_is_forgotten_and_said(spoil: Any, tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(spoil(path.read_bytes()))
    memory = recall(path, at(60))
    assert memory.runs == () and memory.forgot == "its file is damaged"


def test_one_of_another_version_is_forgotten_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    monkeypatch.setattr(remember, "shape", lambda kinds: "another")
    assert recall(path, at(60)).forgot == "its file is of another version of pdctl"


def test_one_of_another_cluster_is_forgotten_and_said(tmp_path: Path) -> None:
    """A folder restored from a backup, say, or renamed by hand."""
    saved(tmp_path / "prod-a.memory", after_runs([[seen(0, page(1.0))]]), at(1))
    (tmp_path / "prod-a.memory").rename(tmp_path / "prod-b.memory")
    memory = recall(tmp_path / "prod-b.memory", at(60))
    assert memory.runs == () and memory.forgot == "its file is of another cluster"


def test_a_link_in_its_place_is_not_read(tmp_path: Path) -> None:
    real = written(tmp_path)
    (tmp_path / "link").symlink_to(real)
    memory = recall(tmp_path / "link", at(60))
    assert memory.runs == () and memory.forgot


def test_what_a_valid_file_holds_of_nonsense_is_an_error_that_the_check_expects(tmp_path: Path) -> None:
    path = written(tmp_path)
    memory = recall(path, at(60))
    memory = replace(memory, runs=(replace(memory.runs[0], rows=([1, 2, 3],)),))
    with pytest.raises(remember.BAD):
        joined(memory, window(1, seen(1, page(1.0))), at(60))


# --- keeping -----------------------------------------------------------------------------------------------------


def test_it_is_this_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m"
    saved(path, after_runs([[seen(0, page(1.0))]]), at(1))
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


def test_it_stays_small_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = after_runs([[seen(n, page(1.0))] for n in range(8)])
    saved(tmp_path / "m", memory, at(430))
    monkeypatch.setattr(remember, "MOST_BYTES", (tmp_path / "m").stat().st_size // 2)
    saved(tmp_path / "m", memory, at(430))
    kept = recall(tmp_path / "m", at(440)).runs
    assert 0 < len(kept) < 8 and kept[-1].start == at(420)


def test_other_endpoints_and_other_stages_have_a_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    moved = replace(CLUSTER, instances=(replace(CLUSTER.instances[0], url="http://192.0.2.2:1"),))
    paths = [memory_path(CLUSTER, "all"), memory_path(moved, "all"), memory_path(CLUSTER, "reach")]
    assert len(set(paths)) == 3 and memory_path(CLUSTER, "all") == paths[0]
    for path in paths:
        assert path.parent == Path("/state/pdctl/check") and os.sep not in path.name and " " not in path.name


def test_last_success_and_what_was_kept_of_a_failure_survive(tmp_path: Path) -> None:
    memory = replace(after_runs([[seen(0, page(1.0))]]), last_success=7.0, failing="x@y", failing_at=9.0)
    saved(tmp_path / "m", memory, at(1))
    back = recall(tmp_path / "m", at(2), keep_s=0.0)
    assert (back.runs, back.last_success, back.failing, back.failing_at) == ((), 7.0, "x@y", 9.0)


def test_the_file_is_a_line_of_what_it_is_and_a_line_of_json(tmp_path: Path) -> None:
    head, _, body = written(tmp_path).read_bytes().partition(b"\n")
    assert json.loads(head)["pdctl-memory"] == remember.FORMAT and json.loads(body)["runs"]
