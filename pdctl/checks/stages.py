"""The stages of ``pdctl check``, from harmless to intrusive: what each asks and which rules it runs.

A stage names its rules' modules, so that those of other stages are not even imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pdctl.checks.base import found
from pdctl.model.answer import Fact, Seen
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, Finding, Report
from pdctl.model.registry import REGISTRY
from pdctl.model.window import Window

BLIND = "endpoint-unreadable"  # looked for in every run: who sees nothing must not say that all is well


@dataclass(frozen=True, slots=True)
class Stage:
    """``facts`` are what it asks over HTTP each round, ``once`` once a run; ``usual``: run without being asked for."""

    name: str
    title: str
    findings: tuple[str, ...]
    modules: tuple[str, ...]
    facts: frozenset[Fact] = frozenset()
    once: frozenset[Fact] = frozenset()
    usual: bool = True


_METRICS = frozenset({Fact.METRICS})
_COUNTS = frozenset({Fact.METRICS, Fact.LOADS})
_SETTINGS = frozenset({Fact.SERVER_INFO})

STAGES = (
    Stage("reach", "everybody answers", (BLIND,), ("seeing",), _METRICS),
    Stage(
        "identity",
        "who they are, and whether they fit together",
        ("engine-restarted", "role-mismatch"),
        ("restarts", "role_mismatch"),
        _METRICS,
        _SETTINGS,
    ),
    Stage(
        "queues",
        "requests move",
        (
            "request-pinned",
            "transfer-stuck",
            "decode-starved",
            "prealloc-wedged",
            "queue-head-blocked",
            "queue-leaked",
            "rank-stuck",
            "engine-wedged",
            "scheduler-stopped",
            "draining",
            "gauge-stale",
            "gauge-unavailable",
            "watchdog-silent",
            "transfer-pair-broken",
            "heartbeat-starved",
        ),
        ("pinned", "queues", "ranks", "scheduler", "pairs", "watchdog", "draining", "gauges"),
        _COUNTS,
        _SETTINGS,
    ),
    Stage(
        "router",
        "the router lets requests go",
        ("router-holds-requests", "router-circuit-open"),
        ("router",),
        _COUNTS,
        _SETTINGS | {Fact.WORKERS},
    ),
    Stage(
        "sockets",
        "connections, open files and units on the hosts",
        ("accept-queue-full", "connection-leak", "half-open", "responses-lost", "fd-limit-near", "unit-flapping"),
        ("accept_queue", "connection_leak", "half_open", "responses_lost", "fd_limit", "unit_flapping"),
        _COUNTS,
        _SETTINGS,
    ),
    Stage(
        "logs",
        "what the logs tell",
        ("engine-crashed", "slow-responses", "peer-stale"),
        ("crashed", "slow_responses", "peer_stale"),
        _COUNTS,
        _SETTINGS,
        usual=False,
    ),
    Stage(
        "probes",
        "real requests are answered",
        ("connection-scoped-hang", "keepalive-stale"),
        ("connection_hang", "keepalive", "probe_fail", "probe_lost", "probe_waits"),
        _COUNTS,
        _SETTINGS,
        usual=False,
    ),
    Stage(
        "stacks",
        "where every scheduler rank is",
        ("ranks-diverged", "device-hang", "stacks-partial"),
        ("ranks_diverged", "device_hang", "stacks_partial"),
        _COUNTS,
        _SETTINGS,
        usual=False,
    ),
)
NAMES = tuple(stage.name for stage in STAGES)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a run is to do. ``why_not`` says of each stage that is not run why; ``only`` and ``skip`` are findings;
    ``asked`` are the stages that somebody named."""

    stages: tuple[Stage, ...]
    why_not: dict[str, str]
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()

    @property
    def modules(self) -> tuple[str, ...]:
        """The rules to run; those that find blindness always, unless that was skipped by name."""
        first = () if BLIND in self.skip else STAGES[0].modules
        return tuple(dict.fromkeys([*first, *(name for stage in self.stages for name in stage.modules)]))

    @property
    def selection(self) -> str:
        """What is looked at, in a word that is the same for runs that look at the same."""
        return ",".join([*(stage.name for stage in self.stages), "only", *self.only, "skip", *self.skip])

    def has(self, name: str) -> bool:
        return any(stage.name == name for stage in self.stages)

    @property
    def facts(self) -> frozenset[Fact]:
        """Asked over HTTP each round."""
        return _METRICS.union(*(stage.facts for stage in self.stages))

    @property
    def once(self) -> frozenset[Fact]:
        """Asked over HTTP once."""
        return frozenset[Fact]().union(*(stage.once for stage in self.stages))


def nothing_seen(window: Window, cluster: Cluster) -> Iterator[Finding]:
    """A look that saw nothing at all, for want of an address or of an answer: a finding, whatever else is said."""
    if any(isinstance(o.got, Seen) for o in window.observations):
        return
    why = "no instance answered" if window.observations else "the inventory names nothing that could be asked"
    yield found(
        BLIND,
        cluster.name,
        f"nothing was seen of {cluster.name}: {why}",
        confidence=Confidence.CERTAIN,
        evidence=(Evidence(why),),
        limits=("nothing is concluded about the cluster from its silence",),
        next=("pdctl init --help", f"pdctl explain {BLIND}"),
    )


def open_questions(report: Report, modules: Collection[str]) -> dict[str, str]:
    """The findings of these rules that could not be told everywhere, with the first reason why."""
    from pdctl.checks import all_checks

    by_title = {check.title: check.findings for check in all_checks(modules)}
    left: dict[str, str] = {}
    for row in report.unchecked:
        for name in by_title.get(row.what, (row.what,)):
            if name in REGISTRY:
                left.setdefault(name, f"{row.subject}: {row.why}")
    return left


def unknown(names: Collection[str]) -> Iterator[str]:
    """Those of the names that are neither a stage nor a finding."""
    return (name for name in names if name not in NAMES and name not in REGISTRY)


def choose(
    asked: Collection[str] = (), only: Collection[str] = (), skip: Collection[str] = (), *, hosts: bool = True
) -> Chosen:
    """The stages to run: the usual ones and those ``asked`` for as well; with ``only`` (stages or findings) those
    alone, without those in ``skip``. Without ``hosts`` in the inventory the look at them is left out, unless named."""
    stages: list[Stage] = []
    why_not: dict[str, str] = {}
    for stage in STAGES:
        why = _why_not(stage, asked, only, skip, hosts)
        if why is None:
            stages.append(stage)
        else:
            why_not[stage.name] = why
    wanted = _findings(only)
    if wanted and BLIND not in wanted:
        wanted = (*wanted, BLIND)
    named = frozenset(s.name for s in stages if s.name in asked or {s.name, *s.findings} & set(only))
    return Chosen(tuple(stages), why_not, wanted, _findings(skip), named)


def _why_not(
    stage: Stage, asked: Collection[str], only: Collection[str], skip: Collection[str], hosts: bool
) -> str | None:
    names = {stage.name, *stage.findings}
    if stage.name in skip or set(stage.findings) <= set(skip):
        return "left out by --skip"
    if stage.name in asked or names & set(only):
        return None
    if only:
        return "left out by --only"
    if not stage.usual:
        return f"only when asked for: --stage {stage.name}"
    return "the inventory names no hosts" if stage.name == "sockets" and not hosts else None


def _findings(names: Collection[str]) -> tuple[str, ...]:
    """The findings that stages and findings name."""
    of_stage = {stage.name: stage.findings for stage in STAGES}
    return tuple(dict.fromkeys(finding for name in names for finding in of_stage.get(name, (name,))))
