"""Decode steps: counted in stretches, so that a thousand steps of an unchanged batch cost one event."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pdctl.demo.core import logline
from pdctl.demo.core.leg import Leg
from pdctl.demo.core.series import labels

if TYPE_CHECKING:
    from pdctl.demo.core.decode import DecodeRank
    from pdctl.demo.core.rank import Counts

LOG_EVERY = 40  # --decode-log-interval
PUBLISH_EVERY = 15  # --load-snapshot-publish-interval
EPSILON = 1e-9


class Passes:
    """The running batch of a decode rank and its forward passes. Before ``account`` is called, the passes since
    ``_start`` have happened but are not counted yet."""

    def __init__(self, rank: DecodeRank) -> None:
        self.rank = rank
        self.running: dict[Leg, None] = {}
        self.count = 0
        self.results = 0  # batch results since the start: every 15th publishes a snapshot
        self.throughput = 0.0
        self._tokens = 0
        self._last_report = rank.tl.now
        self._start = rank.tl.now
        self._step = 0.0

    def step_seconds(self) -> float:
        speed = self.rank.spec.speed
        return speed.decode_step + speed.decode_request * len(self.running)

    def next_boundary(self) -> float | None:
        """The end of the decode step that runs now, None when none does."""
        if not self.running or self._step <= 0:
            return None
        now = self.rank.tl.now
        return self._start + max(1, math.ceil((now - self._start) / self._step - EPSILON)) * self._step

    def _done(self, now: float) -> int:
        """Whole steps since the last accounting."""
        if not self.running or self._step <= 0 or self.rank.hung or self.rank.wedged:
            return 0
        return int((now - self._start) / self._step + EPSILON * 10)

    def fresh_tokens(self) -> int:
        return self._done(self.rank.tl.now) * len(self.running)

    def progress(self, leg: Leg) -> int:
        """Tokens a request has by now."""
        return leg.generated + (self._done(self.rank.tl.now) if leg in self.running else 0)

    def account(self) -> None:
        """Counts the steps that ended by now; ends, reports and retracts what they end, report and crowd out."""
        now = self.rank.tl.now
        steps = self._done(now)
        if steps == 0:
            return
        self._publish(now, steps)
        size = len(self.running)
        self._start += steps * self._step
        self.results += steps
        self.count += steps
        self._tokens += steps * size
        self.rank.used += steps * size
        self._count_series(steps, size)
        for leg in self.running:
            leg.generated += steps
        ended = [leg for leg in self.running if leg.generated >= leg.max_new]
        for leg in ended:
            self.rank.free(leg)
        if self.count % LOG_EVERY == 0:
            self._report(size)
        for leg in ended:
            del self.running[leg]
            self.rank.finish(leg)
        self.rank.engine.tokens_came()
        self._make_room()

    def plan(self) -> None:
        """Sets out the next stretch: up to an end, a report, or the memory's limit."""
        rank = self.rank
        if not self.running:
            self._step = 0.0
            return
        if rank.wedged:
            self._start = rank.tl.now
            self._step = self.step_seconds()
            return
        boundary = self.next_boundary()
        if boundary is None or abs(rank.tl.now - self._start) < EPSILON or self._step != self.step_seconds():
            self._start = rank.tl.now
            self._step = self.step_seconds()
        steps = min(min(leg.max_new - leg.generated for leg in self.running), LOG_EVERY - self.count % LOG_EVERY)
        free = rank.spec.kv_tokens - rank.used
        steps = max(1, min(steps, free // len(self.running) or 1))
        rank.turn_by(self._start + steps * self._step)

    def _make_room(self) -> None:
        """Out of KV memory: the youngest requests are retracted."""
        rank = self.rank
        while len(self.running) > 1 and rank.used + len(self.running) > rank.spec.kv_tokens:
            leg = next(reversed(self.running))
            del self.running[leg]
            rank.retract(leg)

    # -- what is told ------------------------------------------------------------------------------------------
    def _count_series(self, steps: int, size: int) -> None:
        series = self.rank.series
        if self.rank.traits.since("0.5.7"):
            series.count("realtime_tokens_total", steps * size, labels(mode="decode"))
            series.count("cuda_graph_passes_total", steps, labels(mode="decode_cuda_graph"))
        self.rank.engine.series.observe("inter_token_latency_seconds", self._step, times=steps * size)

    def _report(self, size: int) -> None:
        rank = self.rank
        now, live = rank.tl.now, rank.counts()
        gap, self._last_report = now - self._last_report, now
        self.throughput = self._tokens / gap if gap > 0 else 0.0
        self._tokens = 0
        held = sum(leg.prompt for leg in rank.transfer) / rank.spec.kv_tokens
        figures = logline.DecodeBatch(size, rank.used, rank.used / rank.spec.kv_tokens, held, self.throughput, live)
        rank.log(logline.decode_batch(rank.traits, figures))
        rank.log_stats(
            num_running_reqs=float(size), num_queue_reqs=float(live.waiting), gen_throughput=self.throughput,
            decode_sum_seq_lens=float(rank.used), utilization=0.0, cache_hit_rate=0.0,
            **rank.memory(rank.used), **rank.queue_gauges(live),
        )  # fmt: skip

    def _publish(self, now: float, steps: int) -> None:
        self.rank.snapshot = self.snapshot(now, self.rank.snapshot, steps)

    def snapshot(self, now: float, last: tuple[float, Counts], steps: int | None = None) -> tuple[float, Counts]:
        """The snapshot the last 15th batch result published, if one fell into the steps not yet counted."""
        steps = self._done(now) if steps is None else steps
        mark = (self.results + steps) // PUBLISH_EVERY * PUBLISH_EVERY
        if mark <= self.results:
            return last
        return self._start + (mark - self.results) * self._step, self.rank.counts()
