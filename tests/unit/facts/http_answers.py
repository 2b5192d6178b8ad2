"""Answers for the tests of HTTP facts: recorded bodies (data/http), instances, and the shortest way to an Answer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pdctl.facts import names
from pdctl.facts.page import Page, read_page
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Instance, Role

DATA = Path(__file__).parent / "data" / "http"
AT = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)
PREFILL = Instance("prefill-0", Role.PREFILL, url="http://192.0.2.11:30000")
DECODE = Instance("decode-0", Role.DECODE, url="http://192.0.2.21:30000")
ROUTER = Instance("router-0", Role.ROUTER, url="http://192.0.2.1:30000", metrics_url="http://192.0.2.1:29000/metrics")
PROXY = Instance("proxy-0", Role.PROXY, url="http://192.0.2.2:80")


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


def answer(
    fact: Fact,
    body: bytes | str | None,
    *,
    status: int | None = 200,
    error: Why | None = None,
    detail: str | None = None,
    content_type: str | None = None,
) -> Answer:
    raw = body.encode() if isinstance(body, str) else body
    return Answer("subject", fact, "GET x", 1.0, AT, 0.25, status, error, detail, raw, content_type)


def engine_page(body: bytes | str) -> Page:
    return read_page(body.encode() if isinstance(body, str) else body, frozenset(names.ENGINE_WANTED))


def router_page(body: bytes | str) -> Page:
    return read_page(body.encode() if isinstance(body, str) else body, names.ROUTER_WANTED)
