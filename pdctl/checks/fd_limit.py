"""fd-limit-near: a process that has nearly as many files open as it may."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.listings import by_subject
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.host import Limits
from pdctl.model.window import At, Window

NEAR = 0.85  # of the soft limit
AT_THE_END = 0.95


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each process whose limits were read, by its newest reading; those far from theirs in one verdict an instance."""
    for subject in window.subjects(Fact.LIMITS):
        by_pid: dict[object, list[At[Limits]]] = defaultdict(list)
        for at in window.seen(subject, Fact.LIMITS, Limits):
            by_pid[at.seen.more.get("pid")].append(at)
        far: list[Limits] = []
        for pid, looks in by_pid.items():
            last = looks[-1].value
            share = share_of(last)
            if last.open_files is None:
                yield Unchecked("open files against the limit", subject, "the open files could not be counted")
            elif share is None or share < NEAR:
                far.append(last)
            else:
                yield finding(window, subject, pid if isinstance(pid, int) else None, looks, share)
        if far:
            yield RuledOut("fd-limit-near", subject, far_from_it(far))


def far_from_it(processes: list[Limits]) -> str:
    """How far processes are from their limits, by the one that is nearest to its own."""
    nearest = max(processes, key=lambda limits: share_of(limits) or -1.0)
    if share_of(nearest) is None:
        return "no limit on open files"
    said = f"{nearest.open_files} of {nearest.soft_limit} open files"
    return said if len(processes) == 1 else f"{said} at most, in {len(processes)} processes"


def share_of(limits: Limits) -> float | None:
    if limits.open_files is None or not limits.soft_limit:
        return None
    return limits.open_files / limits.soft_limit


def finding(window: Window, subject: str, pid: int | None, looks: list[At[Limits]], share: float) -> Verdict:
    """The finding for one process. A second reading, or a listing of its sockets, confirms the first."""
    last = looks[-1].value
    who = f"{subject} (pid {pid})" if pid is not None else subject
    support = [*again(looks), *sockets_of(window, pid)]
    return found(
        "fd-limit-near",
        subject,
        f"{who} has {last.open_files} of {last.soft_limit} files open ({share:.0%}): at the limit it can accept nobody",
        confidence=Confidence.CERTAIN if support or share >= AT_THE_END else Confidence.LIKELY,
        evidence=(
            saw(f"{last.open_files} open files, soft limit {last.soft_limit}", looks[-1], open_files=last.open_files),
            *support,
        ),
        since=next(at.seen.at for at in looks if (share_of(at.value) or 0) >= NEAR),
        limits=() if len(looks) > 1 else ("one reading: whether it grows was not seen",),
        next=(f"pdctl sockets {subject}", f"pdctl ps {subject}", "pdctl explain fd-limit-near"),
    )


def again(looks: list[At[Limits]]) -> Iterator[Evidence]:
    """The first reading: near as well, or how fast it grew from there."""
    first, last = looks[0], looks[-1]
    if len(looks) < 2 or first.value.open_files is None or last.value.open_files is None:
        return
    grown, seconds = last.value.open_files - first.value.open_files, last.t - first.t
    if grown > 0 and seconds > 0 and last.value.soft_limit:
        left = (last.value.soft_limit - last.value.open_files) * seconds / grown
        yield saw(f"grew by {grown} in {seconds:.0f} s: at this pace the limit is reached in {left:.0f} s", last)
    elif (share_of(first.value) or 0) >= NEAR:
        yield saw(f"{first.value.open_files} open files {seconds:.0f} s before", first)


def sockets_of(window: Window, pid: int | None) -> Iterator[Evidence]:
    """What of it are TCP sockets, by state."""
    if pid is None:
        return
    for listings in by_subject(window).values():
        states = Counter(r.state for r in listings[-1].rows if r.pid == pid)
        if states:
            shown = ", ".join(f"{n} {state}" for state, n in states.most_common(4))
            yield saw(f"{states.total()} of them are TCP sockets: {shown}", listings[-1].at)
            return


CHECKS = (
    Check(
        "fd-limit",
        "processes near their limit of open files",
        ("fd-limit-near",),
        (Fact.LIMITS,),
        judge,
    ),
)
