"""A router's metrics page -> RouterMetrics (sglang-router 0.1.9, 0.2.4, 0.3.2, smg 1.13).

A family appears on the page after its first use, so an idle router's page is short, and that of 0.1.9 has no byte at
all. An empty page of a router is therefore read as a page that holds no family yet (``family`` "unknown"): every value
is absent, which is not 0. Reporting it as unreadable would call each idle 0.1.9 router sick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pdctl.facts import names
from pdctl.facts.base import Unreadable
from pdctl.facts.page import Page, Sample
from pdctl.model.answer import Why
from pdctl.model.router import AgeBucket, RouterMetrics

UNKNOWN_FAMILY = "unknown"
BOTH_LEGS = "all"  # sglang-router before 0.3 counts retries without saying of which leg
Join = Callable[[float, float], float]


def read_router(page: Page) -> RouterMetrics:
    """What the page says. Raises Unreadable (NOT_METRICS) for a page that holds metrics, and none of a router."""
    family, families = _family(page)
    return RouterMetrics(
        family=family,
        active=_by(page, names.ROUTER_ACTIVE, "worker", lambda a, b: a + b),
        breaker=_by(page, names.ROUTER_BREAKER, "worker", max),
        healthy=_by(page, names.ROUTER_HEALTHY, "worker", min),
        consecutive_failures=_by(page, names.ROUTER_FAILURES, "worker", max),
        ages=_ages(page),
        requests=_total(_pd(page.of(names.SMG_REQUESTS)) + page.of(names.SGL_REQUESTS)),
        responses=_by(page, names.ROUTER_RESPONSES, "status_code", lambda a, b: a + b),
        errors=_errors(page),
        retries=_retries(page),
        duration_sum=_duration(page, "sum"),
        duration_count=_duration(page, "count"),
        connections=_total(page.of(names.ROUTER_CONNECTIONS)),
        families=families,
    )


def _family(page: Page) -> tuple[str, int]:
    smg, sgl = page.families(*names.SMG_PREFIXES), page.families(*names.SGL_ROUTER_PREFIXES)
    if not smg and not sgl:
        if not page.names:
            return UNKNOWN_FAMILY, 0
        engine = page.families(*names.SGLANG_PREFIXES, *names.VLLM_PREFIXES)
        what = "an engine's page" if engine else "no metric of a router on the page"
        raise Unreadable(Why.NOT_METRICS, f"not a router's metrics: {what} ({page.lines} lines)")
    return ("smg", smg) if smg >= sgl else ("sgl_router", sgl)


def _by(page: Page, row: tuple[str, ...], label: str, join: Join) -> dict[str, float]:
    """The values of the first name the page holds, by one label; series that differ in other labels are joined."""
    rows = next((page.of(name) for name in row if page.of(name)), [])
    return _joined(((labels.get(label, ""), value) for labels, value in rows), join)


def _joined(pairs: Iterable[tuple[str, float]], join: Join) -> dict[str, float]:
    joined: dict[str, float] = {}
    for key, value in pairs:
        if value == value:
            joined[key] = join(joined[key], value) if key in joined else value
    return joined


def _ages(page: Page) -> tuple[AgeBucket, ...]:
    try:
        rows = [
            AgeBucket(float(labels["gt"]), float(labels["le"]), value)
            for labels, value in page.of(names.ROUTER_AGES)
            if value == value
        ]
    except (KeyError, ValueError):
        raise Unreadable(Why.NOT_METRICS, f"{names.ROUTER_AGES} has a bucket without bounds") from None
    return tuple(sorted(rows, key=lambda bucket: bucket.gt))


def _pd(rows: list[Sample]) -> list[Sample]:
    return [row for row in rows if row[0].get("backend_type", names.PD_BACKEND) == names.PD_BACKEND]


def _total(rows: Iterable[Sample]) -> float | None:
    values = [value for _, value in rows if value == value]
    return sum(values) if values else None


def _errors(page: Page) -> dict[str, float]:
    pairs = [
        (f"{labels.get('worker_type', '')}/{labels.get('error_type', '')}", value)
        for labels, value in page.of(names.SMG_ERRORS)
    ]
    pairs += [
        (f"pd/{labels.get('error_type') or labels.get('error', '')}", value)
        for labels, value in page.of(names.SGL_ERRORS)
    ]
    pairs += [(key, value) for name, key in names.SGL_LEG_ERRORS.items() for _, value in page.of(name)]
    return _joined(pairs, lambda a, b: a + b)


def _retries(page: Page) -> dict[str, float]:
    pairs = [(labels.get("worker_type", ""), value) for labels, value in page.of(names.SMG_RETRIES)]
    pairs += [(BOTH_LEGS, value) for _, value in page.of(names.SGL_RETRIES)]
    return _joined(pairs, lambda a, b: a + b)


def _duration(page: Page, part: str) -> float | None:
    return _total(_pd(page.of(f"{names.SMG_DURATION}_{part}")) + page.of(f"{names.SGL_DURATION}_{part}"))
