"""``pdctl restart``: the co-restart, prefill, then decode, then router; planned, agreed to, verified, proved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.commands.common import (
    AsciiOpt,
    ConfigOpt,
    Output,
    OutputOpt,
    inventory_names,
    parse_duration,
    read_inventory,
)
from pdctl.errors import UsageError


def _targets(incomplete: str) -> list[str]:
    roles = [role for role in ("prefill", "decode", "router") if role.startswith(incomplete)]
    return [*roles, *inventory_names(incomplete)]


def _rules(incomplete: str) -> list[tuple[str, str]]:
    from pdctl.plans.restart_rules import RULES

    return [(r.name, r.says) for r in RULES.values() if r.forcible and r.name.startswith(incomplete)]


WhatArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ROLE|INSTANCE]...", help="Only these, as --only.", autocompletion=_targets),
]
OnlyOpt = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ROLE|INSTANCE", help="Only these; repeatable.", autocompletion=_targets),
]
PlanOpt = Annotated[bool, typer.Option("--plan", help="Show the plan and touch nothing.")]
YesOpt = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
SerialOpt = Annotated[
    int | None, typer.Option("--serial", metavar="N", min=1, help="Instances of a role at a time; else together.")
]
DrainOpt = Annotated[
    float | None,
    typer.Option("--drain", metavar="TIME", parser=parse_duration, help="Wait this long for requests to end."),
]
ReadyOpt = Annotated[
    float | None,
    typer.Option("--ready-timeout", metavar="TIME", parser=parse_duration, help="For a new process to be ready: 600s."),
]
StopOpt = Annotated[
    float | None,
    typer.Option(
        "--stop-timeout", metavar="TIME", parser=parse_duration, help="For an old process to end; else systemd's own."
    ),
]
ForceOpt = Annotated[
    list[str] | None,
    typer.Option("--force", metavar="RULE", help="Override one rule by name; recorded.", autocompletion=_rules),
]
NoBackupOpt = Annotated[bool, typer.Option("--no-backup", help="Make no backups of the serve scripts.")]
ResumeOpt = Annotated[bool, typer.Option("--resume", help="Go on with the last run, from the journal.")]
RunOpt = Annotated[str | None, typer.Option("--run", metavar="RUN", help="With --resume: that run.")]
ApplyOpt = Annotated[
    Path | None, typer.Option("--apply", metavar="FILE", help="Carry out the plan that --plan -o json wrote.")
]
RulesOpt = Annotated[bool, typer.Option("--rules", help="List the rules a restart must satisfy.")]


def restart(
    what: WhatArg = None,
    only: OnlyOpt = None,
    config: ConfigOpt = None,
    plan_only: PlanOpt = False,
    yes: YesOpt = False,
    serial: SerialOpt = None,
    drain: DrainOpt = None,
    ready: ReadyOpt = None,
    stop: StopOpt = None,
    force: ForceOpt = None,
    no_backup: NoBackupOpt = False,
    resume: ResumeOpt = False,
    run: RunOpt = None,
    apply: ApplyOpt = None,
    rules: RulesOpt = False,
    output: OutputOpt = Output.HUMAN,
    ascii_only: AsciiOpt = False,
) -> None:
    """Restart prefill, then decode, then router, over SSH or here: each ready before the next, the first failure stops.

    Shows first what is restarted on which host by which command, what runs now, what would be lost, what a restart
    changes. Asks for the cluster's name. Waits for a new process, health, metrics, version and a real generation of
    each; proves the whole at the end. Exit 75: a step failed, and nothing after it was done."""
    from pdctl.commands import restarting
    from pdctl.model.plan import READY, Wish

    if rules:
        _list_rules(ascii_only)
        return
    wanted = tuple(dict.fromkeys((*(what or ()), *(only or ()))))
    forced = tuple(dict.fromkeys(force or ()))
    _check(wanted, forced, serial, drain, no_backup, resume, run, apply)
    how = restarting.How(plan_only, yes, output, ascii_only)
    wish = Wish(wanted, serial, drain, ready or READY, stop, forced, not no_backup)
    cluster = read_inventory(config)
    if resume:
        restarting.resume(cluster, run, restarting.Anew(ready, stop, forced), how)
    restarting.restart(cluster, wish, how, apply)


def _check(
    wanted: tuple[str, ...],
    forced: tuple[str, ...],
    serial: int | None,
    drain: float | None,
    no_backup: bool,
    resume: bool,
    run: str | None,
    apply: Path | None,
) -> None:
    """Raises UsageError for options that contradict each other, and for rules there are not."""
    from pdctl.plans.restart_rules import RULES

    fixed = bool(wanted or serial or drain or no_backup)
    if resume and apply is not None:
        raise UsageError("--resume and --apply each name what to carry out", "Give one of them.")
    if apply is not None and forced:
        raise UsageError("a saved plan says which rules it overrides", "Leave out --force, or make a new plan with it.")
    if fixed and (resume or apply is not None):
        raise UsageError("what is restarted and how stands in the plan already", "Leave it out, or make a new plan.")
    if run is not None and not resume:
        raise UsageError("--run says which run to go on with, so it needs --resume")
    for name in forced:
        rule = RULES.get(name)
        if rule is None or not rule.forcible:
            can = ", ".join(r.name for r in RULES.values() if r.forcible)
            said = "cannot be overridden" if rule is not None else "is no rule"
            raise UsageError(f"--force {name}: {name!r} {said}", f"These can be: {can}.")


def _list_rules(ascii_only: bool) -> None:
    from pdctl import outlet
    from pdctl.plans.restart_rules import RULES
    from pdctl.render.look import look
    from pdctl.render.text import wrap

    shown = look(ascii_only)
    for rule in RULES.values():
        more = "" if rule.forcible else " (cannot be overridden)"
        outlet.write_lines(wrap(rule.says + more, shown.width, f"{rule.name:<16}", " " * 16))
