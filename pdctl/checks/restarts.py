"""engine-restarted: a process was replaced inside the window, so nothing is counted across it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.view import EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import COUNTERS, EngineMetrics, Gauge
from pdctl.model.finding import Confidence, Evidence
from pdctl.model.window import At, Window

if TYPE_CHECKING:
    from pdctl.model.host import Processes


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each engine whose counters fell, whose start time changed or whose main process is another one."""
    for engine in view_of(window, cluster).engines:
        evidence = (*counter_evidence(engine), *process_evidence(engine), *refusals(engine))
        if engine.restarted is None and not tuple(process_evidence(engine)):
            continue
        yield found(
            "engine-restarted",
            engine.name,
            f"{engine.name} restarted inside the window; what follows counts from its new start",
            confidence=Confidence.CERTAIN if len(evidence) > 1 else Confidence.LIKELY,
            evidence=evidence,
            since=evidence[0].at,
            limits=("why it restarted: the unit and the log before it tell",),
            next=(f"pdctl logs {engine.name}", "pdctl explain engine-restarted"),
        )


def counter_evidence(engine: EngineView) -> Iterator[Evidence]:
    if engine.restarted is None:
        return
    pages = engine.window.seen(engine.name, Fact.METRICS, EngineMetrics)
    index = next(i for i, p in enumerate(pages) if p.t == engine.restarted.t)
    before, after = pages[index - 1], pages[index]
    for counter in sorted(COUNTERS - {Gauge.TRANSFER_MS}):
        old, new = before.value.total(counter), after.value.total(counter)
        if old and (new or 0.0) < old:
            yield saw(f"its counter of {counter} fell from {old:g} to {new or 0.0:g}", after, before=old, after=new)
            return
    yield saw("its start time changed", after)


def process_evidence(engine: EngineView) -> Iterator[Evidence]:
    if not engine.window.asked(engine.name, Fact.PROCESSES):
        return
    from pdctl.model.host import Processes

    seen: tuple[At[Processes], ...] = engine.window.seen(engine.name, Fact.PROCESSES, Processes)
    roots = [(at, main_of(at.value)) for at in seen]
    told = [(at, pid) for at, pid in roots if pid is not None]
    if len(told) >= 2 and told[0][1] != told[-1][1]:
        yield saw(f"its first process was {told[0][1]}, now {told[-1][1]}", told[-1][0])


def main_of(processes: Processes) -> int | None:
    """The pid of the process whose parent is not in the list, None when that is not one."""
    pids = {p.pid for p in processes.rows}
    roots = [p.pid for p in processes.rows if p.ppid not in pids]
    return roots[0] if len(roots) == 1 else None


def refusals(engine: EngineView) -> Iterator[Evidence]:
    """Answers it did not give while it was down."""
    if engine.restarted is None:
        return
    missed = [o for o in engine.window.missed(engine.name, Fact.METRICS) if o.t < engine.restarted.t]
    if missed:
        yield Evidence(f"it did not answer {len(missed)} time(s) before", missed[-1].at, engine.name, missed[-1].ask)


CHECKS = (Check("restarts", "engines replaced inside the window", ("engine-restarted",), (Fact.METRICS,), judge),)
