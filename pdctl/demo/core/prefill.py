"""A prefill scheduler: bootstrap queue, waiting queue, forward pass, in-flight queue."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pdctl.demo.core import logline
from pdctl.demo.core.leg import Leg, Stage
from pdctl.demo.core.rank import Counts, Rank
from pdctl.demo.core.release import LoadsKind, PrefillReport
from pdctl.demo.core.series import labels

if TYPE_CHECKING:
    from pdctl.demo.core.engine import SimEngine


class PrefillRank(Rank):
    """One data-parallel rank of a prefill engine."""

    def __init__(self, engine: SimEngine, dp: int) -> None:
        self.bootstrap: dict[Leg, None] = {}
        self.waiting: deque[Leg] = deque()
        self.batch: list[Leg] = []
        self.inflight: dict[Leg, None] = {}
        self.used = 0
        self.late: int | None = None  # a forward pass that ended while the loop stood still
        self.last_batch_at = engine.tl.now
        self.last_tokens = 0
        self.last_transfer_ms = 0.0
        self.last_speed = 0.0
        super().__init__(engine, dp)

    @property
    def has_batch(self) -> bool:
        return bool(self.batch)

    @property
    def queues_empty(self) -> bool:
        return not (self.bootstrap or self.waiting or self.inflight)

    @property
    def own_queue_empty(self) -> bool:
        return not self.inflight

    def counts(self) -> Counts:
        return Counts(
            waiting=len(self.waiting), bootstrap=len(self.bootstrap), inflight=len(self.inflight), used=self.used
        )

    def legs(self) -> list[Leg]:
        return [*self.bootstrap, *self.waiting, *self.batch, *self.inflight]

    # -- the loop ----------------------------------------------------------------------------------------------
    def turn(self) -> None:
        if self.batch:
            return  # a forward pass runs: its end turns the loop
        self._poll_inflight()
        self.take_inbox()
        self._pop_bootstrapped()
        self._form_batch()
        self.after_turn()

    def go_on(self) -> None:
        self.hung = None
        tokens, self.late = self.late, None
        if tokens is not None:
            self._batch_over(tokens)
        super().go_on()

    def admit(self, leg: Leg) -> None:
        spent = leg.move(Stage.BOOTSTRAP, self.tl.now)
        if self.traits.waiting_stages:
            self.stage_done("prefill_prepare", spent)
        self.bootstrap[leg] = None
        if leg.fake:
            return
        self.fabric.prefill_came(leg, self)
        if (limit := self.traits.bootstrap_timeout) is not None:
            self.tl.after(limit, self._time_out, leg, limit)

    def _time_out(self, leg: Leg, limit: float) -> None:
        if leg.stage is Stage.BOOTSTRAP and not leg.ready and leg.error is None:
            leg.error = f"Request {leg.room} timed out after {limit:.1f}s in KVPoll.Bootstrapping"
            self.wake()

    def _pop_bootstrapped(self) -> None:
        for leg in [leg for leg in self.bootstrap if leg.ready or leg.error]:
            del self.bootstrap[leg]
            if leg.error:
                self._bootstrap_failed(leg)
                continue
            spent = leg.move(Stage.WAITING, self.tl.now)
            self.stage_done("prefill_bootstrap", spent)
            self._kv_metric("kv_transfer_bootstrap_ms", spent * 1000, leg)
            self.waiting.append(leg)

    def _form_batch(self) -> None:
        tokens = 0
        while self.waiting and not self.blocked:
            leg = self.waiting[0]
            if self.batch and tokens + leg.prompt > self.spec.batch_tokens:
                break
            if self.used + leg.prompt > self.spec.kv_tokens:
                break
            self.waiting.popleft()
            tokens += leg.prompt
            self.used += leg.prompt
            spent = leg.move(Stage.FORWARD, self.tl.now)
            if self.traits.waiting_stages:
                self.stage_done("prefill_waiting", spent)
            self.series.observe("queue_time_seconds", spent)
            self.batch.append(leg)
        if self.batch:
            if self.traits.prefill_report is PrefillReport.CREATED:
                self._report(tokens)
            speed = self.spec.speed
            self.tl.after(speed.prefill_base + tokens / speed.prefill_tokens, self._batch_over, tokens)

    def _batch_over(self, tokens: int) -> None:
        if not self.alive:
            return
        if self.hung:
            self.late = tokens
            return
        if self.traits.loads in (LoadsKind.SNAPSHOT, LoadsKind.LIVE):
            self.publish()
        batch, self.batch = self.batch, []
        for leg in batch:
            self._to_inflight(leg)
        if self.traits.prefill_report is PrefillReport.DONE:
            self._report(tokens, len(batch), batch)
        self.turn()

    def _to_inflight(self, leg: Leg) -> None:
        self.stage_done("prefill_forward", leg.move(Stage.INFLIGHT, self.tl.now))
        self.inflight[leg] = None
        if leg.aborting:
            leg.error = leg.error or "Aborted by AbortReq."
        if leg.fake:
            leg.arrived = True
        else:
            self.fabric.send(leg)

    def _poll_inflight(self) -> None:
        for leg in [leg for leg in self.inflight if leg.arrived or leg.error]:
            del self.inflight[leg]
            self.used -= leg.prompt
            spent = self.tl.now - leg.stage_at
            if leg.error:
                self._transfer_failed(leg, spent)
                continue
            self.stage_done("prefill_transfer_kv_cache", spent)
            self._transfer_metrics(leg, spent)
            self.fabric.prefill_done(leg)
            self.finish(leg)

    # -- failures ----------------------------------------------------------------------------------------------
    def drop(self, leg: Leg) -> None:
        """An abort: what it reaches depends on the release and on where the request is."""
        leg.aborting = True
        if leg.stage is Stage.WAITING:
            self.waiting.remove(leg)
            self.fabric.prefill_gone(leg, "Aborted by AbortReq.")
            self.finish(leg, 499)
        elif leg.stage in (Stage.BOOTSTRAP, Stage.INFLIGHT) and self.traits.aborts_reach_queues:
            leg.error = leg.error or "Aborted by AbortReq."
            self._poll_inflight()

    def _bootstrap_failed(self, leg: Leg) -> None:
        self.log(logline.failure(self.traits, "Prefill bootstrap failed", "req", leg))
        self.series.count("num_bootstrap_failed_reqs_total")
        self.fabric.prefill_gone(leg, leg.error or "")
        self.finish(leg, 500, leg.error or "")

    def _transfer_failed(self, leg: Leg, spent: float) -> None:
        self.log(logline.failure(self.traits, "Prefill transfer failed", "req", leg))
        self.series.count("num_transfer_failed_reqs_total")
        if self.traits.stage_counts_failures:
            self.stage_done("prefill_transfer_kv_cache", spent)
        self.fabric.prefill_gone(leg, leg.error or "")
        self.finish(leg, 500, leg.error or "")

    # -- what is told ------------------------------------------------------------------------------------------
    def _report(self, tokens: int, running: int = 0, batch: list[Leg] | None = None) -> None:
        live, legs = self.counts(), self.batch or batch or []
        hit = sum(min(1 + leg.room % 2, leg.prompt - 1) for leg in legs)
        gap, self.last_batch_at = self.tl.now - self.last_batch_at, self.tl.now
        throughput = (tokens if self.traits.since("0.5.10") else self.last_tokens) / gap if gap > 0 else 0.0
        self.last_tokens = tokens
        figures = logline.PrefillBatch(len(legs), tokens - hit, hit, self.used / self.spec.kv_tokens, throughput, live)
        self.log(logline.prefill_batch(self.traits, figures))
        self._count_tokens(tokens, hit)
        self.log_stats(
            num_running_reqs=float(running if self.traits.running_is_batch else 0),
            num_queue_reqs=float(live.waiting), cache_hit_rate=round(hit / tokens, 4) if tokens else 0.0,
            gen_throughput=0.0, utilization=-1.0 if self.traits.since("0.5.10") else 0.0,
            **self.memory(self.used), **self.queue_gauges(live), **self._gauge_metrics(),
        )  # fmt: skip

    def _count_tokens(self, tokens: int, hit: int) -> None:
        if not self.traits.since("0.5.7"):
            return
        for mode, amount in (("prefill_compute", tokens - hit), ("prefill_cache", hit)):
            self.series.count("realtime_tokens_total", amount, labels(mode=mode))
        for mode, amount in (("input", tokens - hit), ("device_hit", hit), ("host_hit", 0), ("storage_hit", 0)):
            self.series.count("prefill_effective_tokens_total", amount, labels(mode=mode))
        self.series.count("cuda_graph_passes_total", 1, labels(mode="prefill_none"))

    def _transfer_metrics(self, leg: Leg, spent: float) -> None:
        if leg.fake and self.traits.since("0.5.15"):
            return
        self.last_transfer_ms = spent * 1000
        self.last_speed = leg.prompt * 2e-6 / spent if spent > 0 else 0.0
        self._kv_metric("kv_transfer_latency_ms", self.last_transfer_ms, leg)
        self._kv_metric("kv_transfer_total_mb", leg.prompt * 0.002, leg)
        self._kv_metric("kv_transfer_speed_gb_s", self.last_speed, leg)
        self._kv_metric("kv_transfer_alloc_ms", 0.02, leg)

    def _kv_metric(self, family: str, value: float, leg: Leg) -> None:
        """A histogram since 0.5.10; before, a gauge that the next report writes."""
        if self.traits.since("0.5.10") and not (leg.fake and self.traits.since("0.5.15")):
            self.series.observe(family, value)

    def _gauge_metrics(self) -> dict[str, float]:
        if self.traits.since("0.5.10"):
            return {}
        return {"kv_transfer_latency_ms": self.last_transfer_ms, "kv_transfer_speed_gb_s": self.last_speed}
