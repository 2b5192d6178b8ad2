"""Two windows side by side, for people and as JSON."""

from __future__ import annotations

import json
from datetime import timedelta

from render_reports import END, GOLDEN, PINNED, SECRET, START, H, report

from pdctl.model.comparison import Comparison, Difference, Kind, NotCompared, Side, Spread
from pdctl.render.compare import compare_json, compare_lines
from pdctl.render.look import Look

PLAIN = Look(ascii=True)
WELL = Side("well", START, END, 9, GOLDEN["ok"])
NOW = Side("now", START + timedelta(hours=2), END + timedelta(hours=2), 9, report(PINNED))
SPREADS = (Spread(9, 5.0, 5.1, 0.4, 0.5, 7.0), Spread(8, 0.0, 0.0, 0.0, 0.0, 8.0))
ROWS = (
    Difference(Kind.FINDING, "prefill-0 DP2", "request-pinned", "not there", "there", finding=PINNED),
    Difference(Kind.VERSION, "prefill-0", "release", "0.5.19", "0.5.23"),
    Difference(Kind.SETTING, "prefill-0", "--page-size", "64", None),
    Difference(Kind.RATE, "decode-0", "requests", "5", "0", SPREADS, "/s", 1.23456, "median"),
    Difference(Kind.RATE, "decode-0", "retries", "0", "2", SPREADS, "/s", 0.5, "mean"),
)
GAPS = (
    NotCompared("router-0", "sockets", "only the first tells"),
    NotCompared("decode-0", "x", "only the first tells"),
)


def lines(comparison: Comparison) -> list[str]:
    return list(compare_lines(comparison, PLAIN))


def test_what_differs_is_told_by_kind_with_how_much_chance_could_make() -> None:
    told = lines(Comparison(WELL, NOW, ROWS, ((Kind.SETTING, 91), (Kind.GAUGE, 1)), GAPS))
    assert told[0] == "! DIFFERS  5 differences from A to B"
    assert any(line.startswith("  A  well: 2026-11-29 20:37:31 to 20:37:39 UTC, 9 samples;") for line in told)
    assert any(line.startswith("  B  now: 2026-11-29 22:37:31") for line in told)
    text = "\n".join(told)
    assert "  x new: request-pinned at prefill-0 DP2 (critical)\n      2 requests sit in" in text
    assert "  ! prefill-0 release: 0.5.19 -> 0.5.23" in told
    assert "  ! prefill-0 --page-size: 64 -> not there" in told
    assert "  ! decode-0 requests: 5 -> 0 /s (chance alone makes up to 1.2)" in told
    assert "  ! decode-0 retries: 0 -> 2 /s (mean, chance alone makes up to 0.5)" in told
    assert "+ Alike: 91 settings and 1 gauge" in told
    assert "  - router-0 sockets and decode-0 x: only the first tells" in told


def test_another_load_is_told_first_as_gauges_follow_it() -> None:
    came = Difference(Kind.RATE, "router-0", "requests begun", "1", "5", SPREADS, "/s", 0.5, "median")
    told = lines(Comparison(WELL, NOW, (*ROWS, came)))
    assert "  Another load: router-0 1 -> 5 /s; gauges and rates follow it." in told
    assert json.loads(compare_json(Comparison(WELL, NOW, (came,))))["load_differs"] is True
    assert "Another load" not in "".join(lines(Comparison(WELL, NOW, ROWS)))
    assert json.loads(compare_json(Comparison(WELL, NOW, ROWS)))["load_differs"] is False


def test_what_went_away_is_no_alarm() -> None:
    gone = Difference(Kind.FINDING, "prefill-0 DP2", "request-pinned", "there", "not there", finding=PINNED)
    assert "  + gone: request-pinned at prefill-0 DP2 (critical)" in lines(Comparison(NOW, WELL, (gone,)))


def test_alike_is_said_only_where_something_was_compared() -> None:
    assert lines(Comparison(WELL, NOW, (), ((Kind.GAUGE, 40),)))[0] == "+ ALIKE  40 things compared, none differs"
    assert lines(Comparison(WELL, NOW, (), ((Kind.INSTANCE, 3),), GAPS))[0] == (
        "? CANNOT TELL  nothing could be compared"
    )


def test_json_holds_all_of_it() -> None:
    value = json.loads(compare_json(Comparison(WELL, NOW, ROWS, ((Kind.GAUGE, 40),), GAPS)))
    assert (value["schema"], value["differs"], value["alike"]) == ("pdctl.compare/1", True, {"gauge": 40})
    assert (value["before"]["source"], value["before"]["status"], value["after"]["status"]) == (
        "well",
        "ok",
        "critical",
    )
    assert value["differences"][0]["finding"]["name"] == "request-pinned"
    assert value["differences"][2]["after"] is None
    rate = value["differences"][3]
    assert (rate["kind"], rate["by"], rate["unit"]) == ("rate", "median", "/s")
    assert rate["spreads"][0] == {"readings": 9, "median": 5, "mean": 5.1, "spread": 0.4, "worth": 7}
    assert [gap["subject"] for gap in value["not_compared"]] == ["router-0", "decode-0"]


def test_hostile_text_is_escaped_and_masked() -> None:
    side = Side(H, START, END, 1, GOLDEN["hostile"])
    made = Comparison(side, side, (Difference(Kind.SETTING, H, H, H, H),), (), (NotCompared(H, H, H),))
    for line in lines(made):
        assert line.isprintable() and SECRET not in line
    text = compare_json(made)
    assert SECRET not in text and text.isascii() and json.loads(text)["differs"] is True
