"""A triage of engines on this machine looks at the machine as well, and can be told not to."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pdctl.cli import main
from pdctl.demo.run import started
from pdctl.inventory.toml import render_cluster


@pytest.mark.parametrize("options", [[], ["--no-hosts"]])
def test_sockets_are_listed_before_and_after(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started("healthy") as demo:
        config = tmp_path / "pdctl.toml"
        config.write_text(render_cluster(demo.cluster), "utf-8")
        kept = tmp_path / "kept"
        argv = ["triage", "-c", str(config), "--record", str(kept), "--interval", "1", "--for", "12s", "-o", "json"]
        main([*argv, *options])
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "ok", report["findings"]
    rows = [json.loads(line) for line in (kept / "index.jsonl").read_text("utf-8").splitlines()]
    facts = Counter(row["fact"] for row in rows if row["error"] is None)
    assert facts["sockets"] == (0 if options else 2)
    assert (facts["processes"] > 0) is not bool(options)
    times = [row["t"] for row in rows if row["fact"] == "sockets"]
    assert times == sorted(times) and all(t >= 0 for t in times)
    assert main(["triage", "--from", str(kept), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "ok"
