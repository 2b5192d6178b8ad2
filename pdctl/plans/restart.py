"""The co-restart: prefill, then decode, then router, as steps.

Held for every plan, whatever was asked for (``broken`` checks it, and no plan that breaks it is carried out):
- No decode is restarted before every prefill of the plan was restarted and verified.
- No router is restarted before every engine of the plan was restarted and verified.
- Nothing is restarted before the scripts it starts from are backed up and, where asked for, the drain is over.
- No instance is restarted twice, and the proof is the last step.
- The nodes of an engine that spans several hosts are restarted in the same batch.
- The steps that are left of a plan do not depend on how far it got: they are the same steps in the same batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count

from pdctl.errors import UsageError
from pdctl.model.cluster import LOCAL, Cluster, Host, Instance, Role
from pdctl.model.plan import Act, Ground, Plan, Step, Wish
from pdctl.plans.nodes import engine_of, leaders
from pdctl.plans.restart_notes import notes_of, unchecked_of
from pdctl.plans.restart_rules import refusals_of

ORDER = (Role.PREFILL, Role.DECODE, Role.ROUTER)

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ENGINE_READY = ("a new process", "health", "metrics", "version", "a real generation")
NODE_READY = ("a new process", "the whole engine's readiness at its first node")
ROUTER_READY = ("a new process", "health", "metrics", "its workers registered", "a real generation through it")
PROOF = ("no pinned request", "each still the process that was ready")
PROOF_OF_ROUTER = ("workers registered", "breakers closed", "a fresh and a kept-alive generation through the router")


def plan_restart(cluster: Cluster, wish: Wish, ground: Ground, plan_id: str) -> Plan:
    """The plan with what speaks against it. Raises UsageError for a role or instance there is not."""
    steps = steps_of(cluster, wish)
    wrong = broken(steps)
    if wrong:
        raise AssertionError(f"a plan that breaks its own rules: {wrong}")
    return Plan(
        plan_id,
        cluster.name,
        wish,
        ground,
        steps,
        tuple(refusals_of(cluster, wish, ground, steps)),
        tuple(notes_of(cluster, wish, ground, steps)),
        tuple(unchecked_of(cluster, ground, steps)),
    )


def steps_of(cluster: Cluster, wish: Wish) -> tuple[Step, ...]:
    """Every step, in order. They follow from the inventory and the wish alone."""
    chosen = chosen_of(cluster, wish.only)
    return tuple(_steps(cluster, wish, chosen)) if chosen else ()


def chosen_of(cluster: Cluster, only: Sequence[str]) -> tuple[Instance, ...]:
    """The instances asked for, in the order of the co-restart. Raises UsageError for a name there is not."""
    known = {i.name: i for i in leaders(cluster.instances) if i.role in ORDER}
    roles = {role.value for role in ORDER}
    for name in only:
        if name not in known and name not in roles:
            raise UsageError(
                f"{cluster.name} has nothing to restart called {name!r}",
                f"A role ({', '.join(roles_of(cluster))}) or an instance: {', '.join(known)}.",
            )
    named = {name for name, i in known.items() if not only or name in only or i.role.value in only}
    wanted = [i for i in cluster.instances if i.role in ORDER and engine_of(i) in named]
    return tuple(sorted(wanted, key=lambda i: ORDER.index(i.role)))


def roles_of(cluster: Cluster) -> tuple[str, ...]:
    """The roles of the co-restart that the cluster has."""
    return tuple(role.value for role in ORDER if cluster.of(role))


def host_of(instance: Instance, cluster: Cluster) -> Host | None:
    """The host an instance runs on: the inventory's; this machine for one that names none and listens on loopback or
    nowhere; else not known."""
    if instance.host is not None:
        return next((h for h in cluster.hosts if h.name == instance.host), None)
    if instance.url is not None and not any(f"://{name}" in instance.url for name in LOOPBACK):
        return None
    return next((h for h in cluster.hosts if h.name == LOCAL), Host(LOCAL))


def command_of(instance: Instance) -> tuple[str, ...]:
    """What restarts it: the inventory's own command, else its unit's restart. systemd is told and not waited for: the
    job is its own then, and goes on whatever becomes of the connection."""
    if instance.restart_command:
        return instance.restart_command
    if instance.unit:
        return ("systemctl", "--no-ask-password", "--no-block", "restart", "--", instance.unit)
    return ()


def _steps(cluster: Cluster, wish: Wish, chosen: tuple[Instance, ...]) -> Iterator[Step]:
    batch = count()
    if wish.backup and any(i.script for i in chosen):
        yield from _backups(cluster, chosen, next(batch))
    if wish.drain is not None:
        says = f"wait until no request is active, {wish.drain:g} s at most"
        yield Step("drain", Act.DRAIN, next(batch), says, verify=("nothing active, or the time is over",))
    for role in ORDER:
        members = [i for i in chosen if i.role is role]
        for group in _groups(members, wish.serial):
            number = next(batch)
            yield from (_restart(i, cluster, number) for i in group)
    proof = (*PROOF_OF_ROUTER, *PROOF) if cluster.routers else PROOF
    yield Step("prove", Act.PROVE, next(batch), "prove that it works", verify=proof)


def _groups(members: Sequence[Instance], size: int | None) -> Iterator[Sequence[Instance]]:
    """So many engines at a time; the nodes of one are never apart, because none comes up without the others."""
    names = list(dict.fromkeys(engine_of(i) for i in members))
    step = size or max(len(names), 1)
    for start in range(0, len(names), step):
        chosen = names[start : start + step]
        yield [i for i in members if engine_of(i) in chosen]


def _backups(cluster: Cluster, chosen: Iterable[Instance], batch: int) -> Iterator[Step]:
    seen: set[tuple[str, str]] = set()
    for instance in chosen:
        host = host_of(instance, cluster)
        if instance.script is None or host is None or (host.name, instance.script) in seen:
            continue
        seen.add((host.name, instance.script))
        yield Step(
            f"backup:{host.name}:{instance.script}",
            Act.BACKUP,
            batch,
            f"back up {instance.script}",
            instance=instance.name,
            role=instance.role,
            host=host.name,
            script=instance.script,
            verify=("the copy is byte for byte the same",),
        )


def _restart(instance: Instance, cluster: Cluster, batch: int) -> Step:
    host = host_of(instance, cluster)
    return Step(
        f"restart:{instance.name}",
        Act.RESTART,
        batch,
        f"restart {instance.name}",
        instance=instance.name,
        role=instance.role,
        host=host.name if host else None,
        command=command_of(instance),
        become=host is not None and host.become == "sudo",
        unit=instance.unit,
        script=instance.script,
        verify=NODE_READY if instance.part_of else ENGINE_READY if instance.is_engine else ROUTER_READY,
    )


# --- what holds -------------------------------------------------------------------------------------------------------


def broken(steps: Sequence[Step]) -> tuple[str, ...]:
    """The invariants that these steps break, in words; none for every plan that ``steps_of`` makes."""
    return tuple(_broken(steps))


def _broken(steps: Sequence[Step]) -> Iterator[str]:
    if [s.batch for s in steps] != sorted(s.batch for s in steps):
        yield "the steps are not in the order of their batches"
    ids = [s.id for s in steps]
    if len(ids) != len(set(ids)):
        yield "a step is there twice"
    restarts = [s for s in steps if s.act is Act.RESTART]
    names = [s.instance for s in restarts]
    if len(names) != len(set(names)):
        yield "an instance is restarted twice"
    for earlier, later in ((Role.PREFILL, Role.DECODE), (Role.PREFILL, Role.ROUTER), (Role.DECODE, Role.ROUTER)):
        before = [s.batch for s in restarts if s.role is earlier]
        after = [s.batch for s in restarts if s.role is later]
        if before and after and max(before) >= min(after):
            yield f"a {later.value} is restarted before every {earlier.value} is ready"
    first = min((s.batch for s in restarts), default=None)
    if first is not None and any(s.batch >= first for s in steps if s.act in (Act.BACKUP, Act.DRAIN)):
        yield "something is restarted before the backups and the drain are done"
    proofs = [s for s in steps if s.act is Act.PROVE]
    if restarts and (len(proofs) != 1 or proofs[0] is not steps[-1] or proofs[0].batch <= restarts[-1].batch):
        yield "the proof is not the last step"


def rest_of(steps: Sequence[Step], done: Collection[str]) -> tuple[Step, ...]:
    """The steps that are left when those are done: each once, in the same batches, none that is done. The proof is
    always left, because it speaks of the present."""
    return tuple(s for s in steps if s.id not in done or s.act is Act.PROVE)
