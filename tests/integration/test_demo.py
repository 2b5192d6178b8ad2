"""The demo as it runs: a process of its own, real sockets on loopback, and its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pdctl.demo.run import Demo, started
from pdctl.errors import UsageError
from pdctl.model.cluster import Instance


@pytest.fixture(scope="module")
def pinned() -> Iterator[Demo]:
    with started("pinned") as demo:
        yield demo


@pytest.fixture(scope="module")
def healthy() -> Iterator[Demo]:
    with started("healthy", release="0.5.23") as demo:
        yield demo


@contextlib.contextmanager
def connection(url: str | None, timeout: float = 15.0) -> Iterator[http.client.HTTPConnection]:
    assert url is not None
    there = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        yield there
    finally:
        there.close()


def get(url: str | None, path: str = "/metrics") -> tuple[int, bytes]:
    with connection(url) as there:
        there.request("GET", path)
        answer = there.getresponse()
        return answer.status, answer.read()


def post(url: str | None, path: str, body: object, timeout: float = 15.0) -> tuple[int, bytes]:
    with connection(url, timeout) as there:
        there.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = there.getresponse()
        return answer.status, answer.read()


def soon(true: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.1)
    return False


def value(instance: Instance, start: str) -> float:
    """The sum of the samples whose lines start so."""
    _, body = get(instance.url)
    return sum(float(line.rsplit(" ", 1)[1]) for line in body.decode().splitlines() if line.startswith(start))


def test_a_pinned_cluster_is_pinned_at_once(pinned: Demo) -> None:
    truth = pinned.truth()
    assert [(s.instance, s.queue, s.count) for s in truth.pinned] == [
        ("prefill-0", "inflight", 2),
        ("decode-0", "transfer", 2),
    ]
    assert truth.pinned[0].since < -170
    assert pinned.leads_to == ("request-pinned",)


def test_every_endpoint_answers(pinned: Demo) -> None:
    prefill, decode = pinned.cluster.engines
    router = pinned.cluster.routers[0]
    for engine in (prefill, decode):
        status, page = get(engine.url)
        assert status == 200
        assert page.startswith(b"# HELP sglang:")
        rows = json.loads(get(engine.url, "/v1/loads?include=core,disagg,queues")[1])["loads"]
        assert rows[0]["disaggregation"]["mode"] == engine.role
        assert json.loads(get(engine.url, "/server_info")[1])["version"] == "0.5.23"
        assert get(engine.url, "/no-such-path")[0] == 404
    assert get(f"http://127.0.0.1:{prefill.bootstrap_port}", "/health") == (200, b"OK")
    assert get(router.metrics_url)[1].startswith(b"# TYPE smg_")
    assert json.loads(get(router.url, "/workers")[1])["total"] == 2
    assert get(router.url, "/health")[0] == 200
    assert get(router.url, "/metrics")[0] == 404


def test_logs_are_files_that_grow(pinned: Demo) -> None:
    prefill = pinned.cluster.engines[0]
    assert prefill.log is not None
    before = Path(prefill.log).stat().st_size
    assert "Prefill batch" in Path(prefill.log).read_text()
    get(prefill.url)
    assert soon(lambda: Path(str(prefill.log)).stat().st_size > before)


def test_health_takes_a_second_and_rewrites_the_gauges(healthy: Demo) -> None:
    engine = healthy.cluster.engines[0]
    before = value(engine, "sglang:cuda_graph_passes_total")
    began = time.monotonic()
    assert get(engine.url, "/health")[0] == 200
    assert time.monotonic() - began >= 1.0
    assert value(engine, "sglang:cuda_graph_passes_total") == before + 1


def test_one_connection_serves_many_requests(healthy: Demo) -> None:
    with connection(healthy.cluster.engines[0].url) as there:
        for _ in range(5):
            there.request("GET", "/metrics")
            answer = there.getresponse()
            assert answer.status == 200
            answer.read()
            assert there.sock is not None


def test_a_request_through_the_router(healthy: Demo) -> None:
    router = healthy.cluster.routers[0]
    status, body = post(router.url, "/v1/completions", {"prompt": "word " * 200, "max_tokens": 12})
    assert status == 200
    assert json.loads(body)["usage"] == {"prompt_tokens": 250, "completion_tokens": 12, "total_tokens": 262}
    status, body = post(router.url, "/v1/completions", {"prompt": "word", "max_tokens": 12, "stream": True})
    assert status == 200
    assert body.endswith(b"data: [DONE]\n\n")


def legs(demo: Demo, body: dict[str, object], path: str = "/generate") -> list[tuple[int, bytes]]:
    """Both halves of a request, as a router sends them."""
    prefill, decode = demo.cluster.engines
    pairing = {
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": time.time_ns(),
    }
    got: list[tuple[int, bytes]] = [(0, b"")] * 2

    def ask(n: int, engine: Instance) -> None:
        got[n] = post(engine.url, path, {**body, **pairing})

    threads = [threading.Thread(target=ask, args=pair) for pair in enumerate((prefill, decode))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_both_halves_of_a_real_request(healthy: Demo) -> None:
    (first, half), (second, whole) = legs(healthy, {"text": "hello " * 50, "sampling_params": {"max_new_tokens": 7}})
    assert (first, second) == (200, 200)
    assert json.loads(whole)["meta_info"]["completion_tokens"] == 7
    assert json.loads(half)["meta_info"]["completion_tokens"] == 1


def test_a_streamed_chat(healthy: Demo) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, "stream": True}
    _, (status, text) = legs(healthy, body, "/v1/chat/completions")
    events = [line for line in text.decode().splitlines() if line.startswith("data: {")]
    assert status == 200
    assert len(events) > 3
    content = "".join(json.loads(event[6:])["choices"][0]["delta"]["content"] for event in events)
    assert content == " hi" + " token" * 59  # the simulated model says the last word back


def test_a_half_request_waits_until_its_client_leaves() -> None:
    with started("healthy", router="none") as demo:
        decode = demo.cluster.decodes[0]
        body = {"text": "x", "bootstrap_room": 5, "bootstrap_host": "127.0.0.1", "stream": True}
        with contextlib.suppress(TimeoutError), connection(decode.url, 1.0) as there:
            there.request("POST", "/generate", json.dumps(body), {"content-type": "application/json"})
            there.getresponse().read()
        assert demo.truth().lengths["decode-0"] == {"transfer": 1}
        assert value(decode, 'sglang:http_requests_active{endpoint="/generate"') == 1
        assert soon(lambda: demo.truth().lengths["decode-0"] == {})
        assert soon(lambda: value(decode, "sglang:num_aborted_requests_total") == 1)


def test_a_request_without_its_room_is_refused(healthy: Demo) -> None:
    status, body = post(healthy.cluster.engines[0].url, "/generate", {"text": "x"})
    assert status == 400
    assert b"bootstrap room" in body


def test_garbage_is_answered_and_counted(healthy: Demo) -> None:
    prefill = healthy.cluster.engines[0]
    for preface, status in (
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"404"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
    ):
        with socket.create_connection(("127.0.0.1", urlsplit(str(prefill.url)).port or 0), timeout=5) as sock:
            sock.sendall(preface)
            assert sock.recv(200).split(b" ")[1] == status
    assert value(prefill, 'sglang:http_requests_total{endpoint="/*",method="PRI"}') == 1


def test_chunked_bodies_are_read(healthy: Demo) -> None:
    with connection(healthy.cluster.routers[0].url) as there:
        pieces = iter([b'{"prompt": "abcd", ', b'"max_tokens": 3}'])
        there.request("POST", "/v1/completions", pieces, {"content-type": "application/json"}, encode_chunked=True)
        answer = there.getresponse()
        assert (answer.status, json.loads(answer.read())["usage"]["completion_tokens"]) == (200, 3)


def test_many_connections_at_once(healthy: Demo) -> None:
    """A backlog that takes more than a hundred connections nobody has accepted yet."""
    port = urlsplit(str(healthy.cluster.engines[0].url)).port or 0
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(150)]
        for sock in socks:
            sock.sendall(b"GET /model_info HTTP/1.1\r\nhost: x\r\n\r\n")
        assert all(sock.recv(12) == b"HTTP/1.1 200" for sock in socks)


def test_a_page_that_ends_half_way() -> None:
    with (
        started("truncated") as demo,
        connection(demo.cluster.decodes[0].url) as there,
        pytest.raises(http.client.IncompleteRead),
    ):
        there.request("GET", "/metrics")
        there.getresponse().read()


def test_a_page_that_drips() -> None:
    with started("dripping") as demo, connection(demo.cluster.decodes[0].url, 3.0) as there:
        there.request("GET", "/metrics")
        assert 1 <= len(there.getresponse().read1(4_000)) < 100


def test_an_endpoint_that_never_answers() -> None:
    with (
        started("silent") as demo,
        connection(demo.cluster.decodes[0].url, 1.0) as there,
        pytest.raises(TimeoutError),
    ):
        there.request("GET", "/metrics")
        there.getresponse()


def test_a_stopped_scheduler_answers_some_things() -> None:
    with started("hung-scheduler") as demo:
        decode = demo.cluster.decodes[0]
        assert demo.truth().stopped == (("decode-0", 0),)
        assert get(decode.url)[0] == 200
        assert get(decode.url, "/v1/loads")[0] == 200
        with connection(decode.url, 1.0) as there, pytest.raises(TimeoutError):
            there.request("GET", "/server_info")
            there.getresponse()


def test_a_restart_refuses_connections_for_a_while() -> None:
    with started("restart") as demo:
        decode = demo.cluster.decodes[0]

        def refused() -> bool:
            try:
                get(decode.url)
            except (ConnectionError, http.client.RemoteDisconnected):
                return True
            return False

        assert soon(refused, 30.0)
        assert soon(lambda: not refused(), 30.0)


def test_wrong_names_are_usage_errors() -> None:
    releases = [{"fault": "pinned", "release": release} for release in ("banana", "9.9.9", "0.5.24")]
    for wrong in ({"fault": "nope"}, {"fault": "pinned", "router": "x"}, *releases):
        with pytest.raises(UsageError), started(**wrong):  # type: ignore[arg-type]
            pass


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_the_process_ends_with_the_block_and_its_folder_goes() -> None:
    with started("healthy") as demo:
        pid, folder = demo.process.pid, demo.folder
        assert alive(pid)
        assert folder.is_dir()
    assert not alive(pid)
    assert not folder.exists()


def test_the_process_ends_when_its_parent_is_killed() -> None:
    script = (
        "import sys, time\nfrom pdctl.demo.run import started\n"
        "with started('healthy') as demo:\n    print(demo.process.pid, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
    assert soon(lambda: not alive(child), 10.0)


# -- the command -----------------------------------------------------------------------------------------------
def pdctl(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pdctl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_the_list_names_every_fault_and_its_finding() -> None:
    with pdctl("demo", "--list") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "pinned-under-load" in out
    assert "[decode-starved]" in out


def test_the_command_runs_for_a_while(tmp_path: Path) -> None:
    config = tmp_path / "pdctl.toml"
    with pdctl("demo", "pinned", "--for", "1s", "--write-config", str(config)) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "prefill-0: 2 stuck in inflight, DP0, for 18" in out
    assert f"pdctl triage --config {config}" in out
    assert 'role = "prefill"' in config.read_text()


def test_ctrl_c_is_its_ordinary_end() -> None:
    with pdctl("demo", "healthy") as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "Ctrl-C ends it.":
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_an_unknown_fault_is_told_with_the_known_ones() -> None:
    with pdctl("demo", "nope") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (64, "")
    assert "pinned-under-load" in err


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pdctl("demo", "healthy", "--for", "1s", "--write-config", str(tmp_path / "no" / "such.toml")) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 70
    assert "cannot be written" in err
