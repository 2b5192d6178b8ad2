"""A host's /proc in one listing. The lines are as grep printed them on a host with cgroup v1 and v2, numbers made up by
hand; places of the fields are those of proc(5)."""

from __future__ import annotations

import pytest

from pdctl.facts.base import Unreadable
from pdctl.facts.proc_listing import read_listing, read_states, read_threads

HEAD = b"clock 1795998678 100 4096\nbtime 1795990000\n"


def stat(pid: int, name: bytes, state: str = "S", ppid: int = 1, start: int = 5000, cpu: int = 0) -> bytes:
    """utime and stime are the 14th and 15th field, starttime the 22nd, rss (pages) the 24th."""
    fields = [state, ppid, 1, 1, 0, -1, 4194560, 1, 0, 0, 0, cpu, 50, 0, 0, 20, 0, 13, 0, start, 59314176, 100, 9, 1]
    return b"%d/stat:%d (%s) %s\n" % (pid, pid, name, " ".join(map(str, fields)).encode())


ENGINE = (
    HEAD
    + stat(10, b"python", start=2000, cpu=150)
    + stat(12, b"sglang::schedul", "R", 10, 2500)
    + stat(2, b"kthreadd", ppid=0)
    + b"10/cmdline:/srv/venv/bin/python\0-m\0sglang.launch_server\0--port\x0030000\0\n"
    + b"12/cmdline:sglang::scheduler_TP0\0\0\0\0\0\0\n"
    + b"10/cgroup:0::/system.slice/pd-prefill.service\n12/cgroup:0::/system.slice/pd-prefill.service\n2/cgroup:0::/\n"
    + b"lrwxrwxrwx 1 root root 0 Nov 29 22:56 10/exe -> /usr/bin/python3.11\n"
)


def test_an_engine_and_its_scheduler() -> None:
    kernel, main, scheduler = read_listing(ENGINE)
    assert (main.pid, main.ppid, main.comm, main.state) == (10, 1, "python", "S")
    assert main.argv == ("/srv/venv/bin/python", "-m", "sglang.launch_server", "--port", "30000")
    assert main.started == 1795990000 + 20.0
    assert main.cpu_seconds == 2.0
    assert main.rss_bytes == 409600
    assert (main.exe, main.unit) == ("/usr/bin/python3.11", "pd-prefill.service")
    assert (scheduler.argv, scheduler.title, scheduler.ppid) == (
        ("sglang::scheduler_TP0",),
        "sglang::scheduler_TP0",
        10,
    )
    assert (kernel.title, kernel.argv, kernel.unit) == ("[kthreadd]", (), None)


def test_a_row_is_what_captures_hold() -> None:
    row = read_listing(ENGINE)[1].as_row()
    assert row["started"] == "2026-11-29T22:07:00.000+00:00"  # 1795990020 seconds
    assert (row["pid"], row["ppid"], row["title"]) == (
        10,
        1,
        "/srv/venv/bin/python -m sglang.launch_server --port 30000",
    )
    assert row["cmdline"] == ["/srv/venv/bin/python", "-m", "sglang.launch_server", "--port", "30000"]


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        (b"0::/system.slice/pd.service", "pd.service"),
        (b"0::/user.slice/user-0.slice/user@0.service/app.slice/pd-decode.service", "pd-decode.service"),
        (b"0::/system.slice/docker-4f2a.scope/init", "docker-4f2a.scope"),
        (b"4:memory:/x.service\n7/cgroup:1:name=systemd:/system.slice/old.service\n7/cgroup:0::/", "old.service"),
        (b"4:memory:/system.slice/wrong.service\n7/cgroup:0::/", None),
        (b"0::/", None),
    ],
)
def test_the_unit_is_the_innermost_of_systemd_s_own_hierarchy(cgroup: bytes, unit: str | None) -> None:
    (row,) = read_listing(HEAD + stat(7, b"x") + b"7/cgroup:" + cgroup + b"\n")
    assert row.unit == unit


def test_hostile_names_pass_for_nobody_else() -> None:
    """A name with a bracket and a newline, a title with a whole forged line: grep's prefix tells whose each line is."""
    name = b"a) R 1 (b\n66/stat:66 (c"
    forged = b"66/cmdline:x\n66/cmdline:99/stat:99 (root) S\0\n"
    (row,) = read_listing(HEAD + stat(66, name) + forged)
    assert (row.pid, row.comm) == (66, "a) R 1 (b\n66 (c")
    assert row.argv == ("x\n99/stat:99 (root) S",)


def test_broken_utf8_and_lines_cut_short() -> None:
    body = HEAD + stat(5, b"caf\xe9") + b"5/cmdline:\xff\xfe\0a\0\n6/stat:6 (cut) S 1"
    (row,) = read_listing(body)
    assert (row.comm, row.argv) == ("caf\N{REPLACEMENT CHARACTER}", ("\N{REPLACEMENT CHARACTER}" * 2, "a"))


@pytest.mark.parametrize("body", [b"", HEAD, b"sh: cd: /proc: No such file", stat(5, b"x"), b"\0" * 100])
def test_what_is_no_listing(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read_listing(body)


def test_states() -> None:
    assert read_states(stat(5, b"a", "T") + stat(6, b"b", "R")) == {5: "T", 6: "R"}
    assert read_states(b"") == {}


def test_threads() -> None:
    body = stat(5, b"python", "S") + stat(9, b"tokio-runtime-w", "R") + b"5/wchan:futex_do_wait\n9/wchan:0\n"
    main, worker = read_threads(body)
    assert (main.tid, main.name, main.state, main.waits_in) == (5, "python", "S", "futex_do_wait")
    assert (worker.name, worker.state, worker.waits_in) == ("tokio-runtime-w", "R", "")
