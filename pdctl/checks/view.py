"""One engine over the window, as the flow checks need it: since its last restart, by rank, with what is fresh told
from what is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from itertools import pairwise

from pdctl.checks.provenance import (
    PROBE_PATHS,
    dated,
    hinted_release,
    is_after,
    is_probe,
    last_restart,
    pages_from,
    snapshot_ages,
    version_of,
)
from pdctl.checks.trust import Counts, Traits, traits_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow, Loads, ServerInfo, parse_release
from pdctl.model.events import Event, Kind, Log
from pdctl.model.fresh import is_fresh
from pdctl.model.rank import WHOLE, Rank
from pdctl.model.window import At, Window

# Counters of requests that finished or moved on; health probes are left out of the first three by the engine itself.
MOVES = (Gauge.REQUESTS, Gauge.PROMPT_TOKENS, Gauge.GENERATION_TOKENS, Gauge.TRANSFERS_DONE)
BATCHES = (Gauge.REALTIME_TOKENS, Gauge.GRAPH_PASSES)


@dataclass(frozen=True, slots=True)
class Count:
    """One reading of a queue of one rank."""

    t: float
    value: float
    at: At[object]


@dataclass(frozen=True, eq=False)
class EngineView:
    """An engine's observations since its last restart in the window."""

    instance: Instance
    window: Window
    version: str | None
    traits: Traits
    pages: tuple[At[EngineMetrics], ...]
    loads: tuple[At[Loads], ...]
    log: tuple[Event, ...]
    log_seen: bool
    restarted: At[object] | None

    @property
    def name(self) -> str:
        return self.instance.name

    @property
    def is_prefill(self) -> bool:
        return self.instance.role == Role.PREFILL

    @property
    def release(self) -> str:
        """Its release in words: "release 0.5.9", or "its release, which is not known,"."""
        return f"release {self.version}" if self.version else "its release, which is not known,"

    @cached_property
    def dps(self) -> tuple[int | None, ...]:
        """The data-parallel ranks that were seen, (None,) for an engine that names none."""
        seen = {row.dp for at in self.loads for row in at.value.rows}
        for at in self.pages:
            seen.update(rank.dp for rank in at.value.ranks(Gauge.RUNNING))
            seen.update(rank.dp for rank in at.value.ranks(_handoff(self)))
        numbered = sorted(dp for dp in seen if dp is not None)
        if len(numbered) == 1 and None in seen:
            return (None,)
        return tuple(numbered) or (None,)

    def one_of_several(self, dp: int | None) -> bool:
        """Whether ``dp`` names one of several ranks, so that the engine's totals are not its own."""
        return dp is not None and len(self.dps) > 1

    def rank_to_name(self, dp: int | None) -> Rank:
        """The rank a finding names: the one of several, else the whole engine."""
        return Rank(dp=dp) if self.one_of_several(dp) else WHOLE

    def live(self, queue: Gauge, dp: int | None, since: float = 0.0) -> tuple[Count, ...]:
        """Readings of a queue that are true at their instant (see ``fresh_rows``), from ``since`` on."""
        out = []
        for at, row in self.fresh_rows(dp):
            value = row.count(queue)
            if value is not None and at.t >= since:
                out.append(Count(at.t, float(value), at))
        return tuple(out)

    def live_total(self, queue: Gauge, since: float = 0.0) -> tuple[Count, ...]:
        """As ``live``, summed over the data-parallel ranks of one answer."""
        rows: dict[float, Count] = {}
        for dp in self.dps:
            for count in self.live(queue, dp, since):
                old = rows.get(count.t)
                rows[count.t] = Count(count.t, count.value + (old.value if old else 0.0), count.at)
        return tuple(rows[t] for t in sorted(rows))

    def gauge(self, queue: Gauge, dp: int | None, since: float = 0.0) -> tuple[Count, ...]:
        """Readings of a gauge of the metrics page; what they prove is the release's business (trust)."""
        out = []
        for at in self.pages:
            by_dp = at.value.by_dp(queue)
            value = by_dp.get(dp) if dp in by_dp else (at.value.total(queue) if dp is None else None)
            if value is not None and at.t >= since:
                out.append(Count(at.t, value, at))
        return tuple(out)

    def rows(self, dp: int | None) -> Iterator[tuple[At[Loads], LoadRow]]:
        """Every row of a rank, fresh or not."""
        for at in self.loads:
            if len(at.value.rows) == 1 and (dp is None or at.value.rows[0].dp in (dp, None)):
                yield at, at.value.rows[0]
                continue
            yield from ((at, row) for row in at.value.rows if row.dp == dp)

    def fresh_rows(self, dp: int | None) -> tuple[tuple[At[Loads], LoadRow], ...]:
        """The rows whose counts were true when they were answered.

        Sums of queues: none, see ``sums``. Asked of the scheduler (0.5.8.post1 to 0.5.12.post1): all. Dated snapshots
        (0.5.16 and later): those whose own time is no older than ``FRESH_S``. Undated ones (0.5.13.post1 to 0.5.15):
        none."""
        rows = tuple(self.rows(dp))
        dated = all(row.timestamp is not None for _, row in rows)
        ages: list[float | None] = list(snapshot_ages(rows)) if dated else [None] * len(rows)
        fresh = zip(rows, ages, strict=True)
        return tuple(pair for pair, age in fresh if is_fresh(pair[1], age, self.traits.release))

    def sums(self, dp: int | None, since: float = 0.0) -> tuple[Count, ...]:
        """How many requests wait by ``/get_load``, which asks the scheduler (0.4.9 to 0.5.20): on prefill in bootstrap
        or for their forward pass, on decode in prealloc, transfer or for a batch."""
        rows = ((at, row) for at, row in self.rows(dp) if row.summed and row.waiting is not None and at.t >= since)
        return tuple(Count(at.t, float(row.waiting or 0), at) for at, row in rows)

    def held_tokens(self, dp: int | None, since: float = 0.0) -> tuple[Count, ...]:
        """KV tokens in use by ``/get_load`` at the readings at which no request waited or ran."""
        rows = ((at, row) for at, row in self.rows(dp) if row.summed and at.t >= since)
        return tuple(
            Count(at.t, float(row.used_tokens), at)
            for at, row in rows
            if row.used_tokens is not None and not row.running
        )

    def growth(self, counter: Gauge, dp: int | None = None, since: float = 0.0, whole: bool = True) -> float | None:
        """How much a counter grew from the last page at or before ``since`` to the last page; None when it can't be
        told. ``whole`` takes the engine's total, else the rank's. A series that appears counts from 0: failure
        counters do not exist before their first increment (seen on 0.5.23)."""
        pages = pages_from(self.pages, since)
        if len(pages) < 2:
            return None
        first, last = (_value(p.value, counter, dp, whole) for p in (pages[0], pages[-1]))
        if last is None:
            return None
        return max(0.0, last - (first or 0.0))

    def still_since(self, dp: int | None = None) -> float | None:
        """Seconds into the window since which no request finished or moved on, by the counters a health probe does not
        touch: the engine's, or for one of several ranks its own; 0.0 when none did, None when no counter can tell."""
        moved, known = 0.0, False
        for before, after in pairwise(self.pages):
            for counter in self.moves:
                old, new = (_value(p.value, counter, dp, not self.one_of_several(dp)) for p in (before, after))
                if new is None:
                    continue
                known = True
                if new > (old or 0.0):
                    moved = after.t
        return moved if known else None

    def quiet_since(self, dp: int | None = None) -> float | None:
        """As ``still_since`` of the rank; of the whole engine where no counter tells of its ranks."""
        own = self.still_since(dp)
        return self.still_since() if own is None else own

    @property
    def moves(self) -> tuple[Gauge, ...]:
        """The counters of ``MOVES`` that health probes leave alone in this release: up to 0.5.14 their fake transfers
        were counted."""
        return MOVES if self.traits.fake_transfers_left_out else MOVES[:3]

    def batches_since(self, t: float, dp: int | None = None) -> bool | None:
        """Whether the scheduler reported a batch after ``t`` (probes' batches included); None when nothing tells."""
        grown = [self.growth(c, dp, t, whole=not self.one_of_several(dp)) for c in BATCHES]
        told = [g for g in grown if g is not None]
        lines = self.batch_lines(t, dp)
        if lines:
            return True
        if told:
            return any(g > 0 for g in told)
        return False if self.log_seen and self.says_batches else None

    @property
    def says_batches(self) -> bool:
        """Whether this engine's log holds batch lines at all (0.5.9 writes none on prefill)."""
        return any(e.kind in (Kind.PREFILL_BATCH, Kind.DECODE_BATCH) for e in self.log)

    def batch_lines(self, since: float, dp: int | None = None) -> tuple[Event, ...]:
        """Batch lines the log dates after ``since`` seconds into the window."""
        kind = Kind.PREFILL_BATCH if self.is_prefill else Kind.DECODE_BATCH
        moment = self.window.start + timedelta(seconds=since)
        return tuple(
            e for e in self.log if e.kind == kind and is_after(e, moment) and (dp is None or e.rank.dp in (dp, None))
        )

    def probes(self, since: float = 0.0) -> int | None:
        """Health requests the engine answered after ``since``; None when neither page nor log can tell."""
        pages = pages_from(self.pages, since)
        if len(pages) >= 2 and pages[-1].value.http_seen:
            first, last = pages[0].value.http_seen, pages[-1].value.http_seen
            return int(sum(max(0.0, last.get(p, 0.0) - first.get(p, 0.0)) for p in PROBE_PATHS))
        if not self.log_seen:
            return None
        moment = self.window.start + timedelta(seconds=since)
        return sum(1 for e in self.log if is_after(e, moment) and is_probe(e))

    def http_active(self, since: float = 0.0) -> tuple[Count, ...]:
        """Generate-like HTTP requests under way, where the release counts them (0.5.8.post1 and later)."""
        return tuple(
            Count(at.t, at.value.http_active, at)
            for at in self.pages
            if at.value.http_active is not None and at.t >= since
        )

    def idle_share(self, since: float = 0.0) -> float | None:
        """Share of wall time the least idle rank spent fully idle (0.5.20 and later), None where not exported."""
        return self._per_second(Gauge.IDLE_SECONDS, since, least=True)

    def cpu_share(self, since: float = 0.0) -> float | None:
        """CPU seconds a second of the rank that used least (0.5.20 and later)."""
        return self._per_second(Gauge.SCHEDULER_CPU_SECONDS, since, least=True)

    def _per_second(self, counter: Gauge, since: float, *, least: bool) -> float | None:
        pages = pages_from(self.pages, since)
        if len(pages) < 2 or pages[-1].t - pages[0].t < 1.0:
            return None
        first, last = pages[0].value.ranks(counter), pages[-1].value.ranks(counter)
        shares = [(last[r] - first[r]) / (pages[-1].t - pages[0].t) for r in last if r in first]
        return (min(shares) if least else max(shares)) if shares else None

    def alive(self, since: float = 0.0) -> str | None:
        """Why the scheduler loop is known to turn after ``since``, None when nothing shows it."""
        for at, row in self.fresh_rows(self.dps[0]):
            if at.t >= since and (row.timestamp is not None or self.traits.counts == Counts.ASKED):
                return "its live queue counts are fresh"
        if self.sums(self.dps[0], since):
            return "/get_load answered, which asks the scheduler"
        share = self.cpu_share(since)
        if share is not None and share > 0.005:
            return "its scheduler uses CPU"
        info = self.window.last(self.name, Fact.SERVER_INFO, ServerInfo)
        if info is not None and info.t >= since:
            return "/server_info answered, which asks the scheduler"
        return None


def _value(page: EngineMetrics, name: Gauge, dp: int | None, whole: bool) -> float | None:
    if whole or dp is None:
        return page.total(name)
    return page.by_dp(name).get(dp)


def _handoff(view: EngineView) -> Gauge:
    return Gauge.INFLIGHT if view.is_prefill else Gauge.TRANSFER


@dataclass(frozen=True, eq=False)
class ClusterView:
    """Every engine's view."""

    window: Window
    cluster: Cluster
    engines: tuple[EngineView, ...]

    @cached_property
    def prefills(self) -> tuple[EngineView, ...]:
        return tuple(e for e in self.engines if e.is_prefill)

    @cached_property
    def decodes(self) -> tuple[EngineView, ...]:
        return tuple(e for e in self.engines if not e.is_prefill)

    def peers(self, engine: EngineView) -> tuple[EngineView, ...]:
        return self.decodes if engine.is_prefill else self.prefills


@lru_cache(maxsize=4)
def view_of(window: Window, cluster: Cluster) -> ClusterView:
    """The views of a cluster's engines (remembered for the last few windows)."""
    return ClusterView(window, cluster, tuple(engine_view(window, i) for i in cluster.engines))


def engine_view(window: Window, instance: Instance) -> EngineView:
    """One engine's view: its pages and loads since its last restart in the window."""
    pages = window.seen(instance.name, Fact.METRICS, EngineMetrics)
    loads = window.seen(instance.name, Fact.LOADS, Loads)
    restarted = last_restart(pages)
    cut = restarted.t if restarted else float("-inf")
    version = version_of(window, instance.name)
    logs = window.seen(instance.name, Fact.LOG, Log)
    return EngineView(
        instance,
        window,
        version,
        traits_of(parse_release(version) or hinted_release(pages, loads)),
        tuple(p for p in pages if p.t >= cut),
        tuple(row for row in loads if row.t >= cut),
        tuple(dated(at.value, event) for at in logs for event in at.value.events),
        bool(logs),
        restarted,
    )
