"""What an instance must show to count as ready, from what it was before."""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import parse_release
from pdctl.model.plan import Footing, Plan, Step
from pdctl.plans.probe import NO_PEER_SINCE
from pdctl.plans.proof import wanted_workers
from pdctl.plans.waiting import ENGINE, FACT_OF, ROUTER, Expected, Phase

STOP = 270.0  # seconds, where systemd does not say how long it lets a unit take
NO_PAGE = "the inventory names no address of its metrics"
MORE = 30.0  # seconds beyond what systemd lets it take


def expected_of(cluster: Cluster, plan: Plan, step: Step) -> Expected:
    """What is waited for after the step."""
    instance = cluster.instance(step.instance or "")
    assert instance is not None
    footing = plan.ground.of(step.instance)
    workers, exact = wanted_workers(cluster, footing)
    stop_s = footing.stop_seconds if footing is not None else None
    return Expected(
        instance.name,
        ROUTER if instance.role is Role.ROUTER else ENGINE,
        footing.process if footing is not None else None,
        plan.wish.stop if plan.wish.stop is not None else (stop_s if stop_s is not None else STOP) + MORE,
        plan.wish.ready,
        frozenset(footing.answered if footing is not None else ()),
        left_out(instance, footing),
        workers,
        exact,
        has_unit=instance.unit is not None,
        told_systemd=not instance.restart_command,
    )


def left_out(instance: Instance, footing: Footing | None) -> Mapping[Phase, str]:
    """The phases that an instance is known not to have, each with the reason."""
    refused = footing.refused if footing is not None else ()
    out = {phase: "it serves none" for phase, fact in FACT_OF.items() if fact.value in refused}
    if not instance.url:
        no_url = f"{instance.part_of} answers for the whole" if instance.part_of else "the inventory names no url"
        out |= dict.fromkeys((Phase.HEALTH, Phase.VERSION, Phase.WORKERS, Phase.GENERATION), no_url)
    if not instance.metrics:
        no_page = f"{instance.part_of} answers for the whole" if instance.part_of else NO_PAGE
        out[Phase.METRICS] = no_page
    if instance.engine != "sglang":
        out[Phase.VERSION] = f"{instance.engine} does not say it over HTTP"
    return out


def cannot_generate(instance: Instance, version: str | None) -> str | None:
    """Why no generation can be asked of an engine directly; None where it can. It takes a bootstrap host that stands
    for no peer, read from 0.4.9 on; a release that is not known is taken for one that has it."""
    release = parse_release(version)
    if not instance.is_engine or instance.engine != "sglang" or release is None or release >= NO_PEER_SINCE:
        return None
    return f"release {version} takes no request without its peer"
