"""What a restart stands on, read from answers: requests under way, processes left over, disks, GPU memory, times."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pdctl.execute.seeing import identities_of_kin, identity_of_unit, listening
from pdctl.execute.survey import inventory_digest, stop_seconds
from pdctl.execute.survey_hosts import leftovers_of, strangers_of
from pdctl.facts.asks_ground import disks_ask, last_line, read_disks, read_gpu_apps, syntax_ask
from pdctl.facts.kin import Kin
from pdctl.facts.proc_listing import Listed
from pdctl.model.answer import Answer, Fact, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow, Loads
from pdctl.model.host import Unit
from pdctl.model.plan import Disk, Identity
from pdctl.model.rank import Rank
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window
from pdctl.plans.active import active_of, gauges_of
from pdctl.reach.local import LocalReach

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PREFILL = Instance("p", Role.PREFILL, "http://a:1")
ROUTER = Instance("r", Role.ROUTER, "http://a:2", "http://a:3/metrics")


def answer(body: bytes | None, error: Why | None = None) -> Answer:
    return Answer("x", Fact.FILE, "", 0.0, NOW, 0.1, None if error else 0, error, None, body)


def window(*values: tuple[str, Fact, object]) -> Window:
    rows = tuple(Observation(n, f, 0.0, NOW, 0.1, "GET", Seen(v), 200) for n, f, v in values)
    return Window(NOW, NOW, rows)


def page(http: float | None = None, **values: float) -> EngineMetrics:
    return EngineMetrics({Gauge(k.replace("_", "-")): {Rank(): v} for k, v in values.items()}, http_active=http)


# --- requests under way -----------------------------------------------------------------------------------------------


def test_live_counts_are_summed_over_queues_and_ranks() -> None:
    loads = Loads((LoadRow(0, running=2, inflight=1), LoadRow(1, running=1, waiting=0)))
    found = active_of(window(("p", Fact.LOADS, loads)), PREFILL)
    assert (found.count, dict(found.parts), found.source) == (
        4,
        {"running": 3, "inflight": 1, "queue": 0},
        "live counts",
    )


def test_open_http_requests_count_where_they_are_more() -> None:
    seen = window(("p", Fact.LOADS, Loads((LoadRow(None, running=0),))), ("p", Fact.METRICS, page(http=2.0)))
    assert active_of(seen, PREFILL).count == 2
    assert active_of(window(("p", Fact.METRICS, page(http=0.0))), PREFILL).count == 0


def test_gauges_are_the_last_resort_and_said_to_be() -> None:
    found = active_of(window(("p", Fact.METRICS, page(running=3.0, token_usage=0.5))), PREFILL)
    assert found.count == 3 and found.source == "gauges, which may be old"


def test_what_cannot_be_seen_is_not_zero() -> None:
    assert active_of(window(), PREFILL).count is None
    assert active_of(window(("p", Fact.METRICS, page())), PREFILL).count is None
    assert active_of(window(("r", Fact.METRICS, RouterMetrics("sgl_router"))), ROUTER).count is None


def test_a_router_counts_for_itself() -> None:
    metrics = RouterMetrics("smg", active={"http://a:1": 3.0, "http://b:1": 2.0})
    assert active_of(window(("r", Fact.METRICS, metrics)), ROUTER).count == 3
    assert gauges_of(window(("r", Fact.METRICS, metrics)), ROUTER) == {"active": 3.0}


def test_gauges_shown_prefer_live_counts_and_keep_what_is_absent_absent() -> None:
    seen = window(
        ("p", Fact.METRICS, page(running=9.0, inflight=1.0)), ("p", Fact.LOADS, Loads((LoadRow(0, running=2),)))
    )
    assert gauges_of(seen, PREFILL) == {"running": 2.0, "inflight": 1.0}


# --- processes --------------------------------------------------------------------------------------------------------


def row(pid: int, ppid: int, title: str, *, state: str = "S", started: float = 100.0) -> Listed:
    return Listed(pid, ppid, title[:15], state, tuple(title.split()), started, 0.0, 0)


ENGINE = "python -m sglang.launch_server --port 1 --disaggregation-mode prefill"


def test_schedulers_whose_engine_is_gone_are_left_over() -> None:
    rows = (
        row(1, 0, "init"), row(10, 1, ENGINE), row(11, 10, "sglang::scheduler"), row(12, 1, "sglang::scheduler_TP1"),
        row(13, 1, "sglang::detokenizer", state="Z"), row(14, 1, "python train.py"),
    )  # fmt: skip
    (left,) = leftovers_of(rows, {10}, {12: 71000.0, 14: 5.0})
    assert (left.pid, left.gpu_mib) == (12, 71000.0)


def test_another_clusters_engine_is_nothing_left_over() -> None:
    rows = (row(10, 1, ENGINE), row(15, 10, "sglang::data_parallel_controller"), row(16, 15, "sglang::scheduler_DP0"))
    assert list(leftovers_of(rows, set(), {16: 100.0})) == []


def test_a_process_that_is_its_own_ancestor_ends_the_search() -> None:
    assert len(list(leftovers_of((row(20, 21, "sglang::scheduler"), row(21, 20, "sglang::detok")), set(), {}))) == 2


def test_the_main_processes_are_those_without_a_parent_among_them() -> None:
    kin = Kin((row(10, 1, ENGINE, started=50.0), row(11, 10, "sglang::scheduler"), row(20, 1, ENGINE, state="Z")))
    assert identities_of_kin(kin) == (Identity(10, datetime.fromtimestamp(50, UTC)),)


def test_a_unit_is_known_by_its_run() -> None:
    running = Unit({"InvocationID": "abc"}, main_pid=7, active="active", since=NOW)
    assert identity_of_unit(running) == (Identity(7, NOW, "abc"),)
    exited = Unit({"InvocationID": "abc"}, active="active", sub="exited", since=NOW)
    assert identity_of_unit(exited) == (Identity(0, NOW, "abc"),)
    assert identity_of_unit(Unit({"InvocationID": "abc"}, active="failed")) == ()


def test_listeners_are_read_by_port() -> None:
    text = b'LISTEN 0 5 127.0.0.1:8000 0.0.0.0:* users:(("smg",pid=7,fd=3),("smg",pid=8,fd=3))\n'
    found = listening(Answer("x", Fact.SOCKETS, "ss -tlnp", 0.0, NOW, 0.1, 0, None, None, text))
    assert 8000 in found and 7 in found[8000]
    assert listening(None) == {} and listening(answer(None, Why.NO_SUCH_TOOL)) == {}


# --- hosts ------------------------------------------------------------------------------------------------------------


def test_disks_are_read_once_each() -> None:
    text = b"/dev/sda1 1000 900 100 90% /\ntmpfs 500 0 500 0% /dev/shm\n/dev/sda1 1000 900 100 90% /\ngarbage\n"
    assert read_disks(answer(text)) == (Disk("/", 100 * 1024, 1000 * 1024), Disk("/dev/shm", 500 * 1024, 500 * 1024))
    assert read_disks(answer(b"")) is None and read_disks(answer(b"x", Why.SSH)) is None


def test_of_a_file_that_is_not_there_yet_the_disk_is_that_of_its_folder(tmp_path: Path) -> None:
    host = Host("here")
    ask = disks_ask(host, (str(tmp_path / "not" / "yet" / "x.log"), "relative"))
    seen = read_disks(LocalReach(host).run(ask, started=0.0, deadline=time.monotonic() + 20))
    real = os.statvfs(tmp_path)
    assert seen is not None and real.f_blocks * real.f_frsize // 1024 * 1024 in {disk.size for disk in seen}


def test_a_script_is_handed_to_bash_so_that_nobody_has_to_read_it_again() -> None:
    host = Host("here")
    for raw, error in ((b"echo ${x}\n", None), (b"if true; then\n", Why.OTHER)):
        ask = syntax_ask(PREFILL, host, "/only/for/root.sh", raw)
        answer = LocalReach(host).run(ask, started=0.0, deadline=time.monotonic() + 20)
        assert (answer.error is None) == (error is None) and (error is None or answer.status in (1, 2))
        assert answer.ask == "bash -n /only/for/root.sh"


def test_who_holds_gpu_memory_and_is_of_no_instance() -> None:
    rows = (row(10, 1, ENGINE), row(11, 10, "sglang::scheduler"), row(14, 1, "python train.py"))
    found = list(strangers_of(rows, {10, 11}, {11: 70000.0, 14: 5.0, 99: 0.0}))
    assert [(left.pid, left.title, left.gpu_mib) for left in found] == [
        (14, "python train.py", 5.0),
        (99, "not among the host's processes", None),
    ]


def test_gpu_memory_is_summed_over_gpus() -> None:
    assert read_gpu_apps(answer(b"11, 100\n11, 50\n12, [N/A]\nNo running processes\n")) == {11: 150.0, 12: 0.0}
    assert read_gpu_apps(answer(b"")) == {} and read_gpu_apps(answer(None, Why.NO_SUCH_TOOL)) is None


def test_the_last_line_of_a_log_is_the_last_with_anything_in_it() -> None:
    assert last_line(answer(b"one\ntwo \xff\n\n  \n")) == "two \ufffd"
    coloured = b"\x1b[2m2026-11-30\x1b[0m \x1b[32m INFO\x1b[0m ready " + b"x" * 1000 + b"\n"
    shown = last_line(answer(coloured))
    assert shown is not None and shown.startswith("2026-11-30  INFO ready xxx") and len(shown) == 300
    assert last_line(answer(b"\n")) is None and last_line(answer(b"x", Why.PERMISSION)) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1min 30s", 90.0),
        ("3min", 180.0),
        ("90s", 90.0),
        ("500ms", 0.5),
        ("1h 2min", 3720.0),
        ("infinity", None),
        ("", None),
    ],
)
def test_how_long_systemd_lets_a_unit_stop(text: str, seconds: float | None) -> None:
    assert stop_seconds(Unit({"TimeoutStopUSec": text})) == seconds


def test_any_change_of_the_inventory_changes_its_digest() -> None:
    one = Cluster("c", (PREFILL,))
    assert inventory_digest(one) == inventory_digest(Cluster("c", (PREFILL,), source="elsewhere"))
    for other in (
        Cluster("d", (PREFILL,)),
        Cluster("c", (ROUTER,)),
        Cluster("c", (Instance("p", Role.PREFILL, "http://b:1"),)),
    ):
        assert inventory_digest(one) != inventory_digest(other)
