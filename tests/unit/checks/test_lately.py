"""The newest part of a long window: what it shows is found although the whole does not show it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from scene import START, D, P, Scene, batch, pair, times

from pdctl.checks import judge
from pdctl.checks.lately import tail, with_lately
from pdctl.model.answer import Fact
from pdctl.model.engine import EngineMetrics, ServerInfo
from pdctl.model.finding import Confidence, Finding, Report, RuledOut, Severity, Unchecked
from pdctl.model.rank import Rank
from pdctl.model.window import Window

PINNED = Finding("request-pinned", Severity.CRITICAL, Confidence.LIKELY, P, "1 request(s) stand")
STALE = Finding("gauge-stale", Severity.UNKNOWN, Confidence.CERTAIN, P, "stale")
DRAINING = Finding("draining", Severity.INFO, Confidence.LIKELY, P, "falls")


def report(*findings: Finding, **more: object) -> Report:
    return replace(Report("test", START, START, 9, findings), **more)  # type: ignore[arg-type]


def names(of: Report) -> list[str]:
    return [f.name for f in of.findings]


def test_a_fault_of_the_newest_part_is_added_and_what_the_whole_said_of_it_taken_back() -> None:
    whole = report(
        ruled_out=(RuledOut("request-pinned", P, "moved"), RuledOut("request-pinned", D, "moved")),
        unchecked=(Unchecked("request-pinned", P, "too few"), Unchecked("draining", P, "x")),
    )
    done = with_lately(whole, [report(PINNED)])
    assert names(done) == ["request-pinned"]
    assert [(r.what, r.subject) for r in done.ruled_out] == [("request-pinned", D)]
    assert [u.what for u in done.unchecked] == ["draining"]


def test_what_few_looks_cannot_tell_more_looks_may() -> None:
    assert names(with_lately(report(), [report(STALE, DRAINING)])) == []


def test_what_the_whole_found_stands_as_it_found_it() -> None:
    longer = replace(PINNED, summary="1 request(s) stand for 600 s")
    twice = report(longer, replace(longer, summary="2 in the other queue"))
    assert with_lately(twice, [report(PINNED)]).findings == twice.findings


def test_another_rank_is_another_finding_and_the_worst_comes_first() -> None:
    warning = replace(PINNED, name="decode-starved", severity=Severity.WARNING)
    done = with_lately(report(warning), [report(PINNED), report(replace(PINNED, rank=Rank(dp=1)), PINNED)])
    assert [(f.name, f.rank.dp) for f in done.findings] == [
        ("request-pinned", None), ("request-pinned", 1), ("decode-starved", None),
    ]  # fmt: skip


def test_the_tail_is_the_last_seconds_with_what_still_holds() -> None:
    scene = Scene("0.5.23")
    for t in times(60.0):
        scene.page(t, P, inflight=t)
    scene.log(P, batch(3.0))
    short = tail(scene.window(), 10.0)
    pages = short.seen(P, Fact.METRICS, EngineMetrics)
    assert [at.t for at in pages] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert pages[0].seen.at == START + timedelta(seconds=50)
    assert short.start == pages[0].seen.at and short.end == scene.window().end
    info = short.last(P, Fact.SERVER_INFO, ServerInfo)
    assert info is not None and info.t == -50.0 and short.timeline(P, Fact.LOG)


def test_a_window_no_longer_than_that_is_its_own_tail() -> None:
    scene = Scene()
    scene.page(4.0, P, inflight=1)
    window = scene.window()
    assert tail(window, 4.0) is window


def test_a_request_that_is_stuck_since_a_minute_is_found_in_the_tail_of_an_hour() -> None:
    """An engine that wedged after half an hour of work: the whole sees tokens, its end sees none."""
    scene = Scene("0.5.23")
    for n in range(0, 1801, 30):
        stuck = n > 1700
        tokens = 50.0 * min(n, 1700)
        scene.page(float(n), D, running=3, generation_tokens=tokens, realtime_tokens=tokens)
        scene.loads(float(n), D, running=3, used_tokens=int(min(n, 1700)) * 7 % 9000, frozen_at=float(n))
        assert stuck or tokens == 50.0 * n
    window: Window = scene.window()
    whole, end = (judge(w, pair()) for w in (window, tail(window, 90.0)))
    assert "engine-wedged" not in names(whole) and "engine-wedged" in names(end)
    assert "engine-wedged" in names(with_lately(whole, [end]))
