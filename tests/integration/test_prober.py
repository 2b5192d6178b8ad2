"""Requests of a probe against a server that misbehaves in each way that is known of."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import made_tls
from faulty import CHAT, NATIVE, TEXT, Faulty, Manners
from loopback_sshd import Sshd
from nasty import Nasty, Peer, free_port

from pdctl.model.cluster import Cluster, Host, Instance, KeySource, Role
from pdctl.model.probe import Attempt
from pdctl.model.probe_plan import Way
from pdctl.model.secrets import digest
from pdctl.reach.hosts import Hosts
from pdctl.reach.probe_wire import CalledOff
from pdctl.reach.prober import Got, Prober, generate_pair
from pdctl.reach.ssh_config import SshConfig
from pdctl.reach.ssh_link import Links

HANG = 2.0  # seconds; how soon a hang is called one has nothing to do with what is tested
LABEL = Attempt("x")


def way_to(server: Faulty | str, **more: object) -> Way:
    url = server if isinstance(server, str) else server.url
    return Way(replace(Instance("router-0", Role.ROUTER, url), **more))  # type: ignore[arg-type]


@pytest.fixture
def prober() -> Iterator[Prober]:
    made = Prober(hang_after=HANG)
    yield made
    made.call_off()


def asked(prober: Prober, way: Way, *, stream: bool = False) -> Got:
    got = prober.fresh(way, prober.question(stream=stream), LABEL)
    if got.wire is not None and not got.wire.can_go_on:
        got.wire.close()
    return got


def one(manners: Manners, *, stream: bool = False, expect: str | None = None, **more: object) -> Attempt:
    """One generation at a server with these manners."""
    prober = Prober(hang_after=HANG, expect=re.compile(expect) if expect else None)
    with Faulty(manners) as server:
        got = asked(prober, way_to(server, **more), stream=stream)
        if got.wire is not None:
            got.wire.close()
        return got.attempt


# --- answers that are good --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE])
@pytest.mark.parametrize("stream", [False, True])
def test_every_endpoint_whole_and_streamed(path: str, stream: bool) -> None:
    attempt = one(Manners(paths=(path,)), stream=stream)
    assert (attempt.good, attempt.told, attempt.endpoint, attempt.tokens) == (True, "echoed", path, 3)
    assert attempt.first_byte_s is not None and attempt.took is not None
    assert (attempt.first_token_s is None) is not stream
    assert (attempt.between_s is None) is not stream


def test_a_connection_is_used_again_and_each_attempt_knows_its_own(prober: Prober) -> None:
    with Faulty() as server:
        way = way_to(server)
        first = asked(prober, way)
        assert first.wire is not None
        second = prober.again(way, first.wire, prober.question(), LABEL).attempt
        other = asked(prober, way)
        assert other.wire is not None
        first.wire.close()
        other.wire.close()
    assert (first.attempt.connection, second.connection, other.attempt.connection) == ("fresh", "reused", "fresh")
    assert first.attempt.local == second.local != other.attempt.local
    assert first.attempt.line == second.line != other.attempt.line
    assert (first.attempt.nth, second.nth) == (1, 2)


def test_the_model_and_the_endpoint_are_found_out_once(prober: Prober) -> None:
    with Faulty(Manners(paths=(TEXT,)), model="deep") as server:
        way = way_to(server)
        for _ in range(3):
            got = asked(prober, way)
            assert got.wire is not None
            got.wire.close()
        assert [path for path, _ in server.served] == [TEXT] * 3
        assert {body["model"] for _, body in server.served} == {"deep"}
        assert server.connections == 1 + 1 + 3  # the models, one that was told "not this endpoint", three answered


def test_a_server_that_closes_each_connection_keeps_none(prober: Prober) -> None:
    with Faulty(Manners(close_each=True)) as server:
        got = asked(prober, way_to(server))
    assert got.attempt.good
    assert got.wire is not None and not got.wire.can_go_on


def test_an_expected_answer() -> None:
    assert one(Manners(), expect="it is").told == "expected"
    assert one(Manners(), expect="nothing like it").told == "unexpected"


def test_a_model_that_says_something_else_is_no_error() -> None:
    attempt = one(Manners(no_echo=True))
    assert (attempt.good, attempt.told) == (True, "other")


def test_one_half_of_a_pair_is_asked_by_its_own_endpoint_with_no_peer(prober: Prober) -> None:
    with Faulty() as server:
        way = Way(Instance("decode-0", Role.DECODE, server.url), half=True)
        for _ in range(3):
            got = asked(prober, way)
            assert got.wire is not None
            got.wire.close()
    assert {(path, body["bootstrap_host"]) for path, body in server.served} == {(NATIVE, "2.2.2.2")}
    rooms = [body["bootstrap_room"] for _, body in server.served]
    assert rooms == [0, 1, 2], "the DP ranks of a prefill in turn"
    assert (got.attempt.good, got.attempt.told) == (True, None)


# --- answers that are not ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manners", "stream", "error", "words"),
    [
        (Manners(hang_nth=1), False, "read-timeout", "no answer in"),
        (Manners(lose_nth=1), True, "read-timeout", "no answer in"),
        (Manners(reset_nth=1), False, "reset", "connection"),
        (Manners(cut_stream=True), True, "truncated", "body ended early"),
        (Manners(no_done=True), True, "truncated", "without saying that it is complete"),
        (Manners(error_event=True), True, "other", "prefill gone"),
        (Manners(trickle_s=0.2), False, "read-timeout", "small pieces"),
    ],
)
def test_what_goes_wrong_has_its_word(manners: Manners, stream: bool, error: str, words: str) -> None:
    attempt = one(manners, stream=stream)
    assert (attempt.good, attempt.error) == (False, error)
    assert words in (attempt.detail or "")


def test_an_error_answer_says_what_it_says() -> None:
    body = b'{"error":{"code":"server_selection_failed","message":"No available servers"}}'
    attempt = one(Manners(fail_status=503, fail_body=body))
    assert (attempt.status, attempt.good, attempt.error) == (503, False, None)
    assert attempt.detail == "server_selection_failed: No available servers"


def test_an_empty_answer() -> None:
    assert one(Manners(empty=True)).told == "empty"


def test_no_endpoint_that_is_spoken() -> None:
    attempt = one(Manners(paths=()))
    assert (attempt.status, attempt.endpoint) == (404, NATIVE)


def test_another_requests_word(prober: Prober) -> None:
    with Faulty(Manners(crossed=True, think_s=0.3)) as server:
        way = way_to(server)
        first = asked(prober, way)
        gots: list[Got] = []
        threads = [threading.Thread(target=lambda: gots.append(asked(prober, way))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for got in (first, *gots):
            assert got.wire is not None
            got.wire.close()
    assert first.attempt.told == "echoed"
    assert "crossed" in {got.attempt.told for got in gots}


def test_nobody_listens(prober: Prober) -> None:
    got = asked(prober, way_to(f"http://127.0.0.1:{free_port()}"))
    assert got.attempt.error == "connect-refused"


# --- keys and TLS -----------------------------------------------------------------------------------------------------


def test_the_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "sesame-1234")
    manners = Manners(key="sesame-1234")
    good = one(manners, api_key=KeySource(env="THE_KEY"))
    assert good.good and "sesame" not in repr(good)
    assert one(manners).status == 401
    missing = one(manners, api_key=KeySource(env="NO_SUCH"))
    assert missing.error == "auth" and "NO_SUCH" in (missing.detail or "")


ECHOES = (
    ("500 Oops", b'{"error":{"message":"no such key: plum-tree-11"}}'),
    ("500 Oops", b"denied to plum-tree-11"),
    ("307 Away", b""),
    ("200 OK", b'{"choices":[{"text":"it is plum-tree-11"}]}\n\ndata: [DONE]\n\n'),
    ("200 OK", b'{"choices":[{"text":"plum-"}]}\n\ndata: {"choices":[{"text":"tree-11"}]}\n\ndata: [DONE]\n\n'),
    ("200 OK", b'{"error":"who is plum-tree-11"}\n\n'),
    ("200 OK", b"this event is none of JSON's: plum-tree-11\n\n"),
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "body"), ECHOES)
def test_a_key_that_comes_back_is_masked(
    monkeypatch: pytest.MonkeyPatch, status: str, body: bytes, stream: bool
) -> None:
    def script(peer: Peer) -> None:
        said = b"data: " + body if stream and status == "200 OK" else body.partition(b"\n")[0]
        peer.reply(said, "Location: /x?k=plum-tree-11", status=status)

    monkeypatch.setenv("THE_KEY", "plum-tree-11")
    prober = Prober(hang_after=HANG, expect=re.compile("nothing like it"), model="m")
    with Nasty(script) as server:
        got = asked(prober, way_to(server.url(), api_key=KeySource(env="THE_KEY")), stream=stream)
        if got.wire is not None:
            got.wire.close()
    assert server.asked > 0
    assert "tree" not in repr(got)
    if b"plum-tree-11" in body:
        assert digest("plum-tree-11") in (got.attempt.detail or ""), "it is said, but for the key"


def test_tls_with_a_private_ca(tmp_path: Path, prober: Prober) -> None:
    with Faulty(tls=made_tls(tmp_path)) as server:
        way = way_to(server, ca_file=str(tmp_path / "ca.pem"))
        got = asked(prober, way, stream=True)
        assert got.wire is not None
        again = prober.again(way, got.wire, prober.question(), replace(LABEL, idle_s=0.1))
        got.wire.close()
        unknown = asked(Prober(hang_after=HANG), way_to(server))
        no_file = asked(Prober(hang_after=HANG), way_to(server, ca_file=str(tmp_path / "none.pem")))
    assert got.attempt.good and again.attempt.good
    assert (unknown.attempt.error, no_file.attempt.error) == ("tls", "tls")
    assert "none.pem" in (no_file.attempt.detail or "")


# --- idle connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manners", [Manners(idle_close_s=0.8), Manners(idle_408_s=0.8)])
def test_a_connection_closed_while_it_was_idle(manners: Manners, prober: Prober, tmp_path: Path) -> None:
    for tls in (None, made_tls(tmp_path)):
        with Faulty(manners, tls=tls) as server:
            way = way_to(server, ca_file=str(tmp_path / "ca.pem"))
            got = asked(prober, way)
            assert got.wire is not None
            assert prober.idle(got.wire, 0.05) is None
            assert prober.idle(got.wire, 2.5) is not None
            attempt = prober.again(way, got.wire, prober.question(), LABEL).attempt
            got.wire.close()
        assert (attempt.error, attempt.status, attempt.connection) == ("reset", None, "reused")


def test_a_connection_forgotten_while_it_was_idle(prober: Prober) -> None:
    with Faulty(Manners(idle_deaf_s=0.5)) as server:
        way = way_to(server)
        got = asked(prober, way)
        assert got.wire is not None
        assert prober.idle(got.wire, 1.0) is None
        attempt = prober.again(way, got.wire, prober.question(), LABEL).attempt
    assert attempt.error == "read-timeout"


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_met_no_fault(prober: Prober) -> None:
    with Faulty(Manners(think_s=5.0)) as server:
        question = replace(prober.question(stream=True), leave_after=0.1)
        early = prober.fresh(way_to(server), question, LABEL).attempt
    with Faulty() as server:
        question = replace(prober.question(stream=True), leave_after=30.0)
        at_first_token = prober.fresh(Way(Instance("other", Role.ROUTER, server.url)), question, LABEL).attempt
    assert (early.kind, early.error, early.status) == ("abort", None, None)
    assert (at_first_token.kind, at_first_token.error, at_first_token.status) == ("abort", None, 200)


def test_what_is_under_way_can_be_called_off() -> None:
    prober = Prober(hang_after=60.0)
    ended = threading.Event()

    def hang() -> None:
        with pytest.raises(CalledOff):
            asked(prober, way_to(server))
        ended.set()

    with Faulty(Manners(hang_nth=1)) as server:
        thread = threading.Thread(target=hang)
        thread.start()
        while not server.connections:
            pass
        prober.call_off()
        assert ended.wait(30)
        thread.join()
    with pytest.raises(CalledOff):
        prober.pause(60.0)


# --- for others -------------------------------------------------------------------------------------------------------


def test_one_generation_for_whoever_needs_to_know() -> None:
    with Faulty() as server:
        (good,) = generate_pair(server.url, timeout=HANG, reuse=False)
        nobody = Instance("router-0", Role.ROUTER, server.url.replace("127.0.0.1", "127.0.0.2"))
        (bad,) = generate_pair(nobody, timeout=HANG)
    assert good.good and good.to == "router"
    assert not bad.good and bad.to == "router-0" and bad.error is not None


def test_a_pair_is_a_fresh_and_a_used_connection() -> None:
    with Faulty() as server:
        first, second = generate_pair(server.url, timeout=HANG, idle_s=0.1)
        assert server.connections == 2  # one of them asked for the models
    assert (first.connection, second.connection, second.idle_s) == ("fresh", "reused", 0.1)
    assert first.good and second.good
    with Faulty(Manners(close_each=True)) as server:
        assert len(generate_pair(server.url, timeout=HANG, idle_s=0.1)) == 1
    with Faulty(Manners(hang_nth=2)) as server:
        first, second = generate_pair(server.url, timeout=HANG, idle_s=0.1)
    assert (first.good, second.error) == (True, "read-timeout")


def test_through_a_hosts_ssh_connection(sshd: Sshd) -> None:
    """An engine that listens on its host alone is asked as from there."""
    cluster = Cluster("c", (), (Host("there", sshd.spec),))
    with Faulty() as server, Hosts(cluster, links=Links(SshConfig(sshd.config()))) as hosts:
        instance = Instance("router-0", Role.ROUTER, server.url, host="there")
        first, second = generate_pair(instance, timeout=20.0, host="there", dial=hosts.dial, idle_s=0.1)
        assert first.good and second.good
        assert (first.local, second.connection) == (None, "reused")
        refused = Instance("router-0", Role.ROUTER, f"http://127.0.0.1:{free_port()}")
        for host, error in (("there", "connect-refused"), ("nowhere", "ssh")):
            (attempt,) = generate_pair(refused, timeout=20.0, host=host, dial=hosts.dial)
            assert attempt.error == error
    with Faulty(Manners(idle_close_s=0.8)) as server, Hosts(cluster, links=Links(SshConfig(sshd.config()))) as hosts:
        first, second = generate_pair(server.url, timeout=20.0, host="there", dial=hosts.dial, idle_s=2.5)
        assert first.good
        assert second.error == "reset" and second.closed_after_s is not None
