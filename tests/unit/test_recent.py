"""The window's bounds: what goes, what is held, and that its times stay right."""

from __future__ import annotations

from datetime import timedelta

from pdctl.model.answer import Fact, Observation, Seen
from pdctl.reach.clock import EPOCH
from pdctl.recent import Recent


def seen(t: float, fact: Fact = Fact.METRICS, value: object = None, **more: object) -> Observation[object]:
    return Observation("prefill-0", fact, t, EPOCH + timedelta(seconds=t), 0.01, "GET", Seen(value), 200, more)


def test_a_short_window_holds_everything() -> None:
    recent = Recent(EPOCH, live=True)
    recent.add(seen(float(t)) for t in range(100))
    window = recent.window(EPOCH + timedelta(seconds=99))
    assert (window.start, window.seconds, len(window.observations), window.note) == (EPOCH, 99.0, 100, None)


def test_a_long_one_lets_the_oldest_go_and_says_so() -> None:
    recent = Recent(EPOCH, live=True, keep_s=100.0)
    recent.add(seen(float(t), value=t) for t in range(1000))
    window = recent.window(EPOCH + timedelta(seconds=999))
    assert 100 <= len(window.observations) <= 126
    assert 100.0 <= window.seconds <= 126.0
    assert window.note is not None
    assert window.note.startswith(f"only the last {window.seconds:.0f} s are looked at; ")
    assert window.note.endswith(f"; {1000 - len(window.observations)} earlier observations are left out")
    for row in window.observations:
        assert isinstance(row.got, Seen)
        assert window.start + timedelta(seconds=row.t) == EPOCH + timedelta(seconds=row.got.value)


def test_too_many_at_once_are_let_go_as_well() -> None:
    recent = Recent(EPOCH, live=True, keep_most=100)
    recent.add(seen(t / 1000) for t in range(1000))
    assert 100 <= len(recent.window(EPOCH + timedelta(seconds=1)).observations) <= 126


def test_what_is_asked_once_is_held_for_good_and_dated_before_the_window() -> None:
    recent = Recent(EPOCH, live=True, keep_s=100.0)
    recent.add(
        [
            seen(0.0, Fact.SERVER_INFO, "settings"),
            seen(1.0, Fact.SCRIPT, "a", path="/a"),
            seen(1.0, Fact.SCRIPT, "b", path="/b"),
        ]
    )
    recent.add(seen(float(t)) for t in range(2, 1000))
    window = recent.window(EPOCH + timedelta(seconds=999))
    settings = window.last("prefill-0", Fact.SERVER_INFO, str)
    assert settings is not None
    assert (settings.value, settings.seen.at) == ("settings", EPOCH)
    assert settings.t < 0
    assert [at.value for at in window.seen("prefill-0", Fact.SCRIPT, str)] == ["a", "b"]


def test_of_what_is_held_the_latest_counts() -> None:
    recent = Recent(EPOCH, live=True, keep_s=100.0)
    recent.add([seen(0.0, Fact.SERVER_INFO, "old"), seen(5.0, Fact.SERVER_INFO, "new")])
    recent.add(seen(float(t)) for t in range(6, 1000))
    window = recent.window(EPOCH + timedelta(seconds=999))
    assert [at.value for at in window.seen("prefill-0", Fact.SERVER_INFO, str)] == ["new"]
