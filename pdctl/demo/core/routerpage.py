"""A router's metrics page: no HELP and a blank line between families in 0.3.2, whole numbers without a point."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pdctl.demo.core.page import escape
from pdctl.demo.core.rank import Counts
from pdctl.demo.core.router import SimRouter
from pdctl.demo.core.routerstate import AGE_BOUNDS, DURATION_BOUNDS, WorkerState
from pdctl.demo.core.series import Labels

CB_HELP = "Circuit breaker state per worker (0=closed, 1=open, 2=half_open)"
HELP = {
    "smg_http_inflight_request_age_count":
        "In-flight HTTP requests per age bucket (gt < age <= le, non-cumulative)",
    "smg_worker_cb_state": CB_HELP,
    "smg_worker_health": "Worker health status (1=healthy, 0=unhealthy)",
    "smg_worker_requests_active": "Number of active requests per worker",
    "smg_http_requests_total": "Total HTTP requests",
    "smg_http_responses_total": "Total HTTP responses",
    "smg_http_connections_active": "Number of active HTTP connections",
}  # fmt: skip
Block = tuple[str, str, list[str]]


def render_router_page(router: SimRouter, model: str) -> str:
    """The page as of now. Families are there once they were used."""
    blocks = [block for block in _blocks(router, model) if block[2]]
    if router.spec.shape == "smg":
        return "".join(_with_help(*block) for block in blocks)
    return "".join(f"# TYPE {name} {kind}\n" + "\n".join(rows) + "\n\n" for name, kind, rows in blocks)


def _with_help(name: str, kind: str, rows: list[str]) -> str:
    text = HELP.get(name, name.removeprefix("smg_").replace("_", " "))
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "\n".join(rows) + "\n\n"


def _blocks(router: SimRouter, model: str) -> Iterator[Block]:
    common = (("connection_mode", "http"), ("model", model))
    fixed: dict[str, Labels] = {
        "worker_selection_total": (*common, ("policy", "cache_aware")),
        "router_requests_total": (("router_type", "http"), ("backend_type", "pd"), *common),
        "worker_errors_total": (("connection_mode", "http"),),
    }
    for family, rows in router.series.counters.items():
        extra = fixed.get(family, ())
        lines = [_row(f"smg_{family}", labels + extra, value) for labels, value in rows.items()]
        yield f"smg_{family}", "counter", lines
    yield from _worker_blocks(router, model)
    yield from _engine_blocks(router, model)
    yield "smg_http_inflight_request_age_count", "gauge", list(_ages(router))
    active = len(router.jobs) + router.leaked_connections
    yield (
        "smg_http_connections_active",
        "gauge",
        [f"smg_http_connections_active {active}"] if router.jobs or active else [],
    )
    for family, key in (
        ("smg_http_request_duration_seconds", "http"),
        ("smg_router_request_duration_seconds", "router"),
    ):
        yield family, "histogram", list(_durations(router, family, key))


def _worker_blocks(router: SimRouter, model: str) -> Iterator[Block]:
    columns: dict[str, Callable[[WorkerState], int]] = {
        "smg_worker_health": lambda w: int(w.healthy),
        "smg_worker_requests_active": lambda w: w.active,
        "smg_worker_cb_state": lambda w: w.state,
        "smg_worker_cb_consecutive_failures": lambda w: w.failures,
        "smg_worker_cb_consecutive_successes": lambda w: w.successes,
    }
    for family, read in columns.items():
        rows = [_row(family, (("worker", w.engine.spec.url),), read(w)) for w in router.workers]
        yield family, "gauge", rows
    outcomes = [
        _row("smg_worker_cb_outcomes_total", (("worker", w.engine.spec.url), ("outcome", outcome)), count)
        for w in router.workers
        for outcome, count in w.outcomes.items()
    ]
    yield "smg_worker_cb_outcomes_total", "counter", outcomes
    pools = [
        _row(
            "smg_worker_pool_size", (("worker_type", kind), ("connection_mode", "http"), ("model", model)),
            sum(w.kind == kind for w in router.workers),
        )
        for kind in ("prefill", "decode")
    ]  # fmt: skip
    yield "smg_worker_pool_size", "gauge", pools


def _engine_blocks(router: SimRouter, model: str) -> Iterator[Block]:
    """What smg knows of the engines' queues."""
    columns: dict[str, Callable[[Counts], float]] = {
        "smg_engine_running_requests": lambda c: c.running,
        "smg_engine_waiting_requests": lambda c: c.all_waiting,
        "smg_engine_gen_throughput": lambda c: round(c.throughput, 2),
    }
    for family, read in columns.items():
        rows = [
            _row(family, (("worker", w.engine.spec.url), ("model", model), ("dp_rank", str(dp))), read(counts))
            for w, dp, counts in router.views
        ]
        yield family, "gauge", rows


def _ages(router: SimRouter) -> Iterator[str]:
    if router.aged is None:
        return
    edges = [0, *AGE_BOUNDS]
    tops = [*AGE_BOUNDS[1:], None]
    bounds = list(zip(edges, [AGE_BOUNDS[0], *tops], strict=True))
    for low, high in bounds:
        count = sum(low < age <= (high if high is not None else float("inf")) for age in router.aged)
        le = str(high) if high is not None else "+Inf"
        yield f'smg_http_inflight_request_age_count{{gt="{low}",le="{le}"}} {count}'


def _durations(router: SimRouter, family: str, key: str) -> Iterator[str]:
    for labels, histogram in router.series.histograms.get(key, {}).items():
        total = 0
        for bound, count in zip((*DURATION_BOUNDS, "+Inf"), histogram.counts, strict=True):
            total += count
            yield _row(f"{family}_bucket", (*labels, ("le", str(bound))), total)
        yield _row(f"{family}_sum", labels, histogram.sum)
        yield _row(f"{family}_count", labels, histogram.count)


def _row(name: str, labels: Labels, value: float) -> str:
    text = str(int(value)) if value == int(value) else repr(value)
    inside = ",".join(f'{key}="{escape(str(named))}"' for key, named in labels)
    return f"{name}{{{inside}}} {text}"
