"""The paths of a probe: all that was tried of one instance by one way, sorted by its connections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Role
from pdctl.model.probe import Attempt, Attempts
from pdctl.model.window import At, Window

# How a connection that the other side closed, or forgot, ends for the one that uses it again.
CLOSED = frozenset({"reset", "truncated", "read-timeout", "other"})


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The attempts of one path: to whom, by which way."""

    to: str
    via: str
    seen: At[Attempts]
    fresh: tuple[Attempt, ...]
    reused: tuple[Attempt, ...]

    @property
    def alone(self) -> tuple[Attempt, ...]:
        """The fresh ones made while nothing else was asked: what the others differ from."""
        return tuple(a for a in self.fresh if (a.concurrency or 1) == 1)

    @property
    def good(self) -> tuple[Attempt, ...]:
        return tuple(a for a in self.reused if a.good)

    @property
    def closed(self) -> tuple[Attempt, ...]:
        """Attempts that ended before any byte of an answer: what breaks off in the middle is something else."""
        return tuple(a for a in self.reused if a.error in CLOSED and not a.first_byte_s and not a.tokens)


def paths_of(window: Window) -> Iterator[Path]:
    """Every path probed in the window, with the newest answer that holds attempts of it."""
    groups: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    last: dict[tuple[str, str], At[Attempts]] = {}
    for subject in window.subjects(Fact.PROBE):
        for seen in window.seen(subject, Fact.PROBE, Attempts):
            for attempt in seen.value.rows:
                if attempt.kind == "abort":  # its client left on purpose: it tells nothing of the path
                    continue
                groups[(attempt.to, attempt.via)].append(attempt)
                last[(attempt.to, attempt.via)] = seen
    for key, attempts in groups.items():
        fresh = tuple(a for a in attempts if a.connection == "fresh")
        yield Path(*key, last[key], fresh, tuple(a for a in attempts if a.connection == "reused"))


def named(path: Path, cluster: Cluster) -> str:
    """The path in words. An attempt through a proxy names the proxy, or the instance behind it."""
    instance = cluster.instance(path.to)
    behind = path.via == "proxy" and (instance is None or instance.role is not Role.PROXY)
    return f"{path.to} through its proxy" if behind else path.to
