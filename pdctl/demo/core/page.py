"""An engine's metrics page, in the layout of prometheus multiprocess mode and of this release."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pdctl.demo.core.catalogue import Family, families_of
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.loopclock import CATEGORIES, cpu_seconds, idle_seconds, stage_seconds
from pdctl.demo.core.rank import Rank
from pdctl.demo.core.series import NONE, Histogram, Labels, labels
from pdctl.model.cluster import Role

PREFIX = "sglang:"
BY_PRIORITY = frozenset(
    {
        "num_running_reqs", "num_queue_reqs", "num_prefill_bootstrap_queue_reqs", "num_prefill_inflight_queue_reqs",
        "num_decode_prealloc_queue_reqs", "num_decode_transfer_queue_reqs",
    }
)  # fmt: skip


def render_page(engine: SimEngine) -> str:
    """The page as of now."""
    lines: list[str] = []
    for family in families_of(engine.traits, engine.spec.role):
        rows = list(_rows(engine, family))
        if rows:
            kind = "gauge" if family.is_gauge(engine.traits) else family.type
            name = PREFIX + family.name
            lines.append(f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n" + "\n".join(rows))
    return "\n".join(lines) + "\n"


def _rows(engine: SimEngine, family: Family) -> Iterator[str]:
    if family.scope == "plain":
        return _plain_rows(engine, family)
    if family.scope == "rank":
        return _rank_rows(engine, family)
    return _tokenizer_rows(engine, family)


# -- scheduler families ----------------------------------------------------------------------------------------
def _rank_rows(engine: SimEngine, family: Family) -> Iterator[str]:
    for rank in engine.ranks:
        for tensor in range(engine.spec.tensor_ranks):
            base = _rank_labels(engine, rank, tensor) + ((("pid", str(rank.pid)),) if family.pid else ())
            if family.name.startswith("scheduler_"):
                yield from _clock_rows(rank, family, base)
            elif family.when == "start":
                yield from _constant_rows(engine, family, base)
            elif tensor == 0 or engine.spec.all_schedulers:
                yield from _reported_rows(rank, family, base)


def _reported_rows(rank: Rank, family: Family, base: Labels) -> Iterator[str]:
    if family.is_gauge(rank.traits):
        if rank.gauges is not None:
            yield from _gauge_rows(rank, family, base, rank.gauges.get(family.name))
    elif family.type == "histogram":
        for extra, histogram in rank.series.histograms.get(family.name, {}).items():
            yield _histogram(family, base + extra, histogram)
    else:
        for extra, value in rank.series.counters.get(family.name, {}).items():
            yield _row(family.name, base + extra, number(value))


def _gauge_rows(rank: Rank, family: Family, base: Labels, value: float | None) -> Iterator[str]:
    text = family.value if value is None else number(value)
    if family.extra:
        yield from (_row(family.name, base + extra, text) for extra in family.extra)
    elif rank.spec.priority and family.name in BY_PRIORITY and rank.traits.since("0.5.15"):
        yield _row(family.name, (*base, ("priority", "")), text)
        yield _row(family.name, (*base, ("priority", "0")), text)
    else:
        yield _row(family.name, base, text)


def _constant_rows(engine: SimEngine, family: Family, base: Labels) -> Iterator[str]:
    size = number(float(engine.spec.kv_tokens))
    text = size if family.name in ("max_total_num_tokens", "num_pages") else family.value
    if family.type == "histogram":
        yield _histogram(family, base, Histogram(tuple(float(b) for b in family.buckets if b != "+Inf")))
        return
    for extra in family.extra or (NONE,):
        yield _row(family.name, base + extra, text)


def _clock_rows(rank: Rank, family: Family, base: Labels) -> Iterator[str]:
    spent = rank.clock.shown(rank.tl.now)
    if family.name == "scheduler_idle_seconds_total":
        yield _row(family.name, base, number(idle_seconds(spent)))
    elif family.name == "scheduler_process_cpu_seconds_total":
        yield _row(family.name, base, number(cpu_seconds(spent)))
    else:
        for category in CATEGORIES:
            extra = labels(category=category, forward_overlap="none")
            yield _row(family.name, base + extra, number(stage_seconds(spent, category)))


def _rank_labels(engine: SimEngine, rank: Rank, tensor: int) -> Labels:
    spec, traits = engine.spec, engine.traits
    named = {"model_name": spec.model, "engine_type": _engine_type(engine), **dict(spec.extra_labels)}
    if traits.rank_labels:
        at = engine.first_tensor_rank(rank) + tensor
        named |= {"tp_rank": str(at), "pp_rank": "0"}
        if spec.dp > 1:
            named["dp_rank"] = str(rank.dp)
        if traits.true_engine_type:
            named["moe_ep_rank"] = str(at if spec.lockstep else 0)
    return tuple(named.items())


def _engine_type(engine: SimEngine) -> str:
    if not engine.traits.true_engine_type:
        return "unified"
    return "prefill" if engine.spec.role is Role.PREFILL else "decode"


# -- tokenizer and plain families ------------------------------------------------------------------------------
def _tokenizer_rows(engine: SimEngine, family: Family) -> Iterator[str]:
    named = {"model_name": engine.spec.model, **dict(engine.spec.extra_labels)}
    if family.scope == "tokenizer" and engine.traits.tokenizer_engine_type:
        named["engine_type"] = _engine_type(engine)
    base = tuple(named.items())
    if family.when == "start":
        for extra in family.extra or (NONE,):
            yield _row(family.name, base + extra, family.value)
    for extra, histogram in engine.series.histograms.get(family.name, {}).items():
        yield _histogram(family, base + extra, histogram)
    for extra, value in engine.series.counters.get(family.name, {}).items():
        yield _row(family.name, base + extra, number(value))


def _plain_rows(engine: SimEngine, family: Family) -> Iterator[str]:
    front = engine.front
    if family.name in ("http_requests_active", "http_requests_total"):
        table = front.active if family.name.endswith("active") else front.total
        for (endpoint, method), count in table.items():
            yield _row(family.name, labels(endpoint=endpoint, method=method), number(float(count)))
    elif family.name == "http_responses_total":
        for (endpoint, method, status), count in front.answered.items():
            extra = labels(endpoint=endpoint, method=method, status_code=str(status))
            yield _row(family.name, extra, number(float(count)))
    elif family.name == "process_cpu_seconds_total":
        ticks = int((engine.tl.now - engine.born) / 5)  # written every five seconds
        for component, each in (("detokenizer", 0.01), ("tokenizer", 0.13)):
            yield _row(family.name, labels(component=component), number(round(ticks * each, 2)))
    else:
        for extra in family.extra or (NONE,):
            yield _row(family.name, extra, family.value)


# -- text ------------------------------------------------------------------------------------------------------
def _row(name: str, named: Labels, text: str) -> str:
    return f"{PREFIX}{name}{_braces(named)} {text}"


def _histogram(family: Family, named: Labels, histogram: Histogram) -> str:
    name = family.name
    lines = [_row(name + "_sum", named, number(histogram.sum))]
    total = 0
    for bound, count in zip(family.buckets, histogram.counts, strict=False):
        total += count
        lines.append(f"{PREFIX}{name}_bucket{_braces((*named, ('le', bound)))} {float(total)}")
    lines.append(_row(name + "_count", named, number(float(histogram.count))))
    return "\n".join(lines)


@lru_cache(maxsize=20_000)
def _braces(named: Labels) -> str:
    if not named:
        return ""
    return "{" + ",".join(f'{key}="{escape(value)}"' for key, value in sorted(named)) + "}"


def escape(value: str) -> str:
    """A label value as the exposition format writes it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: float) -> str:
    """A float as the Prometheus client for Python prints it: 1.0, 0.05, 2.5e+07."""
    text = repr(value)
    dot = text.find(".")
    if value > 0 and dot > 6 and "e" not in text:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text
