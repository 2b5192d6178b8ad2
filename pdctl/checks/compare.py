"""Two windows of a cluster side by side: "this is how it looked when it was well".

Pure: gauges and rates by their own noise (``noise``), everything else by being the same or not. What one side could not
show is listed, and is no difference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from pdctl.checks.compare_gauges import Series, gpu_series, series_of
from pdctl.checks.compare_settings import (
    Told,
    compare_environments,
    compare_files,
    compare_restarts,
    compare_scripts,
    compare_settings,
    compare_versions,
)
from pdctl.checks.noise import LEAST, counts_differ, differ, spread_of
from pdctl.checks.socket_view import sockets_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance
from pdctl.model.comparison import Comparison, Difference, Kind, NotCompared, Side
from pdctl.model.finding import Finding, Report, by_weight
from pdctl.model.host_view import SocketView
from pdctl.model.window import Window

UNTOLD = "it is not told on both sides"
UNDATED = "no start of a process is told, and the two are of the same time"
_PID = re.compile(r",? ?\bpid \d+")
Row = Difference | NotCompared | Kind  # a Kind counts one thing that was alike


def compare(before: Window, after: Window, old: Cluster, new: Cluster, sides: tuple[Side, Side]) -> Comparison:
    """What differs from ``before`` to ``after``. ``sides`` say where they came from and what was judged of each."""
    rows: list[Row] = [*_findings(sides[0].report, sides[1].report), *_instances(old, new, sides)]
    for instance in new.instances:
        if old.instance(instance.name) is not None:
            rows += _instance(before, after, old, new, instance)
    for subject in sorted({*before.subjects(Fact.GPU)} & {*after.subjects(Fact.GPU)}):
        rows += _series(subject, gpu_series(before, subject), gpu_series(after, subject))
    for subject in sorted({*before.subjects(Fact.FILE), *before.subjects(Fact.GIT)}):
        rows += _plain(subject, "watched files", Kind.SCRIPT, compare_files(before, after, subject))
    told = [row for row in rows if isinstance(row, Difference)]
    order = list(Kind)
    return Comparison(
        sides[0],
        sides[1],
        tuple(sorted(told, key=lambda d: order.index(d.kind))),
        tuple(Counter(row for row in rows if isinstance(row, Kind)).items()),
        tuple(row for row in rows if isinstance(row, NotCompared)),
    )


# --- findings and instances --------------------------------------------------------------------------------------


def _findings(before: Report, after: Report) -> Iterator[Row]:
    old, new = ({_key(f): f for f in report.findings} for report in (before, after))
    for finding in by_weight(new.values()):
        if _key(finding) not in old:
            yield _finding(finding, "not there", "there")
        else:
            yield Kind.FINDING
    for finding in by_weight(old.values()):
        if _key(finding) not in new:
            yield _finding(finding, "there", "not there")


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.name, finding.subject, str(finding.rank)


def _finding(finding: Finding, before: str, after: str) -> Difference:
    where = f"{finding.subject} {finding.rank}".rstrip()
    return Difference(Kind.FINDING, where, finding.name, before, after, finding=finding)


def _instances(old: Cluster, new: Cluster, sides: tuple[Side, Side]) -> Iterator[Row]:
    """Who is only on one side, and who answered only on one."""
    names = dict.fromkeys([*(i.name for i in old.instances), *(i.name for i in new.instances)])
    answered = [{i.name: i.reachable for i in side.report.instances} for side in sides]
    for name in names:
        there = [cluster.instance(name) is not None for cluster in (old, new)]
        if there[0] != there[1]:
            words = ["in the inventory" if is_there else None for is_there in there]
            yield Difference(Kind.INSTANCE, name, "instance", words[0], words[1])
            continue
        seen = [side.get(name) for side in answered]
        if seen[0] is not None and seen[1] is not None and seen[0] != seen[1]:
            words = ["answered" if ok else "did not answer" for ok in seen]
            yield Difference(Kind.INSTANCE, name, "instance", words[0], words[1])
        elif seen[0] is not None:
            yield Kind.INSTANCE


# --- one instance ------------------------------------------------------------------------------------------------


def _instance(before: Window, after: Window, old: Cluster, new: Cluster, instance: Instance) -> Iterator[Row]:
    name = instance.name
    asked: tuple[tuple[str, Kind, Callable[[], Told | None], tuple[Fact, ...]], ...] = (
        ("restarts", Kind.RESTART, lambda: compare_restarts(before, after, instance), (Fact.METRICS,)),
        ("release", Kind.VERSION, lambda: compare_versions(before, after, name), (Fact.SERVER_INFO,)),
        ("settings", Kind.SETTING, lambda: compare_settings(before, after, name), (Fact.SERVER_INFO, Fact.CMDLINE)),
        ("environment", Kind.SETTING, lambda: compare_environments(before, after, name), (Fact.ENVIRON,)),
        ("serve script", Kind.SCRIPT, lambda: compare_scripts(before, after, name), (Fact.SCRIPT,)),
    )
    for what, kind, told, facts in asked:
        # What neither side ever asked for is no gap: it is not listed.
        if instance.is_engine or kind is Kind.SCRIPT:
            wanted = any(w.asked(name, fact) for w in (before, after) for fact in facts)
            why = UNDATED if kind is Kind.RESTART and _overlap(before, after) else UNTOLD
            yield from _plain(name, what, kind, told(), wanted=wanted, why=why)
    yield from _series(name, series_of(before, old, instance), series_of(after, new, instance))
    yield from _sockets(before, after, old, new, instance)


def _overlap(before: Window, after: Window) -> bool:
    return before.end > after.start and after.end > before.start


def _plain(
    subject: str, what: str, kind: Kind, told: Told | None, *, wanted: bool = True, why: str = UNTOLD
) -> Iterator[Row]:
    if told is None:
        if wanted:
            yield NotCompared(subject, what, why)
        return
    yield from told.differences
    yield from [kind] * told.alike


def _series(subject: str, old: dict[str, Series], new: dict[str, Series]) -> Iterator[Row]:
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new:
            side = "the first" if name in old else "the second"
            yield NotCompared(subject, name, f"only {side} tells")
            continue
        a, b = spread_of(old[name].values), spread_of(new[name].values)
        if a is None or b is None:
            few = min(len(old[name].values), len(new[name].values))
            yield NotCompared(subject, name, f"{few} reading(s) on one side: {LEAST} show how much it varies")
            continue
        series = new[name]
        found = differ(a, b, series.grain)
        if found is None:
            yield series.kind
        else:
            by, noise = found
            was, now = (f"{s.median if by == 'median' else s.mean:.4g}" for s in (a, b))
            yield Difference(series.kind, subject, name, was, now, (a, b), series.unit, noise, by)


def _sockets(before: Window, after: Window, old: Cluster, new: Cluster, instance: Instance) -> Iterator[Row]:
    """Connections by peer and condition, each side's newest listing."""
    if not (before.subjects(Fact.SOCKETS) and after.subjects(Fact.SOCKETS)):
        return
    views = [sockets_of(w, c, instance) for w, c in ((before, old), (after, new))]
    if any(view.why is not None for view in views):
        yield NotCompared(instance.name, "sockets", next(v.why for v in views if v.why is not None))
        return
    counts = [_connections(view) for view in views]
    for key in sorted({*counts[0], *counts[1]}):
        peer, outward, condition = key
        noise = counts_differ(counts[0][key], counts[1][key])
        if noise is None:
            yield Kind.SOCKETS
            continue
        what = f"{condition} {'to' if outward else 'from'} {peer}"
        words = [str(side[key]) for side in counts]
        yield Difference(Kind.SOCKETS, instance.name, what, words[0], words[1], unit="connections", noise=noise)


def _connections(view: SocketView) -> Counter[tuple[str, bool, str]]:
    """How many there are by peer, direction and condition. A peer is the same under another process number."""
    counts: Counter[tuple[str, bool, str]] = Counter()
    for row in view.peers:
        counts[_PID.sub("", row.peer), row.outward, row.condition] += row.count
    return counts
