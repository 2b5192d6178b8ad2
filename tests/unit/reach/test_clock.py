from __future__ import annotations

from datetime import UTC, timedelta

from pdctl.reach.clock import EPOCH, FakeClock, SystemClock


def test_the_machines_clock_goes_forward_and_knows_its_zone() -> None:
    clock = SystemClock()
    before = clock.now()
    clock.sleep(0.01)
    clock.sleep(-5)
    assert 0.009 < clock.now() - before < 5
    assert clock.wall().tzinfo is UTC


def test_a_fake_clock_moves_only_when_slept_on() -> None:
    clock = FakeClock(start=100.0)
    assert (clock.now(), clock.wall()) == (100.0, EPOCH)
    clock.sleep(2.5)
    clock.sleep(-1.0)
    assert (clock.now(), clock.wall()) == (102.5, EPOCH + timedelta(seconds=2.5))
    assert clock.slept == [2.5, -1.0]
