"""pdctl sample as a user meets it: a screen, a pipe, rows; from a recording, live; ended by itself, Ctrl-C or head."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from pdctl.cli import main
from pdctl.model.answer import Fact
from pdctl.reach.capture import Capture, open_capture

CAPTURES = Path(__file__).parents[1] / "captures"
PDCTL = (sys.executable, "-m", "pdctl")
DEMO = ("--demo", "pinned", "--interval", "200ms")

pytestmark = pytest.mark.usefixtures("elsewhere")


def capture(name: str) -> tuple[str, str]:
    return "--from", str(CAPTURES / f"{name}.tar.zst")


def sampled(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["sample", *words]) == status
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(sampled(capsys, *words, "-o", "csv"))))


# --- from a recording -------------------------------------------------------------------------------------------------


def test_the_gauge_and_the_live_count_of_a_pinned_prefill(capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded on 0.5.23: two requests hang, the gauge counts a health probe as a third, decode's reads 0."""
    table = rows(capsys, *capture("real-pinned-2"))
    prefill = [r for r in table if r["instance"] == "prefill-0"]
    decode = [r for r in table if r["instance"] == "decode-0"]
    assert {r["inflight_live"] for r in prefill} - {""} == {"2"}
    assert {r["inflight"] for r in prefill} - {""} == {"3"}
    assert {r["transfer_live"] for r in decode} - {""} == {"2"}
    assert {r["transfer"] for r in decode} - {""} == {"0"}
    assert {r["http_active"] for r in prefill} - {""} == {"2"}
    assert {r["generated_s"] for r in decode} - {""} == {"0"}


def test_counts_frozen_while_something_is_stuck_are_not_live(capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded on 0.5.15: /v1/loads says 0 for the whole window, and carries no time that could tell."""
    table = rows(capsys, *capture("real-pinned-1-0.5.15"))
    assert {r["inflight_live"] for r in table} == {""}
    assert {r["inflight"] for r in table if r["instance"] == "prefill-0"} - {""} == {"1"}


def test_counts_of_a_stopped_scheduler_are_called_old(capsys: pytest.CaptureFixture[str]) -> None:
    table = [r for r in rows(capsys, *capture("real-decode-sigstop")) if r["instance"] == "decode-0"]
    assert {r["running_live"] for r in table[10:]} == {""}
    assert "loads:old" in {r["note"] for r in table[10:]}


def test_a_restart_gives_a_gap_and_a_mark_and_no_negative_rate(capsys: pytest.CaptureFixture[str]) -> None:
    """The counters fall between the second and the fourth sample; the third was refused."""
    out = sampled(capsys, *capture("restart-inside-window"), "-o", "jsonl")
    seen = [json.loads(line) for line in out.splitlines()]
    assert [row["restarted"] for row in seen] == [False, False, False, True, False, False]
    assert [row["values"]["finished_s"] is None for row in seen] == [True, False, True, True, False, False]
    assert [row["gone"].get("finished_s") for row in seen] == ["first", None, "missed", "restart", None, None]
    assert seen[2]["missed"] == {"metrics": "connect-refused"}
    assert all(value is None or value >= 0 for row in seen for value in row["values"].values())


def test_ranks_show_the_one_that_stands(capsys: pytest.CaptureFixture[str]) -> None:
    table = rows(capsys, *capture("one-dp-rank-pinned"), "--ranks")
    by_rank = {rank: [r["inflight"] for r in table if r["rank"] == rank] for rank in ("", "0", "1", "2", "3")}
    assert set(by_rank["2"]) == {"3"}
    assert all(len(set(by_rank[rank])) > 1 for rank in ("0", "1", "3"))
    for i, whole in enumerate(by_rank[""]):
        assert float(whole) == sum(float(by_rank[rank][i]) for rank in "0123")
    assert {r["rank"] for r in rows(capsys, *capture("one-dp-rank-pinned"))} == {""}


def test_a_line_a_sample_in_a_pipe_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    lines = sampled(capsys, *capture("router-holds")).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("2026-11-12T03:14:00.000Z prefill-0 inflight=0 bootstrap=6 queue=0 running=0 ")
    assert " | router-0 active=6 " in lines[0]
    assert [[w.split("=")[0] for w in line.split()[1:]] for line in lines] == [
        [w.split("=")[0] for w in lines[0].split()[1:]]
    ] * 4
    assert "\x1b" not in "".join(lines)


def test_the_number_of_samples_and_the_time_can_be_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(sampled(capsys, *capture("router-holds"), "--count", "2").splitlines()) == 2
    assert len(sampled(capsys, *capture("router-holds"), "--for", "60s").splitlines()) == 3  # at 0, 30 and 60 s


def test_only_the_instances_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert {r["instance"] for r in rows(capsys, *capture("router-holds"), "router-0")} == {"router-0"}
    assert main(["sample", *capture("router-holds"), "router-9"]) == 64
    assert "There are: prefill-0, decode-0, router-0." in capsys.readouterr().err


def test_where_no_number_could_be_read_the_run_did_not_succeed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", *capture("metrics-timeout"), "prefill-0"]) == 3
    told = capsys.readouterr()
    assert "inflight=- " in told.out
    assert "note=metrics:read-timeout" in told.out
    assert "no number could be read" in told.err


def test_until_a_finding_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", *capture("real-pinned-2"), "--until", "request-pinned"]) == 0
    told = capsys.readouterr()
    assert "request-pinned at prefill-0: " in told.err
    assert len(told.out.splitlines()) < 60  # it holds some 60, and does not need them all


def test_until_a_finding_that_does_not_come(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", *capture("real-idle"), "--until", "request-pinned"]) == 3
    assert "request-pinned was not found in " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--until", "pinned"), "request-pinned"),
        (("--until", "no-such-thing-at-all"), "there is no finding"),
        (("--count", "0"), "--count"),
        (("--interval", "0"), "--interval"),
        (("--for", "soon"), "--for"),
        (("-o", "table"), "table"),
        (("--record", "x", *capture("real-idle")), "--from"),
        (("--demo", "pinned", *capture("real-idle")), "--from"),
    ],
)
def test_what_cannot_be_done_is_refused(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", *words]) == 64
    assert said in capsys.readouterr().err


def test_a_recording_is_read_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sample needs the first answers alone; bodies of facts that a sample does not show are never read."""
    from pdctl.commands.common import Target
    from pdctl.commands.sampler import Plan, Sampler

    read: list[tuple[Fact, float]] = []
    original = Capture.answer_of
    monkeypatch.setattr(
        Capture, "answer_of", lambda self, placed: read.append((placed.row.fact, placed.t)) or original(self, placed)
    )
    with open_capture(CAPTURES / "real-load.tar.zst") as recording:
        plan = Plan(recording.cluster, 1.0, None, None, None, False, None)
        samples = Sampler(Target(recording.cluster, capture=recording), plan).samples()
        first = next(samples)
        assert first.number == 1
        assert max(t for _, t in read) < 5.0
        assert {fact for fact, _ in read} == {Fact.METRICS, Fact.LOADS}
        samples.close()


# --- live ---------------------------------------------------------------------------------------------------------


def start(*words: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PDCTL, "sample", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more  # type: ignore[call-overload]
    )  # fmt: skip


def test_live_samples_are_recorded_and_read_back_the_same(tmp_path: Path) -> None:
    where = tmp_path / "kept"
    done = start(*DEMO, "--count", "3", "--record", str(where))
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    assert len(out.splitlines()) == 3
    assert f"pdctl triage --from {where}" in err
    assert (where / "manifest.json").exists()
    again = start("--from", str(where)).communicate(timeout=60)[0]
    assert [line.split(" ", 1)[1] for line in again.splitlines()] == [
        line.split(" ", 1)[1] for line in out.splitlines()
    ]
    with open_capture(where) as recording:
        assert {a.fact for a in recording.answers()} >= {Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO, Fact.WORKERS}


def test_ctrl_c_in_a_pipe_ends_it_and_keeps_what_there_is(tmp_path: Path) -> None:
    where = tmp_path / "kept"
    running = start(*DEMO, "-o", "jsonl", "--record", str(where))
    assert running.stdout is not None
    first = running.stdout.readline()
    running.send_signal(signal.SIGINT)
    rest, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert [json.loads(line)["kind"] for line in (first + rest).splitlines()]
    assert "interrupted after" in err
    assert "Traceback" not in err
    with open_capture(where) as recording:
        assert not recording.cut_short


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    running = start(*DEMO)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("20")
    running.stdout.close()
    assert running.wait(60) == 0
    assert running.stderr is not None
    assert running.stderr.read() == ""
    running.stderr.close()


def at_a_terminal(term: str, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    """pdctl sample on a terminal of 30 lines and 90 columns, and our end of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
    running = subprocess.Popen(
        [*PDCTL, "sample", *words], stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": term}
    )
    os.close(theirs)
    return running, ours


def test_at_a_terminal_the_screen_is_repainted_and_given_back(tmp_path: Path) -> None:
    running, terminal = at_a_terminal("xterm-256color", *DEMO, "--record", str(tmp_path / "kept"))
    screen = _until(terminal, b"sample 2 at")
    running.send_signal(signal.SIGINT)
    screen += _until(terminal, None)
    os.close(terminal)
    assert running.wait(60) == 130
    assert screen.count(b"\x1b[?1049h") == screen.count(b"\x1b[?1049l") == 1
    assert screen.rindex(b"\x1b[?25h") > screen.rindex(b"\x1b[?25l")  # the cursor is back
    left = screen.rpartition(b"\x1b[?1049l")[2].decode()
    assert "prefill-0  prefill" in left
    assert "live, gauge 3" in left  # the demo's two pinned requests and a probe that counted itself
    assert "interrupted after" in left
    assert (tmp_path / "kept" / "manifest.json").exists()


def _until(terminal: int, wanted: bytes | None) -> bytes:
    """What the terminal gets until ``wanted`` is there, or until its other end closes."""
    got = b""
    while wanted is None or wanted not in got:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end has closed
            return got
        if not more:
            return got
        got += more
    return got


def test_a_terminal_that_cannot_repaint_gets_lines() -> None:
    running, terminal = at_a_terminal("dumb", *capture("router-holds"))
    got = _until(terminal, None)
    os.close(terminal)
    assert running.wait(60) == 0
    assert b"\x1b" not in got
    assert got.count(b" | router-0 active=6 ") == 4


def test_nothing_of_the_screen_is_imported_for_a_pipe() -> None:
    code = (
        f"import sys, pdctl.cli; pdctl.cli.main(['sample', *{capture('router-holds')!r}]); "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('rich', 'httpx', 'paramiko')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
