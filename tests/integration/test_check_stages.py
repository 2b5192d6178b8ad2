"""The stages of a check beyond HTTP: what the hosts say, real requests, stacks."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from lapse import Lapse, lapsing
from small_cluster import small_cluster

from pdctl.checks.stages import choose
from pdctl.checkup import remember
from pdctl.checkup import run as checkup
from pdctl.checkup.order import Order
from pdctl.checkup.run import check
from pdctl.cli import main
from pdctl.demo.run import started
from pdctl.inventory.toml import read_cluster
from pdctl.model.checkrun import CheckRun
from pdctl.model.cluster import Cluster, Host
from pdctl.model.finding import Status
from pdctl.reach.local_sockets import has_ss

HERE = Host("here")


@pytest.fixture
def lapse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Lapse]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with lapsing("load") as made:
        for module in (checkup, remember):
            monkeypatch.setattr(module, "since_boot", made.clock.since_boot)
        yield made


def on_host(cluster: Cluster) -> Cluster:
    """The cluster with its instances on this machine, as the inventory says."""
    return replace(cluster, hosts=(HERE,), instances=tuple(replace(i, host="here") for i in cluster.instances))


def left_open(run: CheckRun, stage: str) -> set[str]:
    return set(next(s for s in run.stages if s.name == stage).open)


@pytest.mark.skipif(not has_ss(), reason="needs ss")
def test_hosts_in_the_inventory_are_looked_at_without_being_asked_for(lapse: Lapse) -> None:
    run = check(on_host(lapse.cluster), Order(choose()), lapse.clock)
    assert run.report.status is Status.OK, [f.summary for f in run.report.findings]
    assert not left_open(run, "sockets") & {"accept-queue-full", "connection-leak"}


@pytest.mark.skipif(not has_ss(), reason="needs ss")
def test_sockets_that_nobody_closes_are_seen_to_grow_from_run_to_run(lapse: Lapse) -> None:
    """The far ends of these connections are closed, this process keeps its own: CLOSE-WAIT."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
        cluster = on_host(lapse.cluster)
        leaky = replace(cluster.instances[0], url=f"http://127.0.0.1:{listener.getsockname()[1]}", metrics_url=None)
        cluster = replace(cluster, instances=(leaky,))

        def leak(count: int) -> None:
            for _ in range(count):
                socket.create_connection(listener.getsockname(), 5).close()
                stack.enter_context(listener.accept()[0])

        runs = []
        for more in (60, 120, 120):
            leak(more)
            order = Order(choose(only=["sockets"], skip=["endpoint-unreadable"]), timeout_s=0.3)
            runs.append(check(cluster, order, lapse.clock))
            lapse.clock.offset += 60
    names = [{f.name for f in run.report.findings} for run in runs]
    assert "connection-leak" not in names[0] and "connection-leak" in names[2]
    leak_found = next(f for f in runs[2].report.findings if f.name == "connection-leak")
    assert "60 180 300" in leak_found.summary and str(os.getpid()) in leak_found.summary


def test_named_by_somebody_an_instance_on_no_known_host_is_a_blind_spot(lapse: Lapse) -> None:
    far = replace(lapse.cluster, instances=(replace(lapse.cluster.instances[0], url="http://192.0.2.1:1"),))
    order = Order(choose(only=["sockets"], skip=["reach"], hosts=False), timeout_s=0.2)
    run = check(far, order, lapse.clock)
    assert run.report.status is Status.UNKNOWN
    assert any("names no host for it" in f.summary for f in run.report.findings)


def test_probes_send_real_requests_and_say_that_they_were_answered() -> None:
    with started("healthy") as demo:
        order = Order(choose(["probes"], hosts=False), stateless=True, deadline_s=40.0)
        run = check(demo.cluster, order)
    assert run.report.status is Status.OK, [f.summary for f in run.report.findings]
    assert next(s for s in run.stages if s.name == "probes").ran
    assert not left_open(run, "probes") & {"endpoint-unreadable"}
    said = [r.by for r in run.report.ruled_out if r.subject == "router-0"]
    assert any("answered" in text for text in said), said


def test_probes_that_hang_are_told_within_the_deadline() -> None:
    with started("hung-prefill") as demo:
        order = Order(choose(["probes"], hosts=False), stateless=True, deadline_s=14.0)
        run = check(demo.cluster, order)
    assert run.report.status in (Status.CRITICAL, Status.UNKNOWN)
    assert any("prefill-0" in f.subject or "router-0" in f.subject for f in run.report.findings)


def test_stacks_of_engines_that_cannot_be_found_are_a_blind_spot(lapse: Lapse) -> None:
    order = Order(choose(only=["stacks"], skip=["reach"], hosts=False), deadline_s=20.0)
    run = check(lapse.cluster, order, lapse.clock)
    assert run.report.status is Status.UNKNOWN
    assert any("the stacks of prefill-0 could not be read" in f.summary for f in run.report.findings)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to look into other processes")
def test_stacks_are_dumped_when_asked_for_and_nothing_is_left_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "c").mkdir()
    with small_cluster(tmp_path / "c") as made:
        cluster = read_cluster((tmp_path / "c/pdctl.toml").read_text(), str(tmp_path / "c/pdctl.toml"))
        run = check(cluster, Order(choose(["stacks", "logs"], hosts=False), deadline_s=60.0))
        states = [psutil.Process(made.pid(name)).status() for name in ("prefill-0", "decode-0")]
    assert next(s for s in run.stages if s.name == "stacks").ran
    assert not any("could not be read" in f.summary for f in run.report.findings), [
        f.summary for f in run.report.findings
    ]
    assert psutil.STATUS_STOPPED not in states


@pytest.mark.slow
def test_the_evidence_kept_of_a_failing_moment_shows_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started("pinned") as demo:
        order = Order(
            choose(hosts=False), seconds=11.0, interval_s=1.0, deadline_s=30.0, stateless=True, evidence=tmp_path
        )  # fmt: skip
        run = check(demo.cluster, order)
    assert run.report.status is Status.CRITICAL and run.kept is not None
    assert main(["triage", "--from", run.kept, "-o", "json"]) == 2
    names = {f["name"] for f in json.loads(capsys.readouterr().out)["findings"]}
    assert "request-pinned" in names and names >= {f.name for f in run.report.findings}
    assert main(["check", "--from", run.kept, "-o", "short"]) == 2
    assert "request-pinned prefill-0" in capsys.readouterr().out
