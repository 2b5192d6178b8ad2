"""pdctl logs as a user meets it: files, an inventory, a recording; views, filters, forms and exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pdctl.cli import main

CAPTURES = Path(__file__).parents[2] / "captures"
PREFILL = """\
[2026-11-12 03:10:00] The server is fired up and ready to roll!
[2026-11-12 03:14:00 TP0] Prefill batch, #new-seq: 1, #new-token: 9, #queue-req: 0, #inflight-req: 2, \
input throughput (token/s): 5.00
[2026-11-12 03:14:20 TP0] Prefill transfer failed for request rank=0 req.rid='a1' req.bootstrap_room=77 with exception \
KVTransferError(bootstrap_room=77): timed out
[2026-11-12 03:14:20 TP1] Prefill transfer failed for request rank=1 req.rid='a1' req.bootstrap_room=77 with exception \
KVTransferError(bootstrap_room=77): Failed due to an unknown reason from another rank
[2026-11-12 03:14:40 TP1] Decode batch, #running-req: 5
"""
DECODE = """\
[2026-11-12 03:14:10 TP0] Decode batch, #running-req: 3, gen throughput (token/s): 5.00, #queue-req: 0
[2026-11-12 03:14:21 TP0] Decode transfer failed for request rank=0 decode_req.req.rid='b9' \
decode_req.req.bootstrap_room=77 with exception KVTransferError(bootstrap_room=77): Aborted by AbortReq.
"""
END = '2026-11-12 03:14:{:02d}  INFO http_request{{method=POST uri=/generate version=HTTP/1.1 request_id="g{}" ' \
      "status_code={} latency={}}}: smg::response: x.rs:359: finished processing request\n"  # fmt: skip
ROUTER = "".join(END.format(n, n, 200, (n + 1) * 100_000) for n in range(10)) + END.format(50, 50, 500, 9_000_000)
ROUTER += (
    '2026-11-12 03:14:51  INFO http_request{method=POST uri=/generate version=HTTP/1.1 request_id="open"}: '
    "smg::request: x.rs:310: started processing request\n"
)


@pytest.fixture
def logs(elsewhere: Path) -> Path:
    """Three logs last written when their last line was, and an inventory that names them."""
    rows = ['name = "test"']
    for name, role, text, last in (
        ("p", "prefill", PREFILL, "03:14:40"), ("d", "decode", DECODE, "03:14:21"), ("r", "router", ROUTER, "03:14:51")
    ):  # fmt: skip
        path = elsewhere / f"{name}.log"
        path.write_text(text)
        when = datetime.fromisoformat(f"2026-11-12T{last}Z").replace(tzinfo=UTC).timestamp()
        os.utime(path, (when, when))
        rows += ["[[instance]]", f'name = "{name}"', f'role = "{role}"', f'log = "{path}"']
    (elsewhere / "pdctl.toml").write_text("\n".join(rows) + "\n")
    return elsewhere


def run(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> tuple[str, str]:
    assert main(["logs", *words]) == status
    got = capsys.readouterr()
    return got.out, got.err


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    out, _ = run(capsys, *words, "-o", "jsonl")
    return [json.loads(line) for line in out.splitlines()]


def test_all_logs_of_the_inventory_on_one_time_line(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys)
    lines = out.splitlines()
    assert lines[0] == ("2026-11-12 03:10:00  p  ready                  The server is fired up and ready to roll!")
    times = [line[:19] for line in lines]
    assert times == sorted(times)
    assert len(lines) == 4 + 2 + 12
    assert "p: 1 records were cut short" in err


def test_some_instances(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {row["instance"] for row in rows_of(capsys, "p", "d")} == {"p", "d"}
    out, _ = run(capsys, "d")
    assert out.startswith("2026-11-12 03:14:10  decode-batch           TP0  Decode batch, #running-req: 3")


def test_an_event_as_json(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows_of(capsys, "p", "--kind", "transfer-failed", "--rank", "tp0")
    assert row.pop("text") == PREFILL.splitlines()[2]
    assert row == {
        "instance": "p", "kind": "transfer-failed", "line": 3, "at": "2026-11-12T03:14:20Z",
        "local": "2026-11-12T03:14:20", "rank": {"tp": 0}, "numbers": {"rank": 0},
        "words": {"reason": "timed out", "rid": "a1", "room": "77"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["p", "--kind", "ready,prefill-batch"], 2),
        (["p", "--kind", "ready", "--kind", "prefill-batch"], 2),
        (["p", "d", "--room", "77"], 3),
        (["p", "d", "--rid", "b9"], 1),
        (["p", "--grep", "ANOTHER rank"], 1),
        (["p", "--since", "03:14:00", "--until", "03:14:10"], 1),
        (["p", "--since", "2026-11-12T03:14:20Z"], 2),
        (["p", "--since", "2026-11-12 03:14:20"], 2),
        (["p", "--rank", "tp1"], 1),
        (["r", "--rid", "g3"], 1),
        (["r", "--limit", "2"], 2),
        (["r", "--limit", "0"], 12),
    ],
)
def test_filters(logs: Path, capsys: pytest.CaptureFixture[str], words: list[str], count: int) -> None:
    assert len(rows_of(capsys, *words)) == count


def test_a_log_of_times_with_a_zone(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("k.log").write_text(
        "".join(f"2026-11-12T04:14:{n:02d}+01:00 stderr F Session a:{n} failed.\n" for n in range(9))
    )
    found = rows_of(capsys, "--file", "k.log", "--since", "03:14:03", "--until", "2026-11-12T03:14:05Z")
    assert [row["at"] for row in found] == [f"2026-11-12T03:14:0{n}Z" for n in (3, 4, 5)]
    assert [row["kind"] for row in found] == ["session-failed"] * 3


def test_ago_counts_from_now(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files were last written long ago: nothing in them is five minutes old."""
    assert rows_of(capsys, "--since", "5m", "--until", "1s") == []


def test_failures_by_room_over_all_logs(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "--failures")
    assert out.splitlines() == [
        "2026-11-12 03:14:20  transfer-failed, decode-transfer-failed room 77  p, d [TP0, TP1] (3 lines): timed out"
    ]
    (row,) = rows_of(capsys, "--failures")
    assert (row["room"], row["lines"], row["instances"], row["at"]) == ("77", 3, ["p", "d"], "2026-11-12T03:14:20Z")


def test_slow_requests(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "--slow", "2")
    assert [line.split() for line in out.splitlines()] == [
        ["9.000", "s", "500", "2026-11-12", "03:14:50", "r", "POST", "/generate", "g50"],
        ["1.000", "s", "200", "2026-11-12", "03:14:09", "r", "POST", "/generate", "g9"],
    ]


def test_latencies_and_ends(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "--latency")
    head, row, ends = out.splitlines()
    assert head.split() == ["router", "path", "count", "p50", "s", "p90", "s", "p99", "s", "max", "s"]
    assert row.split() == ["r", "/generate", "10", "0.500", "0.900", "1.000", "1.000"]
    assert ends.startswith("r: ended 10 with 200, 1 with 500; 1 began and have no end (a request without an end")
    document = json.loads(run(capsys, "--latency", "-o", "json")[0])
    assert document["schema"] == "pdctl.logs/1"
    assert document["rows"][0]["p90_s"] == 0.9
    assert document["rows"][1]["ended"] == {"200": 10, "500": 1}


def test_one_json_document(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "p", "-o", "json", "--limit", "1")[0])
    assert (document["view"], document["omitted"], len(document["rows"])) == ("events", 3, 1)
    assert document["sources"] == [{"name": "p", "role": "prefill", "lines": 5, "dropped": 1, "ahead_of_utc_s": 0.0}]


def test_a_file_by_its_shape_or_role(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--role", "router"]):
        kinds = {row["kind"] for row in rows_of(capsys, "--file", "r.log", *more)}
        assert kinds == {"router-started", "router-finished"}


def test_a_recording(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """15 transfers that failed on prefill, 4 requests that timed out on decode (counted in its logs by hand)."""
    capture = str(CAPTURES / "decode-restarted-alone.tar.zst")
    found = rows_of(capsys, "--from", capture, "--failures", "--limit", "0")
    assert {tuple(row["instances"]) for row in found} == {("prefill-0",), ("decode-0",)}  # type: ignore[arg-type]
    assert len(found) == 15 + 4
    timed_out = [row for row in found if row.get("state")]
    assert {(row["state"], row["timeout_s"]) for row in timed_out} == {("WaitingForInput", 300.0)}
    assert len(timed_out) == 4


def test_hostile_bytes_and_secrets_never_show(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.log").write_bytes(
        b"[2026-11-12 03:14:00] \x1b]0;owned\x07 \xe2\x80\xae \xff api_key='sk-verysecret123456' \x00\n"
    )
    for form in ("human", "jsonl", "json"):
        out, _ = run(capsys, "--file", "x.log", "-o", form)
        assert "verysecret" not in out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", out)
        assert "\\xff" in out
    assert run(capsys, "--file", "x.log", "--ascii")[0].isascii()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nobody"], "no instance 'nobody'"),
        (["--file", "none.log"], "none.log: cannot be read: No such file"),
        (["--kind", "crashed"], "no event is of kind 'crashed'"),
        (["--since", "soon"], "'soon' is no time"),
        (["--rank", "7"], "'7' is no rank"),
        (["--failures", "--latency"], "views of their own"),
        (["--follow", "--latency"], "as they come"),
        (["--follow", "-o", "json"], "as they come"),
        (["--follow", "--from", "x"], "does not grow"),
        (["p", "--file", "p.log"], "names an instance"),
        (["--prefill", "http://192.0.2.1:30000"], "no log to read"),
    ],
)
def test_wrong_usage(logs: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    _, err = run(capsys, *words, status=64)
    assert message in err


def test_logs_that_are_elsewhere_are_named(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("pdctl.toml").read_text() + '[[host]]\nname = "gpu-1"\nssh = "ops@127.0.0.1:1"\n'
    text = text.replace('role = "decode"', 'role = "decode"\nhost = "gpu-1"').replace("r.log", "gone.log")
    Path("pdctl.toml").write_text(text)
    out, err = run(capsys, "--kind", "ready", status=3)
    assert "fired up" in out
    assert "d: unknown: its log on gpu-1 could not be read: " in err
    assert "gone.log is not there" in err


def test_following_a_file_until_ctrl_c(elsewhere: Path) -> None:
    path = elsewhere / "p.log"
    path.write_text(PREFILL.splitlines(keepends=True)[0] + "[2026-11-12 03:14:20 TP0] Prefill trans")
    process = subprocess.Popen(
        [sys.executable, "-m", "pdctl", "logs", "--file", str(path), "-f", "-o", "jsonl"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["kind"] == "ready"
        with path.open("a") as file:
            file.write("fer failed for request rank=0 req.rid='a1' req.bootstrap_room=77\n")
        row = json.loads(process.stdout.readline())
        assert (row["kind"], row["line"], row["words"]["room"]) == ("transfer-failed", 2, "77")
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_closed_pipe_is_no_error(logs: Path) -> None:
    Path("big.log").write_text(DECODE * 5000)
    script = f"{sys.executable} -m pdctl logs --file big.log --limit 0 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
