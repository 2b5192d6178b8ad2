"""Differences and time lines as people and programs see them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

from pdctl.model.change_view import Event, Steady, Timeline
from pdctl.model.script_view import BackupView, DiffView, Row, SettingView, Shown
from pdctl.render.changes import change_lines, change_value, short_change_line
from pdctl.render.diff import shown_lines, shown_value
from pdctl.render.look import Look
from pdctl.render.text import columns

LOOK = Look(ascii=True, width=80)
NOON = datetime(2026, 11, 12, 12, 0, tzinfo=UTC)
ROWS = (
    Row("variable", "NCCL_DEBUG", "~", "WARN", "INFO"),
    Row("variable", "NEW", "+", None, "1"),
    Row("flag", "--tp-size", "-", "8", None),
    Row("flag", "--enable-metrics", "+", None, ""),
    Row("program", "", "~", "python3 -m sglang.launch_server", "numactl -N 0 python3 -m sglang.launch_server"),
    Row("command", "", "-", "ulimit -n 1", None),
)


def test_one_row_a_difference_with_its_sign() -> None:
    lines = list(shown_lines(Shown((DiffView("decode-0", "old", "new", ROWS, 2, False, ("--port is $P",)),)), LOOK))
    assert lines[0] == "decode-0: old -> new"
    assert [line.split() for line in lines if line.startswith("    ")][:4] == [
        ["~", "NCCL_DEBUG", "WARN", "->", "INFO"],
        ["+", "NEW", "1"],
        ["-", "--tp-size", "(was", "8)"],
        ["+", "--enable-metrics"],
    ]
    assert "  2 comment lines differ as well" in lines and any("--port is $P" in line for line in lines)
    assert all(columns(line) <= 80 for line in lines)


def test_the_same_text_and_the_same_meaning_are_told_apart() -> None:
    assert "the same text" in list(shown_lines(Shown((DiffView("d", "a", "b", is_same_text=True),)), LOOK))[-1]
    assert "only comments or layout" in list(shown_lines(Shown((DiffView("d", "a", "b", comments=1),)), LOOK))[-1]


def test_hostile_values_are_shown_and_not_sent() -> None:
    row = Row("variable", "X", "~", "a\x1b[31mb", "sk-aaaaaaaaaaaaaaaa1\u202e")
    text = "\n".join(shown_lines(Shown((DiffView("d\x07", "a", "b", (row,), text=("+\x1b]0;x\x07",)),)), LOOK))
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text and "sk-aaaa" not in text


def test_backups_and_settings() -> None:
    backups = (
        BackupView("serve.sh.bak", "/s/serve.sh.bak", NOON, "mtime", NOON, False, True, False),
        BackupView("serve.sh.20261110-2201.bak", "/s/x", NOON, "name", NOON + timedelta(hours=1), True, False, True),
    )
    settings = (
        SettingView("--page-size", "KV pages are transferred whole", ("32", "64"), False, "script"),
        SettingView("--revision", "another revision has other weights", (None, "abc"), None),
    )
    shown = Shown((), {"decode-0": ("/s/serve.sh", backups)}, {"p->d": settings})
    text = " ".join(" ".join(shown_lines(shown, LOOK)).split())
    assert "2 backups of /s/serve.sh" in text and "its mtime says 2026-11-12 13:00:00 UTC" in text
    assert "same bytes as the script" in text and "by its name" in text and "the baseline" in text
    assert "differ: 32 / 64, by script; KV pages are transferred whole" in text
    assert "cannot tell: not named / abc" in text
    value = shown_value(shown)
    assert json.loads(json.dumps(value)) == value
    assert value["backups"]["decode-0"][1]["disagrees"] and value["settings"]["p->d"][0]["agrees"] is False


CET = timezone(timedelta(hours=1))
LINE = Timeline(
    NOON,
    NOON + timedelta(hours=3),
    (
        Event(NOON + timedelta(minutes=5), "script", "decode-0", "/s/serve.sh: --tp 8 -> 4", "in effect since x", 3,
              "it changed the settings", ask="cat -- /s/serve.sh"),
        Event(NOON + timedelta(minutes=6), "file", "decode-0", "/s/a.env: touched, not changed", touched=True,
              why="byte-identical to git HEAD"),
        Event(NOON + timedelta(hours=12), "boot", "host:gpu-01", "booted (kernel 6.8)", "", 3, "all is new"),
    ),
    (Steady("decode-0", "packages", "120 packages"),),
    (("router-0", "processes", "no route"),),
    ("a clock is off",),
)  # fmt: skip


def test_suspects_first_then_the_line_then_what_is_ruled_out() -> None:
    lines = list(change_lines(LINE, LOOK, CET, "CET"))
    text = "\n".join(lines)
    assert lines[0] == "! Since 2026-11-12 13:00:00 CET: 3 events, 2 suspects"
    order = ["Suspects", "gpu-01: booted", "decode-0: /s/serve.sh", "Time line (CET)", "2026-11-12", "13:05:00",
             "2026-11-13", "01:00:00", "Ruled out: 2", "byte-identical to git HEAD", "packages unchanged",
             "Not looked at: 1", "no route", "a clock is off"]  # fmt: skip
    at = 0
    for part in order:
        at = text.index(part, at)
    assert all(columns(line) <= 80 for line in lines)


def test_nothing_changed_is_said_only_of_what_was_looked_at() -> None:
    lines = list(change_lines(Timeline(NOON, NOON, unseen=(("d", "x", "y"),)), LOOK, UTC, "UTC"))
    assert lines[0] == "? Since 2026-11-12 12:00:00 UTC: nothing changed in what was looked at"
    assert next(change_lines(Timeline(NOON, NOON), LOOK, UTC, "UTC")).startswith("+ ")


def test_one_line_names_the_first_suspect_and_what_was_not_looked_at() -> None:
    assert short_change_line(LINE, LOOK, CET, "CET") == (
        "3 events, 2 suspects, 1 not looked at since 2026-11-12 13:00:00 CET: gpu-01: booted (kernel 6.8)"
    )
    assert (
        short_change_line(Timeline(NOON, NOON), LOOK, UTC, "UTC")
        == "0 events, 0 suspects since 2026-11-12 12:00:00 UTC"
    )


def test_hostile_names_and_texts_reach_no_terminal_by_way_of_a_time_line() -> None:
    bad = "a\x1b]0;x\x07\u202e\r\n sk-aaaaaaaaaaaaaaaa1"
    event = Event(NOON, "file", f"host:{bad}", bad, bad, 3, bad, ask=bad, host=bad)
    still = Event(NOON, "file", bad, bad, bad, 0, bad, ask=bad)
    line = Timeline(NOON, NOON, (event, still), (Steady(bad, bad, bad),), ((bad, bad, bad),), (bad,))
    shown = [*change_lines(line, LOOK, UTC, "UTC"), short_change_line(line, LOOK, UTC, "UTC")]
    assert all(text.isprintable() and "sk-aaaa" not in text for text in shown)


def test_for_programs() -> None:
    value = change_value(LINE)
    assert [e["suspect"] for e in value["events"]] == [True, False, True]
    assert value["suspects"][0]["subject"] == "host:gpu-01" and value["events"][1]["touched_only"]
    assert value["not_looked_at"] == [{"subject": "router-0", "what": "processes", "why": "no route"}]
