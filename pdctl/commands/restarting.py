"""What a restart does from the command line on: the plan shown, agreed to, carried out, told; or a run gone on with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from pdctl.commands.common import Output
from pdctl.errors import INTERRUPTED, STEP_FAILED, USAGE, UsageError

if TYPE_CHECKING:
    from pdctl.execute.record import Run
    from pdctl.execute.world import OpenWorld
    from pdctl.model.cluster import Cluster
    from pdctl.model.plan import Ground, Outcome, Owner, Plan, StepResult, Wish
    from pdctl.render.look import Look

NOT_CONFIRMED = "not confirmed: nothing was touched"


@dataclass(frozen=True, slots=True)
class How:
    """How a restart is asked for, beside what is to be restarted."""

    plan_only: bool = False
    yes: bool = False
    output: Output = Output.HUMAN
    ascii_only: bool = False

    @property
    def for_people(self) -> bool:
        return self.output is Output.HUMAN


@dataclass(frozen=True, slots=True)
class Anew:
    """What may be said anew of a run that is gone on with: times in seconds (None: as before), rules to override."""

    ready: float | None = None
    stop: float | None = None
    force: tuple[str, ...] = ()

    def over(self, wish: Wish) -> Wish:
        force = tuple(dict.fromkeys((*wish.force, *self.force)))
        return replace(wish, force=force, ready=self.ready or wish.ready, stop=self.stop or wish.stop)


@dataclass(frozen=True, slots=True)
class Offer:
    """A plan to be agreed to. ``shown`` is the same with what is there now, ``shifts`` says what has changed since it
    was made; ``run`` is the run that is gone on with."""

    plan: Plan
    shown: Plan
    shifts: tuple[str, ...] = ()
    run: Run | None = None

    @property
    def results(self) -> dict[str, StepResult]:
        return self.run.results if self.run is not None else {}

    @property
    def left(self) -> int:
        """How many instances are still to be restarted."""
        from pdctl.model.plan import State

        done = {name for name, result in self.results.items() if result.state is State.DONE}
        return sum(1 for step in self.plan.restarts if step.id not in done)

    @property
    def against(self) -> str:
        """What speaks against it, in one line; "" where nothing does."""
        from pdctl.model.plan import SHIFTED

        if self.shifts:
            return f"{SHIFTED}: {'; '.join(self.shifts)}"
        return "; ".join(f"{r.rule}: {r.subject}: {r.why}" for r in self.shown.standing)


def must_be_agreed(how: How) -> None:
    """Raises UsageError where nobody can be asked and nobody said yes: cron and pipes are never asked."""
    if not (how.plan_only or how.yes or (sys.stdin.isatty() and sys.stderr.isatty())):
        raise UsageError(
            "nobody to ask: nothing was touched", "Say --yes to go ahead without being asked, or --plan to look only."
        )


def restart(cluster: Cluster, wish: Wish, how: How, saved: Path | None) -> NoReturn:
    """A new restart, or one whose plan was saved before."""
    from pdctl.execute.world import OpenWorld
    from pdctl.plans.restart import plan_restart
    from pdctl.reach.lock import lock_path

    must_be_agreed(how)
    with OpenWorld(cluster, lock_path=lock_path()) as world:
        if saved is None:
            plan = plan_restart(world.cluster, wish, world.survey(), new_run())
            offer = Offer(plan, replace(plan, notes=(*plan.notes, *_unfinished(cluster))))
        else:
            offer = _as_of_now(world, _saved(saved, world.cluster), None)
        if not offer.plan.restarts:
            raise UsageError(f"{cluster.name} has nothing to restart", "No prefill, decode or router is in it.")
        _offered(world, offer, how)


def resume(cluster: Cluster, run_id: str | None, anew: Anew, how: How) -> NoReturn:
    """What is left of a run that was stopped, killed or cut off."""
    from pdctl.execute.world import OpenWorld
    from pdctl.plans.restart import steps_of
    from pdctl.reach.lock import lock_path

    must_be_agreed(how)
    run = _found(cluster, run_id)
    assert run.plan is not None
    merged = anew.over(run.plan.wish)
    with OpenWorld(cluster, lock_path=lock_path()) as world:
        plan = replace(run.plan, wish=merged, steps=steps_of(world.cluster, merged))
        _offered(world, _as_of_now(world, plan, run), how)


def _as_of_now(world: OpenWorld, plan: Plan, run: Run | None) -> Offer:
    """A plan made earlier, with what is there now, and what of it does not hold any more. What the plan stands on stays
    what it was; rules that are overridden only now are added to those it overrides, so that they are recorded."""
    from pdctl.plans.restart import plan_restart
    from pdctl.plans.shift import shifts_of

    now = world.survey()
    shown = plan_restart(world.cluster, plan.wish, now, plan.id)
    known = {(r.rule, r.subject) for r in plan.refusals if r.forced}
    more = [r for r in shown.refusals if r.forced and (r.rule, r.subject) not in known]
    shifts = shifts_of(world.cluster, plan, now, run.results if run is not None else {})
    return Offer(replace(plan, refusals=(*plan.refusals, *more)), shown, shifts, run)


def _offered(world: OpenWorld, offer: Offer, how: How) -> NoReturn:
    """Shows a plan, and carries it out where nothing stands against it and it is agreed to."""
    _show(offer, how)
    _refuse(offer, how)
    if how.plan_only:
        _keep(world.cluster, offer.shown.ground)
        raise typer.Exit(0)
    _agree(offer.plan, how)
    _finish(world.cluster, _carried(world, offer.plan, offer.run, how), how)


def new_run() -> str:
    """A name for a run: when it began, and what makes it the only one of that second."""
    import secrets

    from pdctl.reach.clock import SystemClock

    return f"{SystemClock().wall():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


# --- the plan ---------------------------------------------------------------------------------------------------------


def _show(offer: Offer, how: How) -> None:
    """Shows the plan before anything else; programs get it with what came of it, or alone under --plan."""
    from pdctl import outlet
    from pdctl.render.look import look
    from pdctl.render.plan import plan_lines, shift_lines

    if how.for_people:
        shown = look(how.ascii_only)
        outlet.write_lines(plan_lines(offer.shown, shown, offer.results))
        outlet.write_lines(shift_lines(offer.shifts, shown))
        outlet.write("\n")
    elif how.plan_only and not offer.against:
        _write_plan(offer, "planned", how)


def _write_plan(offer: Offer, status: str, how: How) -> None:
    from pdctl import outlet
    from pdctl.render.look import look
    from pdctl.render.restart import document, plan_value
    from pdctl.render.wire import dumps

    if how.output is Output.SHORT:
        said = f"refused: {offer.against}" if offer.against else f"{offer.left} to restart"
        outlet.write_lines([look(how.ascii_only).say(f"{offer.plan.cluster} {said}")])
        return
    value = plan_value(offer.shown, status, offer.results, offer.against or None)
    outlet.write_lines([dumps(value) if how.output is Output.JSONL else document(value)])


def _refuse(offer: Offer, how: How) -> None:
    """Ends the command where something stands against the plan: as wrong usage where it is what was asked for, as a
    failed step where it is the world."""
    if not offer.against:
        return
    from pdctl import outlet

    if not how.for_people:
        _write_plan(offer, "refused", how)
    outlet.say(f"pdctl: refused, nothing {'more ' if offer.run is not None else ''}was touched: {offer.against}")
    if offer.shifts:
        outlet.say("  A new plan: pdctl restart --plan")
    asked = not offer.shifts and any(r.asked for r in offer.shown.standing)
    raise typer.Exit(USAGE if asked else STEP_FAILED)


def _agree(plan: Plan, how: How) -> None:
    """Asks for the cluster's name. Raises UsageError for any other answer."""
    if how.yes:
        return
    sys.stderr.write(f"Type the name of the cluster ({_said(plan.cluster)}) to go ahead: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != plan.cluster:
        raise UsageError(NOT_CONFIRMED, "The answer is the cluster's name, letter by letter.")


def _said(name: str) -> str:
    from pdctl.render.escape import safe

    return safe(name)


def _unfinished(cluster: Cluster) -> Iterator[str]:
    """An earlier run of this cluster that did not come to its end."""
    from pdctl.execute import journal
    from pdctl.execute.record import last_run

    run = last_run(journal.read().entries, cluster.name)
    if run is not None and not run.is_finished and run.attempts:
        ended = run.why or "it was cut off"
        yield f"the last run, {run.id} of {run.who}, did not end well ({ended}): pdctl restart --resume goes on with it"


def _saved(path: Path, cluster: Cluster) -> Plan:
    """A plan that --plan -o json wrote; under another name where it was carried out before. Raises UsageError where it
    is none, or one of another cluster."""
    import json

    import msgspec

    from pdctl.execute import journal
    from pdctl.model.plan import Plan
    from pdctl.plans.restart import steps_of

    try:
        plan = msgspec.convert(json.loads(path.read_text("utf-8"))["plan"], Plan)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: holds no plan: {error}", "pdctl restart --plan -o json writes one.") from None
    if plan.cluster != cluster.name:
        raise UsageError(f"{path}: is a plan for {plan.cluster}, not for {cluster.name}")
    taken = {entry.text("run") for entry in journal.read().entries}
    return replace(plan, steps=steps_of(cluster, plan.wish), id=new_run() if plan.id in taken else plan.id)


def _found(cluster: Cluster, run_id: str | None) -> Run:
    """The run to go on with. Raises UsageError where there is none, or it cannot be gone on with."""
    from pdctl.execute import journal
    from pdctl.execute.record import last_run, runs_of

    entries = journal.read().entries
    run = next((r for r in runs_of(entries) if r.id == run_id), None) if run_id else last_run(entries, cluster.name)
    if run is None:
        raise UsageError("there is no run to go on with", "pdctl history lists those of this machine.")
    if run.cluster != cluster.name:
        raise UsageError(f"run {run.id} is of {run.cluster}, not of {cluster.name}")
    if run.is_finished:
        raise UsageError(f"run {run.id} came to its end: there is nothing left of it", "pdctl history shows it.")
    if run.plan is None:
        raise UsageError(f"run {run.id} cannot be gone on with: {run.unreadable}", "Make a new plan: pdctl restart.")
    return run


# --- carrying it out --------------------------------------------------------------------------------------------------


def _carried(world: OpenWorld, plan: Plan, run: Run | None, how: How) -> Outcome:
    from pdctl.commands.restart_progress import teller
    from pdctl.execute import journal
    from pdctl.execute.record import Record
    from pdctl.execute.run import carry_out
    from pdctl.reach.lock import new_owner

    owner: Owner = new_owner(journal.who(), plan.cluster, plan.id)
    _end_as_on_ctrl_c()
    with teller(how.output, how.ascii_only) as tell:
        return carry_out(world, world.cluster, plan, Record(plan), owner, world.lock_path, tell=tell, run=run)


def _end_as_on_ctrl_c() -> None:
    """A terminal that goes away (a laptop closed, a connection lost) ends a restart as Ctrl-C does: locks given up, how
    all stands written down. One that was told to outlive its terminal (nohup) does."""
    import signal
    import threading

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def _finish(cluster: Cluster, outcome: Outcome, how: How) -> NoReturn:
    """Tells what came of it and ends the command with its status."""
    from pdctl import outlet
    from pdctl.model.plan import End
    from pdctl.render.look import look
    from pdctl.render.restart import document, outcome_value, short_line
    from pdctl.render.wire import dumps

    shown: Look = look(how.ascii_only)
    if how.for_people:
        from pdctl.render.restart import outcome_lines

        outlet.write_lines(outcome_lines(outcome, shown))
    elif how.output is Output.SHORT:
        outlet.write_lines([short_line(outcome, shown)])
    else:
        value = outcome_value(outcome)
        outlet.write_lines([dumps({"kind": "summary", **value}) if how.output is Output.JSONL else document(value)])
    if outcome.end is not End.DONE and not how.for_people:
        outlet.say(f"pdctl: {short_line(outcome, shown)}")
    if outcome.end is End.DONE and outcome.after is not None:
        _keep(cluster, outcome.after)
    raise typer.Exit({End.DONE: 0, End.FAILED: STEP_FAILED, End.INTERRUPTED: INTERRUPTED}[outcome.end])


def _keep(cluster: Cluster, ground: Ground) -> None:
    """A report for a playbook that wants one: it judges nothing, and says who was there."""
    from pdctl import outlet
    from pdctl.model.finding import InstanceReport, Report

    roles = {i.name: i.role for i in cluster.instances}
    rows = tuple(
        InstanceReport(f.instance, roles[f.instance], f.version, f.process is not None, f.why) for f in ground.footings
    )
    outlet.keep_report(Report(cluster.name, ground.at, ground.at, 1, instances=rows))
