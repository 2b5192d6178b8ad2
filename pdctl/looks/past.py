"""Looking back: what a Prometheus server scraped of the cluster, written as a recording and judged like any other.

One query a metric for all instances, never one an instance. Only what engines and routers export is there: no live
queue counts, no settings, no logs, no host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pdctl.errors import SourceError
from pdctl.facts import prometheus
from pdctl.facts.base import Unreadable
from pdctl.facts.prometheus import Labels, Scrape, Series, Server, Target
from pdctl.keep import keeping
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import Cluster, Instance
from pdctl.reach.clock import Clock
from pdctl.reach.http import HttpReach
from pdctl.reach.url import shown

T = TypeVar("T")
SLICE_POINTS = 40_000  # samples of one series of each target asked for at once
SCRAPE_S = 15.0  # taken for the time between scrapes when the span is cut; a shorter one makes larger answers
DEADLINE_S = 3600.0


@dataclass(slots=True)
class Past:
    """What came of it. ``scrapes`` counts the pages written; ``strangers`` are targets that export what engines or
    routers do and are no instance of the cluster; ``notes`` say what went wrong with keeping."""

    cluster: Cluster
    scrapes: int = 0
    queries: int = 0
    strangers: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when, both aware; ``release`` is what the operator says the engines are."""

    start: datetime
    end: datetime
    release: str | None = None


class PastLook:
    """Asks a Prometheus server about a span of time. Use it as a context manager."""

    def __init__(self, server: Server, span: Span, clock: Clock) -> None:
        self._server = server
        self._span = span
        self._clock = clock
        self._http = HttpReach(clock=clock)
        self._queries = 0

    def __enter__(self) -> PastLook:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def recall(self, cluster: Cluster | None, path: Path) -> Past:
        """Writes what was scraped to ``path``; without a cluster, of what the labels say is one. Raises SourceError
        where Prometheus does not answer or knows nothing of it, CaptureError where ``path`` can't be made."""
        start, end = self._span.start.timestamp(), self._span.end.timestamp()
        known = self._read(self._server.labels_ask(start, end), prometheus.read_labels)
        whole = cluster or prometheus.cluster_in(known)
        up = self._samples(prometheus.UP, start, end)
        targets = prometheus.targets_of(whole, {*(one.target for one in up), *map(prometheus.target_in, known)})
        if not targets:
            raise SourceError("Prometheus scraped none of these instances then", _hint(known, whole))
        present = self._read(self._server.names_ask(start, end), prometheus.read_names) & prometheus.WANTED
        past = Past(whole, strangers=_strangers(known, targets))
        with keeping(path, whole) as keeper:
            for answer in self._answers(whole, targets, sorted(present)):
                keeper.add(answer)
                past.scrapes += answer.body is not None and answer.fact is Fact.METRICS
        past.notes, past.queries = keeper.notes, self._queries
        return past

    def _answers(self, cluster: Cluster, targets: Mapping[Target, str], present: Sequence[str]) -> Iterator[Answer]:
        for instance in cluster.instances:
            yield from self._first(instance, instance.name in targets.values())
        for piece in _slices(self._span, len(targets)):
            yield from self._scraped(piece, targets, present)

    def _first(self, instance: Instance, is_target: bool) -> Iterator[Answer]:
        """What is known before the first scrape: the release, where it was said, and that nobody scrapes this one."""
        if self._span.release is not None and instance.is_engine:
            body = prometheus.release_body(self._span.release, instance.role)
            yield self._answer(instance.name, Fact.SERVER_INFO, 0.0, "--release", body=body)
        if not is_target and instance.metrics is not None:
            why = f"no target of Prometheus is {shown(instance.metrics)}"
            yield self._answer(instance.name, Fact.METRICS, 0.0, self._ask(""), error=Why.NOT_FOUND, detail=why)

    def _scraped(
        self, piece: tuple[float, float], targets: Mapping[Target, str], present: Sequence[str]
    ) -> Iterator[Answer]:
        places = sorted({target.instance for target in targets})
        rows = (
            (name, one)
            for name in (prometheus.UP, prometheus.TOOK, *present)
            for one in self._samples(name, *piece, places)
        )
        pages = prometheus.pages_of(rows, targets)
        at_place = {name: target.instance for target, name in targets.items()}
        flat = ((at, name, scrape) for name, scrapes in pages.items() for at, scrape in scrapes.items())
        for at, name, scrape in sorted(flat, key=lambda row: row[:2]):
            if at > piece[0]:
                yield self._page(name, at_place[name], at, scrape)

    def _page(self, name: str, place: str, at: float, scrape: Scrape) -> Answer:
        t, ask = at - self._span.start.timestamp(), self._ask(place)
        if scrape.up is False and not scrape.lines:
            why = "Prometheus could not scrape it (up is 0)"
            return self._answer(name, Fact.METRICS, t, ask, took=scrape.took, error=Why.OTHER, detail=why)
        body = "".join(scrape.lines) or "# scraped, with none of the metrics pdctl reads\n"
        return self._answer(name, Fact.METRICS, t, ask, took=scrape.took, body=body.encode())

    def _answer(
        self, name: str, fact: Fact, t: float, ask: str, *, took: float = 0.0, body: bytes | None = None,
        error: Why | None = None, detail: str | None = None,
    ) -> Answer:  # fmt: skip
        at = datetime.fromtimestamp(self._span.start.timestamp() + t, UTC)
        status = 200 if body is not None else None
        return Answer(name, fact, ask, t, at, took, status, error, detail, body)

    def _ask(self, place: str) -> str:
        return f"{shown(self._server.url)}: scrape of {place}" if place else shown(self._server.url)

    def _samples(self, name: str, start: float, end: float, places: Sequence[str] = ()) -> tuple[Series, ...]:
        return self._read(self._server.samples_ask(name, start, end, places), prometheus.read_series)

    def _read(self, ask: HttpAsk, read: Callable[[Answer], T]) -> T:
        now = self._clock.now()
        answer = self._http.answer(ask, started=now, deadline=now + DEADLINE_S)
        self._queries += 1
        if answer.error is not None:
            raise SourceError(f"{shown(self._server.url)}: {answer.detail or answer.error}", _unanswered(answer.error))
        try:
            return read(answer)
        except Unreadable as error:
            status = f" (HTTP {answer.status})" if answer.status != 200 else ""
            raise SourceError(f"{shown(self._server.url)}: {error.detail or error.why}{status}") from None


def _slices(span: Span, targets: int) -> Iterator[tuple[float, float]]:
    """The span cut so that no answer gets too large: after the first moment of a piece, up to and with its last."""
    start, end = span.start.timestamp() - 0.001, span.end.timestamp()
    length = max(60.0, SLICE_POINTS / max(1, targets) * SCRAPE_S)
    while start < end:
        yield start, min(start + length, end)
        start += length


def _strangers(known: Sequence[Labels], targets: Mapping[Target, str]) -> tuple[str, ...]:
    mine = {target.instance for target in targets}
    return tuple(sorted({prometheus.target_in(labels).instance for labels in known} - mine))


def _hint(known: Sequence[Labels], cluster: Cluster) -> str:
    """What Prometheus does know, to be compared with what was asked for."""
    wanted = [place for i in cluster.instances for place in prometheus.places_of(cluster, i)[:1]]
    there = sorted({prometheus.target_in(labels).instance for labels in known})
    said = f"It knows engines and routers as {', '.join(there[:6])}{', ...' if len(there) > 6 else ''}."
    asked = f"Asked for: {', '.join(wanted[:6])}. " if wanted else ""
    return asked + (said if there else "It has no series of an engine or router in that time: see --since, --match.")


def _unanswered(error: Why) -> str:
    return {
        Why.TOO_LARGE: "Take a shorter span, or fewer series with --match.",
        Why.AUTH: "Give its key with --key-env or --key-file.",
    }.get(error, "Is this the address of a Prometheus server's web page?")
