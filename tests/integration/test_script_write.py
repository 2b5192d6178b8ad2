"""Writing scripts for real: here, over a plain sshd, and over one that is full of noise. Whole or not at all."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from loopback_sshd import Sshd

from pdctl.errors import StepFailed, UsageError
from pdctl.execute import journal
from pdctl.execute.rewrite import Rewriter
from pdctl.looks.files import Place
from pdctl.model.cluster import Cluster, Host
from pdctl.plans.script_write import Writing, digest_of, steps_of
from pdctl.reach.clock import SystemClock
from pdctl.reach.hosts import Hosts
from pdctl.reach.ssh_config import SshConfig
from pdctl.reach.ssh_link import Links

OLD = b"#!/bin/bash\nexport X=1  # caf\xe9\npython3 -m sglang.launch_server --tp 2\n"
NEW = OLD.replace(b"X=1", b"X=2")
CLOCK = SystemClock()


@dataclass
class Bench:
    """A script on a host, and what writes it."""

    rewriter: Rewriter
    place: Place
    path: Path

    def writing(self, raw: bytes | None = NEW, backup: str | None = None, run: str = "r1") -> Writing:
        current = self.rewriter.read(self.place)
        kept = str(self.path.with_name(backup or "serve.sh.2026-11-12T03:14:00Z.bak"))
        return Writing(self.place.subject, self.place.host, current, raw, kept, run)

    def names(self) -> list[str]:
        return sorted(p.name for p in self.path.parent.iterdir())


@pytest.fixture(params=["local", "ssh", "noisy"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    host, links = Host("here"), None
    if request.param != "local":
        server: Sshd = request.getfixturevalue("sshd" if request.param == "ssh" else "noisy_sshd")
        host, links = Host("there", server.spec), Links(SshConfig(server.config()))
    folder = tmp_path / "odd name's"
    folder.mkdir()
    path = folder / "serve.sh"
    path.write_bytes(OLD)
    path.chmod(0o754)
    with Hosts(Cluster("c", (), (host,)), links=links) as hosts:
        yield Bench(Rewriter(hosts, CLOCK), Place("decode-0", host, str(path)), path)


def test_the_file_is_written_and_its_backup_kept(bench: Bench) -> None:
    before = bench.path.stat()
    done = bench.rewriter.carry_out(bench.writing(), "set X", {"changes": ["~ X 1 -> 2"]})
    assert [d.step.act for d in done] == ["backup", "write", "verify"]
    assert bench.path.read_bytes() == NEW
    kept = bench.path.with_name("serve.sh.2026-11-12T03:14:00Z.bak")
    assert kept.read_bytes() == OLD
    for path in (bench.path, kept):
        after = path.stat()
        assert stat.S_IMODE(after.st_mode) == 0o754
        assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert bench.names() == ["serve.sh", kept.name], "nothing else is left"


def test_it_is_written_down_before_and_after(bench: Bench) -> None:
    bench.rewriter.carry_out(bench.writing(), "set X", {"changes": ["~ API_KEY a -> sk-aaaaaaaaaaaaaaaa1"]})
    entries = journal.read().entries
    assert [e.kind for e in entries] == ["script-begun", "script-done"]
    first = entries[0]
    assert first.text("act") == "set X" and first.text("path") == str(bench.path) and "@" in first.who
    assert "sk-aaaa" not in json.dumps([dict(e.fields) for e in entries])


def test_the_hosts_syslog_is_told_before_each_act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, told, tools = tmp_path / "serve.sh", tmp_path / "told", tmp_path / "bin"
    path.write_bytes(OLD)
    tools.mkdir()
    (tools / "logger").write_text(f'#!/bin/sh\nprintf "%s|" "$@" >>"{told}"; cat "{path}" | wc -c >>"{told}"\n')
    (tools / "logger").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with Hosts(Cluster("c", (), (Host("here"),))) as hosts:
        rewriter = Rewriter(hosts, CLOCK)
        current = rewriter.read(Place("d", Host("here"), str(path)))
        writing = Writing("d", Host("here"), current, NEW + b"# longer\n", f"{path}.bak", "r1")
        rewriter.carry_out(writing, "set X", {})
    who = journal.who()
    assert told.read_text().splitlines() == [
        f"-t|pdctl|--|{who}: back up {path} (pdctl script, run r1)|{len(OLD)}",
        f"-t|pdctl|--|{who}: write {path} (pdctl script, run r1)|{len(OLD)}",
    ]


def test_nothing_is_done_that_cannot_be_written_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    with pytest.raises(journal.JournalError):
        bench.rewriter.carry_out(bench.writing(), "set X", {})
    assert bench.path.read_bytes() == OLD and bench.names() == ["serve.sh"]


def test_a_file_that_changed_since_it_was_shown_is_not_touched(bench: Bench) -> None:
    writing = bench.writing()
    bench.path.write_bytes(OLD + b"# somebody else\n")
    with pytest.raises(StepFailed, match="has changed since it was read") as failed:
        bench.rewriter.carry_out(writing, "set X", {})
    assert failed.value.exit_status == 75 and failed.value.hint == "Nothing was changed."
    assert bench.path.read_bytes() == OLD + b"# somebody else\n" and bench.names() == ["serve.sh"]
    assert journal.read().entries[-1].kind == "script-failed"


def test_a_file_that_changed_after_its_backup_is_not_touched(bench: Bench) -> None:
    writing = bench.writing()
    first, second, *_ = steps_of(writing)
    run = bench.rewriter._run
    assert run(first.ask).status == 0
    bench.path.write_bytes(b"other\n")
    assert run(second.ask).status == 73
    assert bench.path.read_bytes() == b"other\n"
    assert bench.names() == ["serve.sh", "serve.sh.2026-11-12T03:14:00Z.bak"]


def test_a_backup_never_takes_the_place_of_a_file(bench: Bench) -> None:
    for kind in ("file", "link"):
        taken = bench.path.with_name(f"taken-{kind}")
        taken.write_bytes(b"precious") if kind == "file" else taken.symlink_to("nowhere")
        with pytest.raises(StepFailed, match="is there already"):
            bench.rewriter.carry_out(bench.writing(backup=taken.name), "backup", {})
        assert bench.path.read_bytes() == OLD
    assert bench.path.with_name("taken-file").read_bytes() == b"precious"
    assert bench.path.with_name("taken-link").is_symlink()


def test_what_arrives_short_is_not_written(bench: Bench) -> None:
    """As when a connection ends in the middle of the text."""
    *_, write, _verify = steps_of(bench.writing())
    short = replace(write.ask, stdin=NEW[:-7])
    answer = bench.rewriter._run(short)
    assert answer.status == 76
    assert bench.path.read_bytes() == OLD and bench.names() == ["serve.sh"]


def test_a_link_stays_a_link(bench: Bench) -> None:
    link = bench.path.with_name("link.sh")
    link.symlink_to("serve.sh")
    current = bench.rewriter.read(replace(bench.place, path=str(link)))
    assert current.path == str(bench.path) and current.asked == str(link)
    writing = replace(bench.writing(), current=current)
    bench.rewriter.carry_out(writing, "set X", {})
    assert link.is_symlink() and bench.path.read_bytes() == NEW


def test_syntax_is_judged_by_the_hosts_own_bash(bench: Bench) -> None:
    assert bench.rewriter.syntax(bench.place, NEW) is None
    fault = bench.rewriter.syntax(bench.place, b"if true; then\n  echo hi\n")
    assert fault is not None and "line 3" in fault
    marker = bench.path.with_name("ran")
    assert bench.rewriter.syntax(bench.place, f"touch {shlex.quote(str(marker))}\n".encode()) is None
    assert not marker.exists(), "nothing of it is run"


def test_files_that_are_none_are_said(bench: Bench) -> None:
    for path in (bench.path.with_name("nope.sh"), bench.path.parent):
        with pytest.raises(UsageError, match="no such file"):
            bench.rewriter.read(bench.place, str(path))


def test_a_folder_that_cannot_be_written_to(bench: Bench) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    bench.path.parent.chmod(0o555)
    with pytest.raises(StepFailed):
        bench.rewriter.carry_out(bench.writing(), "set X", {})
    bench.path.parent.chmod(0o755)
    assert bench.path.read_bytes() == OLD


def test_an_owner_that_cannot_be_kept_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who may write in the folder and is not the owner: the file would change hands."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    temporary = Path(tempfile.gettempdir())
    for above in folder.parents:
        if above.stat().st_uid == 0 and above.is_relative_to(temporary) and above != temporary:
            above.chmod(above.stat().st_mode | 0o055)
    path = folder / "serve.sh"
    path.write_bytes(OLD)
    path.chmod(0o644)
    host = Host("here")
    with Hosts(Cluster("c", (), (host,))) as hosts:
        rewriter = Rewriter(hosts, CLOCK)
        place = Place("d", host, str(path))
        writing = Writing("d", host, rewriter.read(place), NEW, str(path) + ".bak", "r1")
        for step in list(steps_of(writing))[:2]:
            as_other = ("setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", *step.ask.argv)
            assert rewriter._run(replace(step.ask, argv=as_other)).status == 77
    assert path.read_bytes() == OLD and sorted(p.name for p in folder.iterdir()) == ["serve.sh"]


# --- every point of interruption -----------------------------------------------------------------------------------

TOOLS = ("sha256sum", "stat", "cp", "touch", "sync", "mv", "ln", "rm", "cat")
SHIM = """#!/bin/sh
n=$(( $(/bin/cat {counter}) + 1 )); echo $n > {counter}
if [ $n -eq {at} ]; then {act}; fi
exec {real} "$@"
"""


def shims(folder: Path, at: int, act: str) -> Path:
    """Tools of which the ``at``-th that is called does ``act`` first."""
    folder.mkdir()
    counter = folder / "count"
    counter.write_text("0\n")
    for name in TOOLS:
        tool = folder / name
        tool.write_text(SHIM.format(counter=counter, at=at, act=act, real=shutil.which(name)))
        tool.chmod(0o755)
    return counter


@pytest.mark.parametrize("act", ["kill -KILL 0", "exit 5", "kill -TERM $PPID; sleep 0.1"])
def test_wherever_it_is_interrupted_there_is_the_old_file_or_the_new_one(
    act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole group is killed, a tool fails, or the shell is told to end: at each of the tools in turn."""
    real_path, host = os.environ["PATH"], Host("here")
    seen = set()
    for at in range(1, 60):
        folder = tmp_path / f"at{at}"
        folder.mkdir()
        path = folder / "serve.sh"
        path.write_bytes(OLD)
        path.chmod(0o754)
        with Hosts(Cluster("c", (), (host,))) as hosts:
            rewriter = Rewriter(hosts, CLOCK)
            current = rewriter.read(Place("d", host, str(path)))
            writing = Writing("d", host, current, NEW, str(path) + ".bak", "r1")
            counter = shims(folder / "bin", at, act)
            monkeypatch.setenv("PATH", f"{folder / 'bin'}:{real_path}")
            try:
                rewriter.carry_out(writing, "set X", {})
                seen.add("done")
            except StepFailed:
                seen.add("failed")
            finally:
                monkeypatch.setenv("PATH", real_path)
        assert path.read_bytes() in (OLD, NEW), at
        assert stat.S_IMODE(path.stat().st_mode) == 0o754, at
        kept = folder / "serve.sh.bak"
        assert not kept.exists() or kept.read_bytes() == OLD, at
        assert path.read_bytes() == OLD or kept.exists(), "nothing is written before its backup is there"
        if int(counter.read_text()) < at:
            break
    else:
        pytest.fail("the steps never ran through")
    assert at > 20 and seen == {"done", "failed"}, "every tool was a point of interruption"


def test_after_any_interruption_it_can_be_done_again(tmp_path: Path) -> None:
    path, host = tmp_path / "serve.sh", Host("here")
    path.write_bytes(OLD)
    (tmp_path / ".serve.sh.pdctl-r1").write_bytes(b"left over")
    with Hosts(Cluster("c", (), (host,))) as hosts:
        rewriter = Rewriter(hosts, CLOCK)
        place = Place("d", host, str(path))
        for run, raw in (("r2", NEW), ("r3", OLD)):
            writing = Writing("d", host, rewriter.read(place), raw, f"{path}.{run}.bak", run)
            rewriter.carry_out(writing, "set X", {})
            assert digest_of(path.read_bytes()) == digest_of(raw)
