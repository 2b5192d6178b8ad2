"""What an instance answers to a GET, and what a fault of the way there makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pdctl.demo.core.cluster import SimCluster
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.info import render_model_info, render_models, render_server_info
from pdctl.demo.core.loads import render_get_load, render_loads
from pdctl.demo.core.page import render_page
from pdctl.demo.core.release import LoadsKind
from pdctl.demo.core.router import SimRouter
from pdctl.demo.core.routerpage import render_router_page

JSON = "application/json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
NOT_FOUND = json.dumps({"detail": "Not Found"}, separators=(",", ":")).encode()
LOGIN = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><h1>Sign in to continue</h1></body></html>\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. ``never``: the connection stays open and nothing comes. ``delay`` in seconds. ``manner`` says how
    the bytes travel when not plainly: "drip" (a byte now and then), "truncate" (the connection ends half way),
    "huge" (more than anybody wants), "reset". ``location`` makes it a redirect."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    never: bool = False
    delay: float = 0.0
    manner: str | None = None
    location: str | None = None


MISCHIEF = {
    "off": "404, as an engine started without --enable-metrics answers",
    "html": "200 with the HTML of a sign-in page",
    "truncate": "the connection ends in the middle of the body",
    "drip": "a byte now and then, never the whole",
    "slow": "the right answer, two seconds late",
    "auth": "401",
    "hang": "the connection is taken, no byte comes",
    "huge": "bytes without end",
    "redirect": "a redirect to itself",
    "empty": "200 without a body",
    "reset": "the connection is reset",
    "broken": "500, as /v1/loads answers when FastAPI is too new for the engine",
}


def spoiled(reply: Reply, kind: str, path: str) -> Reply:
    """A good answer as a fault on its way leaves it."""
    plain = {
        "off": Reply(404, NOT_FOUND), "html": Reply(200, LOGIN, "text/html; charset=utf-8"),
        "auth": Reply(401, b'{"error":"Unauthorized"}'), "empty": Reply(200, b"", TEXT),
        "hang": Reply(never=True), "redirect": Reply(307, b"", location=path),
        "broken": Reply(500, b"Internal Server Error", "text/plain; charset=utf-8"),
    }  # fmt: skip
    if kind in plain:
        return plain[kind]
    if kind == "slow":
        return replace(reply, delay=2.0)
    return replace(reply, manner=kind)


def answer(cluster: SimCluster, name: str, target: str) -> Reply:
    """What instance ``name`` answers to ``GET target`` now. Health checks of engines, which are requests of their
    own, are not answered here."""
    path = target.partition("?")[0]
    router = cluster.router
    if cluster.spec.router and name == router.spec.name:
        reply = _router_answer(router, path, cluster)
    else:
        engine = cluster.engine(name)
        if engine is None or engine.down:
            return Reply(manner="refuse")
        reply = _counted(engine, target, cluster)
    kind = cluster.mischief.get((name, path))
    return spoiled(reply, kind, target) if kind else reply


def _counted(engine: SimEngine, target: str, cluster: SimCluster) -> Reply:
    """An engine's answer, counted by its front end as it counts itself: under way while the page is made."""
    path = target.partition("?")[0]
    engine.front.begin(path, "GET", stream=False)
    reply = _engine_answer(engine, path, cluster.spec.epoch)
    if not reply.never:
        engine.front.end(path, "GET", reply.status, stream=False)
        engine.accessed("GET", target, reply.status)
    return reply


def _engine_answer(engine: SimEngine, path: str, epoch: float) -> Reply:
    stopped = any(rank.hung for rank in engine.ranks)
    traits = engine.traits
    if path == "/metrics":
        return Reply(200, render_page(engine).encode(), TEXT)
    if path == "/v1/loads" and traits.loads is not LoadsKind.ABSENT:
        return Reply(never=True) if stopped and traits.loads is LoadsKind.RPC else _json(render_loads(engine, epoch))
    if path == "/get_load" and traits.get_load:
        return Reply(never=True) if stopped else _json(render_get_load(engine))
    if path == "/get_server_info" or (path == "/server_info" and traits.server_info_path):
        return Reply(never=True) if stopped else _json(render_server_info(engine))
    if path in ("/model_info", "/get_model_info"):
        return _json(render_model_info(engine))
    if path == "/v1/models":
        return _json(render_models(engine))
    return Reply(404, NOT_FOUND)


def _router_answer(router: SimRouter, path: str, cluster: SimCluster) -> Reply:
    if path == "/metrics":
        return Reply(200, render_router_page(router, cluster.engines[0].spec.model).encode(), "text/plain")
    if path == "/workers":
        return _json(render_workers(router))
    if path in ("/health", "/liveness"):
        return Reply(200, b"OK", "text/plain; charset=utf-8")
    if path == "/readiness":
        healthy = sum(worker.healthy for worker in router.workers)
        return _json({"status": "ready", "healthy_workers": healthy, "total_workers": len(router.workers)})
    return Reply(404)


def render_workers(router: SimRouter) -> dict[str, object]:
    """The router's /workers."""
    rows: list[dict[str, object]] = []
    for worker in router.workers:
        spec = worker.engine.spec
        row: dict[str, object] = {
            "id": worker.worker_id, "url": spec.url, "model_id": spec.model, "priority": 50, "cost": 1.0,
            "worker_type": worker.kind, "is_healthy": worker.healthy, "load": worker.active,
            "connection_mode": "HTTP",
        }  # fmt: skip
        if spec.bootstrap_port:
            row["bootstrap_port"] = spec.bootstrap_port
        row["metadata"] = {"served_model_name": spec.model, "disaggregation_mode": worker.kind}
        rows.append(row | {"disable_health_check": False})
    kinds = [worker.kind for worker in router.workers]
    stats = {"prefill_count": kinds.count("prefill"), "decode_count": kinds.count("decode"), "regular_count": 0}
    return {"workers": rows, "total": len(rows), "stats": stats}


def _json(value: object) -> Reply:
    return Reply(200, json.dumps(value, separators=(",", ":")).encode())
