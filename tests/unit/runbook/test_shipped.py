"""Each shipped playbook on the simulated cluster: with the fault it is for, and with none. Real commands, real time:
they mostly wait, so several go at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import COMMANDS
from pdctl.demo.run import Demo, started
from pdctl.inventory.write import render_cluster
from pdctl.model.finding import Status
from pdctl.outlet import REPORT_TO
from pdctl.plans.playbook_course import begun
from pdctl.reach.clock import SystemClock
from pdctl.reach.own import run_own
from pdctl.render.look import Look
from pdctl.runbook.order import Order, Target
from pdctl.runbook.run import Ended, Runner
from pdctl.runbook.shelf import opened, shipped
from pdctl.runbook.transcript import Transcript, read_events
from tests.unit.runbook.operator_at_desk import Desk

pytestmark = pytest.mark.slow

# playbook, fault -> the step it ends at, its exit status
ENDS: Mapping[tuple[str, str], tuple[str, int]] = {
    ("first-five-minutes", "pinned"): ("pinned-request", 2),
    ("first-five-minutes", "hung-scheduler"): ("stopped", 2),
    ("first-five-minutes", "lying"): ("blind", 3),
    ("first-five-minutes", "healthy"): ("calm", 0),
    ("pinned-request", "pinned"): ("restart", 2),
    ("pinned-request", "pinned-under-load"): ("restart", 2),
    ("pinned-request", "healthy"): ("clear", 0),
    ("harness-hang", "router-holds"): ("restart-router", 2),
    ("harness-hang", "pinned"): ("not-idle", 2),
    ("harness-hang", "healthy"): ("outside", 0),
    ("regression-since", "pinned"): ("stuck", 2),
    ("regression-since", "healthy"): ("changed", 0),  # its own process is young, and that is told
    ("co-restart", "healthy"): ("no-plan", 3),
    ("decode-starved", "decode-full"): ("leave", 1),
    ("decode-starved", "prealloc-wedged"): ("stuck", 2),
    ("decode-starved", "healthy"): ("not-starved", 0),
    ("stale-peer", "peer-stale"): ("co-restart", 2),
    ("stale-peer", "healthy"): ("healed", 0),
    ("rank-diverged", "one-rank"): ("standing", 2),
    # The simulated ranks are no processes: nothing says where they stand, so nothing is called well.
    ("rank-diverged", "healthy"): ("no-dumps", 3),
    ("after-restart", "breaker"): ("not-well", 2),
    ("after-restart", "healthy"): ("proved", 0),
    # With nobody to agree to the load there is no gate.
    ("gate-a-fix", "healthy"): ("not-gated", 3),
    ("gate-a-fix", "pinned"): ("not-well", 2),
}
LOOK = {"decode-full": "50s", "prealloc-wedged": "40s", "pinned-under-load": "45s"}


def run(playbook: str, fault: str, at: Path) -> tuple[int, dict[str, Any], str]:
    words = ["playbook", "run", playbook, "--demo", fault, "--yes-read-only", "-o", "json", "--transcript", str(at),
             "--for", LOOK.get(fault, "20s")]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pdctl", *words], capture_output=True, text=True, check=False, timeout=300, cwd=at.parent
    )
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[Any]]]:
    """The runs that the chosen tests want, all begun at once."""
    folder = tmp_path_factory.mktemp("runs")
    chosen = {spec.params.get("key") for item in request.session.items if (spec := getattr(item, "callspec", None))}
    with ThreadPoolExecutor(4) as pool:
        yield {key: pool.submit(run, *key, folder / "-".join(key)) for key in ENDS if key in chosen}


@pytest.mark.parametrize("key", ENDS, ids="-".join)
def test_a_shipped_playbook_comes_to_the_right_end(
    key: tuple[str, str], runs: dict[tuple[str, str], Future[Any]]
) -> None:
    status, value, err = runs[key].result()
    assert not value.get("error"), err
    last = value["steps"][-1]
    assert (last["step"], status) == ENDS[key], [step["step"] for step in value["steps"]]
    assert not value["stopped"], value["why"]
    events = read_events(Path(value["transcript"]))
    assert events[0]["rehearsal"] is True and events[-1]["event"] == "end"
    assert not any(event["event"] == "consent" for event in events), "nobody was there to agree"


def attended(name: str, fault: str, answers: list[str], folder: Path) -> tuple[Ended, list[str], Desk]:
    """A playbook run by somebody who answers, on a simulated cluster."""
    playbook, desk = opened(shipped() / f"{name}.yaml"), Desk(answers)
    known = frozenset({"--config", "--for", "--only"})
    with started(fault) as demo, closing(Transcript(folder / "t.jsonl", fresh=True)) as transcript:
        order = Order(target(demo), look_s=20.0, rounds=1)
        runs = partial(run_own, report_variable=REPORT_TO, environment={})
        runner = Runner(
            playbook, order, transcript, desk, Look(), runs=runs, options=lambda _: known, clock=SystemClock()
        )
        ended = runner.run(begun(playbook))
    return ended, [event["step"] for event in read_events(folder / "t.jsonl") if event["event"] == "step"], desk


def target(demo: Demo) -> Target:
    inventory = demo.folder / "pdctl.toml"
    inventory.write_text(render_cluster(demo.cluster), "utf-8")
    names = tuple(instance.name for instance in demo.cluster.instances)
    return Target((("--config", str(inventory)),), demo.cluster.name, names, "a simulated cluster", demo=True)


def test_the_gate_passes_a_cluster_that_is_well(tmp_path: Path) -> None:
    ended, steps, desk = attended("gate-a-fix", "healthy", ["a"], tmp_path)
    assert steps == ["before", "load", "wedge", "load", "wedge", "after", "passed"], "\n".join(desk.shown[-60:])
    assert ended.verdict is Status.OK
    assert len(desk.asked) == 1, "agreed to for the run"


@pytest.mark.skipif("restart" not in COMMANDS, reason="this pdctl has no restart")
def test_the_co_restart_with_nobody_there_changes_nothing(tmp_path: Path) -> None:
    status, value, err = run("co-restart", "pinned", tmp_path / "t")
    assert value["steps"][-1]["step"] in ("left", "no-plan"), err
    assert status in (2, 3)
