"""How many requests an instance has under way, and what is shown of it before and after a restart."""

from __future__ import annotations

from pdctl.model.answer import Fact
from pdctl.model.cluster import Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge, Loads
from pdctl.model.plan import Active
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window

ENGINE_FACTS = (Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO)
ROUTER_FACTS = (Fact.METRICS, Fact.WORKERS)
SHOWN = (
    Gauge.RUNNING, Gauge.QUEUE, Gauge.BOOTSTRAP, Gauge.INFLIGHT, Gauge.PREALLOC, Gauge.TRANSFER, Gauge.TOKEN_USAGE,
)  # fmt: skip


def active_of(window: Window, instance: Instance) -> Active:
    """The requests under way: a router's own count; an engine's live counts and its count of open HTTP requests,
    whichever is greater; gauges where there is nothing better."""
    if instance.role is Role.ROUTER:
        return _active_of_router(window, instance)
    loads = window.last(instance.name, Fact.LOADS, Loads)
    page = window.last(instance.name, Fact.METRICS, EngineMetrics)
    parts = _live(loads.value) if loads is not None else {}
    http = page.value.http_active if page is not None else None
    if parts or http is not None:
        count = max(sum(parts.values()), http or 0.0)
        return Active(count, parts, "live counts" if parts else "open HTTP requests")
    if page is not None:
        shown = {g.value: v for g in SHOWN[:-1] if (v := page.value.total(g)) is not None}
        if shown:
            return Active(sum(shown.values()), shown, "gauges, which may be old")
    return Active(why=_why_unread(window, instance))


def _active_of_router(window: Window, instance: Instance) -> Active:
    page = window.last(instance.name, Fact.METRICS, RouterMetrics)
    if page is None:
        return Active(why=_why_unread(window, instance))
    total = page.value.active_total
    return Active(total, {}, "the router's count") if total is not None else Active(why="its metrics name no count")


def _live(loads: Loads) -> dict[str, float]:
    """Each queue summed over ranks; a queue that no rank gives is absent."""
    out: dict[str, float] = {}
    for row in loads.rows:
        for queue in (*SHOWN[:-1], Gauge.RETRACTED):
            count = row.count(queue)
            if count is not None:
                out[queue.value] = out.get(queue.value, 0.0) + count
    return out


def _why_unread(window: Window, instance: Instance) -> str:
    missed = [o.missed for fact in ENGINE_FACTS for o in window.missed(instance.name, fact) if o.missed is not None]
    if not missed:
        return "not asked: the inventory names no address"
    return f"{missed[0].why}: {missed[0].detail}" if missed[0].detail else str(missed[0].why)


def gauges_of(window: Window, instance: Instance) -> dict[str, float]:
    """What is shown of an instance before and after, by name."""
    if instance.role is Role.ROUTER:
        page = window.last(instance.name, Fact.METRICS, RouterMetrics)
        total = page.value.active_total if page is not None else None
        return {"active": total} if total is not None else {}
    loads = window.last(instance.name, Fact.LOADS, Loads)
    metrics = window.last(instance.name, Fact.METRICS, EngineMetrics)
    out = {}
    if metrics is not None:
        out = {g.value: v for g in SHOWN if (v := metrics.value.total(g)) is not None}
    if loads is not None:
        out |= _live(loads.value)
    return out
