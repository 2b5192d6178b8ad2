"""What to know before saying yes to a restart: what it does not say by itself, and what was not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.model.cluster import Cluster, Role
from pdctl.model.plan import Act, Footing, Ground, Hold, Site, Step, Wish


def notes_of(cluster: Cluster, wish: Wish, ground: Ground, steps: Sequence[Step]) -> Iterator[str]:
    """One sentence each."""
    restarts = [s for s in steps if s.act is Act.RESTART]
    names = {s.instance for s in restarts}
    yield from _requests(wish, ground, names)
    routers = [i.name for i in cluster.routers if i.name not in names]
    if routers and any(s.role in (Role.PREFILL, Role.DECODE) for s in restarts):
        yield (
            f"{', '.join(routers)} stays as it is: breakers that open while engines are away stay open for a minute "
            "and more, while the workers are called healthy"
        )
    for step in restarts:
        footing = ground.of(step.instance)
        yield from _instance(step, footing) if footing is not None else ()
    for site in ground.sites:
        yield from _site(site)


def _site(site: Site) -> Iterator[str]:
    if site.lock.hold is Hold.STALE and site.lock.of is None:
        owner = site.lock.owner
        whose = f"{owner.who} (run {owner.run})" if owner else "nobody known"
        yield f"the lock on {site.host} of {whose} is stale and will be taken over: {site.lock.why}"
    for row in site.strangers:
        memory = f"{row.gpu_mib:.0f} MiB of GPU memory" if row.gpu_mib else "GPU memory"
        yield f"{site.host}: pid {row.pid} ({row.title}) holds {memory} and is of no instance here"


def _requests(wish: Wish, ground: Ground, names: set[str | None]) -> Iterator[str]:
    active = [f for f in ground.footings if f.instance in names and (f.active.count or 0) > 0]
    blind = [f.instance for f in ground.footings if f.instance in names and f.process and f.active.count is None]
    if active and wish.drain is None:
        yield "requests under way are cut off; --drain TIME waits for them, new ones are not kept out"
    elif wish.drain is not None:
        yield "the drain keeps no new request out: stop the traffic in front, or it may never end before its time"
    if blind:
        yield f"how many requests would be lost on {', '.join(blind)} is not known"


def _instance(step: Step, footing: Footing) -> Iterator[str]:
    if footing.process is None and footing.state:
        yield f"{step.instance} does not run now ({footing.state}): the restart starts it"
    yield from (f"{step.instance}: {note}" for note in footing.notes)
    script = footing.script
    if script is not None and script.edited and not (script.drift or "").startswith("nothing"):
        yield f"{step.instance}: {script.path} was written after the process started"


def unchecked_of(cluster: Cluster, ground: Ground, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Subject, and what was not looked at there, or will not be, and why."""
    if not cluster.routers:
        yield cluster.name, "the proof through a router (workers, breakers, generations): the inventory names none"
    for site in ground.sites:
        yield from ((site.host, f"{what}: {why}") for what, why in sorted(site.unseen.items()))
    for step in steps:
        footing = ground.of(step.instance)
        if step.act is not Act.RESTART or footing is None:
            continue
        script = footing.script
        if script is None:
            yield step.instance or "", "its serve script: the inventory names none"
        elif script.sha256 is not None and script.valid is None:
            yield step.instance or "", f"bash -n of {script.path}: {script.fault or 'not run'}"
        if script is not None and script.sha256 is not None and script.drift is None:
            yield step.instance or "", f"what {script.path} would change: {script.why or 'not compared'}"
