"""`pdctl diff` and `pdctl script` as people meet them: a command line, an inventory, files here and over SSH."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

import pytest
import typer
from loopback_sshd import Sshd

from pdctl.cli import main
from pdctl.errors import UsageError
from pdctl.execute import journal

SCRIPTS = Path(__file__).parents[1] / "unit" / "facts" / "data" / "scripts"
SECRET = "sk-THIS-IS-NOT-A-REAL-KEY-0042"
ENTRY = """
[[instance]]
name = "{name}"
role = "{role}"
url = "http://127.0.0.1:{port}"
script = "{script}"
{host}
"""


@dataclass
class Site:
    """An inventory of a prefill and a decode whose scripts lie on one host."""

    folder: Path
    host: str = ""
    ssh: str = ""
    scripts: dict[str, Path] = field(default_factory=dict)

    @property
    def config(self) -> str:
        return str(self.folder / "pdctl.toml")

    def write(self) -> None:
        head = (
            f'name = "site"\n[[host]]\nname = "{self.host}"\nssh = "{self.ssh}"\n' if self.host else 'name = "site"\n'
        )
        rows = [
            ENTRY.format(
                name=name, role=name.partition("-")[0], port=30000 + index, script=path,
                host=f'host = "{self.host}"' if self.host else "",
            )
            for index, (name, path) in enumerate(self.scripts.items())
        ]  # fmt: skip
        Path(self.config).write_text(head + "".join(rows))


@pytest.fixture(params=["local", "ssh"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    made = Site(folder)
    if request.param == "ssh":
        server: Sshd = request.getfixturevalue("sshd")
        home = Path(os.environ["HOME"])
        (home / ".ssh").mkdir(mode=0o700)
        (home / ".ssh" / "config").write_text(server.config())
        made = Site(folder, "there", server.spec)
    for name, posted in (("prefill-0", "docker-run.sh"), ("decode-0", "arrays.sh")):
        (folder / name).mkdir()
        made.scripts[name] = folder / name / "serve.sh"
        shutil.copy(SCRIPTS / posted, made.scripts[name])
        made.scripts[name].chmod(0o750)
    made.write()
    yield made


def aged(path: Path, when: str) -> Path:
    stamp = datetime.fromisoformat(when).timestamp()
    os.utime(path, (stamp, stamp))
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    told = capsys.readouterr()
    return status, told.out, told.err


# --- script --------------------------------------------------------------------------------------------------------


def test_set_flag_unset_and_restore(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    script = site.scripts["decode-0"]
    before = script.read_bytes()
    for words, gone, new in (
        (("set", "decode-0", "MC_TE_METRIC=false"), b"MC_TE_METRIC=true", b"MC_TE_METRIC=false"),
        (("flag", "decode-0", "--page-size", "128"), b"--page-size=64", b"--page-size=128"),
        (("unset", "decode-0", "MC_TE_METRIC"), b"MC_TE_METRIC", b""),
        (("flag", "decode-0", "--remove", "--page-size"), b"--page-size", b""),
        (("flag", "decode-0", "--enable-metrics"), b"", b"--enable-metrics\n"),
    ):
        status, out, err = run(capsys, "script", *words, "-c", site.config, "--yes")
        assert status == 0, err
        text = script.read_bytes()
        assert (not gone or gone not in text) and new in text
        assert "written and read back" in out and "Nothing changes until the co-restart" in out
    kept = sorted(p.name for p in script.parent.iterdir())
    assert len(kept) == 6, "five backups beside the script"
    first = next(p for p in script.parent.glob("*.bak") if p.read_bytes() == before)
    assert run(capsys, "script", "restore", "decode-0", first.name, "-c", site.config, "--yes")[0] == 0
    assert script.read_bytes() == before and script.stat().st_mode & 0o777 == 0o750


def test_in_a_pipe_nothing_is_written_unless_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    before = site.scripts["decode-0"].read_bytes()
    for more, status in (((), 64), (("--dry-run",), 0)):
        got, out, err = run(capsys, "script", "set", "decode-0", "MC_TE_METRIC=false", "-c", site.config, *more)
        assert got == status and "MC_TE_METRIC" in out and "true -> false" in out
        assert "--yes" in err or status == 0
    assert site.scripts["decode-0"].read_bytes() == before
    assert len(list(site.scripts["decode-0"].parent.iterdir())) == 1


def test_what_cannot_be_edited_is_refused_with_the_reason(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (("set", "decode-0", "X"), "gives no value"),
        (("unset", "decode-0", "PORT"), "still used in line 17"),
        (("flag", "decode-0", "--log-level", "info"), "built by a condition"),
        (("flag", "decode-0", "--port", "1"), 'comes from "$PORT"'),
        (("flag", "decode-0", "page-size"), "no option to set"),
        (("flag", "decode-0", "--a", "1", "--b"), "one option at a time"),
        (("set", "decode-9", "X=1"), "no instance 'decode-9'"),
        (("restore", "decode-0", "nope.bak"), "no backup is called"),
        (("set", str(site.folder / "nope.sh"), "X=1"), "no such file"),
    ):
        status, _, err = run(capsys, "script", *words, "-c", site.config, "--yes")
        assert status == 64 and why in err, (words, err)


def test_a_backup_that_does_not_parse_is_not_restored(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    script = site.scripts["decode-0"]
    script.with_name("serve.sh.bak").write_text("if true; then\n")
    status, _, err = run(capsys, "script", "restore", "decode-0", "serve.sh.bak", "-c", site.config, "--yes")
    assert status == 64 and "bash -n" in err and "line 2" in err
    assert script.read_bytes() == (SCRIPTS / "arrays.sh").read_bytes()


def test_a_secret_is_written_and_never_shown(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("human", "json"):
        pair = f"SGLANG_API_KEY={SECRET}-{form}"
        status, out, err = run(capsys, "script", "set", "decode-0", pair, "-c", site.config, "--yes", "-o", form)
        assert status == 0 and SECRET not in out + err and "***" in out
    assert f"{SECRET}-json" in site.scripts["decode-0"].read_text()
    state = Path(os.environ["HOME"]) / ".local" / "state" / "pdctl" / "journal.jsonl"
    assert SECRET not in state.read_text() and "SGLANG_API_KEY" in state.read_text()
    _, out, _ = run(capsys, "diff", "decode-0", "--text", "-c", site.config)
    assert SECRET not in out and "SGLANG_API_KEY" in out


def test_json_says_what_was_done(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "script", "backup", "decode-0", "-c", site.config, "--yes", "-o", "json")
    told = json.loads(out)
    assert told["schema"] == "pdctl.script/1" and told["changed"] is False
    assert [s["step"] for s in told["steps"]] == ["backup"]
    assert Path(told["backup"]).read_bytes() == site.scripts["decode-0"].read_bytes()
    _, out, _ = run(capsys, "script", "set", "decode-0", "NEW=1", "-c", site.config, "--yes", "-o", "json")
    told = json.loads(out)
    assert told["changed"] and [s["step"] for s in told["steps"]] == ["backup", "write", "verify"]
    assert told["diff"]["changes"] == [
        {"kind": "variable", "name": "NEW", "change": "added", "before": None, "after": "1", "note": None}
    ]


def test_a_file_of_no_instance(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    file = site.folder / "nccl.env"
    file.write_text("NCCL_DEBUG=WARN\n")
    name = f"{site.host}:{file}" if site.host else str(file)
    assert run(capsys, "script", "set", name, "NCCL_DEBUG=INFO", "-c", site.config, "--yes")[0] == 0
    assert run(capsys, "script", "set", name, "NCCL_P2P_LEVEL=NVL", "-c", site.config, "--yes")[0] == 0
    assert file.read_text() == "NCCL_DEBUG=INFO\nNCCL_P2P_LEVEL=NVL\n"


def test_a_variable_of_a_file_that_is_read_in_is_edited_there(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    script = site.scripts["decode-0"]
    shutil.copy(SCRIPTS / "env-file.sh", script)
    shutil.copy(SCRIPTS / "nccl.env", script.with_name("nccl.env"))
    status, _, err = run(capsys, "script", "set", "decode-0", "TP=4", "-c", site.config, "--yes")
    assert status == 64 and "nccl.env" in err and "Edit that file" in err


def test_at_a_terminal_it_asks(site: Site) -> None:
    """A real terminal: "no" leaves everything, "yes" writes."""
    before = site.scripts["decode-0"].read_bytes()
    for reply, written in (("no", False), ("yes", True)):
        shown, status = at_terminal(
            ["script", "set", "decode-0", "MC_TE_METRIC=false", "-c", site.config], "Type yes: ", f"{reply}\n"
        )
        assert status == 0 and "true -> false" in shown and "Write it? Type yes:" in shown
        assert (site.scripts["decode-0"].read_bytes() != before) == written
        assert ("Nothing was changed." in shown) == (not written)


def at_terminal(words: list[str], wait_for: str, reply: str) -> tuple[str, int]:
    """What a command shows at a terminal, and its exit status."""
    lead, follow = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "pdctl", *words], stdin=follow, stdout=follow, stderr=follow, close_fds=True,
        start_new_session=True,
    )  # fmt: skip
    os.close(follow)
    shown, sent, until = b"", False, time.monotonic() + 60
    try:
        while time.monotonic() < until:
            ready, _, _ = select.select([lead], [], [], 0.2)
            if ready:
                try:
                    data = os.read(lead, 65536)
                except OSError:
                    break
                if not data:
                    break
                shown += data
            if not sent and wait_for.encode() in shown:
                os.write(lead, reply.encode())
                sent = True
            if not ready and child.poll() is not None:
                break
    finally:
        status = child.wait(10)
        os.close(lead)
    return shown.decode("utf-8", "replace"), status


# --- diff ----------------------------------------------------------------------------------------------------------


def test_backups_are_listed_and_the_baseline_picked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    script = aged(site.scripts["decode-0"], "2026-11-12T02:40:00+00:00")
    text = script.read_text()
    for name, when, timeout in (
        ("serve.sh.bak", "2026-11-09T10:00:00+00:00", 300),
        ("serve.sh.20261110-2201.bak", "2026-11-10T22:01:30+00:00", 400),
        ("serve.sh.2026-11-11T23:50:00.bak", "2026-11-12T09:07:00+00:00", 500),
        ("serve.sh~", "2026-11-08T10:00:00+00:00", 200),
    ):
        file = script.with_name(name)
        file.write_text(text.replace("WAITING_TIMEOUT=600", f"WAITING_TIMEOUT={timeout}"))
        aged(file, when)
    status, out, _ = run(capsys, "diff", "decode-0", "--list", "-c", site.config, "-o", "json")
    rows = {row["name"]: row for row in json.loads(out)["backups"]["decode-0"]}
    assert list(rows) == [
        "serve.sh~", "serve.sh.bak", "serve.sh.20261110-2201.bak", "serve.sh.2026-11-11T23:50:00.bak"
    ]  # fmt: skip
    assert rows["serve.sh.bak"]["when"] == "2026-11-09T10:00:00Z" and rows["serve.sh.bak"]["time_from"] == "mtime"
    assert rows["serve.sh.2026-11-11T23:50:00.bak"]["disagrees"] and status == 0
    assert rows["serve.sh.2026-11-11T23:50:00.bak"]["baseline"]
    for more, timeout in (
        ((), 500),
        (("--at", "2026-11-10T23:00:00Z"), 400),
        (("--against", "serve.sh.bak"), 300),
    ):
        status, out, _ = run(capsys, "diff", "decode-0", "--no-live", *more, "-c", site.config, "-o", "json")
        (told,) = json.loads(out)["diffs"]
        assert [(c["name"], c["before"], c["after"]) for c in told["changes"]] == [
            ("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", str(timeout), "600")
        ]
        assert status == 1, "script-drift is a warning"
    status, _, err = run(capsys, "diff", "decode-0", "--at", "2020-01-01", "-c", site.config)
    assert status == 64 and "no backup from before" in err


def test_two_files_anywhere(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(SCRIPTS / "arrays.sh")
    other = site.scripts["decode-0"]
    named = f"{site.host}:{other}" if site.host else str(other)
    assert run(capsys, "diff", one, named, "--exit-code", "-c", site.config)[0] == 0
    other.write_text(other.read_text().replace(".80", "0.8").replace("--page-size=64", "--page-size '64'") + "# more\n")
    status, out, _ = run(capsys, "diff", one, named, "--exit-code", "-c", site.config)
    assert status == 0 and "the same meaning" in out
    assert run(capsys, "diff", one, named, "--exit-code", "--text", "-c", site.config)[0] == 1
    other.write_text(other.read_text().replace("'64'", "32"))
    status, out, _ = run(capsys, "diff", one, named, "--exit-code", "-c", site.config)
    assert status == 1 and "64 -> 32" in out
    assert run(capsys, "diff", one, named + ".nope", "--exit-code", "-c", site.config)[0] == 64


def test_a_file_read_in_is_followed_and_its_change_is_a_difference(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    script = site.scripts["decode-0"]
    shutil.copy(SCRIPTS / "env-file.sh", script)
    aged(script, "2026-11-11T00:00:00+00:00")
    kept = script.with_name("serve.sh.bak")
    shutil.copy(script, kept)
    aged(kept, "2026-11-10T00:00:00+00:00")
    env = script.with_name("nccl.env")
    shutil.copy(SCRIPTS / "nccl.env", env)
    aged(env, "2026-11-12T00:00:00+00:00")
    old = script.with_name("nccl.env.20261109.bak")
    old.write_text(env.read_text().replace("TIMEOUT=22", "TIMEOUT=14"))
    aged(old, "2026-11-09T12:00:00+00:00")
    _, out, _ = run(capsys, "diff", "decode-0", "--no-live", "-c", site.config, "-o", "json")
    (told,) = json.loads(out)["diffs"]
    assert [(c["name"], c["before"], c["after"]) for c in told["changes"]] == [("NCCL_IB_TIMEOUT", "14", "22")]


def test_roles_and_what_they_must_agree_on(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "diff", "prefill-0", "decode-0", "--no-live", "-c", site.config, "-o", "json")
    told = json.loads(out)
    rows = {row["flag"]: row for row in told["settings"]["prefill-0->decode-0"]}
    assert rows["--kv-cache-dtype"]["agrees"] is False and rows["--kv-cache-dtype"]["values"] == ["fp8_e4m3", "auto"]
    assert rows["--page-size"]["agrees"] is None and rows["--page-size"]["values"] == [None, "64"]
    assert all(row["why"] for row in rows.values())
    assert [f["name"] for f in told["findings"] if f["name"] == "role-mismatch"] and status == 2


def test_a_script_that_cannot_be_read_is_said(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.scripts["decode-0"].unlink()
    status, out, _ = run(capsys, "diff", "decode-0", "-c", site.config, "-o", "json")
    told = json.loads(out)
    assert status == 3 and told["status"] == "unknown"
    assert [f["name"] for f in told["findings"]] == ["endpoint-unreadable"]
    assert "no such file" in told["findings"][0]["summary"]
    assert run(capsys, "diff", "decode-0", "--exit-code", "-c", site.config)[0] == 2


def test_nothing_is_green_that_was_not_looked_at(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(site.config).read_text()
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("script ="))
    Path(site.config).write_text(bare)
    for words in ((), ("decode-0",)):
        status, _, err = run(capsys, "diff", *words, "-c", site.config)
        assert status == 64 and "the inventory names no script of" in err
    head, _, tail = text.rpartition("script =")
    Path(site.config).write_text(head + tail.partition("\n")[2])
    status, out, _ = run(capsys, "diff", "--no-live", "-c", site.config, "-o", "json")
    rows = {(row["subject"], row["why"]) for row in json.loads(out)["unchecked"]}
    assert ("decode-0", "the inventory names none") in rows


def test_the_co_restart_can_follow_at_once(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the restart command of the same command line; where there is none, nothing is written either."""
    from pdctl import cli

    words = ("script", "set", "decode-0", "MC_TE_METRIC=false", "-c", site.config, "--yes", "--restart")
    before = site.scripts["decode-0"].read_bytes()
    monkeypatch.setattr(cli, "COMMANDS", {k: v for k, v in cli.COMMANDS.items() if k != "restart"})
    status, _, err = run(capsys, *words)
    assert status == 64 and "no restart" in err and site.scripts["decode-0"].read_bytes() == before
    asked: list[tuple[str, bool]] = []
    fake = types.ModuleType("fake_restart")

    def restart(config: str = "", yes: bool = False) -> None:
        asked.append((config, yes))

    fake.restart = restart  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_restart", fake)
    monkeypatch.setitem(cli.COMMANDS, "restart", ("fake_restart:restart", "a stand-in"))
    status, out, err = run(capsys, *words)
    assert status == 0, err
    assert asked == [(site.config, True)] and "written and read back" in out and "pdctl restart --plan" not in out


@pytest.mark.parametrize(("end", "said"), [(0, "done"), (75, "failed")])
def test_programs_get_one_document_of_the_edit_and_the_restart(
    end: int, said: str, site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pdctl import cli

    fake = types.ModuleType("fake_restart")

    def restart(
        config: str = "", yes: bool = False, output: Annotated[str, typer.Option("--output", "-o")] = ""
    ) -> None:
        print(json.dumps({"status": said, "asked": output}))
        raise typer.Exit(end)

    fake.restart = restart  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_restart", fake)
    monkeypatch.setitem(cli.COMMANDS, "restart", ("fake_restart:restart", "a stand-in"))
    words = ("script", "set", "decode-0", "MC_TE_METRIC=false", "-c", site.config, "--yes", "-o", "json")
    status, out, _ = run(capsys, *words, "--restart")
    told = json.loads(out)
    assert status == end and told["changed"] and told["restart"] == {"status": said, "asked": "json"}
    assert told["next"] is None
    status, out, _ = run(capsys, *words, "--restart")
    assert status == 0 and not json.loads(out)["changed"] and json.loads(out)["restart"] is None
    assert journal.read().entries[-1].text("cluster") == "site"


def test_a_restart_that_is_refused_does_not_hide_that_the_script_was_written(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pdctl import cli

    fake = types.ModuleType("fake_restart")

    def restart(
        config: str = "", yes: bool = False, output: Annotated[str, typer.Option("--output", "-o")] = ""
    ) -> None:
        raise UsageError("there is no way")

    fake.restart = restart  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_restart", fake)
    monkeypatch.setitem(cli.COMMANDS, "restart", ("fake_restart:restart", "a stand-in"))
    words = ("script", "set", "decode-0", "MC_TE_METRIC=false", "-c", site.config, "--yes", "-o", "json", "--restart")
    status, out, err = run(capsys, *words)
    told = json.loads(out)
    assert status == 64 and told["changed"] and told["restart"] == {"status": "refused", "why": "there is no way"}
    assert "there is no way" in err
