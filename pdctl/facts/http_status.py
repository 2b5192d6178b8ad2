"""HTTP statuses that mean an answer is not the one asked for, in words that say what to do about it."""

from __future__ import annotations

from pdctl.facts.base import Unreadable
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Instance


def refuse_bad_status(answer: Answer, instance: Instance | None) -> None:
    """Raise Unreadable for an HTTP status other than 2xx.

    A missing status is let through: captures hold bodies without one. A health endpoint's 5xx is let through too:
    it is that endpoint's way of saying "unhealthy" (engines 503 while starting, draining, or after their timeout).
    """
    status = answer.status
    if status is None or 200 <= status < 300:
        return
    if answer.fact is Fact.HEALTH and status >= 500:
        return
    if status in (401, 403):
        raise Unreadable(Why.AUTH, _unauthorized(status))
    if 300 <= status < 400:
        raise Unreadable(Why.REDIRECT, _redirect(answer, status))
    if status == 404:
        raise _not_found(answer, instance)
    raise Unreadable(Why.HTTP_ERROR, _error(answer, status))


def _unauthorized(status: int) -> str:
    if status == 403:
        return "unauthorized: HTTP 403, the key was refused here (an admin key may be wanted)"
    return "unauthorized: HTTP 401, the endpoint wants an API key"


def _redirect(answer: Answer, status: int) -> str:
    """Where it leads, as the transport said it ("redirects to ...")."""
    return f"HTTP {status} {answer.detail or 'redirects elsewhere'}"


def _not_found(answer: Answer, instance: Instance | None) -> Unreadable:
    engine = instance is None or instance.is_engine
    if answer.fact is Fact.METRICS and instance is not None and instance.engine == "vllm":
        # mounted on the API server whatever its flags are (vllm/entrypoints/openai/api_server.py)
        return Unreadable(Why.NOT_FOUND, "HTTP 404: every vLLM API server has this page, so the URL is not one's")
    if answer.fact is Fact.METRICS and engine:
        return Unreadable(Why.METRICS_DISABLED, "HTTP 404: the engine was started without --enable-metrics")
    if answer.fact is Fact.METRICS:
        return Unreadable(Why.NOT_FOUND, "HTTP 404: a router serves metrics on its --prometheus-port, not here")
    return Unreadable(Why.NOT_FOUND, "HTTP 404: this release has no such endpoint, or the URL is not the instance's")


def _error(answer: Answer, status: int) -> str:
    if answer.fact is Fact.LOADS and status == 500 and b"_IncludedRouter" in (answer.body or b""):
        # Seen on 0.5.9 to 0.5.15 with a recent FastAPI: '_IncludedRouter' object has no attribute 'path'.
        return "HTTP 500: /v1/loads is unreadable here (this release clashes with its FastAPI); no sign of sickness"
    return f"HTTP {status}"
