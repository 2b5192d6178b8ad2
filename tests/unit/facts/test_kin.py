"""Which processes are an instance's."""

from __future__ import annotations

import pytest

from pdctl.facts.flags import read_launch
from pdctl.facts.gpus_of import gpu_of
from pdctl.facts.kin import kin_of
from pdctl.facts.proc_listing import Listed
from pdctl.model.cluster import Instance, Role
from pdctl.model.rank import Rank


def process(pid: int, ppid: int, line: str, unit: str | None = None, comm: str = "python") -> Listed:
    return Listed(pid, ppid, comm, "S", tuple(line.split()), 0.0, 0.0, 0, unit=unit)


LAUNCH = "/srv/venv/bin/python -m sglang.launch_server"
ROWS = (
    process(1, 0, "/lib/systemd/systemd", comm="systemd"),
    process(10, 1, f"{LAUNCH} --port 30100 --disaggregation-mode prefill", "p.service"),
    process(11, 10, "sglang::scheduler_TP0", "p.service"),
    process(12, 10, "sglang::scheduler_TP1", "p.service"),
    process(20, 1, f"{LAUNCH} --disaggregation-mode=decode --port=30200"),
    process(21, 20, "sglang::data_parallel_controller"),
    process(22, 21, "sglang::scheduler_DP0"),
    process(23, 21, "sglang::scheduler_DP1"),
    process(30, 1, "sglang::router"),
    process(40, 1, "bash -c tail -f x", comm="bash"),
)


def pids(instance: Instance, listening: dict[int, frozenset[int]] | None = None) -> tuple[int, ...]:
    return tuple(row.pid for row in kin_of(instance, ROWS, listening).rows)


def engine(role: Role, port: int, unit: str | None = None) -> Instance:
    return Instance("x", role, url=f"http://127.0.0.1:{port}", unit=unit)


@pytest.mark.parametrize("unit", ["p", "p.service"])
def test_by_unit(unit: str) -> None:
    kin = kin_of(engine(Role.PREFILL, 1, unit), ROWS)
    assert [row.pid for row in kin.rows] == [10, 11, 12]
    assert kin.by == "unit p.service"


def test_by_command_line_and_then_by_descent() -> None:
    """The controller stands between the main process and its schedulers: they belong to it all the same."""
    assert pids(engine(Role.DECODE, 30200)) == (20, 21, 22, 23)


def test_a_unit_that_holds_nothing_falls_back_to_the_command_line() -> None:
    assert pids(engine(Role.DECODE, 30200, "gone.service")) == (20, 21, 22, 23)


def test_the_role_must_fit() -> None:
    assert pids(engine(Role.PREFILL, 30200)) == ()


def test_another_port_is_another_engine() -> None:
    assert pids(engine(Role.DECODE, 30100)) == ()


def test_a_router_without_flags_is_told_by_the_port_it_listens_on() -> None:
    router = Instance("r", Role.ROUTER, url="http://127.0.0.1:8000")
    assert pids(router) == ()
    assert pids(router, {8000: frozenset({30})}) == (30,)


def test_a_router_is_no_engine_on_the_same_port() -> None:
    assert pids(Instance("r", Role.ROUTER, url="http://127.0.0.1:30100")) == ()


def test_the_default_port_counts() -> None:
    rows = (process(5, 1, "sglang serve --model-path x"),)
    assert kin_of(Instance("p", Role.PREFILL, url="http://127.0.0.1:30000"), rows).rows == rows


def test_a_shell_that_names_the_command_is_not_it() -> None:
    rows = (process(5, 1, f"bash -x {LAUNCH} --port 30100", comm="bash"),)
    assert kin_of(engine(Role.PREFILL, 30100), rows).rows == ()


def test_a_loop_of_parents_ends() -> None:
    rows = (process(5, 6, f"{LAUNCH} --port 30100"), process(6, 5, "x"))
    assert {row.pid for row in kin_of(engine(Role.PREFILL, 30100), rows).rows} == {5, 6}


@pytest.mark.parametrize(
    ("rank", "flags", "visible", "gpu"),
    [
        (Rank(tp=3), {"--tp-size": "4"}, None, "3"),
        (Rank(tp=3), {"--tp-size": "4", "--base-gpu-id": "4"}, None, "7"),
        (Rank(tp=3), {"--tp-size": "4", "--gpu-id-step": "2"}, None, "6"),
        (Rank(pp=1, tp=1), {"--tp-size": "2", "--pp-size": "2"}, None, "3"),
        (Rank(tp=9), {"--tp-size": "16", "--nnodes": "2"}, None, "1"),
        (Rank(dp=1, tp=1), {"--tp-size": "2", "--dp-size": "2"}, None, "3"),
        (Rank(dp=1, tp=1), {"--tp-size": "2", "--dp-size": "2", "--enable-dp-attention": ""}, None, "1"),
        (Rank(), {}, None, "0"),
        (Rank(tp=1), {"--tp-size": "2"}, "6,7", "7"),
        (Rank(tp=1), {"--tp-size": "2"}, "GPU-aa, GPU-bb", "GPU-bb"),
        (Rank(tp=1), {"--tp-size": "2"}, "6", None),
        (Rank(tp=1), {"--tp-size": "2", "--device": "cpu"}, None, None),
        (Rank(tp=1), {"--tp-size": "many"}, None, None),
        (Rank(pp=1), {"--pp-size": "4", "--nnodes": "2"}, None, None),
    ],
)
def test_gpus(rank: Rank, flags: dict[str, str], visible: str | None, gpu: str | None) -> None:
    assert gpu_of(rank, flags, visible) == gpu


def test_a_command_line_is_read_once_however_many_instances_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[str, ...]] = []

    def counted(argv: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
        reads.append(argv)
        return read_launch(argv)

    monkeypatch.setattr("pdctl.facts.kin.read_launch", counted)
    rows = tuple(process(n, 1, f"{LAUNCH} --port {30000 + n}") for n in range(2, 42))
    for n in range(2, 42):
        assert kin_of(engine(Role.PREFILL, 30000 + n), rows).rows == (rows[n - 2],)
    assert len(reads) == len(rows)


def test_a_list_that_changes_is_read_anew() -> None:
    rows = [process(5, 1, f"{LAUNCH} --port 30100")]
    assert len(kin_of(engine(Role.PREFILL, 30100), rows).rows) == 1
    rows.append(process(6, 5, "x"))
    assert len(kin_of(engine(Role.PREFILL, 30100), rows).rows) == 2
