"""One simulated engine process: its schedulers, its HTTP front end's counters, its log."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from pdctl.demo.core import logline
from pdctl.demo.core.catalogue import bounds
from pdctl.demo.core.decode import DecodeRank
from pdctl.demo.core.fabric import Fabric
from pdctl.demo.core.frontend import FrontEnd
from pdctl.demo.core.leg import Leg, Stage
from pdctl.demo.core.prefill import PrefillRank
from pdctl.demo.core.rank import Rank
from pdctl.demo.core.series import NONE, Series, labels
from pdctl.demo.core.spec import EngineSpec
from pdctl.demo.core.timeline import Timeline

DISCONNECT_POLL = 4.0  # seconds between looks whether a waiting client is still there
HEALTH_SECONDS = 20


class World(Protocol):
    """What an engine needs of the cluster it stands in."""

    tl: Timeline
    fabric: Fabric
    rng: Random

    def stamp(self, t: float) -> str: ...  # local time as log lines write it

    def reachable(self, engine: SimEngine, leg: Leg) -> bool: ...  # its prefill's bootstrap server


class SimEngine:
    """A prefill or decode engine. ``written`` receives each log line."""

    def __init__(self, spec: EngineSpec, world: World, written: Callable[[str], None]) -> None:
        self.spec = spec
        self.world = world
        self.traits = spec.traits
        self.tl = world.tl
        self.fabric = world.fabric
        self.rng = world.rng
        self._written = written
        self._pids = 4_000 + self.rng.randrange(20_000)
        self.down = False
        self.avoided: frozenset[int] = frozenset()  # data-parallel ranks the balancer gives nothing
        self._boot()

    def _boot(self) -> None:
        self.born = self.tl.now
        self.pid = self.new_pid()
        self.series = Series(bounds())  # of the tokenizer
        self.front = FrontEnd(self.traits)
        self.legs: dict[Leg, Rank] = {}
        self.last_output = self.tl.now
        self._next_dp = 0
        self.ranks: list[Rank] = []
        kind = PrefillRank if self.spec.is_prefill else DecodeRank
        for dp in range(self.spec.dp):
            self.ranks.append(kind(self, dp))
        for rank in self.ranks:
            rank.consider_idle()

    def new_pid(self) -> int:
        self._pids += 1 + self.rng.randrange(7)
        return self._pids

    # -- requests ----------------------------------------------------------------------------------------------
    def submit(self, leg: Leg, dp: int | None = None) -> None:
        """A request comes in over HTTP; its ``done`` is called when it ends."""
        rank = self.legs[leg] = self._pick(dp)
        self.front.begin(leg.endpoint, "POST", leg.stream)
        rank.arrive(leg)

    def _pick(self, dp: int | None) -> Rank:
        """Round robin over the data-parallel ranks that get anything, unless one is asked for."""
        if dp is not None:
            return self.ranks[dp % len(self.ranks)]
        able = [rank for rank in self.ranks if rank.dp not in self.avoided]
        self._next_dp += 1
        return able[self._next_dp % len(able)]

    def leave(self, leg: Leg) -> None:
        """The client is gone. The front end looks every four seconds; a stream is noticed sooner."""
        if leg not in self.legs or leg.aborting or (not self.traits.sees_disconnects and not leg.stream):
            return
        waited = self.tl.now - leg.born
        delay = 2.0 if leg.stream else DISCONNECT_POLL - waited % DISCONNECT_POLL
        self.tl.after(delay, self._abort, leg)

    def _abort(self, leg: Leg) -> None:
        if leg in self.legs and not leg.aborting:
            self.series.count("num_aborted_requests_total")
            self.legs[leg].abort(leg)

    def abort_all(self, prefix: str = "") -> int:
        """/abort_request: every request whose rid starts so."""
        hit = [leg for leg in self.legs if leg.rid.startswith(prefix) and not leg.aborting]
        for leg in hit:
            self._abort(leg)
        return len(hit)

    def leg_done(self, leg: Leg, status: int, text: str) -> None:
        """The scheduler let a request go: its answer is sent, unless nobody waits."""
        if leg not in self.legs:
            return
        del self.legs[leg]
        self.tokens_came()
        if leg.endpoint != "/health":  # health checks are left out of the front end's counts
            self.front.end(leg.endpoint, "POST", status, leg.stream)
            self._count(leg, status)
            self.accessed("POST", leg.endpoint, 200 if status == 499 else status)
        if leg.done is not None:
            leg.done(status, text)

    def first_token(self, leg: Leg) -> None:
        if leg.endpoint != "/health" and leg.generated == 1:
            self.series.observe("time_to_first_token_seconds", self.tl.now - leg.born, self._streaming(leg))
        self.tokens_came()

    def tokens_came(self) -> None:
        """The front end heard of its scheduler: what a health check looks at."""
        self.last_output = self.tl.now

    def bootstrap_reachable(self, leg: Leg) -> bool:
        return self.world.reachable(self, leg)

    def rank_turned(self, rank: Rank) -> None:
        if not self.spec.lockstep:
            rank.consider_idle()
            return
        for sibling in self.ranks:
            sibling.consider_idle()

    # -- health ------------------------------------------------------------------------------------------------
    def probe(self, done: Callable[[int], None]) -> None:
        """GET /health: a request of one token, unless the engine is busy; looked after once a second."""
        self.front.begin("/health", "GET", False)

        def answer(status: int) -> None:
            self.front.end("/health", "GET", status, False)
            self.accessed("GET", "/health", status)
            done(status)

        if not self.traits.health_generates:
            answer(200)
            return
        rank = self._pick(None)
        if not self._busy(rank):
            rid = f"HEALTH_CHECK_{self.rng.getrandbits(64):016x}"
            leg = Leg(rid, 0, 1, 1, born=self.tl.now, fake=True, endpoint="/health")
            self.legs[leg] = rank
            rank.arrive(leg)
        self.tl.after(1.0, self._look, self.tl.now, 1, rank, answer)

    def _look(self, began: float, second: int, rank: Rank, answer: Callable[[int], None]) -> None:
        heard = self.last_output > began or (rank.has_batch and not rank.hung)
        if heard:
            answer(200)
        elif second >= HEALTH_SECONDS:
            times = self.world.stamp(began)[11:19], self.world.stamp(self.last_output)[11:19]
            self.log(logline.health_failed(*times))
            answer(503)
        else:
            self.tl.after(1.0, self._look, began, second + 1, rank, answer)

    def _busy(self, rank: Rank) -> bool:
        """Busy with work that answers a health check by itself: what runs or waits to run, no other queue."""
        if self.spec.is_prefill and self.traits.health_always_runs:
            return False
        return rank.counts().running > 0 or rank.has_batch or rank.counts().waiting > 0

    # -- the process -------------------------------------------------------------------------------------------
    def crash(self, reason: str = "Connection reset by peer") -> None:
        """The process is gone: its requests end, its peers keep what they hold."""
        self.down = True
        for leg in list(self.legs):
            del self.legs[leg]
            if leg.done is not None:
                leg.done(502, reason)
        for rank in self.ranks:
            for leg in rank.legs():
                if not leg.fake:
                    self._lose(leg)
        self.ranks = []

    def _lose(self, leg: Leg) -> None:
        """The peer of a lost request is not told: it holds on, or waits for its timeout."""
        room = self.fabric.rooms.get(leg.room)
        if room is None or leg.stage is Stage.DONE:
            return
        room.tells = False
        if self.spec.is_prefill:
            room.prefill = None
        else:
            self.fabric.decode_gone(leg, "")

    def boot(self) -> None:
        self.down = False
        self._boot()
        self.log("The server is fired up and ready to roll!")

    # -- counters and log --------------------------------------------------------------------------------------
    def _streaming(self, leg: Leg) -> tuple[tuple[str, str], ...]:
        return labels(is_streaming="true" if leg.stream else "false") if self.traits.streaming_label else NONE

    def _count(self, leg: Leg, status: int) -> None:
        if status != 200:
            return
        extra, tokens = self._streaming(leg), 1 if self.spec.is_prefill else leg.generated
        self.series.count("prompt_tokens_total", leg.prompt, extra)
        self.series.count("generation_tokens_total", tokens, extra)
        self.series.count("num_requests_total", 1, extra)
        source = labels(cache_source="device" if self.traits.since("0.5.10") else "total")
        self.series.count("cached_tokens_total", 1 + leg.room % 2, source if self.traits.since("0.5.7") else NONE)
        self.series.observe("e2e_request_latency_seconds", self.tl.now - leg.born, extra)
        for family, value in (("prompt_tokens_histogram", leg.prompt), ("generation_tokens_histogram", tokens)):
            self.series.observe(family, value)
        self.series.observe("uncached_prompt_tokens_histogram", leg.prompt - 1 - leg.room % 2)

    def accessed(self, method: str, target: str, status: int, version: str = "1.1") -> None:
        """The access line of an answered request."""
        client = f"127.0.0.1:{32_768 + self.rng.randrange(28_000)}"
        self.log(logline.access(client, method, target, status, version))

    def log(self, line: str, rank: Rank | None = None) -> None:
        words = ""
        if rank is not None:
            dp = rank.dp if self.spec.dp > 1 else None
            tp = self.first_tensor_rank(rank) if self.spec.tp > 1 else None
            words = logline.rank_words(dp, tp)
        self._written(f"[{self.world.stamp(self.tl.now)}{words}] {line}")

    def first_tensor_rank(self, rank: Rank) -> int:
        """The tensor rank that writes a data-parallel rank's gauges and log."""
        return rank.dp * self.spec.tensor_ranks if self.spec.lockstep else 0
