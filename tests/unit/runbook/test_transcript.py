"""Transcripts: whole whatever ends a run, and what a run goes on from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pdctl.errors import UsageError
from pdctl.model.finding import Status
from pdctl.plans.playbook_course import begun
from pdctl.reach.clock import FakeClock
from pdctl.reach.own import Ran
from pdctl.render.look import Look
from pdctl.runbook.did import CutOff
from pdctl.runbook.order import Order
from pdctl.runbook.run import Runner, resuming
from pdctl.runbook.transcript import (
    Event,
    Transcript,
    course_of,
    cut_off,
    default_folder,
    has_ended,
    newest,
    read_events,
)
from tests.unit.runbook.operator_at_desk import KNOWN, LIVE, Commands, Desk, Played, play, playbook, report

BOOK = playbook("""\
  - step: look
    run: [pinned]
    next:
      - {exit: 0, go: look, at_most: 2}
      - {found: request-pinned, go: stacks}
  - step: stacks
    run: [stacks, "{subject}"]
  - step: restart
    run: [restart]
  - step: done
    end: as-found
""")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def commands() -> Commands:
    looks = [report(), report(), report("request-pinned", subject="decode-0")]
    return Commands({"pinned": looks, "stacks": [report()], "restart": [Ran(0, "plan"), report()]})


def test_every_event_has_its_time_and_the_text_says_the_same(path: Path) -> None:
    played = play(BOOK, commands(), path, desk=Desk(["prod"]))
    assert played.events[0]["event"] == "start"
    assert played.events[-1]["event"] == "end"
    assert all(event["at"].endswith("Z") for event in played.events)
    assert played.events[0]["by"] == "op@host" and played.events[0]["digest"] == BOOK.digest
    assert "$ pdctl stacks decode-0 --config /etc/prod.toml" in played.text
    assert "request-pinned, certain, decode-0" in played.text
    assert path.stat().st_mode & 0o077 == 0, "a transcript is its owner's to read"
    titles = [line for line in played.text.splitlines() if line.startswith("[")]
    assert titles and all(re.fullmatch(r"\[\d+/4\] .+  \d\d:\d\d:\d\d UTC", title) for title in titles), titles
    assert re.search(r"ended after .*: critical  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", played.text)
    assert "\n  try.yaml\n" in played.text, "which file it was"


def test_what_a_command_prints_is_written_as_it_comes(path: Path) -> None:
    """A kill in the middle of a restart leaves what it had done until then."""
    seen: list[str] = []

    def restart(words: list[str], *, on_line: Callable[[str], None], limit: float | None) -> Ran:
        on_line("prefill-0 restarted, api_key=hunter22hunter22")
        seen.append(path.with_suffix(".txt").read_text())
        return report()

    book = playbook("  - step: a\n    run: [triage]\n")
    play(book, restart, path)  # type: ignore[arg-type]
    assert "  $ pdctl triage --config /etc/prod.toml\n  | prefill-0 restarted, api_key=" in seen[0]
    assert "hunter22" not in seen[0]


def test_two_do_not_go_on_with_the_same_run(path: Path) -> None:
    first = Transcript(path, fresh=True)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="still under way"):
        Transcript(path, fresh=False)
    first.add({"event": "start"})
    assert path.read_bytes().startswith(before)
    first.close()
    Transcript(path, fresh=False).close()


def test_ctrl_c_leaves_it_whole_and_the_run_goes_on_with_that_step(path: Path) -> None:
    looks = [report(), KeyboardInterrupt(), report("request-pinned", subject="decode-0")]
    first = play(BOOK, Commands({"pinned": looks}), path)
    assert first.ended.interrupted and first.ended.stopped
    assert first.events[-1] == {**first.events[-1], "event": "end", "interrupted": True, "stopped": True}
    course = course_of(BOOK, first.events)
    assert (course.next, course.visits, course.taken) == ("look", {"look": 1}, {("look", 0): 1})
    later = Commands({"pinned": [report("request-pinned", subject="decode-0")], "stacks": [report()]})
    second = play(BOOK, later, path, course=course, order=Order(LIVE, attended=False))
    assert second.steps == ["look", "look", "stacks", "restart"], "what was done is not done again"
    assert later.ran[1][:2] == ["stacks", "decode-0"], "the subject is known after the gap"


def test_a_command_that_was_interrupted_comes_again(path: Path) -> None:
    stopped = Ran(130, "interrupted", None, interrupted=True)
    played = play(BOOK, Commands({"pinned": [stopped]}), path)
    assert played.ended.interrupted and played.step("look")["done"] == "interrupted"
    assert course_of(BOOK, played.events).next == "look"


def test_where_consent_was_missing_the_run_stops_and_goes_on_there(path: Path) -> None:
    first = play(BOOK, commands(), path, order=Order(LIVE, attended=False, unattended=True))
    assert first.ended.stopped and first.steps[-1] == "restart"
    course = course_of(BOOK, read_events(path))
    assert course.next == "restart"
    later = Commands({"restart": [Ran(0, "plan"), report()]})
    second = play(BOOK, later, path, desk=Desk(["prod"]), course=course)
    assert second.steps[-2:] == ["restart", "done"]
    assert second.ended.verdict is Status.CRITICAL, "what was found before the gap still counts"
    assert has_ended(read_events(path))


@pytest.mark.parametrize("cut", range(1, 400, 23))
def test_a_line_cut_short_by_a_kill_is_left_out(cut: int, path: Path) -> None:
    play(BOOK, commands(), path, desk=Desk(["prod"]))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    events = read_events(path)
    assert 0 < len(events) <= whole.count(b"\n")
    assert course_of(BOOK, events).next in ("restart", "done", "end", "stacks")
    transcript = Transcript(path, fresh=False)
    transcript.add({"event": "resume"})
    transcript.close()
    assert [e["event"] for e in read_events(path)] == [*(e["event"] for e in events), "resume"]


def test_a_step_whose_end_is_not_known_is_said(path: Path) -> None:
    play(BOOK, commands(), path, desk=Desk(["prod"]))
    rows = path.read_text().splitlines()
    begun = next(n for n, row in enumerate(rows) if '"event":"begin"' in row and '"restart"' in row)
    events = [json.loads(row) for row in rows[: begun + 1]]
    said = resuming(events, course_of(BOOK, events), "op")
    assert said["step"] == "restart" and "may have done its work" in str(said["unfinished"])


def test_a_question_that_was_left_open_has_done_nothing(path: Path) -> None:
    book = playbook('  - step: a\n    ask: well?\n    answers: {"yes": end}\n')
    play(book, Commands({}), path, desk=Desk(["yes"]))
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    events = rows[: next(n for n, row in enumerate(rows) if row["event"] == "begin") + 1]
    assert resuming(events, course_of(book, events), "op")["unfinished"] == ""


def test_a_transcript_is_never_overwritten(path: Path) -> None:
    Transcript(path, fresh=True).close()
    with pytest.raises(UsageError, match="is there already"):
        Transcript(path, fresh=True)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk to try")
def test_a_full_disk_is_told_and_the_run_goes_on(path: Path) -> None:
    os.symlink("/dev/full", path)
    transcript = Transcript(path, fresh=False)
    transcript.add({"event": "x"})
    transcript.add({"event": "y"})
    transcript.close()
    assert transcript.failed is not None and "No space left" in transcript.failed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full disk to try")
def test_a_full_disk_is_told_when_it_happens_and_once(path: Path) -> None:
    os.symlink("/dev/full", path)
    path.with_suffix(".txt").touch()
    desk = Desk(["prod"])
    transcript = Transcript(path, fresh=False)
    with closing(transcript):
        runner = Runner(BOOK, Order(LIVE), transcript, desk, Look(), runs=commands(), options=lambda _: KNOWN,
                        clock=FakeClock())  # fmt: skip
        ended = runner.run(begun(BOOK))
    assert ended.verdict is Status.CRITICAL, "the run goes on"
    told = [n for n, line in enumerate(desk.shown) if "no more is written down" in line]
    assert len(told) == 1 and told[0] < desk.shown.index("$ pdctl pinned --config /etc/prod.toml")


def test_a_home_that_is_not_there_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert default_folder() == Path()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "state" / "pdctl" / "playbooks"


def test_the_newest_unfinished_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "pdctl" / "playbooks"
    assert newest("try") is None
    play(BOOK, commands(), folder / "try-20260101T000000.000000Z.jsonl", order=Order(LIVE, attended=False))
    assert newest("try") == folder / "try-20260101T000000.000000Z.jsonl"
    play(BOOK, commands(), folder / "try-20260102T000000.000000Z.jsonl", desk=Desk(["prod"]))
    assert newest("try") == folder / "try-20260101T000000.000000Z.jsonl", "the later one came to its end"


CUT_OFF = Ran(
    0, json.dumps({"runs": [{"run": "r", "kind": "restart", "at": "2999-01-01T00:00:00Z", "end": "cut off"}]})
)


def cut_at_restart(path: Path, *, answer: str = "prod") -> list[Event]:
    """The events of a run that was killed in the middle of its restart."""
    play(BOOK, commands(), path, desk=Desk([answer]))
    rows = read_events(path)
    return rows[: next(n for n, row in enumerate(rows) if row["event"] == "step" and row["step"] == "restart")]


def gone_on(events: list[Event], later: Commands, desk: Desk, path: Path) -> Played:
    """A run gone on with after these events."""
    path.with_suffix(".txt").touch()
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return play(
        BOOK, later, path, desk=desk, order=Order(LIVE, cut_off=cut_off(events)), course=course_of(BOOK, events)
    )


def test_a_restart_that_was_cut_off_is_gone_on_with(path: Path) -> None:
    later = Commands({"history": [CUT_OFF], "restart": [Ran(0, "what is left"), Ran(0, "what is left"), report()]})
    second = gone_on(cut_at_restart(path), later, Desk(["prod"]), path.with_name("u.jsonl"))
    done = [words[1:3] for words in later.ran[1:]]
    assert done == [["--resume", "--plan"], ["--resume", "--plan"], ["--resume", "--yes"]]
    assert "what is left" in second.desk.shown


def test_where_nothing_is_left_of_it_there_is_a_new_plan(path: Path) -> None:
    later = Commands({"history": [Ran(64, "")], "restart": [Ran(64, "nothing is left"), Ran(0, "the plan"), report()]})
    gone_on(cut_at_restart(path), later, Desk(["prod"]), path.with_name("u.jsonl"))
    assert [words[1:3] for words in later.ran][2:] == [["--plan", "--config"], ["--yes", "--config"]]


@pytest.mark.parametrize(
    ("end", "at", "asked"),
    [
        ("done", "2026-01-01T00:00:05Z", 0),
        ("done", "2025-12-31T23:59:59Z", 1),  # of an earlier one
        ("failed", "2026-01-01T00:00:05Z", 1),
    ],
)
def test_a_restart_that_went_on_without_its_run_is_not_done_again(end: str, at: str, asked: int, path: Path) -> None:
    history = Ran(0, json.dumps({"runs": [{"run": "r-7", "kind": "restart", "at": at, "end": end}]}))
    later = Commands({"history": [history], "restart": [Ran(0, "plan")]})
    second = gone_on(cut_at_restart(path), later, Desk(["no"]), path.with_name("u.jsonl"))
    assert later.ran[0][:3] == ["history", "--cluster", "prod"]
    assert len(second.desk.asked) == asked
    assert (second.steps[-1] == "done") is (asked == 0)


def test_what_was_not_agreed_to_or_came_to_its_end_was_not_cut_off(path: Path) -> None:
    assert cut_off(cut_at_restart(path, answer="no")) is None
    play(BOOK, commands(), path.with_name("u.jsonl"), desk=Desk(["prod"]))
    events = read_events(path.with_name("u.jsonl"))
    assert cut_off(events) is None
    end = next(n for n, row in enumerate(events) if row["event"] == "step" and row["step"] == "restart")
    cut = CutOff("restart", "2026-01-01T00:00:00Z")
    assert cut_off([*events[:end], {**events[end], "done": "interrupted"}]) == cut
    assert cut_off([*events[:end], {**events[end], "done": "broken", "exit": 137}]) == cut
    again = {"event": "begin", "step": "restart"}
    assert cut_off([*events[:end], {"event": "resume"}, again]) == cut, "killed again before anybody was asked"
    assert cut_off([*events[:end], {"event": "begin", "step": "done"}]) is None
