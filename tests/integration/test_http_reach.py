"""HttpReach against a server that behaves badly in each way that is known of."""

from __future__ import annotations

import gzip
import html
import json
import random
import socket
import threading
import time
import zlib
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpcore
import pytest
from certificates import made_tls
from nasty import OK, Nasty, Peer, Script, free_port

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import KeySource
from pdctl.model.secrets import digest
from pdctl.reach.http import HttpReach

PAGE = b"".join(b'sglang:num_queue_reqs{tp_rank="%d"} %d.0\n' % (n, n) for n in range(500))
FOREVER = 10  # seconds; what the scripts' hanging would last if nothing ended it (how promptly: tests/bench)


@pytest.fixture
def reach() -> Iterator[HttpReach]:
    with HttpReach() as made:
        yield made


def ask_of(url: str, **more: object) -> HttpAsk:
    return replace(HttpAsk("prefill-0", Fact.METRICS, url, timeout=5.0), **more)  # type: ignore[arg-type]


def answered(reach: HttpReach, ask: HttpAsk, within: float = 60.0) -> Answer:
    now = time.monotonic()
    return reach.answer(ask, started=now, deadline=now + within)


def served(reach: HttpReach, script: Script, **more: object) -> Answer:
    with Nasty(script) as server:
        return answered(reach, ask_of(server.url(), **more))


# --- answers that are good --------------------------------------------------------------------------------------------


def test_a_page_comes_back_whole_with_its_status_type_and_times(reach: HttpReach) -> None:
    def script(peer: Peer) -> bool:
        peer.reply(PAGE, "Content-Type: text/plain; version=0.0.4; charset=utf-8")
        return True

    with Nasty(script) as server:
        started = time.monotonic() - 100
        answer = reach.answer(ask_of(server.url()), started=started, deadline=time.monotonic() + 60)
        assert (answer.subject, answer.fact, answer.ask) == ("prefill-0", Fact.METRICS, f"GET {server.url()}")
    assert (answer.status, answer.error, answer.detail, answer.body) == (200, None, None, PAGE)
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert 0 < answer.took < 60
    assert 100 < answer.t < 160
    assert answer.at.utcoffset() is not None


def test_chunked_body(reach: HttpReach) -> None:
    def script(peer: Peer) -> None:
        peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(PAGE), 1000):
            part = PAGE[start : start + 1000]
            peer.say(b"%x;name=value\r\n%s\r\n" % (len(part), part))
        peer.say(b"0\r\n\r\n")

    answer = served(reach, script)
    assert (answer.error, answer.body) == (None, PAGE)


def test_body_that_ends_with_the_connection(reach: HttpReach) -> None:
    answer = served(reach, lambda peer: peer.say(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + PAGE))
    assert (answer.status, answer.error, answer.body) == (200, None, PAGE)


def test_empty_body_is_empty_and_not_absent(reach: HttpReach) -> None:
    answer = served(reach, lambda peer: peer.reply(b""))
    assert (answer.status, answer.error, answer.body) == (200, None, b"")


@pytest.mark.parametrize(
    ("encoding", "squeeze"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body)[2:-4]),
        ("gzip", lambda body: gzip.compress(body[:700]) + gzip.compress(body[700:])),
        ("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
        ("identity", bytes),
    ],
    ids=["gzip", "x-gzip", "deflate", "bare deflate", "two gzip members", "twice", "identity"],
)
def test_compressed_bodies_are_undone(reach: HttpReach, encoding: str, squeeze: object) -> None:
    body = squeeze(PAGE)  # type: ignore[operator]
    answer = served(reach, lambda peer: peer.reply(body, f"Content-Encoding: {encoding}"))
    assert (answer.error, answer.body) == (None, PAGE)


def test_asks_compressed_only_where_the_way_is_long() -> None:
    heard: list[str | None] = []

    def script(peer: Peer) -> None:
        heard.append(peer.header("Accept-Encoding"))
        peer.reply(b"x 1\n")

    with Nasty(script) as server, HttpReach(dial=lambda host: httpcore.SyncBackend()) as reach:
        answered(reach, ask_of(server.url()))
        answered(reach, ask_of(server.url(), via="node-1"))
    assert heard == ["identity", "gzip, deflate"]


def test_ipv6_url() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    heard: list[str | None] = []

    def script(peer: Peer) -> None:
        heard.append(peer.header("Host"))
        peer.reply(b"x 1\n")

    with Nasty(script, family=socket.AF_INET6) as server, HttpReach() as reach:
        assert answered(reach, ask_of(server.url())).body == b"x 1\n"
        assert heard == [f"[::1]:{server.port}"]


def test_host_by_name(reach: HttpReach) -> None:
    with Nasty(lambda peer: peer.reply(b"x 1\n")) as server:
        assert answered(reach, ask_of(f"http://localhost:{server.port}/metrics")).body == b"x 1\n"


def test_query_and_odd_characters_reach_the_server(reach: HttpReach) -> None:
    heard: list[str] = []

    def script(peer: Peer) -> None:
        heard.append(peer.path)
        peer.reply(b"{}")

    with Nasty(script) as server:
        answered(reach, ask_of(server.url("/v1/loads?include=core,disagg,queues")))
        answered(reach, ask_of(server.url("/a b/é?q=x y#part")))
    assert heard == ["/v1/loads?include=core,disagg,queues", "/a%20b/%C3%A9?q=x%20y"]


# --- connections ------------------------------------------------------------------------------------------------------


def test_one_connection_is_used_again(reach: HttpReach) -> None:
    def script(peer: Peer) -> bool:
        peer.reply(PAGE)
        return True

    with Nasty(script) as server:
        for path in ("/metrics", "/v1/loads", "/metrics"):
            assert answered(reach, ask_of(server.url(path))).body == PAGE
        assert [peer.asked for peer in server.peers] == [3]


def test_connection_closed_while_idle_is_replaced(reach: HttpReach) -> None:
    def script(peer: Peer) -> bool:
        peer.reply(PAGE)
        return False

    with Nasty(script) as server:
        for _ in range(3):
            answer = answered(reach, ask_of(server.url()))
            assert (answer.error, answer.body) == (None, PAGE)
            time.sleep(0.05)
        assert len(server.peers) == 3


def test_connection_closed_as_the_request_arrives_is_asked_again_and_says_so(reach: HttpReach) -> None:
    def script(peer: Peer) -> bool:
        if peer.number == 0 and peer.asked == 2:
            return False
        peer.reply(PAGE)
        return True

    with Nasty(script) as server:
        assert answered(reach, ask_of(server.url())).detail is None
        answer = answered(reach, ask_of(server.url()))
    assert (answer.status, answer.error, answer.body) == (200, None, PAGE)
    assert answer.detail is not None
    assert "kept-alive connection had been closed" in answer.detail


def test_a_fresh_connection_that_is_closed_is_not_asked_again(reach: HttpReach) -> None:
    with Nasty(lambda peer: None) as server:
        answer = answered(reach, ask_of(server.url()))
        assert server.asked == 1
    assert (answer.status, answer.error, answer.body) == (None, Why.RESET, None)
    assert answer.detail == "connection closed without an answer"


def test_a_request_that_changes_something_is_never_sent_twice(reach: HttpReach) -> None:
    def script(peer: Peer) -> bool:
        if peer.asked == 2:
            return False
        peer.reply(b"")
        return True

    with Nasty(script) as server:
        answered(reach, ask_of(server.url("/flush_cache"), method="POST"))
        answer = answered(reach, ask_of(server.url("/flush_cache"), method="POST"))
        assert server.asked == 2
    assert answer.error is Why.RESET


def test_many_threads_at_once(reach: HttpReach) -> None:
    def script(peer: Peer) -> bool:
        peer.reply(peer.path.encode())
        return True

    with Nasty(script) as server:
        bodies: dict[str, bytes | None] = {}

        def run(name: str) -> None:
            for turn in range(5):
                path = f"/{name}/{turn}"
                bodies[path] = answered(reach, ask_of(server.url(path))).body

        threads = [threading.Thread(target=run, args=(str(n),)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(bodies) == 60
    assert all(body == path.encode() for path, body in bodies.items())


def test_after_close_nothing_stays_open() -> None:
    def script(peer: Peer) -> bool:
        peer.reply(b"x")
        return True

    with Nasty(script) as server:
        with HttpReach() as reach:
            answered(reach, ask_of(server.url()))
        peer = server.peers[0]
        for thread in server._threads[1:]:
            thread.join(5)
        assert peer.sock.fileno() == -1


def test_the_way_of_a_host_carries_its_asks() -> None:
    dialled: list[str] = []

    def dial(host: str) -> httpcore.NetworkBackend:
        dialled.append(host)
        return httpcore.SyncBackend()

    with Nasty(lambda peer: peer.reply(b"x 1\n")) as server, HttpReach(dial=dial) as reach:
        assert answered(reach, ask_of(server.url(), via="node-1")).body == b"x 1\n"
        assert answered(reach, ask_of(server.url())).body == b"x 1\n"
    assert dialled == ["node-1"]


def test_a_host_that_cannot_be_dialled_is_an_ssh_error() -> None:
    def dial(host: str) -> httpcore.NetworkBackend:
        raise RuntimeError("Host key for node-1 is not known")

    with HttpReach(dial=dial) as reach:
        answer = answered(reach, ask_of("http://127.0.0.1:1/metrics", via="node-1"))
    assert (answer.error, answer.detail, answer.body) == (Why.SSH, "Host key for node-1 is not known", None)


def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, reach: HttpReach) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    assert served(reach, lambda peer: peer.reply(b"x 1\n")).body == b"x 1\n"


# --- time -------------------------------------------------------------------------------------------------------------


def _hang_at_once(peer: Peer) -> None:
    peer.hang()


def _hang_in_headers(peer: Peer) -> None:
    peer.say(OK + b"Content-Type: text/pl")
    peer.hang()


def _hang_in_body(peer: Peer) -> None:
    peer.say(OK + b"Content-Length: 1000\r\n\r\nx 1\n")
    peer.hang()


def _drip_headers(peer: Peer) -> None:
    peer.say(OK + b"X-Long: ")
    peer.drip(b"a" * 10_000, 0.02)


def _drip_body(peer: Peer) -> None:
    peer.say(OK + b"Content-Length: 10000\r\n\r\n")
    peer.drip(b"a" * 10_000, 0.02)


def _endless(peer: Peer) -> None:
    peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while not peer.over.wait(0.001):
        peer.say(b"3e8\r\n" + b"x" * 1000 + b"\r\n")


BADLY_SLOW = [_hang_at_once, _hang_in_headers, _hang_in_body, _drip_headers, _drip_body, _endless]


@pytest.mark.parametrize("script", BADLY_SLOW)
@pytest.mark.parametrize("by", ["timeout", "deadline"])
def test_whatever_takes_too_long_ends_in_time(reach: HttpReach, script: Script, by: str) -> None:
    with Nasty(script) as server:
        before = time.monotonic()
        timeout, within = (0.4, 60.0) if by == "timeout" else (60.0, 0.4)
        answer = answered(reach, ask_of(server.url(), timeout=timeout), within)
        took = time.monotonic() - before
    assert answer.error is Why.READ_TIMEOUT
    assert 0.4 <= took < FOREVER
    assert answer.detail is not None
    assert ("deadline of the whole run" in answer.detail) is (by == "deadline")


def test_what_came_before_the_time_was_up_is_kept(reach: HttpReach) -> None:
    answer = served(reach, _hang_in_body, timeout=0.3)
    assert (answer.status, answer.error, answer.body) == (200, Why.READ_TIMEOUT, b"x 1\n")
    assert answer.detail == "answer not complete in 0.3 s: 4 bytes of body came"


def test_a_server_that_never_accepts_times_out_while_connecting(reach: HttpReach) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}/metrics"
        waiting = []
        for _ in range(4):  # the accept queue of a backlog of 0 holds one or two
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
            waiting.append(sock)
        time.sleep(0.05)
        answer = answered(reach, ask_of(url, timeout=0.4))
        for sock in waiting:
            sock.close()
    assert (answer.status, answer.error, answer.body) == (None, Why.CONNECT_TIMEOUT, None)
    assert answer.detail == "no connection in 0.4 s"


def test_a_resolver_that_hangs_does_not_hold_the_run(reach: HttpReach, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: over.wait(10) and [])
    before = time.monotonic()
    answer = answered(reach, ask_of("http://engine.invalid:30000/metrics", timeout=0.3))
    took = time.monotonic() - before
    over.set()
    assert answer.error is Why.CONNECT_TIMEOUT
    assert took < FOREVER


def test_a_dead_first_address_leaves_time_for_the_second(reach: HttpReach, monkeypatch: pytest.MonkeyPatch) -> None:
    with Nasty(lambda peer: peer.reply(b"x 1\n")) as server, socket.socket() as full:
        full.bind(("127.0.0.2", server.port))  # bound and not listening: refused
        rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, server.port)) for host in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", _only_for("two.invalid", rows))
        answer = answered(reach, ask_of(f"http://two.invalid:{server.port}/metrics"))
    assert (answer.error, answer.body) == (None, b"x 1\n")


def _only_for(name: str, rows: object) -> object:
    real = socket.getaddrinfo
    return lambda host, *args, **more: rows if host == name else real(host, *args, **more)


def test_a_request_is_not_begun_after_the_deadline(reach: HttpReach) -> None:
    with Nasty(lambda peer: peer.reply(b"x 1\n")) as server:
        answer = answered(reach, ask_of(server.url()), within=-1.0)
        assert server.asked == 0
    assert answer.error is Why.CONNECT_TIMEOUT


# --- size -------------------------------------------------------------------------------------------------------------


def test_a_body_beyond_its_cap_is_cut_off(reach: HttpReach) -> None:
    sent = []

    def script(peer: Peer) -> None:
        peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            peer.say(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent.append(65536)

    answer = served(reach, script, cap=1_000_000)
    assert (answer.status, answer.error, answer.body) == (200, Why.TOO_LARGE, None)
    assert answer.detail == "body is larger than 1000000 bytes"
    assert sum(sent) < 30_000_000


def test_a_body_announced_beyond_its_cap_is_not_read(reach: HttpReach) -> None:
    answer = served(reach, lambda peer: peer.say(OK + b"Content-Length: 5000000000\r\n\r\nx"), cap=1_000_000)
    assert (answer.status, answer.error, answer.body) == (200, Why.TOO_LARGE, None)
    assert answer.detail == "body of 5000000000 bytes announced, more than 1000000"


def test_a_body_just_at_its_cap_is_whole(reach: HttpReach) -> None:
    answer = served(reach, lambda peer: peer.reply(b"x" * 1000), cap=1000)
    assert (answer.error, answer.body) == (None, b"x" * 1000)


def test_the_cap_is_on_what_a_compressed_body_becomes(reach: HttpReach) -> None:
    bomb = gzip.compress(bytes(200_000_000), 9)
    assert len(bomb) < 250_000
    answer = served(reach, lambda peer: peer.reply(bomb, "Content-Encoding: gzip"), cap=1_000_000)
    assert (answer.error, answer.body) == (Why.TOO_LARGE, None)


# --- answers that are none --------------------------------------------------------------------------------------------


def test_nothing_listens(reach: HttpReach) -> None:
    answer = answered(reach, ask_of(f"http://127.0.0.1:{free_port()}/metrics"))
    assert (answer.status, answer.error, answer.body) == (None, Why.CONNECT_REFUSED, None)


def test_no_such_name(reach: HttpReach, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **more: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    answer = answered(reach, ask_of("http://engine.invalid:30000/metrics"))
    assert (answer.error, answer.detail) == (Why.OTHER, "name not resolved: Name or service not known")


@pytest.mark.parametrize(
    ("script", "error", "body"),
    [
        (lambda peer: peer.say(OK + b"Content-Length: 1000\r\n\r\nx 1\n"), Why.TRUNCATED, b"x 1\n"),
        (
            lambda peer: peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nx 1\n\r\n"),
            Why.TRUNCATED,
            b"x 1\n",
        ),
        (lambda peer: peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n100\r\nx 1\n"), Why.TRUNCATED, b"x 1\n"),
        (lambda peer: peer.reply(gzip.compress(b"x 1\n" * 9)[:-9], "Content-Encoding: gzip"), Why.TRUNCATED, None),
        (lambda peer: peer.reply(b"this is no gzip", "Content-Encoding: gzip"), Why.OTHER, b""),
        (lambda peer: peer.reply(b"x", "Content-Encoding: br"), Why.OTHER, b""),
        (lambda peer: peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\nnot a number\r\n"), Why.OTHER, b""),
    ],
    ids=["length", "no last chunk", "half a chunk", "gzip cut", "no gzip", "br", "chunk size"],
)
def test_bodies_that_are_not_whole(reach: HttpReach, script: Script, error: Why, body: bytes | None) -> None:
    answer = served(reach, script)
    assert (answer.status, answer.error) == (200, error)
    assert answer.detail
    if body is not None:
        assert answer.body == body


def test_reset_in_the_body_keeps_what_came(reach: HttpReach) -> None:
    def script(peer: Peer) -> None:
        peer.say(OK + b"Content-Length: 1000\r\n\r\nx 1\n")
        time.sleep(0.1)
        peer.reset()

    answer = served(reach, script)
    assert (answer.status, answer.error, answer.body) == (200, Why.RESET, b"x 1\n")


def test_a_header_cut_short(reach: HttpReach) -> None:
    answer = served(reach, lambda peer: peer.say(OK + b"Content-Type: text/pl"))
    assert (answer.status, answer.error, answer.body) == (None, Why.TRUNCATED, None)


def test_reset_before_the_answer(reach: HttpReach) -> None:
    answer = served(reach, lambda peer: peer.reset())
    assert (answer.status, answer.error, answer.body) == (None, Why.RESET, None)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00" + b"\x00" * 200,
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"-ERR\r\n" * 99,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000,
    ],
    ids=["ssh", "tls", "status", "redis", "endless header"],
)
def test_what_is_no_http_says_so(reach: HttpReach, said: bytes) -> None:
    answer = served(reach, lambda peer: peer.say(said))
    assert (answer.status, answer.error, answer.body) == (None, Why.OTHER, None)
    assert answer.detail is not None
    assert answer.detail.startswith("no HTTP answer: ")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "127.0.0.1:30000/metrics", "http:///metrics", "http://h:99999/"])
def test_a_url_that_is_none(reach: HttpReach, url: str) -> None:
    answer = answered(reach, ask_of(url))
    assert (answer.status, answer.error) == (None, Why.OTHER)
    assert answer.detail


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "404 Not Found", "500 Oops", "503 No"])
def test_a_bad_status_is_an_answer_and_its_body_kept(reach: HttpReach, status: str) -> None:
    answer = served(reach, lambda peer: peer.reply(b'{"error":"Unauthorized"}', status=status))
    assert (answer.status, answer.error) == (int(status[:3]), None)
    assert answer.body == b'{"error":"Unauthorized"}'


GOOD_ANSWERS = (
    OK + b"Content-Type: text/plain\r\nContent-Length: 4\r\n\r\nx 1\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nx 1\n\r\n0\r\n\r\n",
    OK + b"Content-Encoding: gzip\r\nContent-Length: 24\r\n\r\n" + gzip.compress(b"x 1\n"),
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /metrics/\r\nContent-Length: 0\r\n\r\n",
)


def test_no_bytes_whatever_get_past_it() -> None:
    chance = random.Random(20260304)

    def script(peer: Peer) -> bool:
        said = bytearray(chance.choice(GOOD_ANSWERS))
        for _ in range(chance.randint(0, 4)):
            place = chance.randrange(len(said))
            said[place : place + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        peer.say(bytes(said))
        return chance.random() < 0.5

    with Nasty(script) as server, HttpReach() as reach:
        for _ in range(400):
            answer = answered(reach, ask_of(server.url(), timeout=0.05))
            assert answer.error is not None or answer.status is not None
            assert answer.error is None or answer.detail
            assert (answer.body is None) is (answer.status is None or answer.error is Why.TOO_LARGE)


# --- redirects --------------------------------------------------------------------------------------------------------


def redirecting(to: dict[str, str]) -> Script:
    def script(peer: Peer) -> bool:
        if peer.path in to:
            peer.reply(b"moved", f"Location: {to[peer.path]}", status="307 Temporary Redirect")
        else:
            peer.reply(b"x 1\n")
        return True

    return script


def test_another_host_is_named_and_not_asked(reach: HttpReach) -> None:
    with Nasty(lambda peer: peer.reply(b"x 1\n")) as other:
        answer = served(reach, redirecting({"/metrics": other.url("/login")}))
        assert other.asked == 0
        assert answer.detail == f"redirects to {other.url('/login')}"
    assert (answer.status, answer.error, answer.body) == (307, None, b"moved")


def test_a_last_slash_is_followed_and_said(reach: HttpReach) -> None:
    answer = served(reach, redirecting({"/metrics": "/metrics/"}))
    assert (answer.status, answer.error, answer.body) == (200, None, b"x 1\n")
    assert answer.detail == "redirected to /metrics/"


def test_another_page_of_the_same_host_is_not_taken_for_the_one_asked(reach: HttpReach) -> None:
    answer = served(reach, redirecting({"/metrics": "/login?next=/metrics"}))
    assert (answer.status, answer.error, answer.body) == (307, None, b"moved")
    assert answer.detail == "redirects to /login?next=/metrics"


@pytest.mark.parametrize(
    "to",
    [
        {"/metrics": "/metrics"},
        {"/metrics": "/metrics/", "/metrics/": "/metrics"},
        {"/metrics": "/a", "/a": "/b", "/b": "/metrics"},
        {f"/{n or 'metrics'}": f"/{n + 1}" for n in range(100)},
    ],
    ids=["itself", "slash and back", "round", "endless"],
)
def test_a_loop_is_called_one(reach: HttpReach, to: dict[str, str]) -> None:
    with Nasty(redirecting(to)) as server:
        answer = answered(reach, ask_of(server.url()))
        assert server.asked <= 7
    assert (answer.status, answer.error) == (307, Why.REDIRECT_LOOP)
    assert answer.detail is not None
    assert answer.detail.startswith("redirects in a loop: /metrics -> ")


# --- keys -------------------------------------------------------------------------------------------------------------


def test_the_key_goes_out_as_bearer_and_shows_nowhere(reach: HttpReach, tmp_path: Path) -> None:
    heard: list[str | None] = []

    def script(peer: Peer) -> None:
        heard.append(peer.header("Authorization"))
        peer.reply(b"{}")

    (tmp_path / "key").write_text("not-to-be-shown\n")
    answer = served(reach, script, api_key=KeySource(file=str(tmp_path / "key")))
    assert heard == ["Bearer not-to-be-shown"]
    assert "not-to-be-shown" not in repr(answer)


def test_no_request_without_the_key_it_needs(reach: HttpReach, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    with Nasty(lambda peer: peer.reply(b"{}")) as server:
        answer = answered(reach, ask_of(server.url(), api_key=KeySource(env="ENGINE_KEY")))
        assert server.asked == 0
    assert (answer.status, answer.error) == (None, Why.AUTH)
    assert answer.detail == "environment variable ENGINE_KEY is not set"


def test_a_password_in_the_url_is_used_and_masked(reach: HttpReach) -> None:
    heard: list[str | None] = []

    def script(peer: Peer) -> None:
        heard.append(peer.header("Authorization"))
        peer.reply(b"{}")

    with Nasty(script) as server:
        answer = answered(reach, ask_of(f"http://ops:p%40ss@127.0.0.1:{server.port}/metrics"))
        assert answer.ask == f"GET http://ops:***@127.0.0.1:{server.port}/metrics"
    assert heard == ["Basic b3BzOnBAc3M="]


ODD = 'q7/Zk"x&9 p'


def echoed(peer: Peer) -> bytes:
    """What the peer was sent, as a page, JSON, a URL and HTML would repeat it."""
    sent = (peer.header("Authorization") or "").partition(" ")[2]
    said = [sent, json.dumps({"k": sent}), quote(sent), quote(sent, safe=""), html.escape(sent)]
    return "\n".join(["a_metric 1.0", *said, "another 2.0"]).encode()


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized", "500 Oops"])
@pytest.mark.parametrize("key", ["plum-tree-11", ODD])
def test_a_key_that_comes_back_is_masked_in_every_form(reach: HttpReach, tmp_path: Path, status: str, key: str) -> None:
    """A key of no known shape: nothing but having sent it tells that it is one."""
    (tmp_path / "key").write_text(key)
    where = KeySource(file=str(tmp_path / "key"))
    answer = served(reach, lambda peer: peer.reply(echoed(peer), status=status), api_key=where)
    mask = digest(key)
    assert (answer.body or b"").decode().split("\n") == [
        "a_metric 1.0", mask, json.dumps({"k": mask}), mask, mask, mask, "another 2.0"
    ]  # fmt: skip


def test_a_key_that_comes_back_compressed_or_in_a_header_is_masked(reach: HttpReach, tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        headers = ("Content-Encoding: gzip", "Content-Type: text/x-plum-tree-11", "Location: /to?u=plum-tree-11")
        peer.reply(gzip.compress(echoed(peer)), *headers, status="307 Away")

    (tmp_path / "key").write_text("plum-tree-11")
    answer = served(reach, script, api_key=KeySource(file=str(tmp_path / "key")), method="POST")
    assert b"a_metric 1.0" in (answer.body or b"")
    assert "redirects to /to?u=***" in (answer.detail or "")
    assert "plum" not in repr(answer)


@pytest.mark.parametrize("length", [6, 11])
def test_a_key_that_the_answer_breaks_off_in_is_masked(reach: HttpReach, tmp_path: Path, length: int) -> None:
    (tmp_path / "key").write_text("plum-tree-11")

    def script(peer: Peer) -> None:
        peer.say(OK + b"Content-Length: 999\r\n\r\na 1\n" + b"plum-tree-11"[:length])

    answer = served(reach, script, api_key=KeySource(file=str(tmp_path / "key")))
    assert answer.error is not None
    assert answer.body == b"a 1\n" + digest("plum-tree-11").encode()


@pytest.mark.parametrize("key", ["1 2", "prefill", "sglang", "700000", "abcde"])
def test_a_word_that_pages_are_made_of_is_left_in_them(reach: HttpReach, tmp_path: Path, key: str) -> None:
    """Else nothing could be read of such a page any more."""
    (tmp_path / "key").write_text(key)
    answer = served(reach, lambda peer: peer.reply(echoed(peer)), api_key=KeySource(file=str(tmp_path / "key")))
    assert (answer.body or b"").count(key.encode()) >= 2


def test_a_password_that_comes_back_is_masked(reach: HttpReach) -> None:
    def script(peer: Peer) -> None:
        sent = peer.header("Authorization") or ""
        peer.reply(f"{sent} {b64decode(sent[6:]).decode()} http://h/?p=plum%40tree1".encode())

    with Nasty(script) as server:
        answer = answered(reach, ask_of(f"http://ops:plum%40tree1@127.0.0.1:{server.port}/metrics"))
    mask = digest("plum@tree1")
    assert answer.body == f"Basic {digest('b3BzOnBsdW1AdHJlZTE=')} ops:{mask} http://h/?p={mask}".encode()


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_a_private_ca(reach: HttpReach, tmp_path: Path) -> None:
    tls = made_tls(tmp_path)
    with Nasty(lambda peer: peer.reply(b"x 1\n"), tls=tls) as server:
        url = server.url(scheme="https")
        good = answered(reach, ask_of(url, ca_file=str(tmp_path / "ca.pem")))
        assert (good.status, good.error, good.body) == (200, None, b"x 1\n")
        bad = answered(reach, ask_of(url))
    assert (bad.status, bad.error, bad.body) == (None, Why.TLS, None)
    assert bad.detail is not None
    assert bad.detail.startswith("certificate not accepted: ")


def test_a_certificate_of_another_name(reach: HttpReach, tmp_path: Path) -> None:
    tls = made_tls(tmp_path, address="127.0.0.9")
    with Nasty(lambda peer: peer.reply(b"x 1\n"), tls=tls) as server:
        answer = answered(reach, ask_of(server.url(scheme="https"), ca_file=str(tmp_path / "ca.pem")))
    assert answer.error is Why.TLS
    assert answer.detail is not None
    assert "127.0.0.1" in answer.detail


def test_a_port_that_speaks_no_tls(reach: HttpReach) -> None:
    with Nasty(lambda peer: peer.reply(b"x 1\n")) as server:
        answer = answered(reach, ask_of(server.url(scheme="https")))
    assert (answer.status, answer.error) == (None, Why.TLS)


def test_a_tls_handshake_that_hangs(reach: HttpReach) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = time.monotonic()
        answer = answered(reach, ask_of(f"https://127.0.0.1:{listener.getsockname()[1]}/", timeout=0.3))
        took = time.monotonic() - before
    assert answer.error is Why.CONNECT_TIMEOUT
    assert took < FOREVER


def test_a_ca_file_that_is_not_there(reach: HttpReach, tmp_path: Path) -> None:
    answer = answered(reach, ask_of("https://127.0.0.1:1/", ca_file=str(tmp_path / "no.pem")))
    assert (answer.error, answer.detail) == (Why.TLS, f"CA file {tmp_path}/no.pem: No such file or directory")
