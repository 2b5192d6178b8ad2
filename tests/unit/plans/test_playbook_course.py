"""Where a step leads, and how a run ends: never well on what was not seen."""

from __future__ import annotations

import pytest

from pdctl.model.finding import Status
from pdctl.model.playbook import END, Condition, Done, Found, Playbook, Result
from pdctl.plans.playbook import read_playbook
from pdctl.plans.playbook_course import Course, begun, done_of, gone, holds, undone_in, verdict_of, way_on


def found(name: str, subject: str = "prefill-0", muted: bool = False) -> Found:
    return Found(name, "critical", "certain", subject, "...", muted=muted)


PINNED = Result(2, Status.CRITICAL, (found("request-pinned"), found("draining", "decode-0")))
CALM = Result(0, Status.OK, ruled_out=("request-pinned",))
BLIND = Result(3, Status.UNKNOWN)
BROKEN = Result(70, None, why="internal error")
NO_REPORT = Result(0, None)
NOT_RUN = Result(why="nobody is there to agree")


def playbook(body: str) -> Playbook:
    return read_playbook(f"about: x\nsteps:\n{body}", "try", "try.yaml")


LOOK = playbook("""\
  - step: look
    run: [triage]
    next:
      - {found: [request-pinned, transfer-stuck], go: stuck}
      - {not_run: true, go: left}
      - {exit: [64, 70], go: broke}
      - {status: unknown, go: blind}
      - {go: calm}
  - step: stuck
    end: critical
  - step: left
    end: ok
  - step: broke
    end: as-found
  - step: blind
    end: unknown
  - step: calm
    end: ok
""")


@pytest.mark.parametrize(
    ("result", "goes"),
    [(PINNED, "stuck"), (NOT_RUN, "left"), (BROKEN, "broke"), (BLIND, "blind"), (CALM, "calm")],
)
def test_the_first_case_that_holds_is_taken(result: Result, goes: str) -> None:
    assert way_on(LOOK, LOOK.steps[0], result, begun(LOOK)).go == goes


def test_the_subjects_of_the_findings_tested_go_along() -> None:
    assert way_on(LOOK, LOOK.steps[0], PINNED, begun(LOOK)).subjects == ("prefill-0",)


def test_a_muted_finding_is_not_found() -> None:
    muted = Result(0, Status.OK, (found("request-pinned", muted=True),))
    assert way_on(LOOK, LOOK.steps[0], muted, begun(LOOK)).go == "calm"


@pytest.mark.parametrize("result", [NO_REPORT, BROKEN, NOT_RUN, Result(130), Result(-9)])
@pytest.mark.parametrize(
    "test",
    [Condition(found=("request-pinned",)), Condition(missing=("request-pinned",)), Condition(status=(Status.OK,)),
     Condition(ruled_out=("request-pinned",))],
)  # fmt: skip
def test_nothing_is_concluded_from_a_report_that_did_not_come(result: Result, test: Condition) -> None:
    assert not holds(test, result)


def test_what_was_not_seen_is_not_gone() -> None:
    assert gone(CALM, ("request-pinned",))
    assert not gone(PINNED, ("request-pinned",))
    assert not any(gone(result, ("request-pinned",)) for result in (BLIND, BROKEN, NO_REPORT, NOT_RUN))


PLAIN = playbook("  - step: look\n    run: [triage]\n  - step: done\n    end: ok\n")


@pytest.mark.parametrize(("result", "done"), [(BROKEN, Done.BROKEN), (NO_REPORT, Done.BROKEN), (NOT_RUN, Done.NOT_RUN)])
def test_a_step_that_was_not_done_leads_on_only_by_a_case_that_says_so(result: Result, done: Done) -> None:
    assert done_of(PLAIN.steps[0], result)[0] is done
    way = way_on(PLAIN, PLAIN.steps[0], result, begun(PLAIN))
    assert way.go is None and way.why


def test_an_optional_step_is_passed_over_and_told() -> None:
    text = "  - step: look\n    run: [triage]\n    optional: true\n  - step: done\n    end: ok\n"
    book = playbook(text)
    way = way_on(book, book.steps[0], BROKEN, begun(book))
    assert way.go == "done" and "exit 70" in way.why
    course = begun(book).visited(book.steps[0], BROKEN, way)
    assert undone_in(book, course) == ("look",)
    assert verdict_of(book, book.steps[1], course, stopped=False) is Status.OK


GATE = playbook("""\
  - step: probe
    run: [probe]
    expect: {exit: 0, missing: responses-lost}
    otherwise: failed
  - step: look
    run: [pinned]
    expect: {ruled_out: request-pinned}
  - step: passed
    end: ok
  - step: failed
    end: critical
""")


def test_what_is_not_as_expected_goes_its_own_way_or_stops() -> None:
    probe, look = GATE.steps[:2]
    way = way_on(GATE, probe, Result(2, Status.CRITICAL, (found("responses-lost"),)), begun(GATE))
    assert way.go == "failed" and way.why == "exit 2, not 0; responses-lost was found"
    assert way_on(GATE, probe, CALM, begun(GATE)).go == "look"
    stopped = way_on(GATE, look, Result(0, Status.OK), begun(GATE))
    assert stopped.go is None and "request-pinned was not ruled out" in stopped.why


def test_a_way_back_is_taken_so_often_and_no_more() -> None:
    text = "  - step: a\n    run: [triage]\n    next: [{exit: 0, go: a, at_most: 3}]\n  - step: b\n    end: ok\n"
    book = playbook(text)
    for rounds, visits in ((None, 4), (1, 2), (0, 1)):
        course: Course = begun(book)
        while course.next == "a":
            course = course.visited(book.steps[0], CALM, way_on(book, book.steps[0], CALM, course, rounds))
        assert course.visits == {"a": visits}


def test_a_case_may_look_at_an_earlier_step() -> None:
    book = playbook("""\
  - step: look
    run: [triage]
  - step: ps
    run: [ps]
    next: [{of: look, found: request-pinned, go: stuck}]
  - step: calm
    end: ok
  - step: stuck
    end: critical
""")
    look, ps = book.steps[:2]
    for result, goes in ((PINNED, "stuck"), (CALM, "calm")):
        course = begun(book).visited(look, result, way_on(book, look, result, begun(book)))
        assert way_on(book, ps, CALM, course).go == goes


def ended(results: dict[str, Result], last: str, stopped: bool = False) -> Status:
    book = LOOK
    return verdict_of(book, book.step(last), Course(END, results=results), stopped)


def test_no_run_ends_well_that_left_a_step_undone() -> None:
    assert ended({"look": CALM}, "calm") is Status.OK
    assert ended({"look": NOT_RUN}, "left") is Status.UNKNOWN
    assert ended({"look": BROKEN}, "calm") is Status.UNKNOWN
    assert ended({"look": NO_REPORT}, "calm") is Status.UNKNOWN
    assert ended({"look": CALM}, "look", stopped=True) is Status.UNKNOWN


def test_without_a_verdict_of_its_own_a_run_ends_with_the_worst_that_its_last_looks_found() -> None:
    assert ended({"look": PINNED}, "broke") is Status.CRITICAL
    assert ended({"look": BLIND}, "broke") is Status.UNKNOWN
    assert ended({"look": CALM}, "broke") is Status.OK
    assert ended({"look": PINNED}, "look", stopped=True) is Status.CRITICAL
    assert ended({}, "broke") is Status.UNKNOWN, "nothing was judged"


def test_an_end_that_cannot_tell_hides_nothing_critical() -> None:
    assert ended({"look": CALM}, "blind") is Status.UNKNOWN
    assert ended({"look": BLIND}, "blind") is Status.UNKNOWN
    assert ended({"look": PINNED}, "blind") is Status.CRITICAL
