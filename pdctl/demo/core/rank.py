"""What a scheduler of either role has: its published gauges, counters, loop clock, snapshot and log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from pdctl.demo.core.catalogue import bounds
from pdctl.demo.core.leg import Leg, Stage
from pdctl.demo.core.loopclock import Loop, LoopClock
from pdctl.demo.core.release import LoadsKind
from pdctl.demo.core.series import Series, labels
from pdctl.demo.core.timeline import Handle

if TYPE_CHECKING:
    from pdctl.demo.core.engine import SimEngine

IDLE_LOG_SECONDS = 30.0
LIVE_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class Counts:
    """Live queue lengths of one rank."""

    running: int = 0
    waiting: int = 0
    bootstrap: int = 0
    inflight: int = 0
    prealloc: int = 0
    transfer: int = 0
    retracted: int = 0
    prealloc_ready: int = 0
    deferred: int = 0
    used: int = 0
    throughput: float = 0.0
    pending: int = 0  # tokens asked for by requests that wait for memory

    @property
    def all_waiting(self) -> int:
        """What ``/v1/loads`` calls num_waiting_reqs."""
        return self.waiting + self.bootstrap + self.prealloc + self.transfer + self.retracted


class Rank:
    """One scheduler. ``gauges`` is None until the first report: the page does not hold them before."""

    def __init__(self, engine: SimEngine, dp: int) -> None:
        self.engine = engine
        self.dp = dp
        self.tl = engine.tl
        self.spec = engine.spec
        self.traits = engine.traits
        self.fabric = engine.fabric
        self.rng: Random = engine.rng
        self.pid = engine.new_pid()
        self.born = self.tl.now
        self.gauges: dict[str, float] | None = None
        self.series = Series(bounds())
        self.clock = LoopClock(self.tl.now)
        self.last_log = self.tl.now
        self.snapshot: tuple[float, Counts] = (self.tl.now, Counts())
        self._idle_counts = Counts()
        self.hung: str | None = None  # a fault: the loop stands still
        self.blocked: str | None = None
        self.wedged: str | None = None
        self.inbox: list[Callable[[], None]] = []
        self._turn_at: Handle | None = None
        self._turn_due = 0.0
        self._idle_check: Handle | None = None
        self._idle_due = 0.0
        self.consider_idle()

    # -- what a role fills in ----------------------------------------------------------------------------------
    @property
    def has_batch(self) -> bool:
        raise NotImplementedError

    @property
    def queues_empty(self) -> bool:
        """Nothing queued anywhere, batch aside."""
        raise NotImplementedError

    @property
    def own_queue_empty(self) -> bool:
        """What the idle report of older releases looks at."""
        raise NotImplementedError

    def counts(self) -> Counts:
        raise NotImplementedError

    def admit(self, leg: Leg) -> None:
        raise NotImplementedError

    def drop(self, leg: Leg) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        """One turn of the scheduler's loop."""
        raise NotImplementedError

    def legs(self) -> list[Leg]:
        raise NotImplementedError

    # -- shared ------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return self.engine.spec.name

    @property
    def alive(self) -> bool:
        return self in self.engine.ranks

    @property
    def fully_idle(self) -> bool:
        return not self.has_batch and self.queues_empty and not self.inbox

    def arrive(self, leg: Leg) -> None:
        """A request reaches the scheduler: it is taken in at the next turn of the loop."""
        self.inbox.append(lambda: self.admit(leg))
        self.wake()

    def abort(self, leg: Leg) -> None:
        self.inbox.append(lambda: self.drop(leg))
        self.wake()

    def wake(self) -> None:
        """Something changed: the loop sees it at its next turn."""
        self.turn_by(self.tl.now + self.spec.speed.loop)

    def turn_by(self, when: float) -> None:
        if self.hung or not self.alive:
            return
        if self._turn_at is not None and self._turn_at.live and self._turn_due <= when:
            return
        if self._turn_at is not None:
            self._turn_at.cancel()
        self._turn_due = when
        self._turn_at = self.tl.at(when, self._run)

    def _run(self) -> None:
        if not self.hung and self.alive:
            self.turn()

    def take_inbox(self) -> None:
        taken, self.inbox = self.inbox, []
        for act in taken:
            act()

    def stop(self, fault: str) -> None:
        """The loop stands still from now on, wherever it is."""
        self.freeze()
        self.hung = fault
        self.clock.change(self.tl.now, Loop.STOPPED)
        for handle in (self._turn_at, self._idle_check):
            if handle is not None:
                handle.cancel()

    def block(self, fault: str) -> None:
        """The head of the queue that leads into memory is not admitted any more."""
        self.blocked = fault

    def wedge(self, fault: str) -> None:
        """What runs gets no more token, while the loop turns."""
        self.wedged = fault

    def go_on(self) -> None:
        self.hung = None
        self.after_turn()
        self.wake()

    def freeze(self) -> None:
        """Keeps the snapshot as it stands now."""
        self.snapshot = self.published(self.tl.now)

    # -- gauges ------------------------------------------------------------------------------------------------
    def log_stats(self, **values: float) -> None:
        """The scheduler publishes: the numbers given change, the others are written again as they were."""
        if self.gauges is None:
            self.gauges = {}
        self.gauges.update(values)
        self.last_log = self.tl.now

    def memory(self, used: int) -> dict[str, float]:
        share = used / self.spec.kv_tokens
        return {
            "num_used_tokens": float(used), "kv_used_tokens": float(used), "full_token_usage": round(share, 6),
            "token_usage": round(share, 2), "kv_available_tokens": float(self.spec.kv_tokens - used),
        }  # fmt: skip

    def queue_gauges(self, live: Counts) -> dict[str, float]:
        """This role's disaggregation gauges; constant 0 in releases that never assign them."""
        if not self.traits.counts_queues:
            return {}
        if self.spec.is_prefill:
            return {
                "num_prefill_bootstrap_queue_reqs": float(live.bootstrap),
                "num_prefill_prealloc_queue_reqs": float(live.bootstrap),
                "num_prefill_inflight_queue_reqs": float(live.inflight),
            }
        return {
            "num_decode_prealloc_queue_reqs": float(live.prealloc),
            "num_decode_transfer_queue_reqs": float(live.transfer),
            "num_decode_deferred_kv_release_reqs": float(live.deferred),
            "pending_prealloc_token_usage": live.pending / self.spec.kv_tokens,
        }

    def after_turn(self) -> None:
        """The end of a loop's turn without a new batch, or with one: sets the loop's state and thinks of idling."""
        state = Loop.BATCH if self.has_batch else Loop.IDLE if self.queues_empty else Loop.POLL
        if self.clock.state is Loop.IDLE and state is not Loop.IDLE:
            self.snapshot = (self.tl.now, self._idle_counts)  # what the last idle turn published
        if state is Loop.IDLE:
            self._idle_counts = self.counts()
        if self.clock.state is not state:
            self.clock.change(self.tl.now, state)
        self.engine.rank_turned(self)

    def consider_idle(self) -> None:
        """The idle report: when its predicate holds, at once or 30 s after the last report, by release."""
        if self.hung or not self.alive or self.has_batch or not self._may_report_idle():
            return
        stale = bool(self.traits.idle_at_once and self.gauges and self.gauges.get("num_running_reqs", 0.0))
        due = self.tl.now if stale else self.last_log + IDLE_LOG_SECONDS
        if due <= self.tl.now:
            self._report_idle()
            due = self.last_log + IDLE_LOG_SECONDS
        if self._idle_check is not None and self._idle_check.live and self._idle_due == due:
            return
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._idle_due = due
        self._idle_check = self.tl.at(due, self.consider_idle)

    def _may_report_idle(self) -> bool:
        if self.spec.lockstep and any(rank.has_batch for rank in self.engine.ranks):
            return False  # an idle rank runs along with its siblings and never gets to its idle branch
        return self.queues_empty if self.traits.idle_needs_all_queues else self.own_queue_empty

    def _report_idle(self) -> None:
        live = self.counts()
        queues = self.queue_gauges(live) if self.traits.idle_recounts or self.gauges is None else {}
        self.log_stats(
            num_running_reqs=float(live.running), num_queue_reqs=float(live.waiting), gen_throughput=0.0,
            **self.memory(live.used), **queues,
        )  # fmt: skip

    # -- live counts -------------------------------------------------------------------------------------------
    def publish(self) -> None:
        self.snapshot = (self.tl.now, self.counts())

    def published(self, now: float) -> tuple[float, Counts]:
        """What ``/v1/loads`` tells of this rank, and as of when."""
        if self.hung:
            return self.snapshot
        if self.traits.loads is LoadsKind.RPC:
            return now, self.counts()
        idle_branch = not self.has_batch and not (
            self.spec.lockstep and any(rank.has_batch for rank in self.engine.ranks)
        )
        if idle_branch and self.fully_idle:
            return max(now - now % self.spec.speed.loop, self.born), self.counts()
        if idle_branch and self.traits.loads is LoadsKind.LIVE:
            return max(now - now % LIVE_EVERY, self.snapshot[0]), self.counts()
        return self.running_snapshot(now)

    def running_snapshot(self, now: float) -> tuple[float, Counts]:
        """The last published snapshot while a batch runs."""
        return self.snapshot

    # -- counters and log --------------------------------------------------------------------------------------
    def stage_done(self, stage: str, seconds: float) -> None:
        if self.traits.stage_histogram:
            self.series.observe("per_stage_req_latency_seconds", max(seconds, 0.0), labels(stage=stage))

    def finish(self, leg: Leg, status: int = 200, text: str = "") -> None:
        leg.move(Stage.DONE, self.tl.now)
        self.engine.leg_done(leg, status, text)

    def log(self, line: str) -> None:
        self.engine.log(line, self)
