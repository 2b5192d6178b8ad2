"""HTTP through a host's SSH connection: the same answers as straight ahead, and the host's own trouble told apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import made_tls
from loopback_sshd import MISSING, Sshd, find_sshd, free_port, start_sshd
from nasty import Nasty, Peer

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import CommandAsk, HttpAsk
from pdctl.model.cluster import Cluster, Host
from pdctl.reach.hosts import Hosts
from pdctl.reach.http import HttpReach
from pdctl.reach.ssh_config import SshConfig
from pdctl.reach.ssh_link import Links


class Asker:
    """HTTP by way of the host "there"."""

    def __init__(self, server: Sshd) -> None:
        cluster = Cluster("c", (), (Host("there", server.spec), Host("here")))
        self.hosts = Hosts(cluster, links=Links(SshConfig(server.config())))
        self.http = HttpReach(dial=self.hosts.dial)

    def get(self, url: str, *, timeout: float = 10.0, ca_file: str | None = None, via: str = "there") -> Answer:
        ask = HttpAsk("x", Fact.METRICS, url, timeout=timeout, via=via, ca_file=ca_file)
        now = time.monotonic()
        return self.http.answer(ask, started=now, deadline=now + 60)

    def close(self) -> None:
        self.http.close()
        self.hosts.close()


@pytest.fixture
def asker(sshd: Sshd) -> Iterator[Asker]:
    made = Asker(sshd)
    yield made
    made.close()


def served(body: bytes, *headers: str) -> Nasty:
    def script(peer: Peer) -> bool:
        peer.reply(body, *headers)
        return True

    return Nasty(script)


def test_a_page(asker: Asker) -> None:
    with served(b"sglang:num_running_reqs 1\n", "Content-Type: text/plain") as server:
        answer = asker.get(f"http://127.0.0.1:{server.port}/metrics")
    assert (answer.status, answer.error, answer.body) == (200, None, b"sglang:num_running_reqs 1\n")
    assert answer.content_type == "text/plain"


def test_the_host_itself_resolves_the_name(asker: Asker) -> None:
    with served(b"ok") as server:
        assert asker.get(f"http://localhost:{server.port}/").body == b"ok"


def test_a_connection_is_used_again_and_given_up_when_it_was_closed(asker: Asker) -> None:
    def script(peer: Peer) -> bool:
        peer.reply(b"%d" % peer.number)
        return peer.asked < 2

    with Nasty(script) as server:
        url = f"http://127.0.0.1:{server.port}/"
        bodies = []
        for _ in range(4):
            bodies.append(asker.get(url).body)
            time.sleep(0.1)
    assert bodies[0] == bodies[1] == b"0"
    assert bodies[2] == b"1"


def test_a_large_page(asker: Asker) -> None:
    body = bytes(range(256)) * 40_000
    with served(body) as server:
        assert asker.get(f"http://127.0.0.1:{server.port}/").body == body


def test_nobody_listens(asker: Asker) -> None:
    answer = asker.get(f"http://127.0.0.1:{free_port()}/")
    assert answer.error is Why.CONNECT_REFUSED


def test_many_refusals_at_once_are_all_told_as_such(asker: Asker) -> None:
    port = free_port()
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(asker.get(f"http://127.0.0.1:{port}/"))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.error for answer in answers] == [Why.CONNECT_REFUSED] * 16


def test_an_answer_that_does_not_come(asker: Asker) -> None:
    with Nasty(lambda peer: peer.hang()) as server:
        answer = asker.get(f"http://127.0.0.1:{server.port}/", timeout=0.7)
        assert answer.error is Why.READ_TIMEOUT


def test_an_answer_that_drips(asker: Asker) -> None:
    with Nasty(lambda peer: peer.drip(b"HTTP/1.1 200 OK\r\n" * 100, 0.05)) as server:
        answer = asker.get(f"http://127.0.0.1:{server.port}/", timeout=0.7)
    assert answer.error is Why.READ_TIMEOUT


def test_an_answer_that_breaks_off(asker: Asker) -> None:
    with Nasty(lambda peer: peer.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")) as server:
        answer = asker.get(f"http://127.0.0.1:{server.port}/")
    assert answer.error is Why.TRUNCATED


def test_tls_is_checked_end_to_end(asker: Asker, tmp_path: Path) -> None:
    tls = made_tls(tmp_path)

    def script(peer: Peer) -> bool:
        peer.reply(b"x" * 300_000)
        return True

    with Nasty(script, tls) as server:
        url = f"https://127.0.0.1:{server.port}/"
        for _ in range(2):
            answer = asker.get(url, ca_file=str(tmp_path / "ca.pem"))
            assert (answer.status, answer.error, len(answer.body or b"")) == (200, None, 300_000)
        assert len(server.peers) == 1, "one connection for both"
        stranger = asker.get(url)
        assert stranger.error is Why.TLS
        assert "certificate" in (stranger.detail or "")


def test_tls_to_a_port_that_speaks_none(asker: Asker) -> None:
    with served(b"plain") as server:
        answer = asker.get(f"https://127.0.0.1:{server.port}/")
    assert answer.error is not None
    assert answer.status is None


def test_ssh_trouble_is_called_so(sshd: Sshd, tmp_path: Path) -> None:
    cluster = Cluster("c", (), (Host("there", f"127.0.0.1:{free_port()}"),))
    with Hosts(cluster, links=Links(SshConfig(sshd.config()))) as hosts, HttpReach(dial=hosts.dial) as http:
        now = time.monotonic()
        ask = HttpAsk("x", Fact.METRICS, "http://127.0.0.1:1/", via="there")
        answer = http.answer(ask, started=now, deadline=now + 10)
    assert answer.error is Why.SSH
    assert "refused" in (answer.detail or "").lower()


def test_a_host_that_is_not_in_the_inventory(asker: Asker) -> None:
    assert asker.get("http://127.0.0.1:1/", via="nowhere").error is Why.SSH


def test_this_machine_is_a_host_too(asker: Asker) -> None:
    with served(b"ok") as server:
        assert asker.get(f"http://127.0.0.1:{server.port}/", via="here").body == b"ok"


def test_an_sshd_that_forwards_nothing(tmp_path: Path) -> None:
    if find_sshd() is None:
        pytest.skip(MISSING)
    server = start_sshd(tmp_path / "closed", "AllowTcpForwarding no")
    asker = Asker(server)
    try:
        with served(b"ok") as engine:
            answer = asker.get(f"http://127.0.0.1:{engine.port}/")
        assert answer.error is Why.SSH
        assert "does not allow" in (answer.detail or "")
    finally:
        asker.close()
        server.stop()


def test_commands_and_pages_share_one_connection(tmp_path: Path) -> None:
    if find_sshd() is None:
        pytest.skip(MISSING)
    server = start_sshd(tmp_path / "shared")
    asker = Asker(server)
    try:
        with served(b"ok") as engine:
            now = time.monotonic()
            asker.hosts.run(CommandAsk("x", Fact.FILE, "there", ("true",)), started=now, deadline=now + 10)
            assert asker.get(f"http://127.0.0.1:{engine.port}/").body == b"ok"
        assert len(server.children()) == 1
    finally:
        asker.close()
        server.stop()


# --- the hosts of a cluster --------------------------------------------------------------------------------------


def test_one_dead_host_delays_no_other(sshd: Sshd) -> None:
    cluster = Cluster("c", (), (Host("here"), Host("there", sshd.spec), Host("gone", f"127.0.0.1:{free_port()}")))
    answers: dict[str, Answer] = {}
    with Hosts(cluster, links=Links(SshConfig(sshd.config()))) as hosts:

        def ask(name: str) -> None:
            now = time.monotonic()
            command = CommandAsk(f"host:{name}", Fact.FILE, name, ("echo", name))
            answers[name] = hosts.run(command, started=now, deadline=now + 10)

        threads = [threading.Thread(target=ask, args=(name,)) for name in ("here", "there", "gone", "unknown")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers["here"].body == b"here\n"
    assert answers["there"].body == b"there\n"
    assert answers["gone"].error is Why.SSH
    assert answers["unknown"].error is Why.OTHER
    assert "inventory" in (answers["unknown"].detail or "")


def test_a_host_that_cannot_be_named(sshd: Sshd) -> None:
    with Hosts(Cluster("c", (), (Host("odd", "-oProxyCommand=x"),)), links=Links(SshConfig(""))) as hosts:
        answer = hosts.run(CommandAsk("host:odd", Fact.FILE, "odd", ("true",)), started=0, deadline=1e12)
    assert answer.error is Why.SSH
    assert "no SSH host" in (answer.detail or "")
