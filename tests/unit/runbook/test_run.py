"""Running playbooks: consent, questions, waits, loops, what is passed on to commands, how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.model.finding import Status
from pdctl.reach.own import Ran
from pdctl.runbook.order import Order
from tests.unit.runbook.operator_at_desk import LIVE, Commands, Desk, play, playbook, report

LOOK = playbook("""\
  - step: look
    run: [pinned, --for, 60s]
    next:
      - {found: request-pinned, go: stacks}
      - {go: clear}
  - step: stacks
    run: [stacks, "{subject}"]
    next: [{go: stuck}]
  - step: clear
    end: ok
  - step: stuck
    end: critical
""")
RESTART = playbook("""\
  - step: restart
    run: [restart, --only, decode]
    next: [{exit: 75, go: failed}]
  - step: done
    end: ok
  - step: failed
    end: critical
""")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def test_a_finding_decides_the_way_and_its_subject_goes_along(path: Path) -> None:
    commands = Commands({"pinned": [report("request-pinned", subject="prefill-0->decode-0")], "stacks": [report()]})
    played = play(LOOK, commands, path)
    assert played.steps == ["look", "stacks", "stuck"]
    assert commands.ran[1] == ["stacks", "prefill-0", "decode-0", "--config", "/etc/prod.toml"]
    assert played.ended.verdict is Status.CRITICAL
    assert played.step("look")["findings"][0]["name"] == "request-pinned"


def test_without_it_the_other_way(path: Path) -> None:
    played = play(LOOK, Commands({"pinned": [report()]}), path)
    assert (played.steps, played.ended.verdict) == (["look", "clear"], Status.OK)


def test_commands_that_know_no_target_get_none(path: Path) -> None:
    book = playbook("  - step: a\n    run: [explain, request-pinned]\n")
    assert play(book, Commands({"explain": [Ran(0, "")]}), path).commands.ran == [["explain", "request-pinned"]]


def test_looks_are_kept_shorter_and_recorded_as_the_run_says(path: Path) -> None:
    order = Order(LIVE, look_s=5.0, record=Path("/tmp/kept"))
    played = play(LOOK, Commands({"pinned": [report()]}), path, order=order)
    words = played.commands.ran[0]
    assert words[:3] == ["pinned", "--for", "5s"]
    assert words[-2:] == ["--record", "/tmp/kept/001-pinned"]


# --- consent ------------------------------------------------------------------------------------------------------


def test_a_change_is_shown_then_agreed_to_by_the_name_of_the_cluster(path: Path) -> None:
    commands = Commands({"restart": [Ran(0, "the plan"), report()]})
    played = play(RESTART, commands, path, desk=Desk(["prod"]))
    target = ["--config", "/etc/prod.toml"]
    assert commands.ran == [["restart", "--only", "decode", "--plan", *target],
                            ["restart", "--only", "decode", "--yes", *target]]  # fmt: skip
    assert commands.limits[1] is None, "a change is never ended half way"
    assert played.ended.verdict is Status.OK
    assert "the plan" in played.desk.shown
    consent = next(event for event in played.events if event["event"] == "consent")
    assert consent["agreed"] is True and consent["said"] == "prod"


def test_a_plan_that_was_the_step_before_is_not_shown_again(path: Path) -> None:
    book = playbook("  - step: plan\n    run: [restart, --plan]\n  - step: rest\n    run: [restart]\n")
    commands = Commands({"restart": [Ran(0, "the plan"), report()]})
    played = play(book, commands, path, desk=Desk(["prod"]))
    assert [words[1] for words in commands.ran] == ["--plan", "--yes"]
    assert played.desk.shown.count("the plan") == 1
    late = book.steps[1], replace(book.steps[1], name="again")
    commands = Commands({"restart": [Ran(0, "the plan")]})
    play(replace(book, steps=late), commands, path.with_name("u.jsonl"), desk=Desk(["prod", "prod"]))
    assert [words[1] for words in commands.ran] == ["--plan", "--yes", "--plan", "--yes"], "and what changes is not it"


@pytest.mark.parametrize("said", ["y", "yes", "PROD", "", "prod-b"])
def test_anything_else_leaves_it(said: str, path: Path) -> None:
    commands = Commands({"restart": [Ran(0, "the plan")]})
    played = play(RESTART, commands, path, desk=Desk([said]))
    assert [words[3] for words in commands.ran] == ["--plan"]
    assert played.ended.stopped and played.ended.verdict is Status.UNKNOWN
    assert played.step("restart")["not_run"] == "no consent was given"


@pytest.mark.parametrize(
    "body",
    ["[restart]", "[script, set, decode-0, A=1]", "[mute, request-pinned, --why, x]", "[probe, --load]",
     "[stacks, --native]", "[check, --out, f]"],
)  # fmt: skip
@pytest.mark.parametrize(
    "order",
    [Order(LIVE, attended=False, unattended=True), Order(LIVE, attended=False), Order(replace(LIVE, recording=True))],
    ids=["yes-read-only", "no terminal", "recording"],
)
def test_nothing_that_does_more_than_read_is_run_with_nobody_to_agree(body: str, order: Order, path: Path) -> None:
    book = playbook(f"  - step: a\n    run: {body}\n  - step: b\n    end: ok\n")
    played = play(book, Commands({}), path, order=order)
    assert played.commands.ran == [] and played.desk.asked == []
    assert played.ended.verdict is Status.UNKNOWN and played.ended.stopped
    assert "not run" in played.text


def test_a_wait_repeats_nothing_that_was_agreed_to_once(path: Path) -> None:
    """A playbook with such a wait is not read; nor would it be run."""
    book = playbook("  - step: a\n    run: [pinned]\n    wait: {gone: draining}\n")
    step = replace(book.steps[0], run=("restart",))
    played = play(replace(book, steps=(step,)), Commands({}), path, desk=Desk(["prod"]))
    assert played.commands.ran == [] and played.desk.asked == []
    assert "a wait would repeat it" in played.step("a")["not_run"]


def test_a_value_that_makes_an_option_of_a_word_is_not_run(path: Path) -> None:
    book = playbook("  - step: a\n    run: [triage, --for=1s]\n", "given: {}\n")
    step = replace(book.steps[0], run=("triage", "--re{x}"))
    order = Order(LIVE, given={"x": "cord=/etc/cron.d/evil"})
    played = play(replace(book, steps=(step,)), Commands({}), path, order=order)
    assert played.commands.ran == []
    assert "--record is for the run to say" in played.step("a")["not_run"]


def test_a_value_that_was_not_given_is_named(path: Path) -> None:
    book = playbook("  - step: a\n    run: [compare, '{well}']\n    optional: true\n",
                    "given: {well: {ask: q, optional: true}}\n")  # fmt: skip
    played = play(book, Commands({}), path)
    assert played.commands.ran == []
    assert played.step("a")["not_run"] == "no well was given (--set well=...)"
    assert not played.ended.stopped


def test_a_recording_stands_beside_what_it_is_compared_with(path: Path) -> None:
    book = playbook("  - step: a\n    run: [compare, good.tar.zst]\n")
    target = replace(LIVE, options=(("--from", "/kept/now"),), recording=True)
    played = play(book, Commands({"compare": [Ran(0, "")]}), path, order=Order(target))
    assert played.commands.ran[0][:3] == ["compare", "good.tar.zst", "/kept/now"]


def test_each_look_of_a_wait_is_kept_in_a_place_of_its_own(tmp_path: Path) -> None:
    book = playbook("  - step: a\n    run: [pinned]\n    wait: {gone: draining, every: 1s, at_most: 30s}\n")
    kept = tmp_path / "kept"
    (kept / "001-pinned").mkdir(parents=True)  # of a look that was interrupted before
    commands = Commands({"pinned": [report("draining"), report()]})
    order = Order(LIVE, record=kept)
    run = commands.__call__

    def recording(words: list[str], **more: object) -> Ran:
        place = Path(words[words.index("--record") + 1])
        assert not place.exists(), "a recording is never written over"
        place.mkdir()
        return run(words, **more)  # type: ignore[arg-type]

    played = play(book, recording, tmp_path / "t.jsonl", order=order)  # type: ignore[arg-type]
    assert played.step("a")["looks"] == 2
    assert sorted(p.name for p in kept.iterdir()) == ["001-pinned", "001-pinned-2", "001-pinned-3"]


def test_without_a_plan_nobody_is_asked(path: Path) -> None:
    played = play(RESTART, Commands({"restart": [Ran(64, "pdctl: units unknown")]}), path, desk=Desk(["prod"]))
    assert played.desk.asked == [] and len(played.commands.ran) == 1
    assert "could not be told (exit 64)" in played.step("restart")["not_run"]


def test_a_load_is_agreed_to_each_time_or_for_the_run(path: Path) -> None:
    book = playbook("  - step: a\n    run: [probe, --load]\n    next: [{exit: 0, go: a, at_most: 2}]\n")
    each = play(book, Commands({"probe": [report()]}), path, desk=Desk(["y", "y", "n"]))
    assert [("--plan" in words) for words in each.commands.ran] == [True, False, True, False, True]
    rest = play(book, Commands({"probe": [report()]}), path.with_name("u.jsonl"), desk=Desk(["a"]))
    assert [("--plan" in words) for words in rest.commands.ran] == [True, False, False, False]


def test_a_failed_action_leads_where_the_playbook_says(path: Path) -> None:
    commands = Commands({"restart": [Ran(0, ""), Ran(75, "pdctl: decode-0 did not start")]})
    played = play(RESTART, commands, path, desk=Desk(["prod"]))
    assert (played.steps, played.ended.verdict) == (["restart", "failed"], Status.CRITICAL)


# --- questions ----------------------------------------------------------------------------------------------------

ASK = playbook("""\
  - step: question
    ask: Do clients still hang?
    answers: {"yes": hang, "no": calm}
    unattended: "no"
  - step: hang
    end: critical
  - step: calm
    end: ok
""")


def test_an_answer_may_be_its_beginning_and_is_asked_for_again_until_it_is_one(path: Path) -> None:
    played = play(ASK, Commands({}), path, desk=Desk(["maybe", "", "Y"]))
    assert played.steps[-1] == "hang" and len(played.desk.asked) == 3


def test_where_nobody_is_asked_the_playbook_answers(path: Path) -> None:
    played = play(ASK, Commands({}), path, order=Order(LIVE, attended=False, unattended=True))
    assert played.steps[-1] == "calm" and played.desk.asked == []
    assert "(nobody was asked)" in played.text


def test_in_a_pipe_a_question_stops_the_run(path: Path) -> None:
    played = play(ASK, Commands({}), path, order=Order(LIVE, attended=False))
    assert played.ended.stopped and played.ended.verdict is Status.UNKNOWN


# --- waits and loops ----------------------------------------------------------------------------------------------

WAIT = playbook("""\
  - step: wait
    run: [pinned, --for, 20s]
    wait: {gone: request-pinned, every: 10s, at_most: 45s}
    next: [{found: request-pinned, go: still}]
  - step: left
    end: ok
  - step: still
    end: critical
""")


def test_a_wait_looks_until_it_is_gone(path: Path) -> None:
    looks = [report("request-pinned"), report("request-pinned"), report()]
    played = play(WAIT, Commands({"pinned": looks}), path)
    assert played.clock.slept == [10.0, 10.0]
    assert played.steps == ["wait", "left"] and played.step("wait")["looks"] == 3


def test_a_wait_has_an_end(path: Path) -> None:
    played = play(WAIT, Commands({"pinned": [report("request-pinned")]}), path)
    assert sum(played.clock.slept) < 45 and played.steps[-1] == "still"


def test_a_wait_that_was_in_vain_is_told(path: Path) -> None:
    book = playbook("  - step: a\n    run: [pinned]\n    wait: {gone: draining, every: 10s, at_most: 30s}\n")
    played = play(book, Commands({"pinned": [report("draining")]}), path)
    assert "! waited in vain for draining to be gone" in played.text
    there = playbook("  - step: a\n    run: [pinned]\n    wait: {there: [draining, peer-stale]}\n")
    target = replace(LIVE, recording=True)
    played = play(there, Commands({"pinned": [report()]}), path.with_name("u.jsonl"), order=Order(target))
    assert played.step("a")["in_vain"] == "draining or peer-stale to be there; a recording does not change"
    met = play(book, Commands({"pinned": [report()]}), path.with_name("v.jsonl"))
    assert "in vain" not in met.text


def test_a_look_that_sees_nothing_does_not_end_a_wait(path: Path) -> None:
    played = play(WAIT, Commands({"pinned": [report(status="unknown"), report()]}), path)
    assert played.step("wait")["looks"] == 2


def test_a_recording_is_looked_at_once_and_not_waited_for(path: Path) -> None:
    book = playbook("  - step: rest\n    wait: {time: 5m}\n" + WAIT_BODY)
    order = Order(replace(LIVE, options=(("--from", "/c"),), recording=True))
    played = play(book, Commands({"pinned": [report("request-pinned")]}), path, order=order)
    assert played.clock.slept == [] and played.step("wait")["looks"] == 1
    assert played.commands.ran[0][-2:] == ["--from", "/c"]


WAIT_BODY = """\
  - step: wait
    run: [pinned]
    wait: {gone: request-pinned, every: 10s, at_most: 45s}
"""


def test_a_time_is_waited(path: Path) -> None:
    assert play(playbook("  - step: a\n    wait: {time: 5m}\n"), Commands({}), path).clock.slept == [300.0]


def test_rounds_bound_every_loop(path: Path) -> None:
    book = playbook("  - step: a\n    run: [pinned]\n    next: [{exit: 0, go: a, at_most: 1000}]\n")
    played = play(book, Commands({"pinned": [report()]}), path, order=Order(LIVE, rounds=4))
    assert played.steps == ["a"] * 5


def test_no_run_goes_on_for_ever_whatever_an_operator_answers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdctl.runbook.run.MOST_STEPS", 30)
    book = playbook("  - step: a\n    ask: Again?\n    answers: {y: a, n: end}\n")
    played = play(book, Commands({}), path, desk=Desk(["y"] * 5000))
    assert len(played.steps) == 30 and played.ended.stopped and played.ended.why == "too many steps"


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ran", [Ran(70, "pdctl: internal error"), Ran(64, ""), Ran(0, "no report"), Ran(137, "")])
def test_a_command_that_breaks_stops_the_run_and_nothing_ends_well(ran: Ran, path: Path) -> None:
    played = play(LOOK, Commands({"pinned": [ran]}), path)
    assert played.ended.stopped and played.ended.verdict is Status.UNKNOWN
    assert played.step("look")["done"] == "broken"


def test_a_value_that_would_be_an_option_is_not_run(path: Path) -> None:
    book = playbook("  - step: a\n    run: [restart, '{x}']\n", "given: {x: {ask: q}}\n")
    played = play(book, Commands({}), path, order=Order(LIVE, given={"x": "--yes"}), desk=Desk(["prod"]))
    assert played.commands.ran == [] and "option" in played.step("a")["not_run"]


def test_a_playbook_paints_over_nothing_that_is_agreed_to(path: Path) -> None:
    """Its words stand on the terminal before a person says yes to them."""
    book = playbook(r"""
  - step: a
    run: [mute, request-pinned, --why, "x\e[2K\rall is well\npassword=hunter2hunter2 \u202e"]
    next: [{not_run: true, go: b}]
  - step: b
    ask: "well\e]0;title\a?"
    answers: {"yes": c}
  - step: c
    run: [logs, --grep, "\e[2J"]
""")
    played = play(book, Commands({"logs": [Ran(0, "")]}), path, desk=Desk(["no", "yes"]))
    shown = "\n".join(played.desk.shown)
    assert played.steps == ["a", "b", "c"]
    assert "all is well" in shown and "--grep" in shown
    assert not set(shown) & {"\x1b", "\r", "\x07", "\u202e"}
    assert "hunter2" not in shown + path.read_text() + played.text


def test_hostile_words_and_secrets_are_shown_escaped_and_masked(path: Path) -> None:
    output = "\x1b[31mred\x1b[0m \x1b]0;title\x07 api_key=sk-abcdefghijklmnop1234 \u202e"
    nasty = report("request-pinned", subject="prefill-0")
    findings = [{**nasty.report["findings"][0], "summary": output}] if nasty.report else []
    came = replace(nasty, output=output, report={**(nasty.report or {}), "findings": findings})
    played = play(LOOK, Commands({"pinned": [came], "stacks": [report()]}), path)
    raw = path.read_text("utf-8")
    for text in (raw, played.text):
        assert "abcdefghijklmnop1234" not in text
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert "red" in played.text
