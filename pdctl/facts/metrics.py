"""A ``/metrics`` answer -> EngineMetrics or RouterMetrics.

The inventory says which of the two an instance should have. A page of the other kind is unreadable rather than read
as what it is: a check that asks an engine for engine metrics would else find neither an answer nor a reason.
"""

from __future__ import annotations

from pdctl.facts import names
from pdctl.facts.base import Unreadable
from pdctl.facts.engine_metrics import read_engine
from pdctl.facts.page import Page, read_page
from pdctl.facts.router_metrics import read_router
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance, Role
from pdctl.model.engine import EngineMetrics
from pdctl.model.router import RouterMetrics

_ANY_WANTED = frozenset(names.ENGINE_WANTED) | names.ROUTER_WANTED
_NO_PAGE = Page({}, frozenset(), 0)


def read(answer: Answer, instance: Instance | None) -> EngineMetrics | RouterMetrics:
    """What the page says. Raises Unreadable: EMPTY, NOT_METRICS, TRUNCATED (facts/page.py)."""
    if answer.body is None:
        raise Unreadable(Why.EMPTY, "the answer has no body")
    if instance is None or instance.role is Role.PROXY:
        return _read_by_content(answer.body, answer.content_type)
    if instance.role is Role.ROUTER:
        if not answer.body.strip():
            return read_router(_NO_PAGE)
        return read_router(read_page(answer.body, names.ROUTER_WANTED, answer.content_type))
    return read_engine(read_page(answer.body, names.ENGINE_WANTED, answer.content_type), instance)


def _read_by_content(body: bytes, content_type: str | None) -> EngineMetrics | RouterMetrics:
    page = read_page(body, _ANY_WANTED, content_type)
    engine = page.families(*names.SGLANG_PREFIXES, *names.VLLM_PREFIXES)
    return read_engine(page) if engine >= page.families(*names.ROUTER_PREFIXES) else read_router(page)
