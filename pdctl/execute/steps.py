"""The steps before anything is restarted: a script is backed up, requests under way are waited for."""

from __future__ import annotations

from datetime import UTC
from hashlib import sha256

from pdctl.execute.doing import Doing
from pdctl.execute.events import Happening, Kind
from pdctl.execute.seeing import LOOK_TIMEOUT
from pdctl.facts import read
from pdctl.facts.asks import asks_for
from pdctl.facts.asks_files import backups_listing_ask, read_entries
from pdctl.model.answer import Answer
from pdctl.model.cluster import Host, Role
from pdctl.model.plan import Active, State, Step, StepResult
from pdctl.model.window import Window
from pdctl.plans import script_write
from pdctl.plans.active import ENGINE_FACTS, ROUTER_FACTS, active_of
from pdctl.plans.nodes import leaders
from pdctl.plans.restart import host_of
from pdctl.reach.act import NOT_OURS, backup_ask

DRAIN_POLL = 2.0  # seconds


def back_up(doing: Doing, step: Step) -> None:
    """A copy of the script as it is; none where a backup beside it is the same already. Raises StepFailed."""
    host, script = doing.host(step), step.script or ""
    begun = doing.world.clock.now()
    doing.tell(Happening(Kind.BEGIN, step.says, step))
    (seen,) = doing.world.look([script_write.read_ask(step.instance or "", host, script)], LOOK_TIMEOUT)
    try:
        current = script_write.read_current(_came(seen), script)
    except ValueError as error:
        raise doing.failed(step, f"{script} cannot be read: {error}") from None
    footing = doing.plan.ground.of(step.instance)
    known = footing.script.sha256 if footing is not None and footing.script is not None else None
    if known is not None and sha256(current.raw).hexdigest() != known:
        raise doing.failed(step, f"{script} has been changed since the plan was made")
    backup = script_write.backup_name(current.path, doing.world.clock.wall().astimezone(UTC), _taken(doing, step, host))
    writing = script_write.Writing(step.instance or "", host, current, None, backup, doing.plan.id)
    program = next(script_write.steps_of(writing)).ask
    attempt = doing.begin(step, f"cp --preserve=all {current.path} {backup}")
    words = [word if isinstance(word, str) else word.value for word in program.argv]
    answer = doing.world.act(
        backup_ask(host, doing.permit, step.id, attempt, current.path, backup, words, doing.said(step))
    )
    doing.record.step_acted(step, attempt, answer.status, answer.detail or "")
    if answer.error is not None:
        why = script_write.why_failed(answer) if answer.status != NOT_OURS else answer.detail or ""
        raise doing.failed(step, f"no backup of {script}: {why}")
    text = (answer.body or b"").decode("utf-8", "replace").strip()
    took = doing.world.clock.now() - begun
    kept = text.removeprefix("same ")
    detail = f"the same as {kept}: none made" if text.startswith("same ") else f"kept as {backup}"
    doing.done(step, StepResult(step.id, State.DONE, detail, took))


def _taken(doing: Doing, step: Step, host: Host) -> frozenset[str]:
    """The names beside the script that are taken; where they cannot be listed, none: a backup goes over nothing."""
    (seen,) = doing.world.look([backups_listing_ask(step.instance or "", host, step.script or "")], LOOK_TIMEOUT)
    return frozenset(entry.path for entry in read_entries(seen.body or b"")) if seen is not None else frozenset()


def _came(answer: Answer | None) -> Answer:
    if answer is None or answer.error is not None:
        raise ValueError(answer.detail or str(answer.error) if answer is not None else "not asked")
    return answer


# --- the drain --------------------------------------------------------------------------------------------------------


def drain(doing: Doing, step: Step) -> None:
    """Waits until two looks in a row see no request under way, or until the time is over: then it goes on, and says
    what was still there."""
    clock, begun = doing.world.clock, doing.world.clock.now()
    doing.tell(Happening(Kind.BEGIN, step.says, step))
    doing.begin(step, "(only looks)")
    limit, calm = doing.plan.wish.drain or 0.0, 0
    while True:
        doing.locks.beat()
        active = _active(doing)
        calm = calm + 1 if active and all(a.count == 0 for a in active.values()) else 0
        waited, says = clock.now() - begun, active_words(active)
        if calm >= 2 or waited >= limit:
            detail = "nothing is active" if calm >= 2 else f"the time is over: {says}"
            doing.done(step, StepResult(step.id, State.DONE, detail, waited))
            return
        doing.tell(Happening(Kind.WAIT, says, step, waited))
        clock.sleep(min(DRAIN_POLL, max(0.1, limit - waited)))


def _active(doing: Doing) -> dict[str, Active]:
    """The requests under way on each instance that is to be restarted."""
    names = {s.instance for s in doing.plan.restarts}
    chosen = [i for i in leaders(doing.cluster.instances) if i.name in names]
    asks = []
    for instance in chosen:
        host = host_of(instance, doing.cluster)
        via = host.name if host is not None and host.ssh is not None else None
        facts = ROUTER_FACTS if instance.role is Role.ROUTER else ENGINE_FACTS[:2]
        asks += list(asks_for(instance, facts, via=via))
    now = doing.world.clock.wall()
    answers = [a for a in doing.world.look(asks, LOOK_TIMEOUT) if a is not None]
    window = Window(now, now, tuple(read(a, doing.cluster.instance(a.subject)) for a in answers), live=True)
    return {i.name: active_of(window, i) for i in chosen}


def active_words(active: dict[str, Active]) -> str:
    """What is still under way, and where that is not known."""
    busy = [f"{name} {a.count:g}" for name, a in active.items() if a.count]
    blind = [name for name, a in active.items() if a.count is None]
    parts = [f"active: {', '.join(busy)}"] if busy else []
    return "; ".join([*parts, *([f"not known of {', '.join(blind)}"] if blind else [])]) or "nothing is active"
