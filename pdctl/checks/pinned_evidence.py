"""Second signals for a pinned request: what else, independent of the first, says that it is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pdctl.checks.base import saw
from pdctl.checks.plateau import floor_of, series_text
from pdctl.checks.view import ClusterView, EngineView
from pdctl.model.answer import Fact
from pdctl.model.engine import Gauge
from pdctl.model.finding import Evidence
from pdctl.model.router import RouterMetrics
from pdctl.model.window import At

if TYPE_CHECKING:
    from pdctl.model.host import ProcessStack, Stacks

OLD_S = 60.0  # the age buckets lag by about 20 s (seen on 0.3.2)
TRANSFER_CALL = ("_transfer_data", "batch_transfer_sync", "transfer_sync", "_send_kvcache", "send_kvcache")


def http_signal(engine: EngineView, since: float) -> Iterator[Evidence]:
    """The engine owes answers to HTTP requests all through the span: counted by its front end, not its scheduler."""
    readings = engine.http_active(since)
    if readings and floor_of(readings) >= 1:
        text = f"HTTP requests without an answer: {series_text(readings)}"
        yield saw(text, readings[-1].at, http_requests_active=readings[-1].value)


def sums_signal(engine: EngineView, dp: int | None, since: float) -> Iterator[Evidence]:
    """Requests wait all through the span by ``/get_load``: in bootstrap, where the waiting queue moves on."""
    readings = engine.sums(dp, since)
    if len(readings) >= 2 and floor_of(readings) >= 1:
        text = f"requests that wait by /get_load: {series_text(readings)}"
        yield saw(text, readings[-1].at, count=readings[-1].value)


def peer_signal(view: ClusterView, engine: EngineView, since: float) -> Iterator[Evidence]:
    """A peer's live counterpart queue is not empty all through the span (a room is in decode's transfer queue while it
    is in prefill's bootstrap tail, waiting or inflight queue)."""
    queue = Gauge.TRANSFER if engine.is_prefill else Gauge.INFLIGHT
    for peer in view.peers(engine):
        readings = peer.live_total(queue, since)
        if len(readings) >= 2 and floor_of(readings) >= 1:
            text = f"live {queue} of {peer.name}: {series_text(readings)}"
            yield saw(text, readings[-1].at, count=readings[-1].value)


def idle_signal(engine: EngineView, since: float) -> Iterator[Evidence]:
    """The scheduler turns and is never fully idle: some queue is not empty (0.5.20 and later)."""
    idle, cpu = engine.idle_share(since), engine.cpu_share(since)
    if idle is not None and cpu is not None and idle < 0.02 and cpu > 0.05:
        text = f"the scheduler turned (CPU {cpu:.2f} s/s) and was never fully idle (idle {idle:.2f} s/s)"
        yield saw(text, engine.pages[-1], idle_seconds_per_s=round(idle, 3), cpu_seconds_per_s=round(cpu, 3))


def router_signal(view: ClusterView, engine: EngineView, since: float) -> Iterator[Evidence]:
    """A router counts requests under way on this worker all through the span."""
    for router in view.cluster.routers:
        pages = [p for p in view.window.seen(router.name, Fact.METRICS, RouterMetrics) if p.t >= since]
        counts = [active_on(p.value, engine.instance.url) for p in pages]
        told = [c for c in counts if c is not None]
        if len(told) >= 2 and len(told) == len(counts) and min(told) >= 1:
            text = f"the router counts {told[-1]:g} request(s) under way on {engine.name}, never below {min(told):g}"
            yield saw(text, pages[-1], requests_active=told[-1])


def active_on(page: RouterMetrics, url: str | None) -> float | None:
    """A router's count of requests under way on one worker, by its URL."""
    wanted = (url or "").rstrip("/")
    return next((value for worker, value in page.active.items() if worker.rstrip("/") == wanted), None)


def oldest(page: RouterMetrics) -> float:
    """How many requests under way in a router are at least ``OLD_S`` old."""
    return sum(bucket.count for bucket in page.ages if bucket.gt >= OLD_S)


def stack_signal(engine: EngineView) -> Iterator[Evidence]:
    """A transfer worker thread sits in the transfer call itself in the newest dump, in the same call as in the dump
    before where there are two; an idle one sits in a queue's get (seen on 0.5.23)."""
    if not engine.window.asked(engine.name, Fact.STACKS):
        return
    from pdctl.model.host import Stacks

    dumps = engine.window.seen(engine.name, Fact.STACKS, Stacks)
    held = [tuple(transferring(dump)) for dump in dumps]
    if held and all(held[-2:]):
        yield saw(
            f"a transfer worker sits in {held[-1][0]} in {len(held[-2:])} of the last {len(held[-2:])} dumps", dumps[-1]
        )


def transferring(dump: At[Stacks]) -> Iterator[str]:
    """The transfer calls that worker threads of a dump are in."""
    for process in dump.value.processes:
        yield from _calls(process)


def _calls(process: ProcessStack) -> Iterator[str]:
    for thread in process.threads:
        names = [frame.function.rsplit(".", 1)[-1] for frame in thread.frames]
        if "transfer_worker" in names:
            yield from (name for name in names if name in TRANSFER_CALL)


def second_signals(view: ClusterView, engine: EngineView, since: float) -> tuple[Evidence, ...]:
    """Every second signal there is."""
    return (
        *http_signal(engine, since),
        *peer_signal(view, engine, since),
        *idle_signal(engine, since),
        *router_signal(view, engine, since),
        *stack_signal(engine),
    )
