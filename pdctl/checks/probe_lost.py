"""Answers that were made and never came: requests of a probe that hang although the engines finished them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.probe_matrix import attempts_of
from pdctl.checks.probe_parts import HUNG, SETTLED_S, base_of, begun_of, end_of, parts_of
from pdctl.checks.probe_paths import Path, paths_of
from pdctl.checks.provenance import pages_from
from pdctl.checks.router import idle_evidence
from pdctl.checks.view import EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Role
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.finding import Confidence, Evidence
from pdctl.model.probe import Attempt
from pdctl.model.window import At, Window


@dataclass(frozen=True, slots=True)
class Lost:
    """Requests that hang, and the page on which the engines had finished them already."""

    hung: tuple[Attempt, ...]
    page: At[EngineMetrics]
    finished: int
    answered: int
    all_of_them: bool


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each path through a router whose hanging requests were finished by the decode engines."""
    for path in paths_of(window):
        lost = lost_through(window, cluster, path)
        if lost is not None:
            yield _finding(window, cluster, path, lost)


def lost_on(window: Window, cluster: Cluster, path: Path) -> tuple[Attempt, ...]:
    """The attempts of a path whose answers were lost."""
    lost = lost_through(window, cluster, path)
    return lost.hung if lost is not None else ()


def lost_through(window: Window, cluster: Cluster, path: Path) -> Lost | None:
    """What was lost on a path, None where that can't be told: requests hang, and by the page taken while they were
    waited for the decode engines had finished more requests than were answered, yet no more than the probe sent. (A
    count beyond that is other clients' traffic, and nothing is known.) A PD request ends at decode: prefill counts it
    when its half is done."""
    instance = cluster.instance(path.to)
    if instance is None or instance.role not in (Role.ROUTER, Role.PROXY):
        return None
    hung = tuple(a for a in (*path.fresh, *path.reused) if a.error == HUNG and a.begun_s)
    decodes = [e for e in view_of(window, cluster).decodes if e.pages]
    if not hung or not decodes:
        return None
    elsewhere = {prefill.name for prefill in cluster.prefills}  # what is asked of prefill alone, decode never counts
    made = [a for rows in attempts_of(window).values() for a in rows if a.kind != "health" and a.to not in elsewhere]
    return _counted(made, hung, decodes, base_of(path))


def _counted(made: list[Attempt], hung: tuple[Attempt, ...], decodes: list[EngineView], base: float) -> Lost | None:
    """What the pages taken while requests that hang were under way show, all together: each is given up at a moment of
    its own, so no one page need show them all. The page with the most of them is the one that is told."""
    shown = [lost for page in decodes[0].pages if (lost := _on_page(page, made, hung, decodes, base)) is not None]
    if not shown:
        return None
    every = {a for one in shown for a in one.hung}
    return replace(max(shown, key=lambda one: (len(one.hung), one.page.t)), hung=tuple(a for a in hung if a in every))


def _on_page(
    page: At[EngineMetrics], made: list[Attempt], hung: tuple[Attempt, ...], decodes: list[EngineView], base: float
) -> Lost | None:
    """A page against what was answered by then. Requests that clients left, that failed, or that were under way as
    well, may have been finished or not."""
    now = page.t - base
    waiting = tuple(a for a in hung if begun_of(a) + SETTLED_S <= now < end_of(a))
    finished = _finished(decodes, base, page.t) if waiting else None
    sent = [a for a in made if begun_of(a) <= now and a not in waiting]
    if finished is None or not len(sent) < finished <= len(sent) + len(waiting):
        return None
    answered = sum(1 for a in sent if a.kind != "abort" and a.good and end_of(a) <= now)
    return Lost(waiting, page, finished, answered, finished == len(sent) + len(waiting))


def _finished(decodes: list[EngineView], since: float, until: float) -> int | None:
    """How many requests the decodes finished between two moments, from the last page before the first of them on."""
    total = 0.0
    for engine in decodes:
        pages = [p for p in pages_from(engine.pages, since) if p.t <= until]
        first, last = (p.value.total(Gauge.REQUESTS) for p in (pages[0], pages[-1])) if pages else (None, None)
        if last is None:
            return None
        total += last - (first or 0.0)
    return round(total)


def _finding(window: Window, cluster: Cluster, path: Path, lost: Lost) -> Verdict:
    meanwhile = next((part for _, part in parts_of(window, path, lost.hung)), window)
    idle = [evidence for e in view_of(meanwhile, cluster).engines if (evidence := idle_evidence(e))]
    sure = lost.all_of_them and len(lost.hung) > 1 and len(idle) == len(cluster.engines)
    return found(
        "responses-lost",
        path.to,
        f"{len(lost.hung)} request(s) through {path.to} got no answer although the engines finished them",
        confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
        evidence=tuple(_evidence(path, lost, idle)),
        since=path.seen.seen.at,
        limits=(
            *(() if sure else ("requests of other clients that ended meanwhile would look the same",)),
            "which hop dropped the answers: the sockets of both ends of each tell",
        ),
        next=(f"pdctl sockets {path.to}", f"pdctl logs {path.to}", "pdctl explain responses-lost"),
    )


def _evidence(path: Path, lost: Lost, idle: list[Evidence]) -> Iterator[Evidence]:
    waited = max(a.took or 0.0 for a in lost.hung)
    yield saw(f"{len(lost.hung)} requests got no answer in up to {waited:.3g} s", path.seen, hung=len(lost.hung))
    yield saw(
        f"while they were waited for, decode had finished {lost.finished} requests, and {lost.answered} were answered",
        lost.page,
        finished=lost.finished,
        answered=lost.answered,
    )
    yield from idle


CHECKS = (
    Check(
        "probe-lost",
        "answers that engines made and clients never got",
        ("responses-lost",),
        (Fact.PROBE,),
        judge,
    ),
)
