"""``pdctl probe`` through real routers, in front of simulated engines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import main
from pdctl.demo.run import started
from pdctl.inventory.toml import render_cluster
from pdctl.model.cluster import Cluster
from tests.integration.faulty import Faulty, Manners
from tests.integration.routers import PACKAGES, real_router

pytestmark = [pytest.mark.router, pytest.mark.parametrize("kind", sorted(PACKAGES))]


def probed(cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    config = folder / "pdctl.toml"
    config.write_text(render_cluster(cluster), "utf-8")
    main(["probe", "-c", str(config), "-o", "json", "--no-record", "--interval", "500ms", *words])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.fixture(autouse=True)
def sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router counts a client that left for up to 5 s, no longer."""
    monkeypatch.setattr("pdctl.probing.run.AFTER_TROUBLE", 6.0)
    monkeypatch.setattr("pdctl.probing.stage.SETTLE", 1.0)


def fates(report: dict[str, Any], to: str) -> dict[str, str]:
    (row,) = (row for row in report["probe"]["paths"] if row["to"] == to)
    return {trial: cell["fate"] for trial, cell in row["cells"].items() if cell["fate"] != "not run"}


def test_every_kind_through_a_real_router(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with started("healthy", router="none") as demo, real_router(kind, demo.cluster, tmp_path) as router:
        words = (
            "router-0",
            "--load",
            "--kind",
            "all",
            "--gap",
            "0.3",
            "--at-once",
            "4",
            "--agents",
            "2",
            "--rounds",
            "4",
        )
        report = probed(router.cluster, tmp_path, capsys, *words)
    assert (report["status"], report["findings"]) == ("ok", [])
    assert set(fates(report, "router-0").values()) == {"good"}
    streamed = [a for a in report["probe"]["attempts"] if a["trial"] == "rounds"]
    assert len(streamed) == 2 * 4
    assert all(a["told"] == "echoed" and a["first_token_s"] < a["took"] for a in streamed)
    assert len({a["line"] for a in streamed}) == 2


def test_a_hang_between_router_and_engine(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Engines answer directly, what the router sends to decode does not get there: the place lies between them."""
    with started("healthy", router="none") as demo:
        decode = demo.cluster.decodes[0]
        with Faulty(Manners(hang_all=True), upstream=decode.url) as between:
            seen = replace(decode, url=between.url, metrics_url=decode.metrics)
            others = tuple(seen if i.name == decode.name else i for i in demo.cluster.instances)
            with real_router(kind, replace(demo.cluster, instances=others), tmp_path) as router:
                known = tuple(decode if i.name == decode.name else i for i in router.cluster.instances)
                words = ("router-0", "decode-0", "--kind", "one", "--hang-after", "4")
                report = probed(replace(router.cluster, instances=known), tmp_path, capsys, *words)
    assert fates(report, "decode-0") == {"one": "good"}
    assert fates(report, "router-0") == {"one": "hung"}
    assert ("router-holds-requests", "router-0") in [(f["name"], f["subject"]) for f in report["findings"]]
