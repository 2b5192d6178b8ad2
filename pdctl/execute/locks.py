"""The locks of a run: one on every host it touches, taken before anything, kept alive, given up at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pdctl.errors import StepFailed
from pdctl.execute.world import World
from pdctl.model.cluster import Host
from pdctl.model.plan import Hold, Lock, Owner
from pdctl.plans.restart_rules import lock_refusal
from pdctl.reach import lock as locks

LOOK_TIMEOUT = 15.0
OVERRIDDEN = "other-restart"


@dataclass(slots=True)
class Locks:
    """``forced``: a lock that somebody holds is taken over all the same; that one can act no more then."""

    world: World
    hosts: Sequence[Host]
    path: str
    owner: Owner
    forced: bool = False
    taken: list[Host] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    _beat_at: float = 0.0

    def take(self) -> None:
        """Takes every lock or none. Raises StepFailed with who holds one."""
        try:
            for host in sorted(self.hosts, key=lambda h: h.name):
                self._take(host)
        except BaseException:
            self.release()
            raise
        self._beat_at = self.world.clock.now()

    def beat(self) -> None:
        """Gives a sign of life on every host when one is due. Raises StepFailed where another has taken a lock over;
        a host that does not answer is the business of the step that needs it."""
        now = self.world.clock.now()
        if now - self._beat_at < locks.BEAT:
            return
        self._beat_at = now
        asks = [locks.beat_ask(host, self.path, self.owner) for host in self.taken]
        for host, answer in zip(self.taken, self.world.look(asks, LOOK_TIMEOUT), strict=True):
            seen = locks.read_lock(answer, self.owner) if answer is not None else Lock(Hold.UNKNOWN)
            if seen.hold in (Hold.HELD, Hold.STALE, Hold.FREE):
                raise StepFailed(f"{_lost(host, self.path, seen)}: nothing more is done")

    def release(self) -> list[str]:
        """Gives up what was taken. Returns the hosts on which that could not be seen to work: their locks count no more
        once this process has ended, or has been silent for a while."""
        hosts, self.taken = self.taken, []
        asks = [locks.release_ask(host, self.path, self.owner) for host in hosts]
        answers = self.world.look(asks, LOOK_TIMEOUT)
        seen = [locks.read_lock(a, self.owner).hold if a is not None else Hold.UNKNOWN for a in answers]
        return [host.name for host, hold in zip(hosts, seen, strict=True) if hold in (Hold.OURS, Hold.UNKNOWN)]

    def _take(self, host: Host) -> None:
        (answer,) = self.world.look([locks.look_ask(host, self.path)], LOOK_TIMEOUT)
        seen = locks.read_lock(answer, self.owner) if answer is not None else Lock(Hold.UNKNOWN, why="not asked")
        stale = seen.owner if seen.hold is Hold.STALE or (seen.hold is Hold.HELD and self.forced) else None
        if (stale is None or seen.of is not None) and (why := lock_refusal(seen)) is not None:
            raise StepFailed(f"{host.name}: {why}{_whose(seen, self.path) if stale is not None else ''}")
        self.taken.append(host)  # before it is: whatever ends this now must give it up
        after = locks.read_lock(self.world.act(locks.take_ask(host, self.path, self.owner, stale)), self.owner)
        if after.hold is not Hold.OURS:
            raise StepFailed(f"{host.name}: {lock_refusal(after) or f'its lock could not be taken ({self.path})'}")
        if stale is not None:
            self.over.append(f"{host.name}: the lock of {stale.who} (run {stale.run}) was taken over")


def _lost(host: Host, path: str, seen: Lock) -> str:
    if seen.owner is not None:
        return f"the lock on {host.name} was taken over by {seen.owner.who} (run {seen.owner.run})"
    return f"the lock on {host.name} is gone: somebody removed {path}"


def _whose(seen: Lock, path: str) -> str:
    """What to do about a lock that may be taken over and cannot be removed."""
    return (
        f"; {path} is a file of {seen.of}, and cannot be taken over by another user" if seen.hold is Hold.HELD else ""
    )
