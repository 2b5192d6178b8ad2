"""`pdctl changes` and live drift against real processes, files and checkouts, here and over SSH."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from loopback_sshd import Sshd

from pdctl.cli import main

FAKE = "import time\ntime.sleep(600)\n"
SCRIPT = """\
#!/bin/bash
export NCCL_DEBUG=WARN SGLANG_API_KEY=sk-THIS-IS-NOT-REAL-0042
exec {python} -m sglang.launch_server --model-path /m --disaggregation-mode decode --page-size 64 --port {port}
"""


@dataclass
class Site:
    folder: Path
    port: int
    ssh: str = ""

    @property
    def script(self) -> Path:
        return self.folder / "conf" / "serve.sh"

    @property
    def config(self) -> str:
        return str(self.folder / "pdctl.toml")

    def text(self) -> str:
        return SCRIPT.format(python=sys.executable, port=self.port)


@pytest.fixture(params=["local", "ssh"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    made = Site(tmp_path, port)
    host = ""
    if request.param == "ssh":
        server: Sshd = request.getfixturevalue("sshd")
        home = Path(os.environ["HOME"])
        (home / ".ssh").mkdir(mode=0o700)
        (home / ".ssh" / "config").write_text(server.config())
        made.ssh = server.spec
        host = f'[[host]]\nname = "there"\nssh = "{server.spec}"\n'
    (tmp_path / "conf").mkdir()
    made.script.write_text(made.text())
    lines = [
        'name = "site"', host, "[[instance]]", 'name = "decode-0"', 'role = "decode"',
        f'url = "http://127.0.0.1:{port}"', f'script = "{made.script}"', f'watch = ["{tmp_path / "conf"}"]',
        'host = "there"' if host else "",
    ]  # fmt: skip
    Path(made.config).write_text("\n".join(lines) + "\n")
    yield made


@pytest.fixture
def engine(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """A process with an engine's command line and environment; what it does is sleep."""
    package = site.folder / "fake" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(FAKE)
    child = subprocess.Popen(
        ["/bin/bash", str(site.script)], env={**os.environ, "PYTHONPATH": str(site.folder / "fake")},
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 20
    while b"launch_server" not in Path(f"/proc/{child.pid}/cmdline").read_bytes() and time.monotonic() < until:
        time.sleep(0.02)
    yield child
    child.kill()
    child.wait()


def aged(path: Path, **ago: float) -> Path:
    stamp = (datetime.now(UTC) - timedelta(**ago)).timestamp()
    os.utime(path, (stamp, stamp))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object], str]:
    status = main([*words, "-o", "json"])
    told = capsys.readouterr()
    assert "sk-THIS" not in told.out + told.err
    return status, json.loads(told.out), told.err


def git(folder: Path, *words: str) -> None:
    own = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*own, *words], check=True, capture_output=True)


def test_a_script_edited_after_the_start_and_a_process_that_has_all_of_it(
    site: Site, engine: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    _, told, _ = run(capsys, "diff", "decode-0", "-c", site.config)
    assert told["findings"] == []
    assert [r["what"] for r in told["ruled_out"]] == ["live-drift"]  # type: ignore[index, attr-defined]
    time.sleep(1.1)  # mtimes and starts are kept to a part of a second at best
    site.script.write_text(site.text().replace("size 64", "size 32").replace("WARN", "INFO"))
    status, told, _ = run(capsys, "diff", "decode-0", "-c", site.config)
    (finding,) = told["findings"]  # type: ignore[misc]
    assert finding["name"] == "live-drift" and finding["confidence"] == "certain"  # type: ignore[index]
    assert "--page-size 64 -> 32" in finding["summary"] and "NCCL_DEBUG WARN -> INFO" in finding["summary"]  # type: ignore[index]
    assert "edited after the process started" in finding["summary"] and status == 1  # type: ignore[index]


def test_an_edit_that_the_running_process_has_is_the_suspect_and_the_rest_is_ruled_out(
    site: Site, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    conf = site.folder / "conf"
    aged(site.script, minutes=10)
    old = conf / "serve.sh.bak"
    old.write_text(site.text().replace("size 64", "size 32"))
    aged(old, days=2)
    touched, kept, clean = conf / "a.env", conf / "a.env.bak", conf / "tracked.env"
    for file in (touched, kept, clean):
        file.write_text("X=1\n")
    aged(kept, days=2)
    git(site.folder, "init", "-q", "conf")
    git(conf, "add", "tracked.env")
    git(conf, "commit", "-q", "-m", "first")
    (conf / "new.env").write_text("Y=1\n")
    request.getfixturevalue("engine")
    status, told, _ = run(capsys, "changes", "--since", "1h", "-c", site.config)
    events = told["changes"]["events"]  # type: ignore[index]
    by_what = {event["what"].rpartition("/")[2]: event for event in events}
    script = next(e for e in events if e["kind"] == "script")
    assert script["suspect"] and "--page-size 32 -> 64" in script["what"] and "in effect since" in script["effect"]
    assert by_what["a.env: touched, not changed"]["why"] == "byte-identical to a.env.bak"
    assert by_what["tracked.env: touched, not changed"]["why"] == "byte-identical to git HEAD"
    assert by_what["new.env: written (not committed)"]["suspect"]
    moves = [e for e in events if e["kind"] == "git"]
    assert len(moves) == 1 and "commit (initial): first" in moves[0]["what"]
    starts = [e for e in events if e["kind"] == "process"]
    assert len(starts) == 1 and not starts[0]["suspect"]
    assert events == sorted(events, key=lambda e: datetime.fromisoformat(e["at"]))
    folder = next(e for e in events if e["what"].endswith("conf/: entries were added or removed"))
    assert not folder["suspect"]
    assert not any(e["subject"] == "decode-0" and ".git/" in e["what"] for e in events)
    packages = [s for s in told["changes"]["unchanged"] if s["what"] == "packages"]  # type: ignore[index]
    recent = [e for e in events if e["kind"] == "package"]
    assert packages or recent, "the interpreter's packages were looked at"
    assert [f["name"] for f in told["findings"]] == ["changed-since"] and status == 0  # type: ignore[index, attr-defined]


def test_nothing_changed_since_a_moment_ago(
    site: Site, engine: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (site.folder / "conf", site.script):
        aged(path, hours=3)
    time.sleep(2.2)
    _, told, _ = run(capsys, "changes", "--since", "1s", "-c", site.config)
    assert told["changes"]["events"] == []  # type: ignore[index]
    steady = {s["what"] for s in told["changes"]["unchanged"] if s["subject"] == "decode-0"}  # type: ignore[index]
    assert {"scripts", "its process", "packages"} <= steady


def test_a_recording_tells_the_same(
    site: Site, engine: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    record = site.folder / "kept"
    _, live, _ = run(capsys, "changes", "--since", since, "-c", site.config, "--record", str(record))
    _, again, _ = run(capsys, "changes", "--since", since, "--from", str(record))
    assert again["changes"]["events"] == live["changes"]["events"]  # type: ignore[index]
    assert "sk-THIS" not in "".join(p.read_text("utf-8", "replace") for p in record.rglob("*") if p.is_file())


def test_what_cannot_be_looked_at_is_said(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.script.unlink()
    _, told, _ = run(capsys, "changes", "--since", "1h", "-c", site.config)
    missed = [(row["subject"], row["why"]) for row in told["changes"]["not_looked_at"]]  # type: ignore[index]
    assert any("no such file" in why for _, why in missed)
    assert main(["changes", "--since", "soonish", "-c", site.config]) == 64
    assert "Write 10m (ago)" in capsys.readouterr().err
