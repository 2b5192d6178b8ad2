"""Words stay whole, widths are the terminal's, commands stay commands."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.render.text import (
    clock,
    columns,
    counted,
    flowed,
    listed,
    moment,
    pad,
    period,
    rfc3339,
    span,
    wrap,
    wrap_command,
)


def test_wrap_breaks_between_words_and_hangs_the_rest() -> None:
    assert list(wrap("aa bb cc dd", 8, "- ")) == ["- aa bb", "  cc dd"]
    assert list(wrap("aa bb cc dd", 8, "- ", "    ")) == ["- aa bb", "    cc", "    dd"]


def test_a_word_longer_than_the_line_stays_whole() -> None:
    url = "http://127.0.0.1:30000/v1/loads?include=core,disagg,queues"
    assert list(wrap(f"see {url} now", 20)) == ["see", url, "now"]


def test_an_opening_that_fills_the_line_does_not_lose_the_word() -> None:
    assert list(wrap("word", 5, "opening: ")) == ["opening: word"]


def test_wrap_of_nothing() -> None:
    assert list(wrap("", 20)) == []
    assert list(wrap("", 20, "- ")) == ["-"]


def test_wide_characters_count_two_and_combining_ones_none() -> None:
    assert columns("请求") == 4
    assert columns("e\u0301") == 1
    assert columns("\x1b[1;31mred\x1b[0m") == 3
    assert pad("请", 4) + "|" == "请  |"
    assert list(wrap("请求 卡住 了", 9)) == ["请求 卡住", "了"]


@given(st.lists(st.text("ab请é", min_size=1, max_size=12), max_size=20), st.integers(1, 40))
def test_no_word_is_lost_and_no_line_too_long_without_need(words: list[str], width: int) -> None:
    lines = list(wrap(" ".join(words), width))
    assert [w for line in lines for w in line.split()] == words
    assert all(columns(line) <= width or len(line.split()) == 1 for line in lines)


COMMANDS = [
    "pdctl stacks prefill-0 decode-0 --for 30s --record /var/tmp/evidence",
    "pdctl logs --grep 'timed out after 300.1s in KVPoll' --since \"2026-11-29 20:30\" prefill-0",
    "journalctl -u sglang-prefill.service --since '2026-11-29 20:32:00' --no-pager",
    "sh -c 'a  b' c\\ d",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [10, 20, 40, 80, 200])
def test_a_wrapped_command_is_the_same_command_when_pasted(command: str, width: int) -> None:
    lines = list(wrap_command(command, width, "    ", "      "))
    assert shlex.split("\n".join(lines).replace("\\\n", " ")) == shlex.split(command)
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert not lines[-1].endswith("\\")


def test_a_command_with_an_open_quote_is_left_as_it_is() -> None:
    assert list(wrap_command("grep 'it is open for ever and ever", 12)) == ["grep 'it is open for ever and ever"]


def test_lists_and_counts_as_people_say_them() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert listed([]) == ""
    assert (counted(1, "sample"), counted(2, "sample"), counted(0, "query", "queries")) == (
        "1 sample", "2 samples", "0 queries"
    )  # fmt: skip


AT = datetime(2026, 11, 29, 22, 37, 31, 250_000, tzinfo=timezone(timedelta(hours=2)))


def test_times_are_said_in_utc_and_one_without_a_zone_says_so() -> None:
    assert moment(AT) == "2026-11-29 20:37:31 UTC"
    assert clock(AT) == "20:37:31 UTC"
    assert rfc3339(AT) == "2026-11-29T20:37:31.250000Z"
    assert rfc3339(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00Z"
    assert moment(datetime(2026, 1, 2)) == "2026-01-02 00:00:00 (no zone)"
    assert rfc3339(datetime(2026, 1, 2)) == "2026-01-02T00:00:00"


def test_a_period_repeats_the_day_only_where_it_is_another() -> None:
    start = datetime(2026, 11, 29, 23, 59, 50, tzinfo=UTC)
    assert period(start, start) == "2026-11-29 23:59:50 UTC"
    assert period(start, start + timedelta(seconds=5)) == "2026-11-29 23:59:50 to 23:59:55 UTC"
    assert period(start, start + timedelta(seconds=20)) == "2026-11-29 23:59:50 to 2026-11-30 00:00:10 UTC"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.0 s"), (8, "8.0 s"), (59.94, "59.9 s"), (60, "1 min"), (312, "5 min 12 s"),
     (7200, "2 h"), (11040, "3 h 4 min"), (190_800, "2 d 5 h")],
)  # fmt: skip
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_a_number_is_not_parted_from_its_unit() -> None:
    assert list(wrap("stood for 67 s", 12)) == ["stood for", "67 s"]
    assert list(wrap("some 5 min 12 s ago", 10)) == ["some 5 min", "12 s ago"]
    assert list(wrap("rank 2 started", 6)) == ["rank 2", "started"]


PROSE = """# half-open (warning)

One end holds a connection that the other end
no longer has.

## What to do
1. Restart or reload the end that holds the dead
   connections.
2. Let it open new ones.
- Turn on TCP keep-alive."""


def test_prose_that_fits_stays_as_it_was_written() -> None:
    assert list(flowed(PROSE, 60)) == PROSE.splitlines()


def test_prose_is_filled_anew_where_it_does_not_fit() -> None:
    assert list(flowed(PROSE, 30)) == [
        "# half-open (warning)",
        "",
        "One end holds a connection",
        "that the other end no longer",
        "has.",
        "",
        "## What to do",
        "1. Restart or reload the end",
        "   that holds the dead",
        "   connections.",
        "2. Let it open new ones.",
        "- Turn on TCP keep-alive.",
    ]
