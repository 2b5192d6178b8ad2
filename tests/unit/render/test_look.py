"""The look is decided by the stream and the environment, once."""

from __future__ import annotations

import pytest

from pdctl.render.look import Look, Mark, choose_look


@pytest.mark.parametrize(
    ("is_tty", "env", "colour", "live"),
    [
        (True, {"TERM": "xterm-256color"}, True, True),
        (False, {"TERM": "xterm-256color"}, False, False),  # a pipe
        (False, {}, False, False),  # cron
        (True, {"TERM": "dumb"}, False, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False, True),
        (True, {"TERM": "xterm", "NO_COLOR": "0"}, False, True),  # any value counts
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True, True),  # but not an empty one
        (False, {"FORCE_COLOR": "1"}, True, False),
        (False, {"FORCE_COLOR": "0"}, False, False),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        (True, {"TERM": "dumb", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colours_and_repainting(is_tty: bool, env: dict[str, str], colour: bool, live: bool) -> None:
    look = choose_look(is_tty, env, 100)
    assert (look.colour, look.live) == (colour, live)


@pytest.mark.parametrize(
    ("is_tty", "env", "columns", "width"),
    [
        (True, {}, 132, 132),
        (True, {}, None, 80),
        (True, {}, 0, 80),  # a terminal that does not know
        (True, {}, 7, 20),  # too narrow for words
        (False, {}, 132, 80),
        (False, {"COLUMNS": "120"}, None, 120),
        (True, {"COLUMNS": "90"}, 132, 90),
        (False, {"COLUMNS": "wide"}, None, 80),
        (False, {"COLUMNS": "-5"}, None, 80),
        (False, {"COLUMNS": ""}, None, 80),
    ],
)
def test_the_width_is_the_terminals_or_80(is_tty: bool, env: dict[str, str], columns: int | None, width: int) -> None:
    assert choose_look(is_tty, env, columns).width == width


def test_ascii_by_wish_or_where_the_encoding_holds_no_marks() -> None:
    assert choose_look(True, {}, 80, ascii=True).ascii
    assert choose_look(True, {}, 80, encoding="ascii").ascii
    assert choose_look(True, {}, 80, encoding="iso-8859-1").ascii
    assert choose_look(True, {}, 80, encoding="no-such-encoding").ascii
    assert not choose_look(True, {}, 80, encoding="utf-8").ascii


@pytest.mark.parametrize(
    ("is_tty", "env", "ascii_only"),
    [
        (False, {"LANG": "en_US.UTF-8"}, False),
        (False, {}, True),  # cron
        (False, {"LC_CTYPE": "C.UTF-8"}, True),  # the same: Python put it there
        (False, {"LANG": "C.UTF-8"}, False),
        (True, {}, False),  # a container at a terminal
        (True, {"LANG": "C"}, True),
        (True, {"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, True),
        (False, {"LC_CTYPE": "de_DE.UTF-8"}, False),
    ],
)
def test_ascii_where_no_locale_promises_more(is_tty: bool, env: dict[str, str], ascii_only: bool) -> None:
    assert choose_look(is_tty, env, 80).ascii is ascii_only


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_marks_differ_by_shape_alone(ascii_only: bool) -> None:
    marks = [Look(ascii=ascii_only).mark(mark) for mark in Mark]
    assert len(set(marks)) == len(marks)
    assert all(len(mark) == 1 for mark in marks)
    assert not ascii_only or "".join(marks).isascii()


def test_paint_adds_nothing_without_colours_and_closes_what_it_opens() -> None:
    assert Look().paint("word", Mark.BAD) == "word"
    assert Look(colour=True).paint("word", Mark.BAD) == "\x1b[1;31mword\x1b[0m"


def test_say_masks_and_escapes() -> None:
    said = Look(ascii=True).say("password=hunter2 \x1b[0m é")
    assert "hunter2" not in said
    assert said.endswith(" \\x1b[0m \\xe9")
