"""The screen: whole words, words beside marks, nothing green that was not measured, nothing hidden."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from render_reports import FULL, GOLDEN, HOSTILE, MANY, NO_HOST, PINNED, PREFILL, SECRET, STALE, report

from pdctl.model.finding import Finding, InstanceReport, Report, Unchecked
from pdctl.render.human import finding_lines, triage_lines
from pdctl.render.look import Look
from pdctl.render.pinned import pinned_lines
from pdctl.render.short import short_line
from pdctl.render.text import columns

LOOKS = [Look(width=w, ascii=a, colour=c) for w in (20, 40, 60, 80, 200) for a in (False, True) for c in (False, True)]


def words_of(lines: list[str]) -> list[str]:
    return [w for line in lines for w in re.sub(r"\x1b\[[\d;]*m", "", line).split() if w != "\\"]


@pytest.mark.parametrize("name", sorted(GOLDEN))
@pytest.mark.parametrize("render", [triage_lines, pinned_lines])
def test_the_width_changes_the_lines_and_no_word(name: str, render: object) -> None:
    shown = {look.width: words_of(list(render(GOLDEN[name], look))) for look in LOOKS if not look.ascii}  # type: ignore[operator]
    assert all(words == shown[200] for words in shown.values())


@pytest.mark.parametrize("look", [look for look in LOOKS if look.width >= 60], ids=str)
def test_a_line_is_no_wider_than_the_screen_unless_one_word_is(look: Look) -> None:
    for line in triage_lines(FULL, look):
        longest = max((columns(word) for word in line.split()), default=0)
        assert columns(line) <= look.width or longest + len(line) - len(line.lstrip()) + len("GET ") > look.width, line


@pytest.mark.parametrize("look", LOOKS, ids=str)
@pytest.mark.parametrize("render", [triage_lines, pinned_lines])
def test_hostile_text_never_reaches_the_terminal_raw(look: Look, render: object) -> None:
    for line in render(HOSTILE, look):  # type: ignore[operator]
        bare = re.sub(r"\x1b\[[\d;]*m", "", line) if look.colour else line
        assert bare.isprintable(), ascii(bare)
        assert SECRET not in bare
        assert not look.ascii or bare.isascii()


def test_a_look_without_colour_has_no_escape_at_all() -> None:
    assert "\x1b" not in "\n".join(triage_lines(FULL, Look())) + "\n".join(pinned_lines(FULL, Look()))
    assert "\x1b[1;31m" in "\n".join(triage_lines(FULL, Look(colour=True)))


def test_colours_change_nothing_but_colours() -> None:
    coloured = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in triage_lines(FULL, Look(colour=True))]
    assert coloured == list(triage_lines(FULL, Look()))


def test_every_severity_is_a_word_not_only_a_mark() -> None:
    text = "\n".join(triage_lines(FULL, Look()))
    assert "CRITICAL" in text
    assert "unknown, certain" in text
    assert "warning, likely" in text


def test_nothing_measured_is_never_called_ok() -> None:
    empty = Report("prod-a", FULL.start, FULL.end, 0)
    dead = report(instances=(InstanceReport("prefill-0", "prefill", None, False, "connect-refused"),))
    for nothing in (empty, dead):
        first = next(triage_lines(nothing, Look(colour=True)))
        assert "OK" not in first
        assert "\x1b[32m" not in first  # green
        assert "nothing was measured" in first
        assert short_line(nothing).startswith("NOT CHECKED ")


def test_an_ok_report_says_no_more_than_what_was_checked() -> None:
    assert next(triage_lines(report(), Look())) == "✓ OK  prod-a: nothing wrong seen in what was checked"


def test_every_unchecked_thing_is_counted_and_grouped_by_its_reason() -> None:
    rows = [*(Unchecked("a", f"i{n}", "why one") for n in range(40)), Unchecked("b", "x", "why two"), NO_HOST]
    lines = list(triage_lines(report(unchecked=tuple(rows)), Look(width=200)))
    at = lines.index("Not checked: 42")
    assert lines[at + 1] == "  – a at i0, i1, i2, i3, i4, i5, i6, i7 and 32 more: why one"
    assert lines[at + 2] == "  – b at x: why two"
    assert lines[at + 3] == "  – script-drift: the inventory names no host"


def test_the_worst_and_surest_finding_leads_whatever_the_order() -> None:
    for findings in ((STALE, PINNED), (PINNED, STALE)):
        lines = list(triage_lines(report(*findings), Look()))
        assert lines[0].endswith("in the request flow at prefill-0 DP2")
        assert lines[2].startswith("  request-pinned, certain: ")


def test_a_next_command_is_whole_and_can_be_pasted() -> None:
    command = "pdctl logs prefill-0 --grep 'timed out after 300.1s in KVPoll' --since '2026-11-29 20:30:00' -o jsonl"
    lines = list(finding_lines(replace(PINNED, next=(command,)), Look(width=60)))
    start = lines.index("  Next") + 1
    pasted = " ".join(line.strip().removesuffix(" \\") for line in lines[start:])
    assert pasted == command
    assert all(line.endswith(" \\") for line in lines[start:-1])
    assert "'timed out after 300.1s in KVPoll'" in "\n".join(lines[start:])


def test_a_next_step_that_is_a_sentence_has_no_backslashes() -> None:
    said = "Look at the router's own log (pdctl logs router-0), and at whoever isn't reading there"
    lines = list(finding_lines(replace(PINNED, next=(said,)), Look(width=40)))
    told = lines[lines.index("  Next") + 1 :]
    assert " ".join(line.strip() for line in told) == said
    assert all(columns(line) <= 40 for line in told)


def test_many_pieces_of_evidence_are_counted() -> None:
    many = replace(PINNED, evidence=tuple(replace(PINNED.evidence[0], saw=f"number {n}") for n in range(9)))
    text = "\n".join(finding_lines(many, Look()))
    assert "number 4" in text
    assert "number 5" not in text
    assert "- and 4 more, in -o json" in text


def test_a_large_cluster_is_grouped_but_what_is_unreadable_is_named() -> None:
    lines = list(triage_lines(MANY, Look()))
    assert "  ✓ 8 decode 0.5.19 answered: decode-0, decode-1, decode-2 and 5 more" in lines
    assert "  ? prefill-0  prefill  0.5.19  not readable: HTTP 404" in lines


def test_chinese_text_stays_and_is_measured_as_the_terminal_does() -> None:
    said = Finding(**{**_fields(PINNED), "summary": "请求 卡住 " * 20})
    for line in finding_lines(said, Look(width=40)):
        assert columns(line) <= 40 or "http" in line or "journalctl" in line
    assert "请求" in "\n".join(finding_lines(said, Look()))


def _fields(finding: Finding) -> dict[str, object]:
    return {name: getattr(finding, name) for name in Finding.__dataclass_fields__}


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        (FULL, "✗ YES  prod-a: stuck between prefill and decode at prefill-0 DP2"),
        (report(), "✓ NO  prod-a: nothing is seen stuck between prefill and decode"),
        (
            report(unchecked=(Unchecked("request-pinned", "prefill-0", "too few samples"),)),
            "? CANNOT TELL  prod-a: whether something is stuck between prefill and decode at prefill-0",
        ),
        (
            report(replace(PINNED, name="scheduler-stopped")),
            "! NO  prod-a: nothing is seen stuck between prefill and decode, but there is another fault",
        ),
        (
            report(replace(PINNED, muted={"note": "known"})),
            "– YES  prod-a: stuck between prefill and decode at prefill-0 DP2, but muted",
        ),
        (
            report(STALE, instances=(PREFILL,)),
            "? CANNOT TELL  prod-a: whether something is stuck between prefill and decode at decode-0",
        ),
    ],
)
def test_pinned_answers_its_one_question_first(what: Report, answer: str) -> None:
    assert next(pinned_lines(what, Look(width=200))) == answer


def test_short_is_one_line_whatever_it_holds() -> None:
    for name, what in GOLDEN.items():
        assert short_line(what).isprintable(), name
    assert short_line(FULL) == (
        "CRITICAL prod-a request-pinned prefill-0 DP2: 2 requests sit in prefill-0's inflight queue and will not leave "
        "by themselves (+1 unknown, 1 warning, 7 not checked)"
    )


def test_a_broken_check_is_told_first() -> None:
    assert next(triage_lines(report(broken=True), Look(width=200))) == (
        "? UNKNOWN  prod-a: a check broke, which is a fault of pdctl; nothing wrong seen in the others"
    )
    first = next(triage_lines(report(PINNED, broken=True), Look(width=200)))
    assert first.endswith(
        " the fault sits in the request flow at prefill-0 DP2; a check broke, which is a fault of pdctl"
    )
    assert short_line(report(broken=True)).startswith("UNKNOWN prod-a: a check broke")


def test_an_instance_with_a_long_name_keeps_its_line_readable() -> None:
    row = InstanceReport("prefill-in-the-second-row-of-the-third-hall", "prefill", "0.5.19", False, "read-timeout")
    lines = list(triage_lines(report(instances=(row,)), Look(width=60)))
    at = lines.index("  ? prefill-in-the-second-row-of-the-third-hall  prefill  0.5.19")
    assert lines[at + 1] == "      not readable: read-timeout"
