"""What is asked of hosts: commands that can be shown, and that the shells at hand run."""

from __future__ import annotations

import os
import subprocess

import pytest

from pdctl.facts import asks_host, limits
from pdctl.facts.proc_listing import read_listing, read_states, read_threads
from pdctl.model.answer import Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host, Instance, Role
from tests.unit.facts.host_answers import answer

HOST = Host("h1", "root@h1", "sudo")
ENGINE = Instance("p", Role.PREFILL, unit="pd prefill.service", log="/var/log/a b.log")


def ran(ask: CommandAsk) -> bytes:
    words = [str(word) for word in ask.argv]
    return subprocess.run(words, capture_output=True, check=True, timeout=30, env={**os.environ, "LC_ALL": "C"}).stdout


def test_this_process_is_in_the_listing() -> None:
    me = next(row for row in read_listing(ran(asks_host.processes_ask(Host("h")))) if row.pid == os.getpid())
    assert me.ppid == os.getppid()
    assert "python" in me.argv[0]
    assert me.exe is not None
    assert me.rss_bytes > 1_000_000


def test_states_and_threads_of_this_process() -> None:
    pids = (os.getpid(), 2**22 + 1)
    assert set(read_states(ran(asks_host.states_ask(Host("h"), pids)))) == {os.getpid()}
    threads = read_threads(ran(asks_host.threads_ask(ENGINE, Host("h"), os.getpid())))
    assert os.getpid() in {thread.tid for thread in threads}


def test_open_files_of_this_process() -> None:
    body = ran(asks_host.limits_ask(ENGINE, Host("h"), os.getpid()))
    read = limits.read(answer(Fact.LIMITS, body.decode()), None)
    assert read.open_files is not None
    assert 3 <= read.open_files <= 4096
    assert read.soft_limit


def test_a_process_that_is_gone_has_no_limits() -> None:
    ask = asks_host.limits_ask(ENGINE, Host("h"), 2**22 + 1)
    done = subprocess.run([str(word) for word in ask.argv], capture_output=True, check=False)
    assert done.returncode != 0
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("ask", "subject", "shown"),
    [
        (asks_host.unit_ask(ENGINE, HOST), "p", "TZ=UTC systemctl show 'pd prefill.service'"),
        (asks_host.log_ask(ENGINE, HOST), "p", "tail -c 8388608 -- '/var/log/a b.log'"),
        (asks_host.sockets_ask(HOST), "host:h1", "ss -tanpieo"),
        (asks_host.nstat_ask(HOST), "host:h1", "nstat -az"),
        (asks_host.limits_ask(ENGINE, HOST, 7, "x"), "p", "cat /proc/7/limits; ls /proc/7/fd | wc -l"),
    ],
)
def test_how_they_are_shown(ask: CommandAsk, subject: str, shown: str) -> None:
    assert (ask.subject, str(ask), ask.host) == (subject, shown, "h1")


def test_sudo_where_the_host_has_it_and_it_takes_root() -> None:
    assert asks_host.sockets_ask(HOST).become
    assert not asks_host.sockets_ask(Host("h")).become
    assert not asks_host.nstat_ask(HOST).become


def test_a_unit_s_journal_where_there_is_no_file() -> None:
    ask = asks_host.log_ask(Instance("p", Role.PREFILL, unit="p.service"), HOST)
    assert ask.argv[0] == "journalctl"
    assert ask.argv[-2:] == ("-u", "p.service")


def test_limits_carry_whose_they_are() -> None:
    assert dict(asks_host.limits_ask(ENGINE, HOST, 7, "sglang::scheduler").about) == {
        "pid": 7,
        "title": "sglang::scheduler",
    }
