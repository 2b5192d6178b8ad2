"""What a restart stands on: what runs, since when, with how many requests; the scripts; the hosts, disks and locks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from hashlib import sha256

from pdctl.checks import live_drift
from pdctl.execute.seeing import identities_of_kin, identity_of_unit
from pdctl.execute.survey_hosts import sites_of
from pdctl.execute.world import OpenWorld
from pdctl.facts import asks_ground
from pdctl.looks.files import FileLook, places_of, with_sources
from pdctl.looks.hosts import HostLook, HostPlan
from pdctl.model.answer import Answer, Fact, Missed, Seen
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import Loads, ServerInfo
from pdctl.model.finding import Finding, RuledOut
from pdctl.model.host import ScriptFile, Unit
from pdctl.model.plan import Active, Footing, Ground, Identity, Owner, Script
from pdctl.model.router import Workers
from pdctl.model.window import Window
from pdctl.plans.active import ENGINE_FACTS, ROUTER_FACTS, active_of, gauges_of
from pdctl.plans.restart import ORDER, host_of
from pdctl.plans.unit_words import state_of
from pdctl.plans.waiting import DEFINITE

PHASE_TIMEOUT = 15.0  # seconds for each round of asking: far less than after what a lock counts as stale
SAME_MOMENT = timedelta(seconds=2)  # when a process started is known to a second
Raws = Mapping[tuple[str, str], bytes]  # the bytes of each script, by instance and path
NOT_SHELL = ("python", "perl", "ruby", "node")


def survey(world: OpenWorld, own: Owner | None = None) -> Ground:
    """The ground as it is now, of every instance that a co-restart can be about."""
    cluster = world.cluster
    instances = tuple(i for i in cluster.instances if i.role in ORDER)
    look = HostLook(cluster, instances, HostPlan(PHASE_TIMEOUT), world.hosts, world.gatherer, lambda _: None)
    raws: dict[tuple[str, str], bytes] = {}
    look.on_answer = lambda answer: _keep(answer, raws)
    look.see(look.ask(look.http_asks((*ENGINE_FACTS, Fact.WORKERS))))
    files = FileLook(look)
    files.scripts(places_of(look), backups=False)
    files.processes()
    window = with_sources(look.window(), cluster)
    drift = _drift(window, cluster)
    checked = _syntax(look, raws)
    footings = tuple(_footing(i, look, window, raws, drift, checked) for i in instances)
    sites = tuple(sites_of(look, cluster, instances, world.lock_path, own))
    return Ground(window.end, inventory_digest(cluster), footings, sites)


def inventory_digest(cluster: Cluster) -> str:
    """A digest of everything the inventory says of hosts and instances."""
    value = {"name": cluster.name, "hosts": [asdict(h) for h in cluster.hosts]}
    value |= {"instances": [asdict(i) for i in cluster.instances]}
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _keep(answer: Answer, raws: dict[tuple[str, str], bytes]) -> None:
    path = answer.more.get("path")
    if answer.fact is Fact.SCRIPT and answer.body is not None and answer.error is None and isinstance(path, str):
        raws[answer.subject, path] = answer.body


# --- instances --------------------------------------------------------------------------------------------------------


def _footing(
    instance: Instance,
    look: HostLook,
    window: Window,
    raws: Raws,
    drift: Mapping[str, tuple[str, bool | None]],
    checked: Mapping[str, tuple[bool | None, str | None]],
) -> Footing:
    host = host_of(instance, look.cluster)
    process, why, unit = _process(instance, look, window)
    answered, refused = _answers(window, instance)
    workers = window.last(instance.name, Fact.WORKERS, Workers)
    info = window.last(instance.name, Fact.SERVER_INFO, ServerInfo)
    loads = window.last(instance.name, Fact.LOADS, Loads)
    version = (info.value.version if info else None) or (loads.value.version if loads else None)
    return Footing(
        instance.name,
        host.name if host else None,
        process,
        why,
        state_of(unit) if unit is not None else (None if process is not None or why is not None else "no process"),
        None if unit is None else unit.properties.get("LoadState") == "loaded",
        stop_seconds(unit) if unit is not None else None,
        version,
        _active(window, instance),
        _script(instance, window, raws, drift, checked, process),
        answered,
        refused,
        gauges_of(window, instance),
        tuple(row.url for row in workers.value.rows) if workers is not None else None,
        tuple(_unit_notes(unit)) if unit is not None else (),
        unit.restarts if unit is not None else None,
    )


def _active(window: Window, instance: Instance) -> Active:
    """The requests of an engine that spans several hosts are all counted at its first node."""
    if instance.part_of is not None:
        return Active(0.0, {}, f"all of them are counted at {instance.part_of}")
    return active_of(window, instance)


def _process(
    instance: Instance, look: HostLook, window: Window
) -> tuple[Identity | None, str | None, Unit | None]:  # fmt: skip
    """The main process, why none is known, and the unit."""
    if instance.unit:
        seen = window.last(instance.name, Fact.UNIT, Unit)
        if seen is None:
            missed = [m.missed for m in window.missed(instance.name, Fact.UNIT) if m.missed is not None]
            why = (missed[-1].detail or str(missed[-1].why)) if missed else "its unit was not looked at"
            return None, f"{instance.unit}: {why}", None
        present = identity_of_unit(seen.value)
        return (present[0] if present else None), None, seen.value
    found = look.found[instance.name]
    if not found.listed:
        return None, found.why or "its host's processes could not be listed", None
    tops = identities_of_kin(found.kin)
    youngest = max(tops, key=lambda p: p.started.timestamp() if p.started else 0.0, default=None)
    return youngest, None, None


def stop_seconds(unit: Unit) -> float | None:
    """How long systemd lets the unit take to stop; None where it sets no bound, or does not tell."""
    text = unit.properties.get("TimeoutStopUSec", "")
    sizes = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    parts = re.findall(r"(\d+(?:\.\d+)?)(us|ms|s|min|h|d)\b", text)
    return sum(float(number) * sizes[size] for number, size in parts) if parts else None


def _unit_notes(unit: Unit) -> Iterator[str]:
    if unit.properties.get("NeedDaemonReload") == "yes":
        yield "its unit file has changed since systemd read it: without systemctl daemon-reload the old one is used"
    if unit.restarts:
        times = "once" if unit.restarts == 1 else f"{unit.restarts} times"
        yield f"systemd has restarted it by itself {times}"


def _answers(window: Window, instance: Instance) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The facts it answered over HTTP, and those that it is known not to serve."""
    answered, refused = [], []
    for fact in ROUTER_FACTS if instance.role is Role.ROUTER else ENGINE_FACTS:
        rows = window.timeline(instance.name, fact)
        if any(isinstance(o.got, Seen) for o in rows):
            answered.append(fact.value)
        elif any(isinstance(o.got, Missed) and o.got.why in DEFINITE for o in rows):
            refused.append(fact.value)
    return tuple(answered), tuple(refused)


# --- scripts ----------------------------------------------------------------------------------------------------------


def _script(
    instance: Instance,
    window: Window,
    raws: Raws,
    drift: Mapping[str, tuple[str, bool | None]],
    checked: Mapping[str, tuple[bool | None, str | None]],
    process: Identity | None,
) -> Script | None:
    if instance.script is None:
        return None
    rows = [at.value for at in window.seen(instance.name, Fact.SCRIPT, ScriptFile) if at.value.path == instance.script]
    raw = raws.get((instance.name, instance.script))
    if not rows or raw is None:
        missed = [o.missed for o in window.missed(instance.name, Fact.SCRIPT) if o.missed is not None]
        why = (missed[-1].detail or str(missed[-1].why)) if missed else "it was not read"
        return Script(instance.script, why=why)
    mtime = rows[-1].mtime
    started = process.started if process is not None else None
    says, _ = drift.get(instance.name, ("", None))
    valid, fault = checked.get(instance.name, (None, None))
    return Script(
        instance.script,
        sha256(raw).hexdigest(),
        mtime,
        None if says else "neither command line nor environment of its process could be compared",
        valid,
        fault,
        mtime > started + SAME_MOMENT if mtime is not None and started is not None else None,
        says or None,
    )


def _drift(window: Window, cluster: Cluster) -> dict[str, tuple[str, bool | None]]:
    """What a restart would change of each instance, in words."""
    out: dict[str, tuple[str, bool | None]] = {}
    for verdict in live_drift.judge(window, cluster):
        if isinstance(verdict, Finding):
            out[verdict.subject] = (verdict.summary, True)
        elif isinstance(verdict, RuledOut):
            out[verdict.subject] = (f"nothing: {verdict.by}", False)
    return out


def _syntax(look: HostLook, raws: Raws) -> dict[str, tuple[bool | None, str | None]]:
    """Whether ``bash -n`` passes, and what it said; None where it was not run."""
    out: dict[str, tuple[bool | None, str | None]] = {}
    asks = []
    for instance, host in look.placed():
        raw = raws.get((instance.name, instance.script or ""))
        if raw is None or instance.script is None:
            continue
        first = raw.partition(b"\n")[0].decode("utf-8", "replace")
        if first.startswith("#!") and any(word in first for word in NOT_SHELL):
            out[instance.name] = (None, f"it is no shell script ({first[2:].strip()})")
        else:
            asks.append(asks_ground.syntax_ask(instance, host, instance.script, raw))
    for answer in look.ask(asks):
        out[answer.subject] = _parsed(answer)
    return out


def _parsed(answer: Answer) -> tuple[bool | None, str | None]:
    if answer.error is None:
        return True, None
    stderr = str(answer.more.get("stderr") or "").strip().splitlines()
    if answer.status in (1, 2) and stderr:
        return False, stderr[0].removeprefix("bash: ").removeprefix("/dev/stdin: ")
    return None, answer.detail or str(answer.error)
