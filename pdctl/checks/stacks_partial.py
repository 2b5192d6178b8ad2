"""stacks-partial: ranks whose stack was asked for and could not be had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pdctl.checks.base import Check, Verdict, found
from pdctl.checks.dumps import stopped_pids
from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence
from pdctl.model.host import Stacks
from pdctl.model.window import Window

WORDS = {
    Why.PERMISSION: "permission", Why.NO_SUCH_TOOL: "no py-spy", Why.READ_TIMEOUT: "timeout", Why.NOT_FOUND: "gone",
    Why.AUTH: "permission",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Failed:
    """A process that gave no stack: the last attempt and its reason."""

    pid: int | None
    title: str
    why: str
    seen: Observation[object]

    @property
    def name(self) -> str:
        shown = self.title.partition("::")[2] or self.title.partition(" ")[0] or "a process"
        return f"{shown} (pid {self.pid})" if self.pid is not None else shown


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Every instance of which stacks were asked. A process that was dumped once in the window is not missing."""
    for subject in window.subjects(Fact.STACKS):
        good = dumped(window, subject)
        failed = {(f.pid, f.title): f for f in failures(window, subject) if f.pid is None or f.pid not in good}
        if good and any(pid is None for pid, _ in failed):
            failed = {key: f for key, f in failed.items() if key[0] is not None}
        if failed:
            yield finding(window, subject, tuple(failed.values()), len(good))


def dumped(window: Window, subject: str) -> frozenset[int]:
    """Processes of which a stack was read at least once."""
    seen = window.seen(subject, Fact.STACKS, Stacks)
    return frozenset(p.pid for at in seen for p in at.value.processes if p.threads)


def failures(window: Window, subject: str) -> Iterator[Failed]:
    """Every failed dump, oldest first: answers that did not come, and processes without threads in one that did."""
    for observation in window.timeline(subject, Fact.STACKS):
        got = observation.got
        if isinstance(got, Missed):
            pid, title = observation.more.get("pid"), observation.more.get("title")
            why = " ".join(w for w in (WORDS.get(got.why, ""), got.detail) if w) or str(got.why)
            yield Failed(
                pid if isinstance(pid, int) else None, title if isinstance(title, str) else "", why, observation
            )
        elif isinstance(got, Seen) and isinstance(got.value, Stacks):
            for process in got.value.processes:
                if not process.threads:
                    yield Failed(process.pid, process.title, process.error or "no thread in the dump", observation)


def finding(window: Window, subject: str, failed: tuple[Failed, ...], good: int) -> Verdict:
    """The finding for one instance; a stopped process explains itself."""
    stopped = stopped_pids(window, subject)
    evidence = []
    for one in failed:
        state = "; the process is stopped (state T)" if one.pid in stopped else ""
        evidence.append(Evidence(f"{one.name}: {one.why}{state}", one.seen.at, subject, one.seen.ask))
    names = ", ".join(f.name for f in failed[:4]) + (f" and {len(failed) - 4} more" if len(failed) > 4 else "")
    return found(
        "stacks-partial",
        subject,
        f"no stack of {names}: {reason(failed, stopped)}; {good} process(es) of {subject} could be dumped",
        confidence=Confidence.CERTAIN,
        evidence=evidence,
        since=failed[0].seen.at,
        limits=("what the missing ranks do is not known: one of them may be the odd one",),
        next=next_steps(subject, failed, stopped),
    )


def reason(failed: tuple[Failed, ...], stopped: frozenset[int]) -> str:
    if all(f.pid in stopped for f in failed):
        return "stopped (state T), which py-spy cannot read"
    return "; ".join(dict.fromkeys(f.why for f in failed))[:160]


def next_steps(subject: str, failed: tuple[Failed, ...], stopped: frozenset[int]) -> tuple[str, ...]:
    steps = [f"pdctl stacks {subject}", f"pdctl ps {subject}", "pdctl explain stacks-partial"]
    return tuple(steps[1:] if any(f.pid in stopped for f in failed) else steps)


CHECKS = (
    Check(
        "stacks-partial",
        "ranks whose stack could not be had",
        ("stacks-partial",),
        (),
        judge,
    ),
)
