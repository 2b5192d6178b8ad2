"""A decode scheduler: prealloc queue, transfer queue, waiting queue, running batch, retracted queue."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pdctl.demo.core import logline
from pdctl.demo.core.leg import Leg, Stage
from pdctl.demo.core.passes import Passes
from pdctl.demo.core.rank import Counts, Rank

if TYPE_CHECKING:
    from pdctl.demo.core.engine import SimEngine

DEFERRED_SECONDS = 30.0


class DecodeRank(Rank):
    """One data-parallel rank of a decode engine. Between two turns of the loop nothing but the running requests
    moves, so a stretch of decode steps is one event."""

    def __init__(self, engine: SimEngine, dp: int) -> None:
        self.tl = engine.tl
        self.prealloc: dict[Leg, None] = {}
        self.transfer: dict[Leg, None] = {}
        self.waiting: deque[Leg] = deque()
        self.retracted: deque[Leg] = deque()
        self.deferred: dict[Leg, str] = {}  # failed, KV still held; how it will end
        self.used = 0
        self.passes = Passes(self)
        super().__init__(engine, dp)

    @property
    def has_batch(self) -> bool:
        return bool(self.passes.running) and not self.wedged

    @property
    def queues_empty(self) -> bool:
        queued = self.prealloc or self.transfer or self.waiting or self.retracted or self.deferred
        return not queued and not (self.wedged and self.passes.running)

    @property
    def own_queue_empty(self) -> bool:
        return not (self.waiting or self.transfer or self.prealloc)

    def counts(self) -> Counts:
        return Counts(
            running=len(self.passes.running), waiting=len(self.waiting), prealloc=len(self.prealloc),
            transfer=len(self.transfer), retracted=len(self.retracted), deferred=len(self.deferred),
            prealloc_ready=sum(leg.ready for leg in self.prealloc), used=self.used + self.passes.fresh_tokens(),
            throughput=self.passes.throughput, pending=sum(leg.prompt for leg in self.prealloc),
        )  # fmt: skip

    def legs(self) -> list[Leg]:
        return [*self.prealloc, *self.transfer, *self.waiting, *self.passes.running, *self.retracted]

    # -- the loop ----------------------------------------------------------------------------------------------
    def wake(self) -> None:
        """While requests run the loop turns at the end of a decode step."""
        boundary = self.passes.next_boundary()
        self.turn_by(boundary if boundary is not None else self.tl.now + self.spec.speed.loop)

    def turn(self) -> None:
        self.passes.account()
        self.take_inbox()
        self._resume_retracted()
        if not self.retracted:
            self._pop_preallocated()
        self._pop_transferred()
        self._prebuilt()
        self.passes.plan()
        self.after_turn()

    def wedge(self, fault: str) -> None:
        self.passes.account()
        self.wedged = fault
        self.after_turn()

    def freeze(self) -> None:
        self.passes.account()
        super().freeze()

    def running_snapshot(self, now: float) -> tuple[float, Counts]:
        return self.passes.snapshot(now, self.snapshot)

    def admit(self, leg: Leg) -> None:
        self.stage_done("decode_prepare", leg.move(Stage.PREALLOC, self.tl.now))
        self.prealloc[leg] = None
        if leg.fake:
            return
        self.fabric.decode_came(leg, self, self.traits.decode_tells_prefill)
        if self.engine.bootstrap_reachable(leg):
            self.tl.after(self.spec.speed.handshake, self._shake_hands, leg)

    def _shake_hands(self, leg: Leg) -> None:
        if leg.stage is Stage.PREALLOC:
            leg.ready = True
            self.wake()

    def _pop_preallocated(self) -> None:
        for leg in [leg for leg in self.prealloc if leg.error]:
            del self.prealloc[leg]
            self._handshake_failed(leg)
        for leg in list(self.prealloc):
            if not leg.ready:
                continue
            if self.blocked or not self._fits(leg):
                break
            del self.prealloc[leg]
            self._to_transfer(leg)

    def _fits(self, leg: Leg) -> bool:
        """Room for the prompt, and for the output of every request on its way or running (the reserve)."""
        busy = len(self.passes.running) + len(self.transfer) + len(self.waiting)
        free = self.spec.kv_tokens - self.used - self.spec.reserve * busy
        need = leg.prompt + min(self.spec.reserve, max(leg.max_new, 1)) if leg.fake else leg.prompt + self.spec.reserve
        return need <= free and busy < self.spec.max_running

    def _to_transfer(self, leg: Leg) -> None:
        spent = leg.move(Stage.TRANSFER, self.tl.now)
        self.stage_done("decode_bootstrap", spent)
        if self.traits.since("0.5.13"):
            self.series.observe("kv_transfer_bootstrap_ms", spent * 1000)
            self.series.observe("kv_transfer_alloc_ms", 0.3)
        self.used += leg.prompt
        self.transfer[leg] = None
        if leg.fake:
            leg.arrived = True
            return
        self.fabric.indices_sent(leg)
        if (limit := self.traits.waiting_timeout) is not None:
            self.tl.after(limit, self._time_out, leg, limit)

    def _time_out(self, leg: Leg, limit: float) -> None:
        if leg.stage is Stage.TRANSFER and not leg.arrived and leg.error is None:
            leg.error = f"Request {leg.room} timed out after {limit:.1f}s in KVPoll.WaitingForInput"
            self.wake()

    def _pop_transferred(self) -> None:
        for leg in [leg for leg in self.transfer if leg.arrived or leg.error]:
            del self.transfer[leg]
            spent = self.tl.now - leg.stage_at
            if leg.error:
                self._transfer_failed(leg, spent)
                continue
            leg.move(Stage.WAITING, self.tl.now)
            self.stage_done("decode_transferred", spent)
            if not leg.fake:
                self.fabric.decode_done(leg)
            self.waiting.append(leg)

    def _prebuilt(self) -> None:
        """Waiting requests join the batch; one that wanted a single token has it already, without a decode step."""
        while self.waiting and not self.wedged and len(self.passes.running) < self.spec.max_running:
            leg = self.waiting.popleft()
            spent = leg.move(Stage.RUNNING, self.tl.now)
            self.stage_done("decode_waiting", spent)
            if self.traits.since("0.5.10"):
                self.stage_done("fake_output", 0.001)
                self.series.observe("queue_time_seconds", spent)
            leg.generated = max(leg.generated, 1)
            self.engine.first_token(leg)
            self.passes.results += 1
            if leg.generated >= leg.max_new:
                self.free(leg)
                self.finish(leg)
            else:
                self.passes.running[leg] = None

    def _resume_retracted(self) -> None:
        while self.retracted and self._fits(self.retracted[0]):
            leg = self.retracted.popleft()
            leg.move(Stage.WAITING, self.tl.now)
            self.used += leg.prompt + leg.generated
            self.waiting.append(leg)

    def free(self, leg: Leg) -> None:
        self.used -= leg.prompt + max(leg.generated - 1, 0)

    def retract(self, leg: Leg) -> None:
        self.free(leg)
        leg.move(Stage.RETRACTED, self.tl.now)
        self.retracted.append(leg)

    # -- failures ----------------------------------------------------------------------------------------------
    def drop(self, leg: Leg) -> None:
        leg.aborting = True
        if leg.stage in (Stage.PREALLOC, Stage.TRANSFER):
            if self.traits.aborts_reach_queues:
                leg.error = leg.error or "Aborted by AbortReq."
        elif leg.stage is Stage.RUNNING and leg in self.passes.running:
            del self.passes.running[leg]
            self.free(leg)
            self.finish(leg, 499)
        elif leg.stage is Stage.WAITING:
            self.waiting.remove(leg)
            self.free(leg)
            self.finish(leg, 499)
        elif leg.stage is Stage.RETRACTED:
            self.retracted.remove(leg)
            self.finish(leg, 499)

    def _handshake_failed(self, leg: Leg) -> None:
        self.log(logline.failure(self.traits, "Decode handshake failed", "decode_req.req", leg))
        self.series.count("num_bootstrap_failed_reqs_total")
        self.fabric.decode_gone(leg, leg.error or "")
        self.finish(leg, 500, leg.error or "")

    def _transfer_failed(self, leg: Leg, spent: float) -> None:
        self.log(logline.failure(self.traits, "Decode transfer failed", "decode_req.req", leg))
        self.series.count("num_transfer_failed_reqs_total")
        if self.traits.stage_counts_failures:
            self.stage_done("decode_transferred", spent)
        acknowledged = self.fabric.has_peer(leg, prefill=False) and not self.fabric.holder_of(leg)
        self.fabric.decode_gone(leg, leg.error or "")
        if self.traits.defers_release:
            self._defer(leg, 0.02 if acknowledged else DEFERRED_SECONDS)
        else:
            self.used -= leg.prompt
        self.finish(leg, 500, leg.error or "")

    def _defer(self, leg: Leg, seconds: float) -> None:
        self.deferred[leg] = "drained" if seconds < DEFERRED_SECONDS else "timeout"
        self.tl.after(seconds, self._release, leg)

    def _release(self, leg: Leg) -> None:
        if self.hung:
            self.inbox.append(lambda: self._release(leg))
            return
        outcome = self.deferred.pop(leg, None)
        if outcome is None:
            return
        self.used -= leg.prompt
        if outcome == "timeout":
            self.log(logline.deferred_timeout(leg.room, DEFERRED_SECONDS))
        self.series.count("decode_deferred_kv_release_total", 1, (("outcome", outcome),))
        self.wake()
