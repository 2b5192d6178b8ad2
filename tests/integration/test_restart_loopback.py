"""``pdctl restart`` on processes of this machine: each a serve script's, restarted by the inventory's own command."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_cluster import NAMES, SmallCluster, small_cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallCluster]:
    with small_cluster(tmp_path) as made:
        yield made


def flat(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def until_journal(small: SmallCluster, process: subprocess.Popen[str], entries: int) -> bool:
    """Waits until the journal holds so many entries; False where the process ended before."""
    while process.poll() is None:
        if len(small.journal()) >= entries:
            return True
        time.sleep(0.005)
    return False


def until_restarted(small: SmallCluster, process: subprocess.Popen[str], count: int) -> None:
    while len(small.restarted()) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_a_restart_from_the_plan_to_the_proof(small: SmallCluster) -> None:
    before = {name: small.pid(name) for name in NAMES}
    done = small.pdctl("restart", "--yes", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert small.restarted() == list(NAMES)
    assert all(small.alive(name) and small.pid(name) != before[name] for name in NAMES)
    said = json.loads(done.stdout)
    assert (said["schema"], said["status"], said["why"]) == ("pdctl.restart/1", "done", None)
    assert [s["state"] for s in said["steps"]] == ["done"] * 7
    new = {s["instance"]: s["after"]["pid"] for s in said["steps"] if s["act"] == "restart"}
    assert new == {name: small.pid(name) for name in NAMES}
    assert said["before"]["decode-0"]["process"]["pid"] == before["decode-0"]
    assert said["after"]["decode-0"]["process"]["pid"] == new["decode-0"]
    proof = {(p["what"], p["subject"]): p["proven"] for p in said["proof"]}
    assert set(proof.values()) == {"yes"}, said["proof"]
    assert ("a kept-alive generation", "router-0") in proof and ("no pinned request", "prefill-0") in proof
    backups = sorted(p.name for p in small.folder.glob("*.sh.*.bak"))
    assert [re.sub(r"\d\d\d\d-.*Z", "T", name) for name in backups] == [f"{n}.sh.T.bak" for n in sorted(NAMES)]
    assert not (small.folder / "pdctl.lock").exists() and not list(small.folder.glob("pdctl.2*")), "no lock, no marks"
    history = small.pdctl("history", "-o", "json")
    (run,) = json.loads(history.stdout)["runs"]
    assert (run["run"], run["kind"], run["end"], run["cluster"]) == (said["run"], "restart", "done", "small")
    shown = small.pdctl("history", run["run"])
    assert "step-acted" in shown.stdout and "restart-decode-0.sh" in shown.stdout


def test_killed_between_any_two_things_it_writes_down_and_gone_on_with(small: SmallCluster) -> None:
    """Killed with SIGKILL a few entries of the journal after each start: before, after and in the middle of acts."""
    killed, words = 0, ["restart", "--yes"]
    while True:
        process = small.begin(*words)
        reached = until_journal(small, process, len(small.journal()) + (1, 2, 3, 4, 5, 6, 8)[killed % 7])
        if reached:
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        if not reached:
            break
        killed += 1
        assert killed < 60
        words = ["restart", "--resume", "--yes"]
    kinds = [row["kind"] for row in small.journal()]
    assert process.returncode == (0 if out else 64), out + err  # 64: it was killed when it had written the last line
    assert kinds[-1] == "restart-done" and killed > 6
    assert {"step-begun", "step-acted", "step-done"} <= set(kinds)
    assert small.restarted() == list(NAMES), "each once, in order"
    assert all(small.alive(name) for name in NAMES)
    assert small.pdctl("restart", "--resume", "--yes").returncode == 64, "there is nothing left to go on with"


def test_a_second_operator_is_refused_and_ctrl_c_leaves_nothing_unsaid(small: SmallCluster) -> None:
    small.settings(NODE_STARTS_IN="4")
    first = small.begin("restart", "--yes")
    until_restarted(small, first, 1)
    second = small.pdctl("restart", "--yes")
    assert second.returncode == 75
    assert "other-restart" in second.stderr and "is restarting small" in second.stderr
    assert small.restarted() == ["prefill-0"]
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    stands = (
        r"prefill-0: (runs, and was not seen to be ready|NOT RUNNING at this moment, its restart is still under way)"
    )
    assert "INTERRUPTED" in out and re.search(stands, flat(out)), out
    assert re.search(r"Not touched:\n.*restart decode-0\n.*restart router-0", out), out
    assert not (small.folder / "pdctl.lock").exists()
    again = small.pdctl("restart", "--resume", "--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    assert small.restarted() == list(NAMES)


def test_a_command_that_fails_stops_everything_after_it(small: SmallCluster) -> None:
    (small.folder / "decode-0.broken").touch()
    done = small.pdctl("restart", "--yes")
    assert done.returncode == 75, done.stdout + done.stderr
    assert "the restart command ended with status 4: disk quota exceeded" in flat(done.stdout), done.stdout
    assert small.restarted() == ["prefill-0", "decode-0"]
    assert re.search(r"Not touched:\n.*restart router-0", done.stdout), done.stdout
    assert "decode-0: runs, and was not seen to be ready" in flat(done.stdout)
    (small.folder / "decode-0.broken").unlink()
    again = small.pdctl("restart", "--resume", "--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    assert small.restarted() == ["prefill-0", "decode-0", "decode-0", "router-0"]


def test_an_engine_that_never_gets_ready_is_given_up_in_time(small: SmallCluster) -> None:
    small.settings(NODE_NEVER_READY="decode")
    done = small.pdctl("restart", "--yes", "--ready-timeout", "12s")
    assert done.returncode == 75
    assert re.search(r"not ready after 1\d s: still waiting for health \(connect-refused", flat(done.stdout)), (
        done.stdout
    )
    assert small.restarted() == ["prefill-0", "decode-0"]
    assert "log: decode: loading weights" in done.stdout + done.stderr


def test_an_engine_that_was_ready_and_dies_later_is_no_success(small: SmallCluster) -> None:
    small.settings(NODE_DIES="decode", NODE_DIES_AFTER="5", NODE_STARTS_IN="3")
    done = small.pdctl("restart", "--yes", "--no-backup")
    assert done.returncode == 75, done.stdout
    assert "decode-0, which was restarted and ready" in flat(done.stdout)
    assert "decode-0: NOT RUNNING" in done.stdout


# --- before anything is touched ---------------------------------------------------------------------------------------


def test_a_plan_whose_ground_has_shifted_is_refused(small: SmallCluster) -> None:
    plan = small.folder / "plan.json"
    planned = small.pdctl("restart", "--plan", "-o", "json")
    assert planned.returncode == 0 and json.loads(planned.stdout)["status"] == "planned"
    assert small.journal() == [] and not (small.folder / "pdctl.lock").exists(), "a plan touches nothing"
    plan.write_text(planned.stdout)
    script = small.folder / "decode-0.sh"
    old = script.read_text()
    script.write_text(old + "# edited\n")
    changed = small.pdctl("restart", "--apply", str(plan), "--yes")
    assert changed.returncode == 75 and "decode-0.sh of decode-0 has been changed" in flat(changed.stdout)
    script.write_text(old)
    inventory = small.folder / "pdctl.toml"
    inventory.write_text(inventory.read_text() + "watch = []\n".replace("[]", '["/etc/hosts"]'))
    assert "the inventory has been changed" in flat(small.pdctl("restart", "--apply", str(plan), "--yes").stdout)
    inventory.write_text(inventory.read_text().replace('watch = ["/etc/hosts"]\n', ""))
    small.start("prefill-0")
    small.wait_up()
    by_hand = small.pdctl("restart", "--apply", str(plan), "--yes")
    assert by_hand.returncode == 75 and re.search(r"prefill-0 was pid \d+", flat(by_hand.stdout)), by_hand.stdout
    assert small.restarted() == ["prefill-0"], "by hand, and never by pdctl"


def test_nobody_is_asked_in_a_pipe_and_nothing_is_touched(small: SmallCluster) -> None:
    done = small.pdctl("restart")
    assert done.returncode == 64 and "--yes" in done.stderr
    assert small.restarted() == [] and small.journal() == []


@pytest.mark.parametrize(("typed", "status"), [("smal", 64), ("", 64), ("yes", 64), ("small", 0)])
def test_at_a_terminal_the_clusters_name_is_asked_for(small: SmallCluster, typed: str, status: int) -> None:
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pdctl", "restart"], cwd=small.folder, env=small.environment(), stdin=other,
        stdout=subprocess.PIPE, stderr=other, text=True,
    )  # fmt: skip
    os.close(other)
    asked = b""
    while b"to go ahead:" not in asked:
        asked += os.read(main, 4096)
    assert b"Type the name of the cluster (small)" in asked
    os.write(main, typed.encode() + b"\n")
    with contextlib.suppress(OSError):  # the end of a terminal is an error to who reads it
        while os.read(main, 4096):
            pass
    out, _ = process.communicate(timeout=60)
    os.close(main)
    assert process.returncode == status
    assert "restart-prefill-0.sh" in out, "the plan comes first"
    assert small.restarted() == ([] if status else list(NAMES))
    assert not (small.folder / "pdctl.lock").exists()


def test_what_speaks_against_it_is_all_said_at_once(small: SmallCluster) -> None:
    (small.folder / "decode-0.sh").write_text("#!/bin/bash\nif true; then\n")
    (small.folder / "router-0.sh").chmod(0o000)
    done = small.pdctl("restart", "--plan")
    assert done.returncode == 75
    said = flat(done.stdout)
    assert "script-valid, decode-0" in said and "syntax error" in said
    only = small.pdctl("restart", "--plan", "--only", "prefill")
    assert only.returncode == 64 and "prefill-alone, prefill-0: decode-0 keeps connections" in " ".join(
        only.stdout.split()
    )
    forced = small.pdctl("restart", "--plan", "--only", "prefill", "--force", "prefill-alone")
    assert forced.returncode == 0 and "Overridden by --force" in forced.stdout
