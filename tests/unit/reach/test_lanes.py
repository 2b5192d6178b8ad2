from __future__ import annotations

import threading
from queue import SimpleQueue

from pdctl.reach.lanes import Lanes

LONG = 30.0  # seconds: never waited unless something is broken


def test_every_job_runs_and_threads_are_used_again() -> None:
    lanes, done, names = Lanes(4), SimpleQueue[int](), set[str]()

    def job(number: int) -> None:
        names.add(threading.current_thread().name)
        done.put(number)

    for number in range(200):
        lanes.run(lambda number=number: job(number))  # type: ignore[misc]
    assert sorted(done.get(timeout=LONG) for _ in range(200)) == list(range(200))
    assert len(names) <= 4
    lanes.close()


def test_no_more_at_once_than_asked_for_until_told_to_grow() -> None:
    lanes, begun, over = Lanes(3), SimpleQueue[int](), threading.Event()

    def job(number: int) -> None:
        begun.put(number)
        over.wait(LONG)

    for number in range(10):
        lanes.run(lambda number=number: job(number))  # type: ignore[misc]
    assert sorted(begun.get(timeout=LONG) for _ in range(3)) == [0, 1, 2]
    assert begun.empty()
    assert lanes.grow()
    assert sorted(begun.get(timeout=LONG) for _ in range(3)) == [3, 4, 5]
    assert lanes.is_short
    assert lanes.grow()
    assert sorted(begun.get(timeout=LONG) for _ in range(4)) == [6, 7, 8, 9]
    assert not lanes.is_short
    assert not lanes.grow()
    over.set()
    lanes.close()


def test_closing_drops_what_has_not_begun_and_ends_the_threads() -> None:
    lanes, ran, first, over = Lanes(1), list[int](), threading.Event(), threading.Event()

    def job() -> None:
        ran.append(0)
        first.set()
        over.wait(LONG)

    lanes.run(job)
    lanes.run(lambda: ran.append(1))
    assert first.wait(LONG)
    (thread,) = (thread for thread in threading.enumerate() if thread.name.startswith("pdctl-lane"))
    lanes.close()
    over.set()
    thread.join(LONG)
    assert not thread.is_alive()
    assert ran == [0]
