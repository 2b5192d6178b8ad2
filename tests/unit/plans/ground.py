"""Clusters and grounds by hand, for tests of restart plans."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.plan import Active, Footing, Ground, Hold, Identity, Lock, Script, Site

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def cluster(prefills: int = 1, decodes: int = 1, routers: int = 1, *, become: str | None = None) -> Cluster:
    rows = []
    hosts = []
    for role, count in ((Role.PREFILL, prefills), (Role.DECODE, decodes), (Role.ROUTER, routers)):
        for n in range(count):
            name = f"{role.value}-{n}"
            hosts.append(Host(f"h-{name}", f"ops@h-{name}", become))
            rows.append(
                Instance(name, role, f"http://10.0.0.1:{30000 + len(rows)}", host=f"h-{name}", unit=f"{name}.service")
            )
    return Cluster("prod", tuple(rows), tuple(hosts))


def footing(instance: Instance, hours: float = 5.0) -> Footing:
    """A running instance that has run for so long."""
    process = Identity(1000 + int(instance.url.rpartition(":")[2]) if instance.url else 1, NOW - timedelta(hours=hours))
    return Footing(
        instance.name, instance.host, process, None, "active (running)", True, 90.0, "0.5.19", Active(0.0, {}, "x"),
        answered=("metrics",),
    )  # fmt: skip


def ground(whole: Cluster, **changed: Footing) -> Ground:
    """Everything runs well; footings by name (with _ for -) in place of those."""
    rows = tuple(changed.get(i.name.replace("-", "_"), footing(i)) for i in whole.instances)
    sites = tuple(Site(h.name, True, None, "boot", Lock(Hold.FREE)) for h in whole.hosts)
    return Ground(NOW, "digest", rows, sites)


def with_script(row: Footing, **about: object) -> Footing:
    script = replace(Script("/srv/serve.sh", "aa", NOW, None, True), **about)  # type: ignore[arg-type]
    return replace(row, script=script)
