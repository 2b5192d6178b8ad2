"""What a restart must satisfy before anything is touched, each rule by name.

A rule that judges what was asked for fails the request; one that judges the world fails the preflight. What cannot be
seen is never taken for fine: it fails the rule, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pdctl.model.cluster import Cluster, Role
from pdctl.model.plan import Act, Disk, Footing, Ground, Hold, Lock, Refusal, Rule, Site, Step, Wish
from pdctl.plans.nodes import leaders

LONG_S = 600.0  # a prefill that has run longer than this has state of the decode that would go
HOLDS_PREFILL = "keeps connections and addresses of the prefill process that would go and may not give them up"
LEAST_FREE = 100 * 1024 * 1024  # bytes
LEAST_SHARE = 0.01

_ROWS = (
    Rule("decode-alone", "no decode is restarted against a prefill that has run long or is not up", asked=True),
    Rule("prefill-alone", "no prefill is restarted without the decodes that hold state of it", asked=True),
    Rule("way-known", "a unit or a restart_command and a host are known for each instance", False, True),
    Rule("shared-unit", "no two instances share a unit: one restart would restart both", False, True),
    Rule("verifiable", "each instance has a URL, so that it can be seen to be ready", asked=True),
    Rule("host-reachable", "each host answers", False),
    Rule("unit-loaded", "systemd knows each unit and may start it", False),
    Rule("process-seen", "the running process can be seen, so that a new one can be told from it", False),
    Rule("script-valid", "each serve script can be read and passes bash -n"),
    Rule("other-restart", "no other restart is under way on a host"),
    Rule("disk-space", "the disks that engines write to are not full"),
    Rule("leftovers", "no process of an earlier engine is left over with its memory"),
)
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _ROWS}


def refusals_of(cluster: Cluster, wish: Wish, ground: Ground, steps: Sequence[Step]) -> Iterator[Refusal]:
    """Every rule that is not satisfied, in the order of the table, those overridden by name marked so."""
    restarts = [s for s in steps if s.act is Act.RESTART]
    found = [*_alone(cluster, ground, restarts), *_ways(cluster, restarts)]
    for step in restarts:
        found += _instance(step, ground)
    for name in dict.fromkeys(s.host for s in restarts if s.host):
        site = ground.site(name)
        found += _site(site) if site is not None else [("host-reachable", name, "it was not looked at")]
    order = list(RULES)
    for rule, subject, why in sorted(found, key=lambda row: order.index(row[0])):
        row = RULES[rule]
        yield Refusal(rule, subject, why, row.forcible, row.asked, row.forcible and rule in wish.force)


Row = tuple[str, str, str]  # rule, subject, why


# --- what was asked for -----------------------------------------------------------------------------------------------


def _alone(cluster: Cluster, ground: Ground, restarts: Sequence[Step]) -> Iterator[Row]:
    """A half of a pair holds state of the other half: connections, sessions, addresses, requests handed over."""
    names = {s.instance for s in restarts}
    decodes = [s for s in restarts if s.role is Role.DECODE]
    if decodes:
        for prefill in leaders(cluster.prefills):
            if prefill.name not in names and (why := _stale_prefill(ground.of(prefill.name), ground)):
                listed = ", ".join(s.instance or "" for s in decodes)
                yield "decode-alone", listed, f"{prefill.name} {why}: restart it first, in the same run"
    prefills = [s.instance or "" for s in restarts if s.role is Role.PREFILL]
    if prefills:
        for decode in leaders(cluster.decodes):
            footing = ground.of(decode.name)
            if decode.name not in names and not _is_down(footing):
                yield (
                    "prefill-alone",
                    ", ".join(prefills),
                    f"{decode.name} {HOLDS_PREFILL}: restart it after, in the same run",
                )


def _stale_prefill(footing: Footing | None, ground: Ground) -> str:
    """Why a decode must not be restarted alone against this prefill; "" where it may."""
    if footing is None or not _is_seen(footing):
        return f"may have run long (its process could not be seen: {footing.why if footing else 'not looked at'})"
    if footing.process is None:
        return f"is not running ({footing.state}), so a decode that comes back finds no peer"
    if footing.process.started is None:
        return "may have run long (when it started is not known)"
    seconds = (ground.at - footing.process.started).total_seconds()
    if seconds > LONG_S:
        return (
            f"has run for {_span(seconds)} and holds sessions and handed-over requests of the decode process that "
            "would go; no timeout on the prefill side ends those"
        )
    if not footing.answered:
        return f"started {_span(seconds)} ago and does not answer yet"
    return ""


def _ways(cluster: Cluster, restarts: Sequence[Step]) -> Iterator[Row]:
    units = Counter((s.host, s.unit) for s in restarts if s.unit)
    commands = Counter((s.host, s.command) for s in restarts)
    for step in restarts:
        name, instance = step.instance or "", cluster.instance(step.instance or "")
        if step.host is None:
            yield "way-known", name, "the inventory names no host for it"
        elif not step.command:
            yield "way-known", name, "the inventory names neither unit nor restart_command"
        elif units[step.host, step.unit or ""] > 1:
            yield "shared-unit", name, f"{step.unit} on {step.host} is the unit of several instances"
        elif commands[step.host, step.command] > 1:
            yield "shared-unit", name, f"its restart command on {step.host} is that of several instances"
        if instance is not None and not instance.url and instance.part_of is None:
            yield "verifiable", name, "the inventory names no url, so nothing can show that it is ready"


# --- the world --------------------------------------------------------------------------------------------------------


def _instance(step: Step, ground: Ground) -> Iterator[Row]:
    name, footing, site = step.instance or "", ground.of(step.instance), ground.site(step.host)
    if step.host is None or site is None or not site.reachable:
        return
    if footing is None:
        yield "process-seen", name, "it was not looked at"
        return
    if step.unit and footing.loaded is not True:
        yield "unit-loaded", name, footing.why or f"what systemd says of {step.unit} could not be read"
    elif not _is_seen(footing):
        stands = f"it is {footing.state}" if footing.state else "its process could not be seen"
        yield "process-seen", name, footing.why or stands
    script = footing.script
    if script is not None and (script.sha256 is None or script.valid is False):
        why = script.fault if script.valid is False else script.why
        yield "script-valid", name, f"{script.path}: {why or 'could not be read'}"


def _is_seen(footing: Footing) -> bool:
    """Whether it is known what runs, be it nothing: a unit that was seen and has no main process (one that fails and is
    started again and again, say) has none. One that is being stopped at this moment is somebody's business."""
    state = footing.state or "deactivating"
    return footing.process is not None or (footing.why is None and not state.startswith("deactivating"))


def _is_down(footing: Footing | None) -> bool:
    """Whether it is known that nothing of the instance runs."""
    if footing is None or footing.process is not None:
        return False
    return footing.state == "no process" or (footing.state or "").startswith(("inactive", "failed"))


def _site(site: Site) -> Iterator[Row]:
    if not site.reachable:
        yield "host-reachable", site.host, site.why or "it does not answer"
        return
    if (lock := lock_refusal(site.lock)) is not None:
        yield "other-restart", site.host, lock
    for disk in site.disks:
        if _is_full(disk):
            yield "disk-space", site.host, f"{disk.path} has {disk.free // 2**20} MiB free of {disk.size // 2**20} MiB"
    for left in site.leftovers:
        memory = f", which holds {left.gpu_mib:.0f} MiB of GPU memory," if left.gpu_mib else ""
        yield (
            "leftovers",
            site.host,
            f"pid {left.pid} ({left.title}){memory} has lost its engine and belongs to no instance here; end it first",
        )


def lock_refusal(lock: Lock) -> str | None:
    """Why a lock stands in the way; None where it does not."""
    if lock.hold is Hold.STALE and lock.of is not None:
        whose = f" of {lock.owner.who} (run {lock.owner.run})" if lock.owner else ""
        may = "root" if lock.of == "root" else f"{lock.of} or root"
        return f"the stale lock{whose} is a file of {lock.of} ({lock.why}): {may} must remove it"
    if lock.hold in (Hold.FREE, Hold.OURS, Hold.STALE):
        return None
    if lock.hold is Hold.UNKNOWN or lock.owner is None:
        return f"whether another restart is under way cannot be seen: {lock.why or 'no answer'}"
    owner, parts = lock.owner, []
    if lock.age_s is not None:
        parts.append(f"for {_span(lock.age_s)}")
    if lock.quiet_s is not None:
        parts.append(f"last sign of life {_span(lock.quiet_s)} ago")
    told = f" ({', '.join(parts)})" if parts else ""
    return f"{owner.who} is restarting {owner.cluster} (run {owner.run}, pid {owner.pid}){told}"


def _is_full(disk: Disk) -> bool:
    return disk.free < LEAST_FREE or disk.free < LEAST_SHARE * disk.size


def _span(seconds: float) -> str:
    """A length of time in words."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
