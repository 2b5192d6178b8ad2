"""SSH itself: whose key is trusted, who may log in, by which way, and what happens when a connection dies."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from loopback_sshd import MISSING, Sshd, find_sshd, free_port, make_key, start_sshd
from test_runners import wait_gone

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host
from pdctl.reach import ssh_live
from pdctl.reach.ssh import SshReach
from pdctl.reach.ssh_auth import KeyRing, Prompt
from pdctl.reach.ssh_config import SshConfig
from pdctl.reach.ssh_link import Link, Links


class Client:
    """What a test asks with: a configuration, and the commands it runs over it."""

    def __init__(self, config: str, prompt: Prompt | None = None) -> None:
        self.links = Links(SshConfig(config), KeyRing(prompt))

    def run(self, spec: str, *argv: str, timeout: float = 15.0) -> Answer:
        now = time.monotonic()
        ask = replace(CommandAsk("host:x", Fact.FILE, "x", argv or ("echo", "in")), timeout=timeout)
        return self.reach(spec).run(ask, started=now, deadline=now + 60)

    def reach(self, spec: str) -> SshReach:
        return SshReach(Host("x", spec), self.link(spec))

    def link(self, spec: str) -> Link:
        return self.links.link(spec)


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(config: str, prompt: Prompt | None = None) -> Client:
        made.append(Client(config, prompt))
        return made[-1]

    yield make
    for each in made:
        each.links.close()


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[Callable[[str], Sshd]]:
    """Starts a server of the test's own, with the settings given."""
    if find_sshd() is None:
        pytest.skip(MISSING)
    made: list[Sshd] = []

    def start(settings: str = "") -> Sshd:
        made.append(start_sshd(tmp_path / f"own{len(made)}", settings))
        return made[-1]

    yield start
    for server in made:
        server.stop()


Make = Callable[..., Client]
Start = Callable[..., Sshd]


# --- host keys ---------------------------------------------------------------------------------------------------


def fingerprint(server: Sshd) -> str:
    words = ["ssh-keygen", "-l", "-f", str(server.folder / "host_key.pub")]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[1]


def test_an_unknown_key_is_refused_and_the_command_shown_adds_it(sshd: Sshd, client: Make, tmp_path: Path) -> None:
    config = sshd.config(known=tmp_path / "known")
    answer = client(config).run(sshd.spec)
    assert answer.error is Why.SSH
    assert answer.status is None
    detail = answer.detail or ""
    assert "not known" in detail
    assert f"[127.0.0.1]:{sshd.port}" in detail
    assert fingerprint(sshd) in detail
    assert "\n" not in detail
    _, _, command = detail.partition("then add it: ")
    subprocess.run(command, shell=True, check=True)
    assert client(config).run(sshd.spec).body == b"in\n"


def test_a_changed_key_is_refused_loudly(sshd: Sshd, client: Make, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    known = tmp_path / "known"
    words = other.with_suffix(".pub").read_text().split()[:2]
    known.write_text(f"# a comment\n[127.0.0.1]:{sshd.port} {' '.join(words)}\n")
    answer = client(sshd.config(known=known)).run(sshd.spec)
    assert answer.error is Why.SSH
    detail = answer.detail or ""
    assert "HOST KEY CHANGED" in detail
    assert f"{known}:2" in detail
    assert fingerprint(sshd) in detail
    assert "ssh-keygen -R" in detail


def test_a_revoked_key_is_refused(sshd: Sshd, client: Make, tmp_path: Path) -> None:
    known = tmp_path / "known"
    name = f"[127.0.0.1]:{sshd.port}"
    known.write_text(f"{name} {sshd.host_key}\n@revoked {name} {sshd.host_key}\n")
    answer = client(sshd.config(known=known)).run(sshd.spec)
    assert answer.error is Why.SSH
    assert "REVOKED" in (answer.detail or "")


def test_a_hashed_entry_counts(sshd: Sshd, client: Make, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{sshd.port} {sshd.host_key}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", str(known)], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    assert client(sshd.config(known=known)).run(sshd.spec).body == b"in\n"


def test_an_alias_names_the_key(sshd: Sshd, client: Make, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(f"gpu1 {sshd.host_key}\n")
    block = f"Host x\n  HostName 127.0.0.1\n  Port {sshd.port}\n  HostKeyAlias gpu1\n"
    config = sshd.config(block, known=known)
    assert client(config).run("x").body == b"in\n"
    assert client(config).run(sshd.spec).error is Why.SSH


def test_a_host_is_asked_for_the_type_of_key_it_is_known_by(own_sshd: Start, client: Make, tmp_path: Path) -> None:
    rsa = make_key(tmp_path / "rsa_host_key", kind="rsa")
    server = own_sshd(f"HostKey {rsa}")
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{server.port} {' '.join(rsa.with_suffix('.pub').read_text().split()[:2])}\n")
    assert client(server.config(known=known)).run(server.spec).body == b"in\n"


# --- logging in --------------------------------------------------------------------------------------------------


def test_a_key_that_is_not_let_in_is_named(sshd: Sshd, client: Make, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger")
    answer = client(sshd.config(key=stranger)).run(sshd.spec)
    assert answer.error is Why.SSH
    assert f"did not let {sshd.user} in" in (answer.detail or "")
    assert str(stranger) in (answer.detail or "")


def test_without_any_key_it_says_so(sshd: Sshd, client: Make) -> None:
    config = f"UserKnownHostsFile {sshd.known_hosts}\n"
    answer = client(config).run(sshd.spec)
    assert answer.error is Why.SSH
    assert "no key" in (answer.detail or "")


@pytest.fixture
def locked(sshd: Sshd, tmp_path: Path) -> Iterator[Path]:
    """A key with a passphrase, let in by the shared server."""
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    file = sshd.folder / "authorized_keys"
    before = file.read_text()
    file.write_text(before + key.with_suffix(".pub").read_text())
    yield key
    file.write_text(before)


def test_a_passphrase_is_not_asked_for_without_a_terminal(sshd: Sshd, client: Make, locked: Path) -> None:
    answer = client(sshd.config(key=locked)).run(sshd.spec)
    assert answer.error is Why.SSH
    assert f"ssh-add {locked}" in (answer.detail or "")


def test_a_passphrase_is_asked_for_once_for_all_hosts(sshd: Sshd, client: Make, locked: Path) -> None:
    """A person may take longer than a command; deadlines wait for them."""
    asked: list[str] = []

    def prompt(text: str) -> str:
        asked.append(text)
        time.sleep(1.5)
        return "open sesame"

    config = f"Host twin\n  HostName 127.0.0.1\n  Port {sshd.port}\n{sshd.config(key=locked)}"
    some = client(config, prompt)
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda s=spec: answers.append(some.run(s, timeout=1.2))) for spec in (sshd.spec, "twin")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(answer.detail, answer.body) for answer in answers] == [(None, b"in\n")] * 2
    assert len(asked) == 1
    assert str(locked) in asked[0]


def test_a_wrong_passphrase_is_an_error(sshd: Sshd, client: Make, locked: Path) -> None:
    asked: list[str] = []

    def prompt(text: str) -> str:
        asked.append(text)
        return "wrong"

    answer = client(sshd.config(key=locked), prompt).run(sshd.spec)
    assert answer.error is Why.SSH
    assert "wrong passphrase" in (answer.detail or "")
    assert len(asked) == 3


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A running ssh-agent without keys."""
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    while not path.exists():
        time.sleep(0.01)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield
    process.terminate()
    process.wait()


def test_the_agent_s_key_lets_in(sshd: Sshd, client: Make, agent: None) -> None:
    subprocess.run(["ssh-add", "-q", str(sshd.key)], check=True)
    assert client(f"UserKnownHostsFile {sshd.known_hosts}\n").run(sshd.spec).body == b"in\n"
    alone = client(f"UserKnownHostsFile {sshd.known_hosts}\nIdentitiesOnly yes\n").run(sshd.spec)
    assert alone.error is Why.SSH


def test_the_agent_opens_a_locked_file(sshd: Sshd, client: Make, agent: None, locked: Path) -> None:
    words = ["ssh-add", "-q", str(locked)]
    askpass = locked.parent / "askpass"
    askpass.write_text("#!/bin/sh\necho open sesame\n")
    askpass.chmod(0o755)
    environment = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(words, check=True, env=environment, stdin=subprocess.DEVNULL)
    assert client(sshd.config(key=locked)).run(sshd.spec).body == b"in\n"


# --- ways --------------------------------------------------------------------------------------------------------


def test_a_chain_of_jump_hosts(noisy_sshd: Sshd, own_sshd: Start, client: Make, tmp_path: Path) -> None:
    first, inner = own_sshd(), own_sshd()
    known = tmp_path / "known"
    known.write_text("".join(server.known_hosts.read_text() for server in (first, noisy_sshd, inner)))
    blocks = "".join(
        f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.key}\n{more}"
        for name, server, more in (
            ("first", first, ""),
            ("second", noisy_sshd, ""),
            ("inner", inner, "  ProxyJump first,second\n"),
            ("other", inner, "  ProxyJump second\n"),
        )
    )
    config = f"{blocks}Host second\n  ProxyJump first\nHost *\n  UserKnownHostsFile {known}\n  IdentitiesOnly yes\n"
    some = client(config)
    assert some.run("inner", "sh", "-c", 'echo "${SSH_CONNECTION##* }"').body == f"{inner.port}\n".encode()
    assert some.run("other").body == b"in\n"
    assert len(first.children()) == 1, "the first jump host is connected to once"


def test_a_jump_host_that_is_down_is_named(sshd: Sshd, client: Make) -> None:
    port = free_port()
    config = f"Host inner\n  HostName 127.0.0.1\n  ProxyJump root@127.0.0.1:{port}\n{sshd.config()}"
    answer = client(config).run("inner")
    assert answer.error is Why.SSH
    assert f"port {port}" in (answer.detail or "")
    assert "refused" in (answer.detail or "").lower()


def test_a_proxy_command(sshd: Sshd, client: Make, tmp_path: Path) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("no OpenSSH client here")
    theirs = tmp_path / "config"
    theirs.write_text(sshd.config())
    command = f"ssh -F {theirs} -W %h:%p {sshd.user}@127.0.0.1 -p {sshd.port}"
    config = f"Host x\n  HostName 127.0.0.1\n  Port {sshd.port}\n  ProxyCommand {command}\n{sshd.config()}"
    some = client(config)
    assert some.run("x").body == b"in\n"
    some.links.close()
    assert wait_gone(str(theirs)) == [], "the proxy command ends with its connection"


def test_a_proxy_command_that_fails(sshd: Sshd, client: Make) -> None:
    answer = client(f"ProxyCommand exit 7\n{sshd.config()}").run(sshd.spec)
    assert answer.error is Why.SSH


def test_nobody_listens(sshd: Sshd, client: Make) -> None:
    answer = client(sshd.config()).run(f"127.0.0.1:{free_port()}")
    assert answer.error is Why.SSH
    assert "refused" in (answer.detail or "").lower()


def test_something_else_listens(sshd: Sshd, client: Make) -> None:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        answer = client(sshd.config()).run(f"127.0.0.1:{mute.getsockname()[1]}", timeout=1.5)
        assert answer.error is Why.SSH
        assert "exchanging keys" in (answer.detail or "")


def test_a_name_that_nobody_knows(sshd: Sshd, client: Make) -> None:
    answer = client(sshd.config()).run("no-such-host.invalid")
    assert answer.error is Why.SSH
    assert "no-such-host.invalid" in (answer.detail or "")


# --- one connection ----------------------------------------------------------------------------------------------


def test_one_connection_carries_everything(own_sshd: Start, client: Make) -> None:
    server = own_sshd()
    some = client(server.config())
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(some.run(server.spec))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.body for answer in answers] == [b"in\n"] * 12
    assert len(server.children()) == 1
    connection, _ = some.link(server.spec).get(time.monotonic() + 5)
    inner = connection.transport.sock._inner
    assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert inner.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


def test_a_server_that_allows_one_session(own_sshd: Start, client: Make) -> None:
    server = own_sshd("MaxSessions 1")
    some = client(server.config())
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(some.run(server.spec, "sh", "-c", "sleep 0.1; echo in")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(answer.error, answer.body) for answer in answers] == [(None, b"in\n")] * 8
    mark = f"pdctl-one-{time.monotonic_ns()}"
    late = some.run(server.spec, "sh", "-c", f"sleep 300; : {mark}", timeout=1.0)
    assert late.error is Why.READ_TIMEOUT
    assert wait_gone(mark) == [], "the host's own watch ended it: there is no second session to do so"


def test_a_server_that_allows_none(own_sshd: Start, client: Make) -> None:
    server = own_sshd("MaxSessions 0")
    answer = client(server.config()).run(server.spec, timeout=5)
    assert answer.error is Why.SSH
    assert "refused" in (answer.detail or "")


def test_a_shell_that_runs_nothing(own_sshd: Start, client: Make) -> None:
    server = own_sshd("ForceCommand echo 'This account is closed.'")
    answer = client(server.config()).run(server.spec)
    assert answer.error is Why.SSH
    assert "This account is closed." in (answer.detail or "")


# --- death -------------------------------------------------------------------------------------------------------


def serving(server: Sshd) -> list[psutil.Process]:
    """The processes that serve its connections, and those that they started to do so."""
    family = [psutil.Process(pid) for pid in server.children()]
    return [p for one in family for p in (one, *one.children(recursive=True)) if "sshd" in p.name()]


def test_a_connection_that_died_idle_is_opened_anew(own_sshd: Start, client: Make) -> None:
    server = own_sshd()
    some = client(server.config())
    assert some.run(server.spec).body == b"in\n"
    before = server.children()
    for process in serving(server):
        process.kill()
    assert some.run(server.spec).body == b"in\n"
    assert set(server.children()).isdisjoint(before)


def test_a_connection_cut_in_the_middle(own_sshd: Start, client: Make) -> None:
    server = own_sshd()
    some = client(server.config())
    assert some.run(server.spec).body == b"in\n"
    mark = f"pdctl-cut-{time.monotonic_ns()}"
    cutter = threading.Timer(0.7, lambda: [process.kill() for process in serving(server)])
    cutter.start()
    answer = some.run(server.spec, "sh", "-c", f"echo half; sleep 300; : {mark}", timeout=5.0)
    assert answer.error is Why.SSH
    assert answer.status is None
    assert answer.body == b"half\n"
    assert "while the command ran" in (answer.detail or ""), "noticed when it happened, not at the deadline"
    assert wait_gone(mark, 20) == [], "the host's own watch ends it"
    assert some.run(server.spec).body == b"in\n"


def test_an_sshd_that_hangs(own_sshd: Start, client: Make) -> None:
    """Frozen, it says nothing any more, and the connection stays open: as after a power cut."""
    server = own_sshd()
    some = client(server.config())
    assert some.run(server.spec).body == b"in\n"
    frozen = serving(server)
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    try:
        answer = some.run(server.spec, timeout=2.0)
        assert answer.error in (Why.SSH, Why.READ_TIMEOUT)
        assert answer.took < 60
    finally:
        for process in frozen:
            process.send_signal(signal.SIGCONT)


def test_silence_is_noticed_and_the_next_command_reconnects(
    own_sshd: Start, client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_live, "PULSE", 0.2)
    monkeypatch.setattr(ssh_live, "SILENCE", 1.0)
    server = own_sshd()
    some = client(server.config())
    assert some.run(server.spec).body == b"in\n"
    frozen = serving(server)
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    try:
        assert some.run(server.spec).body == b"in\n"
    finally:
        for process in frozen:
            process.kill()


def test_a_live_connection_is_never_taken_for_a_dead_one(
    own_sshd: Start, client: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is silent for longer than a host may be: the pulse keeps the connection."""
    monkeypatch.setattr(ssh_live, "PULSE", 0.2)
    monkeypatch.setattr(ssh_live, "SILENCE", 1.0)
    server = own_sshd()
    answer = client(server.config()).run(server.spec, "sh", "-c", "sleep 3; echo in")
    assert (answer.error, answer.body) == (None, b"in\n")


def test_a_failure_is_told_to_all_and_tried_once(sshd: Sshd, client: Make) -> None:
    """Ten commands for a host whose port nobody serves: one look, ten answers."""
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
        looks: list[int] = []

        def serve() -> None:
            while True:
                try:
                    taken, _ = closing.accept()
                except OSError:
                    return
                looks.append(1)
                taken.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        some = client(sshd.config())
        answers = [some.run(f"127.0.0.1:{port}") for _ in range(10)]
        closing.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert [answer.error for answer in answers] == [Why.SSH] * 10
    assert len(looks) == 1


@pytest.mark.parametrize("passphrase", ["", "open sesame"], ids=["open", "locked"])
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa", "pem"])
def test_keys_of_every_type_are_read(tmp_path: Path, kind: str, passphrase: str) -> None:
    key = tmp_path / "key"
    extra = ["-m", "PEM"] if kind == "pem" else []
    words = ["ssh-keygen", "-q", "-t", "rsa" if kind == "pem" else kind, "-N", passphrase, "-f", str(key), *extra]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    ring = KeyRing(lambda text: passphrase)
    found = ring.key(str(key), ask=False)
    assert (found is None) == bool(passphrase)
    found = ring.key(str(key), ask=True)
    assert not isinstance(found, str)
    assert found is not None
    public = key.with_suffix(".pub").read_text().split()[1]
    assert found.get_base64() == public


def test_a_file_that_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\xff\x00 nothing of the kind")
    assert KeyRing(None).key(str(file), ask=True) == "holds no private key that can be used"
    assert KeyRing(None).key(str(tmp_path / "absent"), ask=True) == "is not there"
