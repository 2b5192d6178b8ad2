"""An engine's metrics page -> EngineMetrics.

How series of one value are joined (part of every rule is the source that makes it so):

- A gauge under priority scheduling has its total at ``priority=""`` and a part for each priority
  (``_log_gauge_queue_count``): the total is read, parts are never added to it. Parts without a total are added.
- A counter has no total of its own: split by mode, category, streaming or a request's priority (``collect_metrics``
  puts a request into one), its series are disjoint and are added.
- Series of a gauge that differ in anything else (``pid`` of the gauges kept per process: retracted, paused; labels of
  an earlier start in a kept multiprocess directory) say the same thing twice: the greatest is taken. Adding them
  would count the dead process of an earlier start; the greatest errs towards "something is there".
- Each rank keeps its own value: with metrics for all schedulers the tensor ranks repeat one another, and
  ``EngineMetrics.by_dp`` folds that.
- NaN says nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from pdctl.facts import names
from pdctl.facts.base import Unreadable
from pdctl.facts.page import Labels, Page, Sample
from pdctl.model.answer import Why
from pdctl.model.cluster import Instance
from pdctl.model.engine import COUNTERS, EngineMetrics, Gauge
from pdctl.model.rank import Rank

FEW_NAMES = 1000  # an engine has some 200: what is no engine's page is not remembered
Ranked = dict[Rank, float]
Place = tuple[str | None, str | None, str | None, str | None, str | None]  # the rank labels as written


def read_engine(page: Page, instance: Instance | None = None) -> EngineMetrics:
    """What the page says. Raises Unreadable (NOT_METRICS) where no engine family is on it, or where it merges the
    pages of several workers and none of them is this instance."""
    engine, prefix, families = _engine(page)
    samples = _own(page, instance)
    values = _values(samples, names.VLLM if engine == "vllm" else names.SGLANG, prefix)
    if engine == "vllm":
        _finish_vllm(values, samples, prefix)
    seen = _finite(samples.get(prefix + names.SGLANG_HTTP_SEEN, ()))
    return EngineMetrics(
        values=values,
        engine_type=_label(samples, "engine_type"),
        model=_label(samples, "model_name"),
        http_active=_http_active(samples.get(prefix + names.SGLANG_HTTP_ACTIVE)),
        http_seen=_added(seen, lambda labels: labels.get("endpoint", "")),
        engine=engine,
        families=families,
        stages=_stages(samples, prefix),
        stage_counts=_request_stages(samples.get(prefix + names.SGLANG_STAGE_COUNT, ())),
        stage_sums=_request_stages(samples.get(prefix + names.SGLANG_STAGE_SUM, ())),
    )


def _engine(page: Page) -> tuple[str, str, int]:
    """Which engine wrote the page, with which prefix, and how many of its families the page holds."""
    kind = _known_kind if len(page.names) <= FEW_NAMES else _kind
    engine, prefix, families = kind(page.names)
    if not families:
        what = "a router's page" if page.families(*names.ROUTER_PREFIXES) else "no metric of an engine on the page"
        raise Unreadable(Why.NOT_METRICS, f"not an engine's metrics: {what} ({page.lines} lines)")
    return engine, prefix, families


def _kind(seen: frozenset[str]) -> tuple[str, str, int]:
    """Whose prefix most of these names have, and how many families that makes."""
    kinds = [("sglang", p) for p in names.SGLANG_PREFIXES] + [("vllm", p) for p in names.VLLM_PREFIXES]
    engine, prefix = max(kinds, key=lambda kind: sum(name.startswith(kind[1]) for name in seen))
    return engine, prefix, Page({}, seen, 0).families(prefix)


_known_kind = lru_cache(maxsize=64)(_kind)  # an engine's pages hold the same names, one as the other


def _own(page: Page, instance: Instance | None) -> Mapping[str, list[Sample]]:
    """The page's samples; of a page that a router merged from its workers' pages, this instance's alone."""
    found = {labels[names.WORKER] for rows in page.samples.values() for labels, _ in rows if names.WORKER in labels}
    if len(found) < 2:
        return page.samples
    place = urlsplit(instance.url).netloc if instance is not None and instance.url else ""
    mine = {worker for worker in found if place and place in (worker, urlsplit(worker).netloc)}
    if not mine:
        raise Unreadable(Why.NOT_METRICS, f"the page merges {len(found)} workers, none of them this instance")
    return {
        name: [(labels, value) for labels, value in rows if labels.get(names.WORKER) in mine]
        for name, rows in page.samples.items()
    }


def _values(
    samples: Mapping[str, list[Sample]], table: Mapping[Gauge, tuple[str, ...]], prefix: str
) -> dict[Gauge, Ranked]:
    ranks: dict[Place, Rank] = {}
    values: dict[Gauge, Ranked] = {}
    for gauge, row in table.items():
        rows = next((samples[prefix + name] for name in row if samples.get(prefix + name)), None)
        if rows:
            values[gauge] = _ranked(gauge, rows, ranks)
    if started := samples.get(names.START_TIME):
        values[Gauge.START_TIME] = _ranked(Gauge.START_TIME, started, ranks)
    return {gauge: ranked for gauge, ranked in values.items() if ranked}


def _ranked(gauge: Gauge, rows: Iterable[Sample], ranks: dict[Place, Rank]) -> Ranked:
    """The value of each rank."""
    return _joined(rows, ranks, _sum_of_series if gauge in COUNTERS else _total_or_parts)


def _summed(rows: Iterable[Sample], ranks: dict[Place, Rank]) -> Ranked:
    """A counter's value of each rank."""
    return _joined(rows, ranks, _sum_of_series)


def _joined(rows: Iterable[Sample], ranks: dict[Place, Rank], join: Callable[[list[Sample]], float]) -> Ranked:
    """``ranks`` keeps the ranks of a page, so that each is made once."""
    by_rank: dict[Rank, list[Sample]] = {}
    for sample in rows:
        labels, value = sample
        if value != value:  # NaN
            continue
        place = _place(labels)
        rank = ranks.get(place)
        if rank is None:
            rank = ranks[place] = Rank(*map(_number, place))
        by_rank.setdefault(rank, []).append(sample)
    return {rank: found[0][1] if len(found) == 1 else join(found) for rank, found in by_rank.items()}


def _place(labels: Labels) -> Place:
    get = labels.get
    dp, pp, tp, ep, cp = names.RANK_LABELS
    return get(dp, get(names.VLLM_DP_LABEL)), get(pp), get(tp), get(ep), get(cp)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None


def _sum_of_series(rows: Iterable[Sample]) -> float:
    """A counter: disjoint series are added; one series given twice counts once, with its greatest value."""
    series: dict[frozenset[tuple[str, str]], float] = {}
    for labels, value in rows:
        key = frozenset(labels.items())
        series[key] = max(value, series.get(key, value))
    return sum(series.values())


def _total_or_parts(rows: Iterable[Sample]) -> float:
    """A gauge: the total, else its parts added; of series that say the same, the greatest."""
    parts: dict[str, float] = {}
    for labels, value in rows:
        priority = labels.get(names.PRIORITY, "")
        parts[priority] = max(value, parts.get(priority, value))
    return parts[""] if "" in parts else sum(parts.values())


def _finite(rows: Iterable[Sample]) -> list[Sample]:
    return [(labels, value) for labels, value in rows if value == value]


def _label(samples: Mapping[str, list[Sample]], name: str) -> str | None:
    """The first series' own word. Until 0.5.6 ``engine_type`` is "unified" whatever the role."""
    return next((labels[name] for rows in samples.values() for labels, _ in rows if labels.get(name)), None)


def _added(rows: Iterable[Sample], key: Callable[[Labels], str]) -> dict[str, float]:
    added: dict[str, float] = {}
    for labels, value in rows:
        added[key(labels)] = added.get(key(labels), 0.0) + value
    return added


def _http_active(rows: Iterable[Sample] | None) -> float | None:
    """Generate-like requests under way. 0 where the family is there and holds none: an endpoint has a series from
    its first request on, and the request for this page is one. Releases before 0.5.8 have no such family: None."""
    if rows is None:
        return None
    return sum(
        (v for labels, v in _finite(rows) if names.is_generate(labels.get("endpoint", ""), labels.get("method"))), 0.0
    )


def _stages(samples: Mapping[str, list[Sample]], prefix: str) -> dict[str, float]:
    (name,) = names.SGLANG[Gauge.STAGE_SECONDS]
    return _added(_finite(samples.get(prefix + name, ())), lambda labels: labels.get(names.STAGE_LABEL, ""))


def _request_stages(rows: Iterable[Sample]) -> dict[str, Ranked]:
    """Each wanted stage's value by rank."""
    by_stage: dict[str, list[Sample]] = {}
    for sample in rows:
        stage = sample[0].get(names.REQUEST_STAGE_LABEL, "")
        if stage in names.REQUEST_STAGES:
            by_stage.setdefault(stage, []).append(sample)
    ranks: dict[Place, Rank] = {}
    return {stage: ranked for stage, found in by_stage.items() if (ranked := _summed(found, ranks))}


def _finish_vllm(values: dict[Gauge, Ranked], samples: Mapping[str, list[Sample]], prefix: str) -> None:
    for gauge, factor in names.VLLM_FACTORS.items():
        if gauge in values:
            values[gauge] = {rank: value * factor for rank, value in values[gauge].items()}
    (name,) = names.VLLM[Gauge.REQUESTS]
    ended = _finite(samples.get(prefix + name, ()))
    aborted = [row for row in ended if row[0].get(names.VLLM_FINISHED) == names.VLLM_ABORTED]
    if aborted:
        values[Gauge.ABORTED] = _ranked(Gauge.ABORTED, aborted, {})
