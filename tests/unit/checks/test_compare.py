"""Two windows side by side: what differs is told, what does not is counted, what can't be compared is listed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from scene import START, D, P, R, Scene, pair, times

from pdctl.checks import judge
from pdctl.checks.compare import compare
from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.comparison import Comparison, Difference, Kind, Side
from pdctl.model.engine import EngineMetrics, Gauge, ServerInfo
from pdctl.model.host import Checkout, Environ, GpuRow, Gpus, ScriptFile, SocketRow, Sockets, Unit, WatchedFile
from pdctl.model.rank import WHOLE
from pdctl.model.secrets import digest
from pdctl.model.window import Window

LATER = timedelta(hours=2)
CLUSTER = pair(router=True)


def side(window: Window, of: Cluster) -> Side:
    return Side("somewhere", window.start, window.end, window.samples(), judge(window, of))


def later(window: Window) -> Window:
    """The same window two hours on."""
    rows = tuple(replace(o, at=o.at + LATER) for o in window.observations)
    return Window(window.start + LATER, window.end + LATER, rows)


def compared(a: Scene, b: Scene, old: Cluster | None = None, new: Cluster | None = None) -> Comparison:
    one, two = a.window(), later(b.window())
    old, new = old or CLUSTER, new or CLUSTER
    return compare(one, two, old, new, (side(one, old), side(two, new)))


def told(comparison: Comparison, *kinds: Kind) -> list[tuple[str, str, str | None, str | None]]:
    return [(d.subject, d.what, d.before, d.after) for d in comparison.differences if not kinds or d.kind in kinds]


def quiet(inflight: float = 0.0, per_second: float = 5.0, version: str = "0.5.23", **info: object) -> Scene:
    """A cluster that serves so many requests a second."""
    scene = Scene(None)
    for name, mode in ((P, "prefill"), (D, "decode")):
        scene.add(0.0, name, Fact.SERVER_INFO, ServerInfo(version, mode, {"tp_size": 8, **info}))
    for n, t in enumerate(times(30.0)):
        wobble = (n % 3) * 0.4 if per_second else 0.0  # a counter never falls
        scene.page(t, P, inflight=inflight, requests=100 + per_second * t + wobble, start_time=1.7e9)
        scene.loads(t, P, inflight=inflight, running=0)
        scene.page(t, D, running=4 + n % 2, requests=100 + per_second * t + wobble, start_time=1.7e9)
        scene.router(t, active=inflight)
    return scene


# --- gauges and rates --------------------------------------------------------------------------------------------


def test_two_windows_of_the_same_make_are_alike_and_what_was_compared_is_counted() -> None:
    done = compared(quiet(), quiet(per_second=5.2))
    assert told(done) == []
    counts = dict(done.alike)
    assert counts[Kind.GAUGE] > 5 and counts[Kind.RATE] >= 2 and counts[Kind.VERSION] == 2 and done.compared > 10


def test_a_queue_that_stands_and_a_rate_that_fell_are_told_with_their_noise() -> None:
    done = compared(quiet(), quiet(inflight=2.0, per_second=0.0))
    rows = {(d.subject, d.what): d for d in done.differences}
    assert (rows[P, "inflight"].before, rows[P, "inflight"].after) == ("0", "2")
    rate = rows[D, "requests"]
    assert rate.kind is Kind.RATE and rate.spreads is not None and rate.noise is not None
    assert rate.spreads[0].median == pytest.approx(5.0, abs=0.5) and rate.spreads[1].median == pytest.approx(
        0.0, abs=0.5
    )
    assert abs(rate.spreads[0].median - rate.spreads[1].median) > rate.noise
    assert (R, "requests under way") in rows


def test_live_counts_go_before_a_gauge_that_may_be_a_leftover() -> None:
    a, b = quiet(), quiet()
    for t in times(30.0):
        b.page(t + 0.1, P, inflight=9, requests=100 + 5 * t, start_time=1.7e9)
    assert told(compared(a, b), Kind.GAUGE) == []


def test_rates_do_not_cross_a_restart() -> None:
    a, b = quiet(), Scene(None)
    for t in times(30.0):
        count = 1e6 if t < 10 else 5.0 * (t - 10)
        b.page(t, D, running=4 + t % 4 / 2, requests=count, start_time=1.7e9 if t < 10 else 1.8e9)
    done = compared(a, b)
    assert (D, "requests") not in {(d.subject, d.what) for d in done.differences}
    assert (D, "within the window", "went on", "restarted in the window") in told(done, Kind.RESTART)


def test_a_failure_counter_that_appears_counts_from_nothing() -> None:
    a, b = quiet(), quiet()
    b.rows = [o for o in b.rows if not (o.subject == P and o.fact is Fact.METRICS)]
    for t in times(30.0):
        b.page(t, P, inflight=0, requests=100 + 5 * t, transfer_failed=3 * t + 1, start_time=1.7e9)
    assert told(compared(a, b), Kind.RATE) == [(P, "transfer-failed", "0", "3")]


def test_two_readings_are_not_compared_and_that_is_listed() -> None:
    b = Scene(None)
    for t in (0.0, 2.0):
        b.page(t, P, inflight=9)
    done = compared(quiet(), b)
    assert (P, "inflight") in {(n.subject, n.what) for n in done.not_compared}
    assert told(done, Kind.GAUGE, Kind.RATE) == []


def test_gpus_are_compared_by_index() -> None:
    a, b = quiet(), quiet()
    for scene, load in ((a, 90.0), (b, 3.0)):
        for t in times(10.0):
            scene.add(
                t, "host:h", Fact.GPU, Gpus((GpuRow(0, load + t % 4, 300.0, 70_000.0), GpuRow(1, 50.0, None, 1.0)))
            )
    assert told(compared(a, b), Kind.GAUGE) == [("host:h", "gpu 0 utilization", "91", "4")]


# --- plain things ------------------------------------------------------------------------------------------------


def test_a_release_and_a_setting_that_differ_are_told() -> None:
    done = compared(quiet(), quiet(version="0.5.19", chunked=4096))
    assert (P, "release", "0.5.23", "0.5.19") in told(done, Kind.VERSION)
    assert (D, "--chunked", None, "4096") in told(done, Kind.SETTING)


def test_secrets_are_not_compared_their_masked_forms_differ_by_themselves() -> None:
    a, b = quiet(api_key=digest("sk-1234567890abcdef")), quiet(api_key=digest("sk-another7890abcdef"))
    assert told(compared(a, b), Kind.SETTING) == []


def test_an_environment_is_compared_but_for_what_each_start_sets_anew() -> None:
    a, b = quiet(), quiet()
    a.add(0.0, P, Fact.ENVIRON, Environ({"NCCL_DEBUG": "WARN", "INVOCATION_ID": "1", "PWD": "/a"}))
    b.add(0.0, P, Fact.ENVIRON, Environ({"NCCL_DEBUG": "INFO", "INVOCATION_ID": "2", "PWD": "/b"}))
    assert told(compared(a, b), Kind.SETTING) == [(P, "NCCL_DEBUG", "WARN", "INFO")]


def test_scripts_differ_by_what_they_set_and_else_by_their_text() -> None:
    a, b = quiet(), quiet()
    for scene, size, text in ((a, "64", "x"), (b, "32", "y")):
        scene.add(0.0, P, Fact.SCRIPT, ScriptFile("/p.sh", None, f"run --page {size}", {"--page": size}))
        scene.add(0.0, D, Fact.SCRIPT, ScriptFile("/d.sh", None, text))
    assert told(compared(a, b), Kind.SCRIPT) == [
        (P, "/p.sh: --page", "64", "32"),
        (D, "/d.sh", "its text", "another text that sets the same"),
    ]


def test_files_by_their_digest_and_checkouts_by_their_commit() -> None:
    a, b = quiet(), quiet()
    for scene, sha, head in ((a, "1" * 64, "a" * 40), (b, "2" * 64, "b" * 40)):
        scene.add(0.0, P, Fact.FILE, WatchedFile("/env", START, sha))
        scene.add(0.0, P, Fact.FILE, WatchedFile("/same", START, "3" * 64))
        scene.add(0.0, P, Fact.GIT, Checkout(head, "main", ("x",) if head[0] == "b" else (), path="/src"))
    rows = told(compared(a, b), Kind.SCRIPT)
    assert [row[1] for row in rows] == ["/env", "checkout /src"]
    assert rows[1][3] == "bbbbbbbbbbbb and 1 uncommitted file(s)"


@pytest.mark.parametrize("what", ["start", "counter"])
def test_another_process_is_told_by_its_start_or_else_by_a_counter_that_fell(what: str) -> None:
    a, b = Scene(None), Scene(None)
    for t in times(10.0):
        more: dict[str, float] = {"start_time": 1.7e9} if what == "start" else {}
        a.page(t, P, inflight=0, requests=1000 + t, **more)
        more = {"start_time": 1.8e9} if what == "start" else {}
        b.page(t, P, inflight=0, requests=(2000 if what == "start" else 5) + t, **more)
    assert told(compared(a, b), Kind.RESTART) == [(P, "process", "one process", "another: restarted between")]


def test_restarts_of_a_unit_are_told() -> None:
    a, b = quiet(), quiet()
    for scene, count in ((a, 0), (b, 2)):
        scene.add(0.0, P, Fact.UNIT, Unit({}, restarts=count))
    assert told(compared(a, b), Kind.RESTART) == [(P, "NRestarts of its unit", "0", "2")]


def test_connections_differ_by_more_than_comings_and_goings() -> None:
    def listing(waiting: int, busy: int) -> Sockets:
        rows = [SocketRow("LISTEN", 0, 128, "192.0.2.11", 30000, "*", None, "python3", 7)]
        for n in range(waiting + busy):
            state = "CLOSE-WAIT" if n < waiting else "ESTAB"
            rows.append(SocketRow(state, 0, 0, "192.0.2.11", 30000, "192.0.2.31", 40000 + n, "python3", 7))
        return Sockets(tuple(rows))

    a, b = quiet(), quiet()
    a.add(0.0, P, Fact.SOCKETS, listing(2, 20))
    b.add(0.0, P, Fact.SOCKETS, listing(90, 24))
    rows = told(compared(a, b), Kind.SOCKETS)
    assert [(row[0], row[2], row[3]) for row in rows] == [(P, "2", "90")] and "CLOSE-WAIT" in rows[0][1]


def test_a_client_under_another_process_number_is_the_same_client() -> None:
    def listing(pid: int) -> Sockets:
        rows = [SocketRow("LISTEN", 0, 128, "127.0.0.1", 30000, "*", None, "python3", 7)]
        for port in range(40000, 40060):
            rows.append(SocketRow("ESTAB", 0, 0, "127.0.0.1", 30000, "127.0.0.1", port, "python3", 7))
            rows.append(SocketRow("ESTAB", 0, 0, "127.0.0.1", port, "127.0.0.1", 30000, "bench", pid))
        return Sockets(tuple(rows))

    a, b = quiet(), quiet()
    a.add(0.0, P, Fact.SOCKETS, listing(811))
    b.add(0.0, P, Fact.SOCKETS, listing(9402))
    done = compared(a, b)
    assert told(done, Kind.SOCKETS) == [] and dict(done.alike)[Kind.SOCKETS] >= 1


def test_which_of_the_two_came_first_does_not_matter_for_a_restart() -> None:
    a, b = Scene(None), Scene(None)
    for t in times(10.0):
        a.page(t, P, inflight=0, requests=5 + t)
        b.page(t, P, inflight=0, requests=1000 + t)
    one, two = later(a.window()), b.window()
    done = compare(one, two, CLUSTER, CLUSTER, (side(one, CLUSTER), side(two, CLUSTER)))
    assert [d.what for d in done.differences if d.kind is Kind.RESTART] == ["process"]


def test_windows_of_the_same_time_do_not_tell_a_restart_and_that_is_said() -> None:
    scene = Scene(None)
    for t in times(10.0):
        scene.page(t, P, inflight=0, requests=1000 + t)
    window = scene.window()
    done = compare(window, window, CLUSTER, CLUSTER, (side(window, CLUSTER), side(window, CLUSTER)))
    why = {n.why for n in done.not_compared if n.what == "restarts"}
    assert why == {"no start of a process is told, and the two are of the same time"}


# --- findings, instances, gaps -----------------------------------------------------------------------------------


def pinned() -> Scene:
    scene = quiet(inflight=2.0, per_second=0.0)
    for t in times(30.0):
        scene.loads(t + 0.2, D, transfer=2)
    return scene


def test_findings_that_came_and_that_went_are_told_with_what_they_say() -> None:
    came = compared(quiet(), pinned())
    first = came.differences[0]
    assert (first.kind, first.subject, first.what, first.before, first.after) == (
        Kind.FINDING, P, "request-pinned", "not there", "there",
    )  # fmt: skip
    assert first.finding is not None and "inflight" in first.finding.summary
    went = compared(pinned(), quiet()).differences[0]
    assert (went.what, went.before, went.after) == ("request-pinned", "there", "not there")


def test_the_same_finding_on_both_sides_is_no_difference() -> None:
    done = compared(pinned(), pinned())
    assert told(done, Kind.FINDING) == [] and dict(done.alike)[Kind.FINDING] >= 1


def test_who_is_only_on_one_side_and_who_stopped_answering_are_told() -> None:
    new = CLUSTER
    new = replace(new, instances=(*(i for i in new.instances if i.name != R), Instance("x", Role.DECODE, "http://x:1")))
    b = quiet()
    b.rows = [o for o in b.rows if o.subject != D]
    for t in times(30.0):
        b.miss(t, D, Fact.METRICS, Why.CONNECT_REFUSED)
    rows = told(compared(quiet(), b, new=new), Kind.INSTANCE)
    assert (R, "instance", "in the inventory", None) in rows
    assert ("x", "instance", None, "in the inventory") in rows
    assert (D, "instance", "answered", "did not answer") in rows


def test_who_can_not_be_seen_is_not_compared_and_never_called_alike() -> None:
    b = Scene(None)
    for name in (P, D, R):
        b.miss(0.0, name, Fact.METRICS, Why.READ_TIMEOUT)
        b.miss(0.0, name, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    done = compared(quiet(), b)
    assert done.compared == 0 and {n.subject for n in done.not_compared} >= {P, D, R}
    assert (P, "release", "it is not told on both sides") in {(n.subject, n.what, n.why) for n in done.not_compared}


def test_what_neither_side_asked_for_is_no_gap() -> None:
    whats = {n.what for n in compared(quiet(), quiet()).not_compared}
    assert not whats & {"environment", "serve script", "sockets", "watched files"}


def test_differences_come_in_the_order_people_ask_for_them() -> None:
    kinds = [d.kind for d in compared(quiet(), quiet(inflight=2.0, per_second=0.0, version="0.5.19")).differences]
    assert kinds == sorted(kinds, key=list(Kind).index)


def test_hostile_values_do_not_break_it() -> None:
    a, b = quiet(), quiet()
    for scene, value in ((a, float("nan")), (b, float("inf"))):
        page = EngineMetrics({Gauge.TOKEN_USAGE: {WHOLE: value}})
        scene.rows += [
            Observation(D, Fact.METRICS, t, START + timedelta(seconds=t), 0.01, "GET x", Seen(page), 200)
            for t in times(30.0)
        ]
    done: Any = compared(a, b)
    assert (D, "token-usage") in {(n.subject, n.what) for n in done.not_compared}
    assert all(isinstance(d, Difference) and d.what != "token-usage" for d in done.differences)


def test_a_miss_is_no_reading() -> None:
    b = quiet()
    b.rows += [replace(o, got=Missed(Why.READ_TIMEOUT), t=o.t + 0.3) for o in b.rows if o.fact is Fact.METRICS]
    assert told(compared(quiet(), b), Kind.GAUGE, Kind.RATE) == []
