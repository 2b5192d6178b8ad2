"""What came of a restart: for people, what was touched and what was not, the proof, before and after; for programs all
of it as one document, schema ``pdctl.restart/1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pdctl import __version__
from pdctl.model.plan import SHIFTED, End, Footing, Ground, Outcome, Plan, Point, Proven, Standing, State, StepResult
from pdctl.render.grid import grid
from pdctl.render.look import Look, Mark
from pdctl.render.plan import MARK_OF
from pdctl.render.text import span, wrap
from pdctl.render.wire import dumps, plain, text

SCHEMA = "pdctl.restart/1"
MARK_OF_POINT = {Proven.YES: Mark.OK, Proven.NO: Mark.BAD, Proven.NOT_CHECKED: Mark.UNCHECKED}
WORD_OF = {End.DONE: "DONE", End.FAILED: "STOPPED", End.INTERRUPTED: "INTERRUPTED"}


def outcome_lines(outcome: Outcome, look: Look) -> Iterator[str]:
    """The verdict, every step with what became of it, how what was touched stands, the proof, before and after."""
    mark = Mark.OK if outcome.end is End.DONE else Mark.BAD
    said = f": {outcome.why}" if outcome.why else ""
    head = f"{look.mark(mark)} {look.paint(WORD_OF[outcome.end], mark)}  "
    yield from wrap(look.say(f"{outcome.plan.cluster}{said}"), look.width, head, "  ")
    yield from _steps(outcome, look)
    yield from _standing(outcome, look)
    yield from _proof(outcome.proof, look)
    yield from _gauges(outcome, look)
    for note in outcome.notes:
        yield from wrap(look.say(note), look.width, f"{look.mark(Mark.WARN)} ", "  ")
    yield from _next(outcome)


def _next(outcome: Outcome) -> Iterator[str]:
    """How to go on: from where it stopped, or with a new plan where this one does not fit any more."""
    if outcome.end is End.DONE:
        return
    shifted = outcome.why is not None and outcome.why.startswith(SHIFTED)
    untouched = all(outcome.of(s).state is State.LEFT for s in outcome.plan.steps)
    yield ""
    if shifted or untouched:
        yield "Nothing was touched. A new plan:" if untouched else "This plan does not fit any more. A new one:"
        yield "  pdctl restart --plan"
    else:
        yield "When it is put right:"
        yield "  pdctl restart --resume"


def _steps(outcome: Outcome, look: Look) -> Iterator[str]:
    """Touched and not touched are two lists, so that neither is taken for the other."""
    touched = [s for s in outcome.plan.steps if outcome.of(s).state is not State.LEFT]
    left = [s for s in outcome.plan.steps if outcome.of(s).state is State.LEFT]
    if touched:
        yield ""
        yield "Done or begun:"
    for step in touched:
        result = outcome.of(step)
        took = f", {span(result.took)}" if result.took is not None else ""
        says = f"{step.says}: {result.state.value}{took}{': ' + result.detail if result.detail else ''}"
        yield from wrap(look.say(says), look.width, f"  {look.mark(MARK_OF[result.state])} ", "    ")
        yield from _details(result, look)
    if left:
        yield ""
        yield "Not touched:"
    for step in left:
        yield from wrap(look.say(step.says), look.width, f"  {look.mark(Mark.UNCHECKED)} ", "    ")


def _details(result: StepResult, look: Look) -> Iterator[str]:
    if result.after is not None:
        release = f", release {result.version}" if result.version else ""
        yield from wrap(look.say(f"new: {result.after}{release}"), look.width, "      ")
    if result.phases:
        yield from wrap(", ".join(f"{name} {span(took)}" for name, took in result.phases), look.width, "      ")
    if result.last_log and result.state is not State.DONE:
        yield from wrap(look.say(f"log: {result.last_log}"), look.width, "      ", "        ")


def _standing(outcome: Outcome, look: Look) -> Iterator[str]:
    if outcome.standing:
        yield ""
        yield "How what was touched stands now:"
    for row in outcome.standing:
        head = f"  {look.mark(_mark_of(row))} "
        yield from wrap(look.say(f"{row.instance}: {row.says}"), look.width, head, "    ")


def _mark_of(row: Standing) -> Mark:
    """Nothing is green that was not seen to be ready."""
    if row.down is None:
        return Mark.UNKNOWN
    return Mark.BAD if row.down else Mark.OK if row.ready else Mark.WARN


def _proof(points: Sequence[Point], look: Look) -> Iterator[str]:
    if points:
        yield ""
        yield "Proof:"
    for point in points:
        said = f"{point.what}, {point.subject}: {point.says}"
        if point.proven is Proven.NOT_CHECKED:
            said = f"{point.what}, {point.subject}: not checked ({point.says})"
        yield from wrap(look.say(said), look.width, f"  {look.mark(MARK_OF_POINT[point.proven])} ", "    ")


def _gauges(outcome: Outcome, look: Look) -> Iterator[str]:
    """Before and after, side by side; what was not seen is a dash."""
    if outcome.before is None or outcome.after is None:
        return
    rows: list[tuple[str, str, str, str]] = []
    for before in outcome.before.footings:
        after = outcome.after.of(before.instance)
        rows += _rows_of(before, after, look)
    if rows:
        yield ""
        yield "Before and after:"
        yield from grid(("instance", "", "before", "after"), rows, look, right=(2, 3))


def _rows_of(before: Footing, after: Footing | None, look: Look) -> Iterator[tuple[str, str, str, str]]:
    was, now = _values(before), _values(after) if after is not None else {}
    name = look.say(before.instance)
    for key in dict.fromkeys((*was, *now)):
        yield name, key, look.say(was.get(key, "-")), look.say(now.get(key, "-"))
        name = ""


def _values(footing: Footing) -> dict[str, str]:
    out = {"process": str(footing.process.pid)} if footing.process is not None else {}
    if footing.version:
        out["release"] = footing.version
    return out | {name: f"{value:g}" for name, value in footing.gauges.items()}


def short_line(outcome: Outcome, look: Look) -> str:
    """All of it in one line."""
    done = sum(1 for s in outcome.plan.restarts if outcome.of(s).state is State.DONE)
    said = f": {outcome.why}" if outcome.why else ""
    count = f"{done} of {len(outcome.plan.restarts)} restarted"
    return look.say(f"{WORD_OF[outcome.end]} {outcome.plan.cluster} {count}{said}")


# --- for programs -----------------------------------------------------------------------------------------------------


def plan_value(
    plan: Plan, status: str, results: Mapping[str, StepResult] | None = None, why: str | None = None
) -> dict[str, Any]:
    """A plan that was not carried out, or not to its end yet (``results``); ``why`` it is refused."""
    steps = [_step(plan, s.id, (results or {}).get(s.id)) for s in plan.steps]
    return _document(plan, status) | {"why": None if why is None else text(why), "steps": steps}


def outcome_value(outcome: Outcome) -> dict[str, Any]:
    """A plan that was carried out, with what came of it."""
    plan = outcome.plan
    return _document(plan, outcome.end.value) | {
        "why": None if outcome.why is None else text(outcome.why),
        "steps": [_step(plan, s.id, outcome.of(s)) for s in plan.steps],
        "standing": value_of(outcome.standing),
        "proof": value_of(outcome.proof),
        "before": _gauges_value(outcome.before),
        "after": _gauges_value(outcome.after),
        "notes": [text(note) for note in (*plan.notes, *outcome.notes)],
    }


def _document(plan: Plan, status: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "pdctl": __version__,
        "cluster": text(plan.cluster),
        "status": status,
        "run": text(plan.id),
        "refusals": value_of(plan.refusals),
        "notes": [text(note) for note in plan.notes],
        "unchecked": [{"subject": text(subject), "why": text(why)} for subject, why in plan.unchecked],
        "plan": value_of(plan),
    }


def _step(plan: Plan, step_id: str, result: StepResult | None) -> dict[str, Any]:
    step = plan.step(step_id)
    assert step is not None
    said = value_of(result) if result is not None else {"state": State.LEFT.value}
    return {**value_of(step), **{k: v for k, v in said.items() if k != "step"}}


def _gauges_value(ground: Ground | None) -> dict[str, Any] | None:
    return None if ground is None else {text(f.instance): value_of(_shown(f)) for f in ground.footings}


def _shown(footing: Footing) -> Mapping[str, object]:
    return {"process": footing.process, "version": footing.version, **footing.gauges}


def value_of(value: object, key: str = "") -> Any:
    """Any of the plan's values as JSON knows it, secrets masked, keys in the order of their fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: value_of(getattr(value, f.name), f.name) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [value_of(item, key) for item in value]
    if isinstance(value, Mapping):
        return {text(str(k)): value_of(v, str(k)) for k, v in value.items()}
    return plain(value, key)


def document(value: Mapping[str, Any]) -> str:
    """One JSON document, indented."""
    return dumps(value, indent=2)
