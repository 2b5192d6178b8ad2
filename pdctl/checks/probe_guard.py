"""When a probe must stop: the cluster does not bear what it sends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from pdctl.checks.queues import total_readings
from pdctl.checks.view import view_of
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.probe import Attempt, Trial
from pdctl.model.probe_plan import ProbePlan
from pdctl.model.window import Window

LOADING = frozenset({Trial.MANY.value, Trial.ROUNDS.value, Trial.ABORTS.value})
LAST = 8  # attempts looked at
MOST_ERRORS = 3
TIMES = 10.0  # the first token takes so many times what it took alone,
NOTABLE_S = 5.0  # and at least so many seconds
RISING = 3  # readings in a row
SPARE = 4  # requests waiting beyond the probe's own
WAITING = (Gauge.QUEUE, Gauge.BOOTSTRAP, Gauge.PREALLOC)


def suffering(window: Window, cluster: Cluster, made: Sequence[Attempt], plan: ProbePlan) -> str | None:
    """Why to stop, in one line; None where the cluster bears it. ``made`` are the attempts that have ended."""
    return server_errors(made) or slower(made) or hanging(made, plan) or queues_grow(window, cluster, plan)


def server_errors(made: Sequence[Attempt]) -> str | None:
    """Refusals for want of room, and errors of servers, among the last attempts."""
    last = [a for a in made if a.kind != "health"][-LAST:]
    bad = [a for a in last if a.status is not None and (a.status >= 500 or a.status == 429)]
    if len(bad) < MOST_ERRORS:
        return None
    told = ", ".join(sorted({str(a.status) for a in bad}))
    return f"{len(bad)} of the last {len(last)} requests were answered {told}"


def slower(made: Sequence[Attempt]) -> str | None:
    """For a quarter of the last requests the first token takes many times what it took when nothing else was asked."""
    for to in dict.fromkeys(a.to for a in made):
        alone = [a.first_s for a in made if a.to == to and a.trial == Trial.ONE and a.good and a.first_s]
        loaded = [a.first_s for a in made if a.to == to and a.trial in LOADING and a.good and a.first_s][-LAST:]
        if not alone or len(loaded) < LAST // 2:
            continue
        now, before = sorted(loaded)[len(loaded) * 3 // 4 - 1], median(alone)
        if now > max(NOTABLE_S, TIMES * before):
            return f"at {to} the first token takes {now:.1f} s, {now / before:.0f} times as long as alone"
    return None


def hanging(made: Sequence[Attempt], plan: ProbePlan) -> str | None:
    """Each request that hangs holds its place in the cluster: after one wave of them enough is known."""
    hung = [a for a in made if a.error == "read-timeout" and a.trial in LOADING]
    most = max((stage.at_once for stage in plan.stages), default=1)
    return f"{len(hung)} requests got no answer" if len(hung) >= max(MOST_ERRORS, most) else None


def queues_grow(window: Window, cluster: Cluster, plan: ProbePlan) -> str | None:
    """An engine's queue that rises in reading after reading, beyond what the probe itself can have put there. A few
    requests one after the other make no queue, and what becomes of them is worth knowing."""
    if not any(stage.trial.value in LOADING for stage in plan.stages):
        return None
    own = plan.load.at_once
    for engine in view_of(window, cluster).engines:
        for queue in WAITING:
            values = [c.value for c in total_readings(engine, queue)[0]]
            last = values[-RISING:]
            rises = len(last) == RISING and all(a < b for a, b in pairwise(last))
            if rises and last[-1] - values[0] > own + SPARE:
                return f"{engine.name} queues: {queue.value} rose from {values[0]:g} to {last[-1]:g}"
    return None
