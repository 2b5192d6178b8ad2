"""Where a probe's requests were while they waited: the rules of the request flow, on the part of the window in which
requests hung. At its end, once pdctl has given them up, the router has aborted them and every queue is empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from pdctl.checks import pairs, pinned, queues, ranks, scheduler
from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.plateau import series_text
from pdctl.checks.probe_parts import HUNG, SETTLED_S, Wait, joined, seen_in, waits_of
from pdctl.checks.probe_paths import Path, paths_of
from pdctl.checks.queues import total_readings
from pdctl.checks.view import view_of
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Finding, Severity
from pdctl.model.probe import Attempt
from pdctl.model.window import Window

# What keeps a request from its answer, and shows while it waits.
HOLDS = frozenset({
    "request-pinned", "transfer-stuck", "decode-starved", "prealloc-wedged", "queue-head-blocked", "rank-stuck",
    "engine-wedged", "scheduler-stopped", "transfer-pair-broken",
})  # fmt: skip
RULES = (*pinned.CHECKS, *queues.CHECKS, *ranks.CHECKS, *scheduler.CHECKS, *pairs.CHECKS)
STILL_S = 6.0  # seconds at the end of a wait in which nothing may have entered or left
LEAST, LEAST_S = 4, 4.0  # readings in those, and seconds from the first to the last
LEFT = "what was held left when pdctl gave its requests up; whether it would have left by itself is not shown"


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """What held requests of a probe while they hung, where the window as a whole does not show it."""
    told: set[tuple[str, str, str]] = set()
    for path in paths_of(window):
        for wait, findings in held(window, cluster, path.to, path.via):
            new = [f for f in findings if _key(f) not in told]
            if new and not told:
                told |= {_key(f) for f in _found(window, cluster)}
                new = [f for f in new if _key(f) not in told]
            told |= {_key(f) for f in new}
            yield from (_of_a_wait(f, path, wait) for f in new)


@lru_cache(maxsize=16)
def held(window: Window, cluster: Cluster, to: str, via: str) -> tuple[tuple[Wait, tuple[Finding, ...]], ...]:
    """For each wait of requests on a path what held them. Remembered: the rules on hangs ask for it too."""
    path = next(p for p in paths_of(window) if (p.to, p.via) == (to, via))
    waits = waits_of(path)
    return tuple(
        (wait, tuple(_found(part, cluster)) or (tuple(counted_in(window, cluster, wait)) if wait in waits else ()))
        for wait, part in seen_in(window, joined(waits))
    )


def explained(window: Window, cluster: Cluster, path: Path) -> tuple[Attempt, ...]:
    """The requests of a path that hung while the cluster held them: neither their connection nor the router did."""
    waits = [wait for wait, findings in held(window, cluster, path.to, path.via) if findings]
    return tuple(a for a in (*path.fresh, *path.reused) if any(_in(a, wait, path) for wait in waits))


def _in(attempt: Attempt, wait: Wait, path: Path) -> bool:
    own = next(iter(waits_of(path, [attempt])), None) if attempt.error == HUNG else None
    return own is not None and own.start < wait.end and wait.start < own.end


def _found(window: Window, cluster: Cluster) -> Iterator[Finding]:
    for rule in RULES:
        for verdict in rule.judge(window, cluster):
            if isinstance(verdict, Finding) and verdict.name in HOLDS and verdict.severity is not Severity.UNKNOWN:
                yield verdict


def counted_in(window: Window, cluster: Cluster, wait: Wait) -> Iterator[Finding]:
    """Requests that an engine counts between prefill and decode since the probe sent them: as many as hang, more than
    ever before, and for the last seconds of the wait always the same number. How long they wait is known, which the
    rules on counts alone have to infer; that other clients' requests make up the number is not excluded."""
    for prefill in view_of(window, cluster).prefills:
        readings, live = total_readings(prefill, Gauge.INFLIGHT)
        before = [c.value for c in readings if c.t < wait.start - SETTLED_S]
        last = [c for c in readings if max(wait.start, wait.end - STILL_S) <= c.t < wait.end]
        steady = len(last) >= LEAST and last[-1].t - last[0].t >= LEAST_S and len({c.value for c in last}) == 1
        if live and before and steady and last[-1].value - min(before) >= wait.count:
            yield found(
                "request-pinned",
                prefill.name,
                f"{wait.count} request(s) of the probe stand in {prefill.name}'s inflight queue and did not leave in "
                f"{last[-1].t - last[0].t:.0f} s",
                confidence=Confidence.LIKELY,
                evidence=(
                    saw(f"inflight before the probe: {min(before):g} at least", last[0].at),
                    saw(f"inflight while its requests waited, at last: {series_text(tuple(last))}", last[-1].at),
                ),
                since=last[0].at.seen.at,
                limits=("requests of other clients, as many and since as long, would look the same",),
                next=(f"pdctl stacks {prefill.name}", "pdctl pinned --for 60s", "pdctl explain request-pinned"),
            )


def _of_a_wait(finding: Finding, path: Path, wait: Wait) -> Finding:
    count = f"{wait.count} requests" if wait.count > 1 else "a request"
    meanwhile = saw(f"seen while {count} of the probe to {path.to} got no answer, for {wait.waited:.3g} s", path.seen)
    return replace(finding, evidence=(*finding.evidence, meanwhile), limits=(*finding.limits, LEFT))


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.name, finding.subject, str(finding.rank)


CHECKS = (
    Check(
        "probe-waits",
        "what held requests of a probe while they hung",
        tuple(sorted(HOLDS)),
        (),  # without a probe there is no such question; that of the queues themselves is asked by their own rules
        judge,
    ),
)
