"""Real routers in front of simulated engines: real traffic, real router pages and logs, known truth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import main
from pdctl.demo.run import started
from pdctl.inventory.toml import render_cluster
from tests.integration.routers import PACKAGES, Router, real_router, refusing

pytestmark = pytest.mark.router
KINDS = sorted(PACKAGES)


def triaged(router: Router, folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """The report of a triage of engines and router, through the command line."""
    config = folder / "pdctl.toml"
    config.write_text(render_cluster(router.cluster), "utf-8")
    main(["triage", "-c", str(config), "-o", "json", "--no-record", "--interval", "1", *options])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def names(report: dict[str, Any]) -> set[str]:
    return {f["name"] for f in report["findings"]}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def test_traffic_through_a_real_router_is_well(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with started("healthy", router="none") as demo, real_router(kind, demo.cluster, tmp_path) as router:
        statuses = [router.ask(f"say {i}", stream=i % 2 == 1) for i in range(8)]
        report = triaged(router, tmp_path, capsys, "--for", "12s")
    assert statuses == [200] * 8
    assert report["status"] == "ok", report["findings"]
    (seen,) = [i for i in report["instances"] if i["name"] == "router-0"]
    assert seen["reachable"] is True


def test_its_log_and_latencies_are_read(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with started("healthy", router="none") as demo, real_router(kind, demo.cluster, tmp_path) as router:
        asked = 6
        assert [router.ask(f"say {i}") for i in range(asked)] == [200] * asked
    main(["logs", "--file", str(router.log), "--role", "router", "-o", "jsonl", "--kind", "router-finished"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    latencies = [row["numbers"]["latency_s"] for row in rows if "numbers" in row and "latency_s" in row["numbers"]]
    assert len(latencies) >= asked
    assert all(0.0 < s < 30.0 for s in latencies)  # microseconds read as seconds would be thousands of times that


def test_requests_that_hang_behind_a_real_router_are_pinned(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started("pinned", router="none") as demo, real_router(kind, demo.cluster, tmp_path) as router:
        waiting = router.later(3, timeout=45.0)
        report = triaged(router, tmp_path, capsys, "--for", "30s")
        truth = demo.truth()
    for thread in waiting:
        thread.join()
    (found,) = [f for f in report["findings"] if f["name"] == "request-pinned"]
    assert (found["subject"], found["confidence"]) == ("prefill-0", "certain")
    assert truth.stuck
    assert "router-holds-requests" not in names(report)


def test_a_breaker_that_refused_requests_opened_is_seen(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started("healthy", router="none") as demo, ExitStack() as stack:
        engines = [stack.enter_context(refusing(engine)) for engine in demo.cluster.engines]
        cluster = replace(demo.cluster, instances=tuple(engines))
        router = stack.enter_context(real_router(kind, cluster, tmp_path, "--cb-failure-threshold", "3"))
        statuses = [router.ask(f"say {i}", timeout=20.0) for i in range(6)]
        report = triaged(router, tmp_path, capsys, "--for", "12s")
    assert 503 in statuses, statuses
    assert "router-circuit-open" in names(report)
    assert report["status"] == "critical"
