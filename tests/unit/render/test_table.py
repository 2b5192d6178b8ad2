"""The screen and the pipe: stable words, gaps told, nothing cut off in silence."""

from __future__ import annotations

import re

import pytest
from series_world import CLUSTER, JUST_PREFILL, loads, missed, page, router

from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import LoadRow
from pdctl.render.look import Look
from pdctl.render.series import Tally, step
from pdctl.render.table import History, sample_line, table_lines
from pdctl.render.text import columns


def shown(*groups: list[object], cluster: Cluster = CLUSTER, ranks: bool = False) -> History:
    tally, history = Tally(), History()
    for group in groups:
        tally, sample = step(tally, group, cluster, ranks)  # type: ignore[arg-type]
        history.add(sample)
    return history


def prefill_round(t: float, inflight: int, live: int, requests: float = 10.0) -> list[object]:
    return [
        page(
            t,
            "prefill-0",
            http=2.0,
            inflight=inflight,
            bootstrap=0,
            queue=0,
            running=1,
            token_usage=0.25,
            requests=requests,
        ),
        loads(t, "prefill-0", LoadRow(0, inflight=live, bootstrap=0, waiting=0, running=0, token_usage=0.25)),
    ]


def test_the_whole_screen_of_a_prefill() -> None:
    history = shown(prefill_round(0, 3, 2), prefill_round(1, 3, 2), prefill_round(2, 3, 4, 13.0), cluster=JUST_PREFILL)
    assert table_lines(history, Look(), "prod-a") == [
        "prod-a  sample 3 at 2026-11-29 20:00:02 UTC",
        "prefill-0  prefill",
        "  inflight                4 live, gauge 3    ▅▅█",
        "  bootstrap               0 live             ▁▁▁",
        "  queue                   0 live             ▁▁▁",
        "  running                 0 live, gauge 1    ▁▁▁",
        "  KV usage             0.25 live             ▃▃▃",
        "  HTTP active             2                  ███",
        "  finished/s            3.0                   ▁█",
        "  not on its page: tokens/s, newly failed, newly aborted",
    ]


def test_an_instance_that_never_answered_is_named_with_the_reason() -> None:
    lines = table_lines(shown([*prefill_round(0, 0, 0), missed(5, "decode-0")]), Look(), "prod-a")
    assert "? decode-0  decode  metrics:read-timeout" in lines
    assert "? router-0  router  not asked" in lines


def test_a_number_that_was_missed_this_time_is_no_old_number() -> None:
    history = shown([page(0, "prefill-0", inflight=2)], [missed(3, "prefill-0")], cluster=JUST_PREFILL)
    line = next(s for s in table_lines(history, Look(), "x") if "inflight" in s)
    assert line == "  inflight                - missed           █?"


def test_a_number_not_asked_this_time_says_its_age() -> None:
    history = shown(
        [page(0, "prefill-0", inflight=2, queue=1)],
        [loads(3, "prefill-0", LoadRow(0, inflight=1))],
        cluster=JUST_PREFILL,
    )
    lines = table_lines(history, Look(), "x")
    assert "  inflight                1 live             █▅" in lines
    assert "  queue                   1 3 s ago          █" in lines


def test_a_restart_is_marked() -> None:
    groups = [[page(t, "prefill-0", requests=n)] for t, n in ((0, 10), (1, 20), (2, 1), (3, 2))]
    history = shown(*groups, cluster=JUST_PREFILL)
    assert "  finished/s            1.0                   █|▂" in table_lines(history, Look(), "x")
    history = shown(*groups[:3], cluster=JUST_PREFILL)
    assert "prefill-0  prefill  restart" in table_lines(history, Look(), "x")


MANY = Cluster("big", tuple(Instance(f"decode-{n}", Role.DECODE, f"http://h{n}") for n in range(40)))


@pytest.mark.parametrize(
    "look", [Look(), Look(width=60), Look(width=200), Look(ascii=True), Look(colour=True)], ids=str
)
@pytest.mark.parametrize("height", [None, 60, 24, 10])
def test_the_screen_is_never_wider_or_higher_and_says_what_it_leaves_out(look: Look, height: int | None) -> None:
    history = shown([page(0, f"decode-{n}", transfer=n, prealloc=0, queue=0) for n in range(40)], cluster=MANY)
    lines = table_lines(history, look, "big", height)
    assert height is None or len(lines) <= height
    assert all(columns(line) <= look.width for line in lines)
    if height is not None and height < 40:
        assert re.search(r"and \d+ more lines", lines[-1])
    assert not look.ascii or "".join(lines).isascii()


def test_a_screen_too_low_for_the_full_table_shows_a_line_an_instance() -> None:
    history = shown([*prefill_round(0, 3, 2), page(0, "decode-0", transfer=1), router(0, active={"u": 2.0})])
    lines = table_lines(history, Look(), "prod-a", 8)
    assert len(lines) == 7
    assert lines[1].split()[:5] == ["prefill", "inflight", "bootstr.", "queue", "running"]
    assert lines[2].split()[:5] == ["prefill-0", "2", "0", "0", "0"]
    assert lines[3].split()[:3] == ["decode", "prealloc", "transfer"]
    assert lines[4].split()[:3] == ["decode-0", "-", "1"]
    assert lines[6].split()[:2] == ["router-0", "2"]


def test_one_line_a_sample_with_the_same_words_each_time() -> None:
    first = shown(prefill_round(0, 3, 2), cluster=CLUSTER).latest
    second = shown([missed(1.5, "prefill-0"), router(1.5, active={"u": 3.0}, requests=2.0)], cluster=CLUSTER).latest
    assert first is not None
    assert second is not None
    one, two = sample_line(first, Look()), sample_line(second, Look())
    assert one.startswith(
        "2026-11-29T20:00:00.000Z prefill-0 inflight=2 bootstrap=0 queue=0 running=0 token_usage=0.25 http_active=2 "
        "scheduled_s=- finished_s=- failed=- aborted=- counts=live note=- | decode-0 prealloc=- "
    )
    assert two.startswith("2026-11-29T20:00:01.500Z prefill-0 inflight=- ")
    assert "note=metrics:read-timeout | decode-0" in two
    assert two.endswith("| router-0 active=3 oldest_s=- breakers_open=- requests_s=- errors=- note=-")
    assert [w.split("=")[0] for w in one.split()[1:]] == [w.split("=")[0] for w in two.split()[1:]]


def test_gauges_are_not_called_live() -> None:
    sample = shown([page(0, "prefill-0", inflight=1)], cluster=JUST_PREFILL).latest
    assert sample is not None
    assert " counts=gauge " in sample_line(sample, Look())


def test_nothing_sampled_yet() -> None:
    assert table_lines(History(), Look(), "prod-a") == ["prod-a", "no sample yet"]


def test_hostile_names_are_shown_not_sent() -> None:
    name = "p\x1b[2J\u202e"
    history = shown([page(0, name, inflight=1)], cluster=Cluster("c", (Instance(name, Role.PREFILL, "http://h"),)))
    assert history.latest is not None
    for height in (None, 3):
        assert all(line.isprintable() for line in table_lines(history, Look(), "c", height))
    assert sample_line(history.latest, Look()).isprintable()
