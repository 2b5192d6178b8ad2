"""``pdctl past`` against a real Prometheus server: one that scraped the demo, and ones filled with known samples."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_server import MISSING, Prometheus, is_there, prometheus

from pdctl.cli import main
from pdctl.demo.run import started

pytestmark = pytest.mark.skipif(not is_there(), reason=MISSING)
T0 = int(datetime(2026, 3, 1, 2, 0, tzinfo=UTC).timestamp())


COUNT = "sglang:per_stage_req_latency_seconds_count"
# What a request goes through (SGLang 0.5.6 and later, req_time_stats.py); it sticks before the last of them.
STAGES = {
    "prefill": ("prefill_prepare", "prefill_bootstrap", "prefill_forward", "prefill_transfer_kv_cache"),
    "decode": ("decode_prepare", "decode_bootstrap", "decode_transferred"),
}


def past(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    status = main(["past", *words, "-o", "json"])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out.startswith("{") else {}, err


def names(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(f["name"], f["subject"]) for f in report["findings"]}


def engine(role: str, place: str, stuck_from: int | None, *, seconds: int = 600, every: int = 15) -> Iterator[str]:
    """An engine's samples: one request a second until it sticks, if it does; then one stands in the inflight queue."""
    labels = f'job="pd",instance="{place}",engine_type="{role}",model_name="m",tp_rank="0",pp_rank="0"'
    *passed, last = STAGES[role]
    for at in range(0, seconds, every):
        stuck = stuck_from is not None and at >= stuck_from
        done = min(at, stuck_from) if stuck_from is not None else at
        rows = {
            f'sglang:num_running_reqs{{{labels}}}': 0,
            f'sglang:num_prefill_inflight_queue_reqs{{{labels}}}': int(stuck and role == "prefill"),
            f'sglang:num_decode_transfer_queue_reqs{{{labels}}}': int(stuck and role == "decode"),
            **{f'{COUNT}{{{labels},stage="{stage}"}}': done + stuck for stage in passed},
            f'{COUNT}{{{labels},stage="{last}"}}': done,
            f'sglang:num_requests_total{{{labels}}}': done,
            f'sglang:http_requests_active{{{labels},endpoint="/generate",method="POST"}}': int(stuck),
            f'sglang:scheduler_process_cpu_seconds_total{{{labels}}}': at,
            f'sglang:scheduler_idle_seconds_total{{{labels}}}': done,
            f'up{{job="pd",instance="{place}"}}': 1,
        }  # fmt: skip
        yield from (f"{head} {value} {T0 + at}\n" for head, value in rows.items())


def samples(*engines: Iterator[str]) -> str:
    """OpenMetrics text: all samples of a family together, as the format wants it."""
    by_family: dict[str, list[str]] = {}
    for one in engines:
        for line in one:
            by_family.setdefault(line.partition("{")[0], []).append(line)
    return "".join(line for family in by_family.values() for line in family) + "# EOF\n"


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Two pairs: in the first a request sticks 5 minutes after T0, in the second none does."""
    text = samples(
        engine("prefill", "gpu1:30000", 300),
        engine("decode", "gpu1:30002", 300),
        engine("prefill", "gpu2:30000", None),
        engine("decode", "gpu2:30002", None),
    )
    with prometheus(tmp_path_factory.mktemp("remembered"), samples=text) as server:
        yield server


SPAN = ("--since", "2026-03-01T02:00:00Z", "--until", "2026-03-01T02:09:50Z")
BEFORE = ("--since", "2026-03-01T02:00:00Z", "--until", "2026-03-01T02:04:50Z")
FIRST = ("--prefill", "http://gpu1:30000", "--decode", "http://gpu1:30002")
SECOND = ("--prefill", "http://gpu2:30000", "--decode", "http://gpu2:30002")


def test_a_request_that_stuck_last_night(remembered: Prometheus, capsys: pytest.CaptureFixture[str]) -> None:
    status, report, err = past(capsys, remembered.url, *SPAN, *FIRST)
    assert status == 2
    assert ("request-pinned", "prefill-0") in names(report)
    assert report["window"]["start"].startswith("2026-03-01T02:00:")
    assert "scraped too, and not in the inventory: gpu2:30000, gpu2:30002" in err


@pytest.mark.parametrize(("span", "which"), [(BEFORE, FIRST), (SPAN, SECOND)])
def test_no_pinned_request_before_it_stuck_nor_in_the_pair_beside(
    remembered: Prometheus, capsys: pytest.CaptureFixture[str], span: tuple[str, ...], which: tuple[str, ...]
) -> None:
    status, report, _ = past(capsys, remembered.url, *span, *which)
    assert status in (0, 3) and names(report) <= {("gauge-stale", "prefill-0"), ("gauge-stale", "decode-0")}
    assert {i["name"]: i["reachable"] for i in report["instances"]} == {"prefill-0": True, "decode-0": True}


def test_the_scrapes_are_a_recording_as_any_other(
    remembered: Prometheus, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, report, err = past(capsys, remembered.url, *SPAN, *FIRST, "--record", str(tmp_path / "night"))
    assert "80 scrapes" in err and f"evidence kept: {tmp_path / 'night'}" in err
    again = main(["triage", "--from", str(tmp_path / "night"), "-o", "json"])
    assert again == status
    assert names(json.loads(capsys.readouterr().out)) == names(report)


def test_without_an_inventory_the_labels_tell_who_is_who(
    remembered: Prometheus, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, report, _ = past(capsys, remembered.url, *SPAN, "--match", "job=pd")
    assert status == 2 and report["cluster"] == "pd"
    assert [(i["name"], i["role"]) for i in report["instances"]] == [
        ("prefill-0", "prefill"), ("prefill-1", "prefill"), ("decode-0", "decode"), ("decode-1", "decode"),
    ]  # fmt: skip
    assert ("request-pinned", "prefill-0") in names(report)
    assert "request-pinned" not in {f["name"] for f in report["findings"] if f["subject"] == "prefill-1"}


def test_who_is_not_scraped_is_said_and_not_called_well(
    remembered: Prometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report, _ = past(capsys, remembered.url, *BEFORE, *FIRST, "--decode", "http://gpu9:30002")
    assert status == 3
    assert ("endpoint-unreadable", "decode-1") in names(report)
    assert "no target of Prometheus is http://gpu9:30002/metrics" in json.dumps(report)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "2026-02-01", "--until", "2026-02-02", *FIRST), "scraped none of these instances"),
        ((*SPAN, "--prefill", "http://gpu9:1"), "It knows engines and routers as gpu1:30000, gpu1:30002"),
        ((*SPAN, *FIRST, "--match", "job=nobody"), "scraped none of these instances"),
    ],
)
def test_nothing_known_is_no_verdict(
    remembered: Prometheus, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    status, _, err = past(capsys, remembered.url, *words)
    assert status == 3 and said in err


def test_queries_do_not_grow_with_the_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One query a metric: 60 engines cost as many as 4 do."""
    many = (
        engine(role, f"gpu{n}:{port}", 60 if n == 17 else None, seconds=240)
        for n in range(30)
        for role, port in (("prefill", 30000), ("decode", 30002))
    )
    said = []
    with prometheus(tmp_path / "many", samples=samples(*many)) as server:
        for cluster in (("--match", "job=pd"), ("--prefill", "http://gpu17:30000", "--decode", "http://gpu17:30002")):
            words = ("--since", "2026-03-01T02:00:00Z", "--until", "2026-03-01T02:03:50Z", *cluster)
            status, report, err = past(capsys, server.url, *words)
            assert status == 2 and [f["name"] for f in report["findings"]].count("request-pinned") == 1
            said.append(err.partition(" in ")[2].partition(" queries")[0])
    assert said[0] == said[1] and int(said[0]) < 25


def test_a_live_server_that_scrapes_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with started("pinned") as demo:
        pages = [i.metrics for i in demo.cluster.instances if i.metrics]
        with prometheus(tmp_path / "live", targets=[urlsplit(page).netloc for page in pages]) as server:
            server.wait_for("min(count_over_time(up[1m]))", 26)
            status, report, _ = past(capsys, server.url, "--since", "1m")
    assert status == 2
    assert [i["role"] for i in report["instances"]] == ["prefill", "decode", "router"]
    (found,) = [f for f in report["findings"] if f["name"] == "request-pinned"]
    assert found["subject"] == "prefill-0" and found["confidence"] == "certain"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Grafana</html>", "a web page came instead of JSON"),
        (b'{"status":"error","errorType":"bad_data","error":"\\u001b[31mno"}', "Prometheus refuses: bad_data"),
        (b'{"status":"success","data":7}', "JSON that does not list series"),
        (b"[]", "none of Prometheus's"),
        (b'{"status":"success","da', "truncated"),
    ],
)
def test_a_server_that_is_no_prometheus(body: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Liar(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Liar)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        status, _, err = past(capsys, f"http://127.0.0.1:{server.server_port}", *FIRST)
    finally:
        server.shutdown()
        server.server_close()
    assert status == 3 and said in err and "\x1b" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("prometheus:9090",), "PROMETHEUS:"),
        (("http://127.0.0.1:9", "--since", "yesteryear"), "--since 'yesteryear'"),
        (("http://127.0.0.1:9", "--since", "5m", "--until", "10m"), "is not before"),
        (("http://127.0.0.1:9", "--match", "job"), "is not LABEL=VALUE"),
    ],
)
def test_wrong_words(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = past(capsys, *words, *FIRST)
    assert status == 64 and said in err


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = past(capsys, "http://127.0.0.1:9", *FIRST)
    assert status == 3 and "127.0.0.1:9" in err and "refused" in err
