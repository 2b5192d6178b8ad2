"""What to ask of an instance over HTTP, in the order that disturbs least.

Asking changes what is seen: an engine's health check is a request of its own that rewrites the gauges and counts
itself (release 0.4.10.post2 and later), and ``/server_info`` waits for the scheduler. So metrics come first, live
counts next, health last.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pdctl.model.answer import Fact
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import Instance, Role

ORDER = (Fact.METRICS, Fact.LOADS, Fact.WORKERS, Fact.SERVER_INFO, Fact.HEALTH)
LOADS_PATH = "/v1/loads?include=core,disagg,queues"
SERVER_INFO_PATH = "/server_info"
OLD_SERVER_INFO_PATH = "/get_server_info"
OLD_LOADS_PATH = "/get_load"
TIMEOUT = 5.0  # seconds
HEALTH_TIMEOUT = 25.0  # seconds: an engine gives up on its own probe after 20

_SGLANG = {Fact.LOADS: LOADS_PATH, Fact.SERVER_INFO: SERVER_INFO_PATH, Fact.HEALTH: "/health"}
_VLLM = {Fact.HEALTH: "/health"}  # vLLM has no live counts and no settings over HTTP
_ROUTER = {Fact.WORKERS: "/workers", Fact.HEALTH: "/health"}  # a router's /health is static: it proves the process
_PROXY = {Fact.HEALTH: "/health"}


def asks_for(instance: Instance, facts: Collection[Fact], *, via: str | None = None) -> tuple[HttpAsk, ...]:
    """The HTTP requests for those facts that this instance can answer, politest first. ``via`` names the host whose
    SSH connection carries them. A fact the instance has no URL or no endpoint for has no request."""
    wanted = ((fact, _url(instance, fact)) for fact in ORDER if fact in facts)
    return tuple(
        HttpAsk(
            subject=instance.name,
            fact=fact,
            url=url,
            timeout=HEALTH_TIMEOUT if fact is Fact.HEALTH and instance.is_engine else TIMEOUT,
            api_key=instance.api_key,
            ca_file=instance.ca_file,
            via=via,
        )
        for fact, url in wanted
        if url is not None
    )


def server_info_fallback(ask: HttpAsk) -> HttpAsk | None:
    """The same question under its name before 0.5.6, to ask after a 404; None for any other ask. (From 0.5.23 the old
    name logs a warning on the engine at each call, so the new one is asked first.)"""
    if ask.fact is not Fact.SERVER_INFO or not ask.url.endswith(SERVER_INFO_PATH):
        return None
    if ask.url.endswith(OLD_SERVER_INFO_PATH):
        return None
    return replace(ask, url=ask.url.removesuffix(SERVER_INFO_PATH) + OLD_SERVER_INFO_PATH)


def loads_fallback(ask: HttpAsk) -> HttpAsk | None:
    """What stands for live counts before ``/v1/loads`` (0.4.9 to 0.5.7), to ask after a 404; None for any other ask. It
    is asked of the scheduler itself, and gives sums over queues."""
    if ask.fact is not Fact.LOADS or not ask.url.endswith(LOADS_PATH):
        return None
    return replace(ask, url=ask.url.removesuffix(LOADS_PATH) + OLD_LOADS_PATH)


def older_name(ask: HttpAsk) -> HttpAsk | None:
    """The same question as older releases know it, None where it has one name only."""
    return server_info_fallback(ask) or loads_fallback(ask)


def _url(instance: Instance, fact: Fact) -> str | None:
    if fact is Fact.METRICS:
        return None if instance.role is Role.PROXY else instance.metrics
    path = _paths(instance).get(fact)
    return f"{instance.url.rstrip('/')}{path}" if instance.url and path else None


def _paths(instance: Instance) -> dict[Fact, str]:
    if instance.role is Role.ROUTER:
        return _ROUTER
    if instance.role is Role.PROXY:
        return _PROXY
    return _VLLM if instance.engine == "vllm" else _SGLANG
