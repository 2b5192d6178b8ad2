"""A restart plan for people: what is restarted on which host by which command, what runs now, what would be lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.model.plan import SHIFTED, Act, Active, Footing, Plan, Refusal, Script, State, Step, StepResult
from pdctl.render.look import Look, Mark
from pdctl.render.text import counted, moment, span, wrap, wrap_command

MARK_OF = {State.DONE: Mark.OK, State.FAILED: Mark.BAD, State.BEGUN: Mark.WARN, State.LEFT: Mark.UNCHECKED}


def plan_lines(plan: Plan, look: Look, results: dict[str, StepResult] | None = None) -> Iterator[str]:
    """The whole plan on one screen or two. ``results``: what became of the steps so far, for a plan gone on with."""
    count = counted(len(plan.restarts), "instance")
    yield from wrap(f"Restart of {count} of {look.say(plan.cluster)}, run {plan.id}", look.width)
    for number, batch in enumerate(plan.batches, 1):
        yield ""
        yield from _batch_lines(number, batch, plan, look, results or {})
    yield from _listed("Know before you say yes", [look.say(note) for note in plan.notes], look)
    unchecked = [f"{look.say(subject)}: {look.say(why)}" for subject, why in plan.unchecked]
    yield from _listed("Not checked", unchecked, look)
    yield from refusal_lines(plan.refusals, look)


def _batch_lines(
    number: int, batch: Sequence[Step], plan: Plan, look: Look, results: dict[str, StepResult]
) -> Iterator[str]:
    yield from (look.paint(line, "bold") for line in wrap(_title(batch, look), look.width, f"{number}  ", "   "))
    for step in batch:
        if step.act is Act.RESTART:
            yield from _restart_lines(step, plan, look, results.get(step.id))
        elif step.act is Act.BACKUP:
            text = f"{step.script} on {step.host}"
            yield from wrap(look.say(text), look.width, f"   {_state(step, look, results)}", "     ")
    if batch[0].act is Act.RESTART:
        ready = f"each must be ready within {span(plan.wish.ready)}: {', '.join(batch[0].verify)}"
        yield from wrap(ready, look.width, "   ", "   ")


def _title(batch: Sequence[Step], look: Look) -> str:
    first = batch[0]
    if first.act is Act.BACKUP:
        return f"back up {counted(len(batch), 'script')}, where no backup is the same already"
    if first.act is Act.PROVE:
        return f"prove that it works: {', '.join(first.verify)}"
    if first.act is Act.DRAIN:
        return look.say(first.says)
    names = ", ".join(s.instance or "" for s in batch)
    together = " together" if len(batch) > 1 else ""
    return look.say(f"{first.role}{together}: {names}")


def _restart_lines(step: Step, plan: Plan, look: Look, result: StepResult | None) -> Iterator[str]:
    footing = plan.ground.of(step.instance)
    where = f" on {step.host}" if step.host else ""
    head = f"   {look.mark(MARK_OF[result.state])} " if result is not None else "   "
    state = f": {result.state.value}{f' ({result.detail})' if result.detail else ''}" if result is not None else ""
    yield from wrap(look.say(f"{step.instance}{where}{state}"), look.width, head, "     ")
    if result is not None and result.state is State.DONE:
        return
    root = "sudo -n -- " if step.become else ""
    if step.command:
        command = root + " ".join(_quoted(word) for word in step.command)
        yield from wrap_command(look.say(command), look.width, "     ", "       ")
    if footing is not None:
        for line in (_runs(footing), _lost(footing.active, footing), *_script(footing.script)):
            if line:
                yield from wrap(look.say(line), look.width, "     ", "       ")


def _quoted(word: str) -> str:
    from shlex import quote

    return quote(word)


def _runs(footing: Footing) -> str:
    if footing.process is None:
        if footing.why or not footing.state:
            return f"runs now: not known ({footing.why or 'it was not looked at'})"
        return f"runs now: nothing ({footing.state})"
    parts = [str(footing.process)]
    if footing.version:
        parts.append(f"release {footing.version}")
    if footing.state:
        parts.append(footing.state)
    return f"runs now: {', '.join(parts)}"


def _lost(active: Active, footing: Footing) -> str:
    if footing.process is None and not footing.why:
        return ""
    if active.count is None:
        return f"would be lost: not known ({active.why})"
    if active.count == 0:
        return f"would be lost: nothing is under way ({active.source})"
    parts = ", ".join(f"{name} {value:g}" for name, value in active.parts.items() if value)
    inside = f"{parts}; {active.source}" if parts else str(active.source)
    return f"would be lost: {counted(int(active.count), 'request')} ({inside})"


def _script(script: Script | None) -> Iterator[str]:
    if script is None:
        return
    if script.sha256 is None:
        yield f"script: {script.path} could not be read ({script.why})"
        return
    when = f", written {moment(script.mtime)}" if script.mtime is not None else ""
    after = ", after the process started" if script.edited else ""
    yield f"script: {script.path}{when}{after}"
    if script.drift is not None:
        yield script.drift if not script.drift.startswith("nothing") else f"a restart changes {script.drift}"


def _state(step: Step, look: Look, results: dict[str, StepResult]) -> str:
    result = results.get(step.id)
    return f"{look.mark(MARK_OF[result.state])} " if result is not None else "- "


def shift_lines(shifts: Sequence[str], look: Look) -> Iterator[str]:
    """What is not any more as it was when the plan was made."""
    if shifts:
        yield ""
        yield look.paint(f"Refused: {SHIFTED}", "bold")
    for shift in shifts:
        yield from wrap(look.say(shift), look.width, f"   {look.mark(Mark.BAD)} ", "     ")


def refusal_lines(refusals: Sequence[Refusal], look: Look) -> Iterator[str]:
    """What speaks against a plan, those overridden apart."""
    standing = [r for r in refusals if not r.forced]
    if standing:
        yield ""
        yield look.paint("Refused", "bold")
    for refusal in standing:
        over = f" (--force {refusal.rule} overrides it)" if refusal.forcible else ""
        text = f"{refusal.rule}, {refusal.subject}: {refusal.why}{over}"
        yield from wrap(look.say(text), look.width, f"   {look.mark(Mark.BAD)} ", "     ")
    forced = [f"{r.rule}, {r.subject}: {r.why}" for r in refusals if r.forced]
    yield from _listed("Overridden by --force, which is recorded", [look.say(text) for text in forced], look)


def _listed(title: str, rows: Sequence[str], look: Look) -> Iterator[str]:
    if rows:
        yield ""
        yield look.paint(title, "bold")
    for row in rows:
        yield from wrap(row, look.width, "   - ", "     ")
