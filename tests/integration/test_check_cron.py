"""``pdctl check`` as cron starts it: a bare environment, no terminal, what fails and hangs, runs that overlap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from lapse import Lapse, lapsing

PATIENCE = 45  # seconds in which a run must have ended: below that of what hangs in these tests
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")


@pytest.fixture(scope="module")
def well() -> Iterator[Lapse]:
    with lapsing("healthy") as lapse:
        yield lapse


@pytest.fixture
def sick() -> Iterator[Lapse]:
    with lapsing("healthy") as lapse:
        lapse.dead.add("prefill-0")
        yield lapse


@pytest.fixture
def hung() -> Iterator[Lapse]:
    with lapsing("healthy") as lapse:
        lapse.hung.update(["prefill-0", "decode-0", "router-0"])
        yield lapse


def inventory(lapse: Lapse, folder: Path) -> str:
    rows = ['name = "lapse"']
    for i in lapse.cluster.instances:
        rows.append(f'[[instance]]\nname = "{i.name}"\nrole = "{i.role.value}"\nurl = "{i.url}"')
        if i.metrics_url:
            rows.append(f'metrics = "{i.metrics_url}"')
    path = folder / "pdctl.toml"
    path.write_text("\n".join(rows))
    return str(path)


def bare(folder: Path) -> dict[str, str]:
    """What cron gives, and less: not even a path or a home; where state goes is the tests' own folder."""
    return {"XDG_STATE_HOME": str(folder / "state")}


def pdctl(*words: str, env: dict[str, str], patch: str = "") -> subprocess.CompletedProcess[str]:
    """Runs pdctl in the root directory with that environment alone, no terminal, after ``patch`` (Python)."""
    code = f"{textwrap.dedent(patch)}\nimport sys\nfrom pdctl.cli import main\nsys.exit(main({list(words)!r}))"
    return subprocess.run(
        [sys.executable, "-c", code], env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip


def check(lapse: Lapse, folder: Path, *words: str, patch: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    config = inventory(lapse, folder)
    return pdctl("check", "--config", config, *words, env={**bare(folder), **env}, patch=patch)


# --- a bare environment ------------------------------------------------------------------------------------------


def test_all_is_well_and_cron_has_nothing_to_mail(well: Lapse, tmp_path: Path) -> None:
    for _ in range(2):
        done = check(well, tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list((tmp_path / "state/pdctl/check").glob("*.memory"))


def test_unless_it_was_asked_to_tell(well: Lapse, tmp_path: Path) -> None:
    done = check(well, tmp_path, "-v")
    assert done.returncode == 0 and "OK  lapse: nothing wrong seen" in done.stdout and done.stdout.isascii()


def test_something_is_wrong_and_cron_mails_it_in_plain_words(sick: Lapse, tmp_path: Path) -> None:
    done = check(sick, tmp_path, TERM="dumb")
    assert done.returncode == 3 and "endpoint-unreadable" in done.stdout
    assert "\x1b" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 100


def test_no_home_at_all(well: Lapse, tmp_path: Path) -> None:
    """Neither a home nor a state folder in the environment: the user database tells."""
    patch = f"""
        import pwd
        whose = pwd.getpwuid(0)
        pwd.getpwuid = lambda uid: type("User", (), {{"pw_dir": {str(tmp_path)!r}, "pw_name": "x"}})
    """
    done = pdctl("check", "--config", inventory(well, tmp_path), env={}, patch=patch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list((tmp_path / ".local/state/pdctl/check").glob("*.memory"))


def test_a_user_nobody_knows(well: Lapse, tmp_path: Path) -> None:
    patch = """
        import pwd
        def unknown(uid):
            raise KeyError(uid)
        pwd.getpwuid = unknown
    """
    done = pdctl("check", "--config", inventory(well, tmp_path), "-o", "json", env={}, patch=patch)
    value = json.loads(done.stdout)
    assert done.returncode == 0 and value["status"] == "ok"
    assert any("no state can be kept" in row["why"] for row in value["unchecked"])


def test_stdout_that_is_closed_and_one_that_nobody_reads(sick: Lapse, tmp_path: Path) -> None:
    words = f"{sys.executable} -m pdctl check --config {inventory(sick, tmp_path)}"
    lines = [f"{words} | true", *(f"{words} {more}; echo $?" for more in (">&-", "-o nagios >&-", "<&- >&- 2>&-"))]
    done = subprocess.run(
        ["/bin/sh", "-c", "; ".join(lines)], env=bare(tmp_path), cwd="/", text=True, capture_output=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["3", "3", "3"] and done.stderr == ""


def test_all_is_well_and_every_stream_is_closed(well: Lapse, tmp_path: Path) -> None:
    words = f"{sys.executable} -m pdctl check --config {inventory(well, tmp_path)} <&- >&- 2>&-; echo $?"
    done = subprocess.run(
        ["/bin/sh", "-c", words], env=bare(tmp_path), cwd="/", text=True, capture_output=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("0\n", "")


# --- disks -------------------------------------------------------------------------------------------------------


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A disk of a few kilobytes."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@root_only
@pytest.mark.parametrize("options, why", [("size=8k", "No space left"), ("ro", "Read-only")])
def test_a_full_or_read_only_disk_changes_no_verdict(options: str, why: str, well: Lapse, tmp_path: Path) -> None:
    with disk(tmp_path / "disk", options) as folder:
        done = check(well, tmp_path, XDG_STATE_HOME=str(folder))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        done = check(well, tmp_path, "-o", "json", XDG_STATE_HOME=str(folder))
        value = json.loads(done.stdout)
        assert value["status"] == "ok" and value["check"]["earlier_runs"] == 0
        assert any(why in note for note in value["check"]["notes"]), value["check"]["notes"]
        assert why in done.stderr


@root_only
def test_a_text_file_that_can_not_be_written_leaves_the_old_one_and_says_so(well: Lapse, tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "size=12k") as folder:
        (folder / "x.prom").write_text("pdctl_check_status 0\n")
        (folder / "fill").write_bytes(b"x" * 8192)
        done = check(well, tmp_path, "-o", "prom", "--out", str(folder / "x.prom"))
        assert done.returncode == 70 and "cannot be written" in done.stderr
        assert sorted(os.listdir(folder)) == ["fill", "x.prom"]
        assert (folder / "x.prom").read_text() == "pdctl_check_status 0\n"


@root_only
def test_evidence_on_a_full_disk_is_missed_and_nothing_half_written_is_left(sick: Lapse, tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "size=16k") as folder:
        done = check(sick, tmp_path, "--record-on-fail", str(folder), "--deadline", "3s")
        assert done.returncode == 3 and "the evidence is not kept" in done.stderr
        assert list(folder.iterdir()) == []


def test_a_text_file_is_whole_and_for_all_to_read_whatever_the_umask(well: Lapse, tmp_path: Path) -> None:
    out = tmp_path / "pdctl.prom"
    done = check(well, tmp_path, "-o", "prom", "--out", str(out), patch="import os; os.umask(0o077)")
    assert (done.returncode, done.stdout) == (0, "") and out.stat().st_mode & 0o777 == 0o644
    assert 'pdctl_check_status{cluster="lapse"} 0.0' in out.read_text()
    assert [p.name for p in tmp_path.iterdir() if ".part" in p.name] == []


# --- what hangs --------------------------------------------------------------------------------------------------


def test_a_name_that_is_not_resolved_holds_it_up_no_longer_than_the_deadline(tmp_path: Path) -> None:
    config = tmp_path / "pdctl.toml"
    config.write_text('[[instance]]\nname = "prefill-0"\nrole = "prefill"\nurl = "http://engine.example:30000"\n')
    patch = """
        import socket, time
        socket.getaddrinfo = lambda *a, **k: time.sleep(600)
    """
    done = pdctl("check", "--config", str(config), "--deadline", "2s", env=bare(tmp_path), patch=patch)
    assert done.returncode == 3 and "timeout" in done.stdout and "not resolved" not in done.stderr


def test_engines_that_hang_are_unknown_by_the_deadline(hung: Lapse, tmp_path: Path) -> None:
    done = check(hung, tmp_path, "--deadline", "8s", "-o", "json")
    value = json.loads(done.stdout)
    assert done.returncode == 3 and {f["subject"] for f in value["findings"]} >= {"prefill-0", "decode-0", "router-0"}


STUCK = """
import time, pdctl.checks
pdctl.checks.judge = lambda *a, **k: time.sleep(600)
"""


@pytest.mark.parametrize("form", ["human", "json", "nagios", "prom"])
def test_whatever_else_hangs_it_ends_and_says_that_it_does_not_know(form: str, well: Lapse, tmp_path: Path) -> None:
    done = check(well, tmp_path, "--deadline", "2s", "-o", form, patch=STUCK)
    assert done.returncode == 3 and "no verdict within 2 s" in done.stderr
    if form == "json":
        value = json.loads(done.stdout)
        assert (value["status"], value["error"]["kind"], value["findings"]) == ("unknown", "deadline", [])
    elif form == "nagios":
        assert done.stdout == "PDCTL UNKNOWN - no verdict within 2 s, the deadline of the whole run\n"
    else:
        assert done.stdout == ""


def test_a_run_that_was_cut_down_that_way_leaves_no_lock_behind(well: Lapse, tmp_path: Path) -> None:
    assert check(well, tmp_path, "--deadline", "1s", patch=STUCK).returncode == 3
    assert check(well, tmp_path).returncode == 0


# --- runs that overlap -------------------------------------------------------------------------------------------


@contextmanager
def under_way(lapse: Lapse, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A check that hangs on its engines for 30 s."""
    words = [sys.executable, "-m", "pdctl", "check", "--config", inventory(lapse, folder), "--deadline", "30s"]
    lapse.requests.clear()
    with subprocess.Popen(words, env=bare(folder), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        until = time.monotonic() + PATIENCE
        while not lapse.requests and time.monotonic() < until:
            time.sleep(0.02)
        try:
            yield child
        finally:
            child.kill()


def test_the_second_run_says_who_is_at_it_and_is_unknown(hung: Lapse, tmp_path: Path) -> None:
    with under_way(hung, tmp_path) as child:
        done = check(hung, tmp_path, "-o", "nagios", "--deadline", "3s")
        assert done.returncode == 3
        assert done.stdout.startswith(f"PDCTL UNKNOWN - a check of lapse is still running (process {child.pid}, since ")
        value = json.loads(check(hung, tmp_path, "-o", "json", "--deadline", "3s").stdout)
        assert (value["status"], value["error"]["kind"]) == ("unknown", "busy")


def test_runs_that_begin_together_take_turns(well: Lapse, tmp_path: Path) -> None:
    """As lines of one crontab do: each looks, and none fails because of another."""
    config = inventory(well, tmp_path)
    forms = ("human", "nagios", "prom")
    words = [[sys.executable, "-m", "pdctl", "check", "--config", config, "-o", form] for form in forms]
    begun = [
        subprocess.Popen(w, env=bare(tmp_path), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for w in words
    ]
    said = [child.communicate(timeout=PATIENCE) for child in begun]
    assert [child.returncode for child in begun] == [0, 0, 0], said
    assert said[0] == ("", "") and "PDCTL OK" in said[1][0] and "pdctl_check_status" in said[2][0]


def test_a_killed_run_holds_nobody_up(hung: Lapse, tmp_path: Path) -> None:
    with under_way(hung, tmp_path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        hung.hung.clear()
        hung.release.set()
        assert check(hung, tmp_path).returncode == 0


def test_sigterm_ends_it_as_interrupted(hung: Lapse, tmp_path: Path) -> None:
    with under_way(hung, tmp_path) as child:
        child.terminate()
        assert child.wait(PATIENCE) == 130


# --- forms and options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["human", "short", "json", "jsonl", "nagios", "prom", "junit"])
def test_the_exit_status_does_not_depend_on_the_form(form: str, well: Lapse, sick: Lapse, tmp_path: Path) -> None:
    for lapse, status in ((well, 0), (sick, 3)):
        done = check(lapse, tmp_path, "-o", form, "--fresh")
        assert done.returncode == status, done.stderr
        assert bool(done.stdout) is not (form == "human" and status == 0)


def test_junit_is_valid_and_goes_to_a_file(sick: Lapse, tmp_path: Path) -> None:
    done = check(sick, tmp_path, "-o", "junit", "--out", str(tmp_path / "x.xml"))
    root = Xml.parse(tmp_path / "x.xml").getroot()
    assert done.returncode == 3 and root.get("errors") == "1" and root.get("failures") == "0"


@pytest.mark.parametrize(
    "words, says",
    [
        (["--only", "no-such"], "no stage and no finding"),
        (["--stage", "request-pinned"], "no stage"),
        (["--only", "script-drift"], "nothing is left to check"),
        (["--only", "reach", "--skip", "reach"], "nothing is left to check"),
    ],
)
def test_wrong_usage_is_said(words: list[str], says: str, well: Lapse, tmp_path: Path) -> None:
    done = check(well, tmp_path, *words, "-o", "nagios")
    assert done.returncode == 64 and says in done.stderr and done.stdout.startswith("PDCTL UNKNOWN - ")


def test_a_muted_fault_is_quiet_until_it_is_another(sick: Lapse, tmp_path: Path) -> None:
    config, env = inventory(sick, tmp_path), bare(tmp_path)
    assert pdctl("check", "--config", config, env=env).returncode == 3
    words = ["mute", "endpoint-unreadable", "--on", "prefill-0", "--for", "1h", "--why", "INC-42", "--config", config]
    made = pdctl(*words, env=env)
    assert made.returncode == 0 and "lifts when it gets worse" in made.stdout, made.stderr
    assert pdctl("check", "--config", config, env=env).stdout == ""
    shown = json.loads(pdctl("check", "--config", config, "-o", "json", env=env).stdout)
    assert shown["status"] == "ok" and shown["findings"][0]["muted"]["why"] == "INC-42"
    sick.dead.add("decode-0")
    assert pdctl("check", "--config", config, env=env).returncode == 3
