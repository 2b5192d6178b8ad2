"""What looks do not tell: something is under way, and nothing was seen to move.

An engine without a request is seen to be well at once; a busy one has to be seen to move. Until it was, whether it
works or hangs is not known, and a report that calls it well would say more than was measured. One look cannot show it;
of a longer one that does not, something is wrong that no rule knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pdctl.checks.base import found
from pdctl.checks.handoff import STEPS, counted
from pdctl.checks.memory import token_signs
from pdctl.checks.provenance import timed_out
from pdctl.checks.trust import Counts
from pdctl.checks.view import EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, Finding, Report, Severity, by_weight
from pdctl.model.router import RouterMetrics
from pdctl.model.window import At, Window

QUEUES = (Gauge.RUNNING, Gauge.QUEUE, Gauge.BOOTSTRAP, Gauge.INFLIGHT, Gauge.PREALLOC, Gauge.TRANSFER)
NAME = "gauge-unavailable"
ASKED_OF_SCHEDULER = ((Fact.SERVER_INFO, "/server_info"), (Fact.LOADS, "/v1/loads"))
EXPLAINS = frozenset({Severity.UNKNOWN, Severity.WARNING})


@dataclass(frozen=True, slots=True)
class Standing:
    """An instance with something under way that was not seen to move, and what that is; in how many ``readings``, over
    how many ``seconds``."""

    subject: str
    what: str
    readings: int
    seconds: float


def standing(window: Window, cluster: Cluster) -> Iterator[Standing]:
    """Every engine and router of which the window does not show whether it works or hangs."""
    view = view_of(window, cluster)
    for engine in view.engines:
        what = silence(engine) or (None if moves(engine) else work(engine))
        if what is not None:
            yield Standing(engine.name, what, *_looked(engine.pages))
    if not any(moves(engine) for engine in view.engines):
        yield from _routers(window, cluster)


def _looked(pages: Sequence[At[object]]) -> tuple[int, float]:
    return len(pages), pages[-1].t - pages[0].t if pages else 0.0


def silence(engine: EngineView) -> str | None:
    """What the scheduler itself was asked and did not answer in time, with no sign of it since; or that its live counts
    are not those of now."""
    for fact, words in ASKED_OF_SCHEDULER:
        missed = timed_out(engine.window.timeline(engine.name, fact))
        answered = engine.window.seen(engine.name, fact, object)
        late = missed and not (answered and answered[-1].t > missed[-1].t)
        if late and engine.pages and not engine.alive(missed[-1].t):
            return f"{words} did not answer in {missed[-1].took:.0f} s"
    if engine.traits.counts is Counts.LIVE and any(_not_renewed(engine, dp) for dp in engine.dps):
        return "its live counts are not renewed"
    return None


def _not_renewed(engine: EngineView, dp: int | None) -> bool:
    rows, fresh = tuple(engine.rows(dp)), engine.fresh_rows(dp)
    return bool(rows) and (not fresh or fresh[-1][0].t < rows[-1][0].t)


def moves(engine: EngineView) -> bool:
    """Whether anything was seen to move on in it: a request finished, a transfer ended, tokens came out, its memory is
    used otherwise than before."""
    return bool(engine.still_since()) or bool(token_signs(engine)) or _breathes(engine)


def _breathes(engine: EngineView) -> bool:
    """Whether a gauge changed that a scheduler writes as it works: up to 0.5.9 no counter moves before a request ends,
    while the use of memory is told every 40 steps of decode."""
    for gauge in (Gauge.USED_TOKENS, Gauge.TOKEN_USAGE, Gauge.GEN_THROUGHPUT):
        told = {value for page in engine.pages if (value := page.value.total(gauge)) is not None}
        if len(told) > 1:
            return True
    return False


def work(engine: EngineView) -> str | None:
    """What is under way in it by its newest reading; None of an idle one."""
    held = {queue: value for queue in QUEUES if (value := _newest(engine, queue)) >= 1}
    return ", ".join(f"{queue.value} {value:g}" for queue, value in held.items()) or None


def _newest(engine: EngineView, queue: Gauge) -> float:
    """How many are in a queue: by live counts, else by its gauge, unless that is shown to be a leftover: the front end
    owes no answer, or as many left the queue as entered it."""
    live = engine.live_total(queue)
    if live:
        return live[-1].value
    value = engine.pages[-1].value.total(queue) if engine.pages else None
    owed = engine.http_active()
    if value is None or (owed and not owed[-1].value):
        return 0.0
    passing = counted(engine, queue, None) if queue in STEPS else ()
    return min(value, passing[-1].value) if passing else value


def _routers(window: Window, cluster: Cluster) -> Iterator[Standing]:
    """Routers that count requests under way and were not seen to answer any."""
    for router in cluster.routers:
        pages = window.seen(router.name, Fact.METRICS, RouterMetrics)
        held = pages[-1].value.active_total if pages else None
        if not held:
            continue
        first, last = (_answered(page.value) for page in (pages[0], pages[-1]))
        if last <= first:
            yield Standing(router.name, f"{held:g} request(s) under way", *_looked(pages))


def _answered(page: RouterMetrics) -> float:
    """How many answers it has given, by one family or the other."""
    return max(sum(page.responses.values()), page.duration_count or 0.0)


def with_standing(report: Report, window: Window, cluster: Cluster) -> Report:
    """The report with what stands in the window and was not seen to move as findings of unknown severity: of each
    instance of which no finding says more. A fault that was found holds up what stands elsewhere."""
    if any(f.severity is Severity.CRITICAL for f in report.findings):
        return report
    told = {part for f in report.findings if f.severity in EXPLAINS for part in (f.subject, *f.subject.split("->"))}
    more = [untold(s, window) for s in standing(window, cluster) if s.subject not in told]
    return replace(report, findings=tuple(by_weight([*report.findings, *more]))) if more else report


def untold(seen: Standing, window: Window) -> Finding:
    """What stands and was not seen to move, as a finding."""
    return found(
        NAME,
        seen.subject,
        f"whether requests move at {seen.subject} can't be told from {window.seconds:.0f} s: {seen.what}, and nothing "
        "was seen to move",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(f"{seen.what}; no counter moved", window.end, seen.subject),),
        limits=("that they hang is neither shown nor excluded",),
        next=("pdctl pinned --for 60s", f"pdctl stacks {seen.subject}", f"pdctl explain {NAME}"),
    )
