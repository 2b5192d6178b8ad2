"""Where a scheduler's loop spends its time: the counters of release 0.5.20 and later."""

from __future__ import annotations

from enum import StrEnum


class Loop(StrEnum):
    IDLE = "idle"  # every queue empty
    POLL = "poll"  # no batch, some queue not empty
    BATCH = "batch"
    STOPPED = "stopped"


# Shares of each stage, as running engines of 0.5.23 showed them. An idle loop spins: CPU goes at wall speed.
_SHARES: dict[Loop, dict[str, float]] = {
    Loop.IDLE: {
        "other": 0.09, "recv_requests": 0.19, "process_input_requests": 0.025, "get_next_batch_to_run": 0.045,
        "process_queue": 0.04, "sanity_check_cache": 0.23, "idle": 0.38,
    },
    Loop.POLL: {
        "other": 0.07, "recv_requests": 0.155, "process_input_requests": 0.017, "get_next_batch_to_run": 0.034,
        "process_queue": 0.187, "idle": 0.537,
    },
    Loop.BATCH: {
        "other": 0.03, "recv_requests": 0.05, "process_input_requests": 0.01, "get_next_batch_to_run": 0.02,
        "process_queue": 0.03, "run_batch": 0.80, "process_batch_result": 0.06,
    },
    Loop.STOPPED: {},
}  # fmt: skip
CATEGORIES = (
    "other", "recv_requests", "process_input_requests", "get_next_batch_to_run", "process_queue", "run_batch",
    "process_batch_result", "sanity_check_cache", "idle",
)  # fmt: skip
FLUSH_EVERY = 1.0


class LoopClock:
    """Seconds by state, shown as of the last flush: a loop writes them about once a second."""

    def __init__(self, start: float) -> None:
        self.state = Loop.IDLE
        self._since = start
        self._spent = dict.fromkeys(Loop, 0.0)
        self._shown = dict(self._spent)
        self._flushed = start

    def change(self, now: float, state: Loop) -> None:
        self._settle(now)
        self.state = state

    def shown(self, now: float) -> dict[Loop, float]:
        """Seconds by state, as the page shows them at this instant."""
        self._settle(now)
        return dict(self._shown)

    def _settle(self, now: float) -> None:
        """Adds up to now; a flush falls on the last whole second since the one before, unless the loop stands."""
        ticks = int((now - self._flushed) / FLUSH_EVERY)
        if ticks and self.state is not Loop.STOPPED:
            self._flushed += ticks * FLUSH_EVERY
            self._add(max(self._flushed, self._since))
            self._shown = dict(self._spent)
        self._add(now)
        if self.state is Loop.STOPPED:
            self._flushed = now

    def _add(self, until: float) -> None:
        self._spent[self.state] += until - self._since
        self._since = until


def idle_seconds(spent: dict[Loop, float]) -> float:
    return spent[Loop.IDLE]


def cpu_seconds(spent: dict[Loop, float]) -> float:
    return 0.985 * sum(seconds for state, seconds in spent.items() if state is not Loop.STOPPED)


def stage_seconds(spent: dict[Loop, float], category: str) -> float:
    return sum(seconds * _SHARES[state].get(category, 0.0) for state, seconds in spent.items())
