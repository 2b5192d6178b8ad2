"""pdctl init against endpoints on loopback: what it asks, writes and says, and how it ends."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pdctl.cli import main
from pdctl.commands.discovering import status_of, summary
from pdctl.inventory.discovery import Discovered
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.finding import Status

Pages = Mapping[str, tuple[int, bytes]]
Serve = Callable[[Pages], str]
PAGE = b'# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{engine_type="prefill"} 0.0\n'


def info(mode: str, **more: object) -> bytes:
    return json.dumps({"version": "0.5.19", "disaggregation_mode": mode, "tp_size": 4, **more}).encode()


def engine(mode: str, **more: object) -> Pages:
    return {"/server_info": (200, info(mode, **more)), "/metrics": (200, PAGE)}


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts an HTTP server with the pages given; 404 for everything else."""
    servers: list[ThreadingHTTPServer] = []

    def start(pages: Pages) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = pages.get(self.path, (404, b"{}"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def written(path: Path) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in tomllib.loads(path.read_text())["instance"]}


def test_a_healthy_cluster_is_written_and_its_unnamed_worker_added(
    serve: Serve, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefill = serve(engine("prefill", disaggregation_bootstrap_port=9007, api_key="sk-verysecret123456"))
    decode, other = serve(engine("decode")), serve({"/get_server_info": (200, info("decode"))})
    rows = [{"url": other, "worker_type": "decode"}, {"url": prefill, "worker_type": "prefill", "bootstrap_port": 9007}]
    router = serve({"/workers": (200, json.dumps({"workers": rows}).encode())})
    words = ["--prefill", prefill, "--decode", decode, "--router", f"{router},{router}"]
    assert main(["init", *words, "--name", "prod-a"]) == 0
    out = capsys.readouterr().out
    assert "prefill-0" in out and "SGLang 0.5.19" in out and "decode-1" in out
    rows_written = written(elsewhere / "pdctl.toml")
    assert rows_written["prefill-0"] == {"name": "prefill-0", "role": "prefill", "url": prefill, "bootstrap_port": 9007}
    assert rows_written["decode-1"]["url"] == other
    text = (elsewhere / "pdctl.toml").read_text()
    assert 'name = "prod-a"' in text and "sk-verysecret123456" not in text + out


def test_a_swapped_pair_is_named_and_written_as_it_is(
    serve: Serve, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--decode", serve(engine("prefill"))]) == 1
    assert "named as decode, but says disaggregation_mode prefill" in " ".join(capsys.readouterr().out.split())
    assert written(elsewhere / "pdctl.toml")["prefill-0"]["role"] == "prefill"


def test_dead_endpoints_are_written_with_what_could_not_be_told(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--prefill", "http://127.0.0.1:1", "--router", "http://127.0.0.1:1/r"]) == 3
    out = capsys.readouterr().out
    assert "could not be asked who it is" in out and "could not be asked for its workers" in out
    text = (elsewhere / "pdctl.toml").read_text()
    assert "# could not be asked who it is: " in text
    assert list(written(elsewhere / "pdctl.toml")) == ["prefill-0", "router-0"]


def test_an_engine_that_wants_a_key_is_told_apart(
    serve: Serve, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = serve({"/server_info": (401, b'{"error":"Unauthorized"}'), "/metrics": (200, PAGE)})
    assert main(["init", "--prefill", url]) == 3
    assert "api_key_env" in capsys.readouterr().out


def test_the_name_of_the_variable_is_kept_and_never_its_value(
    serve: Serve, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-verysecret123456")
    assert main(["init", "--prefill", serve(engine("prefill")), "--api-key-env", "ENGINE_KEY"]) == 0
    assert written(elsewhere / "pdctl.toml")["prefill-0"]["api_key_env"] == "ENGINE_KEY"
    assert "sk-verysecret123456" not in (elsewhere / "pdctl.toml").read_text()


def test_a_file_that_is_there_is_kept_unless_forced(
    serve: Serve, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = elsewhere / "pdctl.toml"
    file.write_text("# mine\n")
    url = serve(engine("prefill"))
    assert main(["init", "--prefill", url]) == 64
    assert "--force" in capsys.readouterr().err and file.read_text() == "# mine\n"
    assert main(["init", "--prefill", url, "--force"]) == 0
    assert "prefill-0" in file.read_text()
    assert [path.name for path in elsewhere.iterdir()] == ["pdctl.toml"]


def test_a_dash_prints_the_file_alone_and_says_the_rest_on_stderr(
    serve: Serve, elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["init", "--prefill", serve(engine("prefill")), "--write", "-"]) == 0
    out, err = capsys.readouterr()
    assert tomllib.loads(out)["instance"][0]["name"] == "prefill-0"
    assert "prefill-0" in err and "\\x1b" not in err
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    "words", [[], ["--prefill", "h:1"], ["--prefill", "http://127.0.0.1:1", "--write", "no/such/x"]]
)
def test_nothing_to_start_from_or_to_write_to_is_wrong_usage(words: list[str], elsewhere: Path) -> None:
    assert main(["init", *words]) == 64


def test_a_router_given_as_an_engine_is_told_from_what_it_lists(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    router = serve({"/workers": (200, b'{"workers": [{"url": "http://10.0.0.1:1", "worker_type": "prefill"}]}')})
    path = tmp_path / "a b.toml"
    assert main(["init", "--prefill", router, "--write", str(path)]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "it lists workers, as a router does: give it as --router" in said
    assert f"next: pdctl triage --config '{path}'" in said  # not the file that is found by itself


def test_what_was_found_on_hosts_and_did_not_say_who_it_is_is_unknown() -> None:
    found = Discovered(Cluster("c", (Instance("prefill-0", Role.PREFILL, "http://127.0.0.1:1"),)))
    assert status_of(found) == Status.OK
    assert status_of(replace(found, untold=frozenset({"prefill-0"}))) == Status.UNKNOWN
    assert status_of(replace(found, otherwise=frozenset({"prefill-0"}))) == Status.WARNING
    assert status_of(replace(found, cluster=Cluster("c", ()))) == Status.WARNING


def test_an_engine_found_on_a_host_that_does_not_answer_is_marked_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = Discovered(
        Cluster(
            "c", (Instance("prefill-0", Role.PREFILL, "http://h:1"), Instance("decode-0", Role.DECODE, "http://h:2"))
        ),
        untold=frozenset({"decode-0"}),
    )
    summary(found, "pdctl.toml", to_stderr=False, ascii_only=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["+ prefill-0  http://h:1", "? decode-0  http://h:2", "wrote pdctl.toml; next: pdctl triage"]
