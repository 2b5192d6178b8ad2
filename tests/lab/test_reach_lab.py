"""Real hosts that break: what a command is told, and how soon, and that the others go on."""

from __future__ import annotations

import threading
import time

import pytest
from labkit import MUTE, Run, needs_sudo, wait_answers
from machines import Lab, Machine

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import MEGABYTE, CommandAsk, HttpAsk
from pdctl.model.cluster import Cluster, Host
from pdctl.reach.hosts import Hosts
from pdctl.reach.http import HttpReach


def later(seconds: float, what: object) -> threading.Timer:
    timer = threading.Timer(seconds, what)  # type: ignore[arg-type]
    timer.start()
    return timer


def left_on(host: Machine, mark: str, seconds: float = 8.0) -> str:
    """What of the marked commands is still running there after that many seconds."""
    until = time.monotonic() + seconds
    while True:
        found = [row for row in host.run("ps", "-eo", "pid,stat,args").splitlines() if mark in row and " Z" not in row]
        if not found or time.monotonic() > until:
            return "\n".join(found)
        time.sleep(0.1)


def test_one_connection_and_what_it_brings(lab: Lab, run: Run) -> None:
    assert run("h1", "hostname").body == b"h1\n"
    assert run("h2", "systemctl", "is-active", "pd-decode").body == b"active\n"
    assert run("h3", "hostname").body == b"h3\n", "a banner is no part of the answer"


def test_power_cut_in_the_middle(lab: Lab, run: Run) -> None:
    """Nothing arrives any more and nobody says why; the other hosts do not wait for it."""
    answers: dict[str, Answer] = {}

    def ask(name: str) -> None:
        answers[name] = run(name, "sh", "-c", "echo begun; sleep 4; echo done", timeout=90)

    for name in ("h1", "h2", "h3"):
        run(name, "true")
    threads = [threading.Thread(target=ask, args=(name,)) for name in ("h1", "h2", "h3")]
    for thread in threads:
        thread.start()
    time.sleep(1)
    lab["h3"].power_off()
    for thread in threads:
        thread.join()
    try:
        for name in ("h1", "h2"):
            assert (answers[name].error, answers[name].body) == (None, b"begun\ndone\n")
        assert list(answers)[-1] == "h3", "nobody waited for it"
        lost = answers["h3"]
        assert lost.error is Why.SSH
        assert lost.body == b"begun\n"
        assert "nothing heard from h3" in (lost.detail or "")
        assert "while the command ran" in (lost.detail or ""), "noticed before the command's own 90 s were over"
    finally:
        lab["h3"].power_on()
    assert run("h3", "hostname", timeout=30).body == b"h3\n", "a rebooted host is reached again"


def test_power_cut_while_idle(lab: Lab, run: Run) -> None:
    before = run("h3", "cat", "/proc/sys/kernel/random/boot_id").body
    lab["h3"].power_off()
    lab["h3"].power_on()
    after = run("h3", "cat", "/proc/sys/kernel/random/boot_id", timeout=30)
    assert after.error is None, after.detail
    assert after.body != before


def test_a_host_that_is_off(lab: Lab, run: Run) -> None:
    lab["h3"].power_off()
    try:
        answer = run("h3", "true", timeout=3)
        assert answer.error is Why.SSH
        assert answer.took < 60
        assert run("h1", "hostname").body == b"h1\n"
    finally:
        lab["h3"].power_on()


def test_a_partition_that_heals(lab: Lab, run: Run) -> None:
    """Two seconds without a packet: TCP sends again what was lost, and the answer is whole."""
    assert run("h3", "true").error is None
    lab["h3"].unplug()
    later(2, lab["h3"].plug)
    answer = run("h3", "seq", "3", timeout=30)
    assert (answer.error, answer.body) == (None, b"1\n2\n3\n")


def test_a_partition_that_lasts_until_the_deadline(lab: Lab, run: Run) -> None:
    assert run("h3", "true").error is None
    mark = "4242.25"
    later(1, lab["h3"].unplug)
    answer = run("h3", "sleep", mark, timeout=4)
    assert answer.error in (Why.SSH, Why.READ_TIMEOUT)
    assert answer.took < 60
    lab["h3"].plug()
    assert left_on(lab["h3"], mark) == "", "the host's own watch ended it meanwhile"


def test_a_tenth_of_a_second_each_way(lab: Lab, run: Run) -> None:
    lab["h3"].slow(100)
    try:
        first = run("h3", "true", timeout=30)
        assert first.error is None, first.detail
        second = run("h3", "sh", "-c", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2", timeout=60)
        assert second.error is None, second.detail
        assert second.body == bytes(3_000_000)
        answers: list[Answer] = []
        threads = [threading.Thread(target=lambda: answers.append(run("h3", "true"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer.error for answer in answers] == [None] * 8
    finally:
        lab["h3"].fast()


def test_sshd_killed_in_the_middle(lab: Lab, run: Run) -> None:
    assert run("h3", "true").error is None
    later(1, lambda: lab["h3"].run("pkill", "-KILL", "-f", "sshd: root"))
    answer = run("h3", "sh", "-c", "echo begun; sleep 30", timeout=20)
    assert answer.error is Why.SSH
    assert answer.body == b"begun\n"
    assert "while the command ran" in (answer.detail or ""), "noticed when it happened, not at the deadline"
    assert run("h3", "hostname").body == b"h3\n"


def test_sshd_gone_altogether_and_back(lab: Lab, run: Run) -> None:
    assert run("h3", "true").error is None
    lab["h3"].run("systemctl", "stop", "lab-sshd")
    lab["h3"].run("pkill", "-KILL", "-f", "sshd: root", check=False)
    try:
        answer = run("h3", "true", timeout=5)
        assert answer.error is Why.SSH
        assert "refused" in (answer.detail or "").lower()
    finally:
        lab["h3"].run("systemctl", "start", "lab-sshd")
        lab["h3"].wait_up()
    time.sleep(3.1)  # a failure is remembered for so long
    assert run("h3", "hostname").body == b"h3\n"


def test_four_megabytes_on_stderr(lab: Lab, run: Run) -> None:
    answer = run("h1", "sh", "-c", f"head -c {4 * MEGABYTE} /dev/zero >&2; head -c {4 * MEGABYTE} /dev/zero")
    assert answer.error is None
    assert answer.body == bytes(4 * MEGABYTE)


def test_output_that_is_slow_huge_or_endless(lab: Lab, run: Run) -> None:
    mark = "pdctl-endless"
    endless = run("h1", "sh", "-c", f"yes {mark}", cap=MEGABYTE)
    assert endless.error is Why.TOO_LARGE
    dripping = run("h1", "sh", "-c", f"while sleep 0.2; do echo {mark}; done", timeout=1.5)
    assert dripping.error is Why.READ_TIMEOUT
    huge = run("h1", "head", "-c", str(48 * MEGABYTE), "/dev/zero", timeout=60)
    assert huge.error is None
    assert len(huge.body or b"") == 48 * MEGABYTE
    assert left_on(lab["h1"], mark) == ""


# --- sudo --------------------------------------------------------------------------------------------------------


def as_user(user: str, become: str | None) -> Hosts:
    return Hosts(Cluster("lab", (), (Host("h1", f"{user}@h1", become),)))


def asked(hosts: Hosts, *argv: str, timeout: float = 10.0, become: bool = True) -> Answer:
    now = time.monotonic()
    ask = CommandAsk("host:h1", Fact.FILE, "h1", argv, become=become, timeout=timeout)
    return hosts.run(ask, started=now, deadline=now + 60)


@needs_sudo
def test_sudo_where_it_is_allowed(lab: Lab) -> None:
    with as_user("ops", "sudo") as hosts:
        assert asked(hosts, "id", "-u").body == b"0\n"
        assert asked(hosts, "id", "-u", become=False).body == b"4001\n"
        assert asked(hosts, "sh", "-c", "echo $LC_ALL").body == b"C\n"
        assert asked(hosts, "no-such-tool").error is Why.NO_SUCH_TOOL
        assert asked(hosts, "sh", "-c", "exit 42").status == 42


@needs_sudo
def test_what_runs_as_root_is_ended_too(lab: Lab) -> None:
    mark = "pdctl-as-root"
    with as_user("ops", "sudo") as hosts:
        answer = asked(hosts, "sh", "-c", f"sleep 300; : {mark}", timeout=1.5)
        assert answer.error is Why.READ_TIMEOUT
        assert left_on(lab["h1"], mark) == ""


@needs_sudo
def test_sudo_that_wants_a_password_is_not_given_one(lab: Lab) -> None:
    with as_user("plain", "sudo") as hosts:
        answer = asked(hosts, "id", "-u")
    assert answer.error is Why.PERMISSION
    assert "NOPASSWD" in (answer.detail or "")


def test_the_journal_without_permission(lab: Lab) -> None:
    with as_user("plain", None) as hosts:
        answer = asked(hosts, "journalctl", "-u", "pd-prefill", "-n", "5")
    assert answer.error is Why.PERMISSION
    assert "insufficient permissions" in (answer.detail or "")


# --- HTTP --------------------------------------------------------------------------------------------------------


def test_engines_that_listen_on_their_own_loopback(engines: Lab, hosts: Hosts) -> None:
    with HttpReach(dial=hosts.dial) as http:
        for host, port, role in (("h1", 30000, b"prefill"), ("h2", 30001, b"decode")):
            now = time.monotonic()
            ask = HttpAsk("x", Fact.METRICS, f"http://127.0.0.1:{port}/metrics", via=host)
            answer = http.answer(ask, started=now, deadline=now + 20)
            assert (answer.status, answer.error) == (200, None), answer.detail
            assert b'engine_type="%s"' % role in (answer.body or b"")
        ask = HttpAsk("x", Fact.METRICS, "http://127.0.0.1:30001/metrics", via="h1")
        now = time.monotonic()
        assert http.answer(ask, started=now, deadline=now + 20).error is Why.CONNECT_REFUSED


@pytest.mark.parametrize("cut", ["power", "cable"])
def test_a_host_that_goes_while_a_page_is_awaited(lab: Lab, hosts: Hosts, cut: str) -> None:
    wait_answers(lab["h3"], MUTE)
    mute = HttpAsk("x", Fact.METRICS, f"http://127.0.0.1:{MUTE}/metrics", via="h3", timeout=3)
    with HttpReach(dial=hosts.dial) as http:
        timer = later(1, lab["h3"].power_off if cut == "power" else lab["h3"].unplug)
        now = time.monotonic()
        answer = http.answer(mute, started=now, deadline=now + 20)
        assert answer.error is Why.READ_TIMEOUT
        assert answer.took < 60
        timer.join()
    if cut == "power":
        lab["h3"].power_on()
    else:
        lab["h3"].plug()
        lab["h3"].wait_up()
