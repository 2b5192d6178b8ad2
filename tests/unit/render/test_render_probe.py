"""A probe as people read it: marks with their words, whole lines, hostile text made harmless, nothing left out."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pdctl.model.cluster import Instance, Role
from pdctl.model.finding import InstanceReport, Report
from pdctl.model.probe import Attempt, Cell, Course, Fate, Matrix, Row, Spread, Trial
from pdctl.model.probe_compare import Compared, Comparison, Measure, Saved, Side, Verdict
from pdctl.model.probe_plan import LeftOut, ProbePlan, Stage, Way
from pdctl.render.look import Look
from pdctl.render.probe import (
    attempt_value,
    cell_words,
    load_line,
    matrix_lines,
    matrix_value,
    plan_lines,
    plan_value,
    probe_lines,
    seconds,
)
from pdctl.render.probe_compare import compare_lines, compare_value, overall, sentence, words
from pdctl.render.text import columns

START = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)
ONE = Spread(1, 0.31, 0.31, 0.31)
MANY = Spread(16, 0.31, 0.42, 0.42)
NOT_RUN = Cell(Fate.NOT_RUN, why="needs --load")
EVIL = "router\x1b[31m-0"


def row(to: str = "router-0", **cells: Cell) -> Row:
    return Row(to, "direct", "router", {trial: cells.get(trial.value, NOT_RUN) for trial in Trial}, 17, 3)


def lines(matrix: Matrix, **look: object) -> list[str]:
    return list(matrix_lines(matrix, Look(**look)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cell", "trial", "said"),
    [
        (Cell(Fate.GOOD, 1, 1, took=ONE), Trial.ONE, "ok 0.31 s"),
        (Cell(Fate.GOOD, 16, 16, took=MANY), Trial.MANY, "ok 16/16"),
        (Cell(Fate.GOOD, 5, 5, idle_ok_s=30.0), Trial.IDLE, "ok 30 s"),
        (Cell(Fate.GOOD, 16, 16), Trial.ABORTS, "ok after"),
        (Cell(Fate.CLOSED, 5, 2, idle_fails_s=6.0), Trial.IDLE, "closed, 6 s"),
        (Cell(Fate.HUNG, 24, 21), Trial.ROUNDS, "3/24 hang"),
        (Cell(Fate.CUT, 16, 14), Trial.MANY, "2/16 cut off"),
        (Cell(Fate.FAILED, 16, 0), Trial.MANY, "16/16 fail"),
        (Cell(Fate.WRONG, 16, 15), Trial.MANY, "1/16 wrong"),
        (NOT_RUN, Trial.MANY, "not tried"),
    ],
)
def test_a_cell_in_words(cell: Cell, trial: Trial, said: str) -> None:
    assert cell_words(cell, trial) == said


def test_times_as_people_read_them() -> None:
    assert [seconds(s) for s in (0.0004, 0.0123, 0.0996, 0.3149, 9.994, 12.34)] == [
        "0.4 ms", "12 ms", "0.10 s", "0.31 s", "9.99 s", "12.3 s",
    ]  # fmt: skip


def test_the_table_stands_in_columns_with_a_mark_and_a_word_each() -> None:
    good, bad = Cell(Fate.GOOD, 1, 1, took=ONE, first=ONE), Cell(Fate.HUNG, 24, 21)
    matrix = Matrix((row(one=good, rounds=bad), row("proxy-0", one=good)), (Trial.ONE, Trial.ROUNDS))
    shown = lines(matrix)
    assert shown[1:4] == [
        "  path      one          rounds",
        "  router-0  ✓ ok 0.31 s  ✗ 3/24 hang",
        "  proxy-0   ✓ ok 0.31 s  – not tried",
    ]
    assert "  router-0 one  whole 0.31 s" in shown
    assert "  router-0: 17 connections opened, 3 requests over a used one" in shown


def test_a_narrow_terminal_gets_a_line_for_each_cell() -> None:
    matrix = Matrix((row(one=Cell(Fate.GOOD, 1, 1, took=ONE), many=Cell(Fate.CUT, 16, 2)),), (Trial.ONE, Trial.MANY))
    shown = lines(matrix, width=30, ascii=True)
    assert "    + one: ok 0.31 s" in shown and "    x many: 14/16 cut off" in shown
    assert max(map(columns, shown)) <= 30


def test_a_path_of_which_nothing_was_tried_has_no_row_but_its_reason() -> None:
    report = Report("c", START, START, 1, instances=(InstanceReport("router-0", "router", None, True),))
    matrix = Matrix((row(), row("proxy-0", one=Cell(Fate.GOOD, 1, 1, took=ONE))), (Trial.ONE,))
    shown = "\n".join(probe_lines(report, matrix, ["decode-0: no transfer"], Look()))
    assert "  router-0 " not in shown.partition("Times")[0]
    assert "health, one, many, rounds, idle and aborts at router-0: needs --load" in " ".join(shown.split())
    assert "- decode-0: no transfer" in shown


def test_hostile_names_and_reasons_are_shown_as_what_they_are() -> None:
    matrix = Matrix((row(EVIL, one=Cell(Fate.GOOD, 1, 1, took=ONE)),), (Trial.ONE,), ("a\x1b[2Jb",))
    report = Report("c", START, START, 1)
    shown = "\n".join(probe_lines(report, matrix, ["n\x07"], Look()))
    assert "\x1b" not in shown and "\x07" not in shown
    assert "router\\x1b[31m-0" in shown


def test_colours_take_no_columns() -> None:
    matrix = Matrix((row(one=Cell(Fate.GOOD, 1, 1, took=ONE)),), (Trial.ONE,))
    plain, coloured = lines(matrix), lines(matrix, colour=True)
    assert [columns(line) for line in coloured] == [columns(line) for line in plain]


def test_the_matrix_for_programs() -> None:
    cell = Cell(Fate.HUNG, 24, 21, {"read-timeout": 3}, MANY, None, MANY, hung_at=(3,))
    value = json.loads(json.dumps(matrix_value(Matrix((row(rounds=cell),), (Trial.ROUNDS,), ("x",)))))
    (path,) = value["paths"]
    assert path["cells"]["rounds"] == {
        "fate": "hung", "tried": 24, "good": 21, "errors": {"read-timeout": 3},
        "first_s": {"count": 16, "median": 0.31, "p95": 0.42, "most": 0.42}, "between_s": None,
        "took_s": {"count": 16, "median": 0.31, "p95": 0.42, "most": 0.42}, "idle_ok_s": None, "idle_fails_s": None,
        "closed_after_s": None, "hung_at": [3],
    }  # fmt: skip
    assert path["cells"]["one"] == {"fate": "not run", "tried": 0, "good": 0, "why": "needs --load"}
    assert value["remarks"] == ["x"]


def test_what_was_counted_meanwhile() -> None:
    courses = (
        Course("decode-0", "running", 9, 0.0, 16.0, 0.0), Course("decode-0", "queue", 9, 0.0, 2.0, 1.0, live=False),
        Course("prefill-0", "inflight", 9, 0.0, 0.0, 0.0),
    )  # fmt: skip
    matrix = Matrix((row(one=Cell(Fate.GOOD, 1, 1, took=ONE)),), (Trial.ONE,), (), courses)
    shown = "\n".join(probe_lines(Report("c", START, START, 1), matrix, (), Look()))
    assert "  decode-0: running 0 to 16, 0 at the end; queue (gauge) 0 to 2, 1 at the end" in shown
    assert "prefill-0: inflight" not in shown
    assert [c["most"] for c in matrix_value(matrix)["counts"]] == [16, 2, 0]


def test_an_attempt_for_programs_holds_no_secret() -> None:
    attempt = Attempt("router-0", status=401, detail="bad key sk-abcdefgh12345678", took=0.1)
    value = attempt_value(attempt)
    assert "sk-abc" not in json.dumps(value)
    assert (value["to"], value["status"], value["took"]) == ("router-0", 401, 0.1)
    assert "line" not in value


# --- the plan ---------------------------------------------------------------------------------------------------------

WAY = Way(Instance("decode-0", Role.DECODE, "http://user:hidden-pw@192.0.2.1:30000"), half=True, note="no transfer")
PLAN = ProbePlan(
    (
        (Stage(WAY, Trial.HEALTH, 1, seconds=1.0),),
        (Stage(WAY, Trial.ONE, 2, tokens=32, seconds=1.0),),
        (Stage(WAY, Trial.IDLE, 5, tokens=40, gaps=(1.0, 4.0), seconds=5.0),),
        (Stage(WAY, Trial.ROUNDS, 26, 4, 832, agents=4, rounds=6, seconds=6.0),),
        (Stage(WAY, Trial.MANY, 34, 16, 1088, repeat=2, seconds=6.0),),
        (Stage(WAY, Trial.ABORTS, 17, 16, 520, seconds=7.0),),
    ),
    (LeftOut("router-0", Trial.MANY, "needs --load"),),
)


def test_a_plan_in_words() -> None:
    shown = " ".join(" ".join(plan_lines(PLAN, 300.0, Look())).split())
    assert (
        "up to 85 requests, 16 at once, up to 2512 new tokens, about 26 s where all is answered, 300 s at most" in shown
    )
    for said in (
        "1. health at decode-0: one health check", "1 generation on a fresh connection",
        "a connection used again after 1, 4 s without a request",
        "4 conversations of 6 rounds, each on one kept-alive connection, streamed",
        "16 generations at once, streamed, 2 times", "16 requests whose clients leave within a second",
        "decode-0: no transfer",
    ):  # fmt: skip
        assert said in shown
    assert "85 requests" in load_line(PLAN.load, 300.0)


def test_a_plan_for_programs_shows_no_password() -> None:
    value = plan_value(PLAN, 300.0)
    assert "hidden-pw" not in json.dumps(value)
    assert value["load"] == {"requests": 85, "at_once": 16, "tokens": 2512, "seconds": 26.0, "deadline_s": 300.0}
    assert value["left_out"] == [{"to": "router-0", "trial": "many", "why": "needs --load"}]
    assert value["notes"] == {"decode-0": "no transfer"}


# --- two probes -------------------------------------------------------------------------------------------------------

SAME = Comparison("router-0", "direct", "many", Measure.WHOLE, Side(6, 0.31), Side(7, 0.32), Verdict.SAME, -0.03, 0.05)
WORSE = replace(SAME, b=Side(6, 0.5), verdict=Verdict.WORSE, low=0.1, high=0.3)
FEW = replace(SAME, a=Side(1, 0.3), verdict=Verdict.FEW, low=None, high=None)
FAILED = Comparison(
    "router-0", "direct", "many", Measure.FAILURES, Side(16, 0.0), Side(16, 9.0), Verdict.WORSE, chance=1e-4
)
A, B = Saved("prod\x1b", START, (Attempt("router-0", status=200),), "before"), Saved("prod", None, ())


@pytest.mark.parametrize(
    ("rows", "verdict", "said"),
    [
        ((), Verdict.FEW, "cannot be compared"),
        ((FEW,), Verdict.FEW, "cannot be compared"),
        ((SAME, FEW), Verdict.SAME, "none of 1 difference is more than noise (1 more had too few"),
        (
            (SAME, WORSE),
            Verdict.WORSE,
            "B is worse in whole answer at router-0 (many); 1 other difference within noise",
        ),
        ((replace(WORSE, verdict=Verdict.BETTER),), Verdict.BETTER, "B is better in whole answer"),
        ((FAILED,), Verdict.WORSE, "B is worse in failures at router-0 (many)"),
    ],
)
def test_the_sentence_says_no_more_than_it_can(rows: tuple[Comparison, ...], verdict: Verdict, said: str) -> None:
    compared = Compared(rows, 0.99)
    assert overall(compared) is verdict
    assert said in sentence(compared)


def test_a_comparison_in_words() -> None:
    assert words(SAME, 0.99) == (
        "whole answer: 0.31 s against 0.32 s (+0.010 s, 99.0% interval -0.030 to +0.050 s): within noise"
    )
    assert words(WORSE, 0.99).endswith("B takes longer")
    assert "too small to matter" in words(replace(SAME, low=0.001), 0.99)
    assert "1 moment looked at, too few" in words(FEW, 0.99)
    assert words(FAILED, 0.99) == "failed: 0 of 16 against 9 of 16"
    assert words(replace(FAILED, verdict=Verdict.SAME, b=Side(16, 1.0)), 0.99).endswith("may be chance")


def test_two_probes_for_people_and_for_programs() -> None:
    compared = Compared((SAME, FAILED), 0.99, only_b=("one at proxy-0",))
    shown = "\n".join(compare_lines(compared, A, B, Look()))
    assert "\x1b" not in shown
    assert "A: prod\\x1b, 2026-11-29 20:00:00 UTC, 1 request, before" in shown
    assert "In B alone: one at proxy-0" in shown
    assert "two runs at two times" in " ".join(shown.split())
    value = json.loads(json.dumps(compare_value(compared, A, B)))
    assert (value["schema"], value["verdict"]) == ("pdctl.probe-compare/1", "worse")
    assert value["rows"][1]["chance"] == 1e-4
    assert value["a"]["note"] == "before"
