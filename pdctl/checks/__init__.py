"""The rules: each judges a window and says what it found, what it ruled out and what it could not judge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from typing import TypeVar

from pdctl.checks.base import Check, Verdict
from pdctl.checks.view import view_of
from pdctl.model.answer import Fact, Observation, Seen
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.finding import Finding, InstanceReport, Report, RuledOut, Unchecked, by_weight
from pdctl.model.window import Window

V = TypeVar("V", Finding, Unchecked, RuledOut)

# One row a module, in the order their findings are told among equals.
MODULES = (
    "pinned",
    "queues",
    "ranks",
    "scheduler",
    "router",
    "pairs",
    "watchdog",
    "draining",
    "gauges",
    "restarts",
    "ranks_diverged",
    "device_hang",
    "stacks_partial",
    "accept_queue",
    "connection_hang",
    "responses_lost",
    "connection_leak",
    "keepalive",
    "probe_lost",
    "probe_waits",
    "probe_fail",
    "half_open",
    "peer_stale",
    "role_mismatch",
    "live_drift",
    "script_drift",
    "unit_flapping",
    "fd_limit",
    "changed",
    "seeing",
    "crashed",
    "slow_responses",
)
ON_HOSTS = frozenset(
    {
        Fact.PROCESSES,
        Fact.CMDLINE,
        Fact.ENVIRON,
        Fact.UNIT,
        Fact.LOG,
        Fact.SOCKETS,
        Fact.NSTAT,
        Fact.LIMITS,
        Fact.GPU,
        Fact.SCRIPT,
        Fact.FILE,
        Fact.GIT,
    }
)
HTTP_FACTS = (Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO, Fact.WORKERS, Fact.HEALTH)


def all_checks(modules: Collection[str] = MODULES) -> tuple[Check, ...]:
    """Every check of these modules, in order."""
    return tuple(check for name in MODULES if name in modules for check in import_module(f"pdctl.checks.{name}").CHECKS)


def judge(
    window: Window,
    cluster: Cluster,
    *,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    modules: Collection[str] = MODULES,
) -> Report:
    """The report on a window. ``only`` and ``skip`` name checks or findings; what they leave out is listed as not
    checked; of other ``modules`` than these nothing is said, and nothing imported. An error inside one check is
    confined to it: it is listed, and the report can't be ok."""
    verdicts: list[Verdict] = []
    broken = False
    for check in all_checks(modules):
        if not _wanted(check, only, skip):
            verdicts.append(Unchecked(check.title, cluster.name, "left out by --only or --skip"))
            continue
        told, failed = _run(check, window, cluster)
        broken = broken or failed
        verdicts.extend(told)
    findings = [v for v in verdicts if isinstance(v, Finding) and _asked_for(v.name, only, skip, modules)]
    faults = {(f.name, f.subject) for f in findings}  # what one rule saw, another's view of another time does not undo
    return Report(
        cluster.name,
        window.start,
        window.end,
        window.samples(),
        tuple(by_weight(_once(findings))),
        tuple(_once(v for v in verdicts if isinstance(v, Unchecked))),
        tuple(instance_report(window, cluster, i) for i in cluster.instances),
        tuple(_once(v for v in verdicts if isinstance(v, RuledOut) and (v.what, v.subject) not in faults)),
        broken,
    )


def _wanted(check: Check, only: Collection[str], skip: Collection[str]) -> bool:
    names = {check.name, *check.findings}
    if check.name in skip or set(check.findings) <= set(skip):
        return False
    return not only or bool(names & set(only))


def _asked_for(name: str, only: Collection[str], skip: Collection[str], modules: Collection[str]) -> bool:
    if name in skip:
        return False
    chosen = [c for c in only if c not in {check.name for check in all_checks(modules)}]
    return not chosen or name in chosen or bool(set(only) - set(chosen))


def _run(check: Check, window: Window, cluster: Cluster) -> tuple[tuple[Verdict, ...], bool]:
    """The verdicts of one check and whether it broke."""
    if check.needs and not any(_was_read(window, fact) for fact in check.needs):
        return (Unchecked(check.title, cluster.name, _why_not_read(window, cluster, check.needs)),), False
    try:
        return tuple(check.judge(window, cluster)), False
    except Exception as error:  # noqa: BLE001 - one broken rule must not hide what the others saw
        text = f"the check broke: {type(error).__name__}: {error}"
        return (Unchecked(check.title, cluster.name, text),), True


def _why_not_read(window: Window, cluster: Cluster, needs: tuple[Fact, ...]) -> str:
    """Why none of the facts a check needs was read: asked and not answered, or never asked for, and what would."""
    needed = " or ".join(needs)
    if any(window.subjects(fact) for fact in needs):
        return f"no {needed} could be read of any instance"
    if Fact.PROBE in needs:
        return "it takes requests of pdctl's own: pdctl probe"
    if Fact.STACKS in needs:
        return "it takes stack dumps: pdctl stacks"
    if not set(needs) <= ON_HOSTS:
        return f"no {needed} was asked for"
    if not cluster.hosts:
        return "it takes a look at the hosts, and the inventory names none"
    return f"no {needed} was asked of the hosts"


def _was_read(window: Window, fact: Fact) -> bool:
    return any(isinstance(o.got, Seen) for s in window.subjects(fact) for o in window.timeline(s, fact))


def _once(items: Iterable[V]) -> Iterator[V]:
    """Each of equal ones once. Findings hold values that cannot be hashed and are few; of the others a large cluster
    has thousands."""
    known: set[V] = set()
    found: list[V] = []
    for item in items:
        if isinstance(item, Finding):
            if item not in found:
                found.append(item)
                yield item
        elif item not in known:
            known.add(item)
            yield item


def instance_report(window: Window, cluster: Cluster, instance: Instance) -> InstanceReport:
    """How an instance showed itself: whether it answered last, its release, its newest queue readings."""
    rows: list[Observation[object]] = [o for fact in HTTP_FACTS for o in window.timeline(instance.name, fact)]
    engine = next((e for e in view_of(window, cluster).engines if e.name == instance.name), None)
    if not rows:
        return InstanceReport(instance.name, instance.role, engine.version if engine else None, None, "not asked")
    last = max(rows, key=lambda o: o.t)
    answered = [o for o in rows if isinstance(o.got, Seen) and o.t >= last.t - 10.0]
    missed = last.missed
    return InstanceReport(
        instance.name,
        instance.role,
        engine.version if engine else None,
        bool(answered),
        None if answered or missed is None else f"{missed.why}{': ' + missed.detail if missed.detail else ''}",
        _details(window, instance),
    )


def _details(window: Window, instance: Instance) -> dict[str, object]:
    page = window.last(instance.name, Fact.METRICS, EngineMetrics)
    if page is None:
        return {}
    return {gauge.value: value for gauge in QUEUES_SHOWN if (value := page.value.total(gauge)) is not None}


QUEUES_SHOWN = (
    Gauge.RUNNING,
    Gauge.QUEUE,
    Gauge.BOOTSTRAP,
    Gauge.INFLIGHT,
    Gauge.PREALLOC,
    Gauge.TRANSFER,
    Gauge.TOKEN_USAGE,
)
