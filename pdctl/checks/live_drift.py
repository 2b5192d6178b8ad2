"""live-drift: what the running process has differently from what its script would start now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.live_unit import by_times, unit_environment
from pdctl.checks.script_drift import unsure
from pdctl.checks.scripts import scripts_of
from pdctl.checks.settings import NO_LIST, Change, differences, listed
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.host import Cmdline, Environ, Process, Processes, ScriptFile, Unit
from pdctl.model.window import At, Window


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """What is known of the running main process: flags and environment, each None where it could not be had. ``whole``
    is False where a title may have been written over part of the environment."""

    pid: int | None
    flags: dict[str, str] | None
    environ: dict[str, str] | None
    started: datetime | None
    seen: tuple[At[object], ...]
    whole: bool = True


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each instance whose script was read and of whose process something is known."""
    for subject in window.subjects(Fact.SCRIPT):
        scripts = scripts_of(window, cluster, subject)
        if scripts is None:
            continue
        if scripts.main.value.launcher is None:
            text = f"no launch command was found in {scripts.main.value.path}"
            yield Unchecked("the running process against its script", subject, text)
            continue
        process = running(window, subject)
        if process is None or (process.flags is None and process.environ is None):
            by_unit = by_times(window, subject, scripts, started_of(window, subject))
            if by_unit is not None:
                yield by_unit
                continue
        if process is None:
            text = "neither the command line nor the environment of its process could be read"
            yield Unchecked("the running process against its script", subject, text)
            continue
        yield compared(subject, scripts.main, process)


def running(window: Window, subject: str) -> Running | None:
    """The main process: by its own command line, else by the list of processes. A title in place of the command line
    (routers since 0.2.0) shows no flags: then by its unit's start command."""
    line = window.last(subject, Fact.CMDLINE, Cmdline)
    listed_at = window.last(subject, Fact.PROCESSES, Processes)
    main = main_process(listed_at.value if listed_at else None)
    environ = window.last(subject, Fact.ENVIRON, Environ)
    pid = pid_of(line) or (main.pid if main else None) or pid_of(environ)
    unit = window.last(subject, Fact.UNIT, Unit)
    seen: list[At[object]] = []
    flags = None
    if line is not None and line.value.launcher is not None:
        flags, seen = dict(line.value.flags), [*seen, line]
    elif main is not None and listed_at is not None and main.launcher is not None:
        flags, seen = dict(main.flags), [*seen, listed_at]
    elif unit is not None and unit.value.launcher is not None:
        flags, seen = dict(unit.value.flags), [*seen, unit]
    values = None
    if environ is not None and pid_of(environ) in (pid, None):
        values, seen = dict(environ.value.values), [*seen, environ]
    elif environ is None and flags is not None and unit is not None and flags == dict(unit.value.flags):
        values = unit_environment(unit.value)
    started = main.started if main is not None and main.pid == pid else None
    titled = (line is not None and line.value.launcher is None) or (main is not None and main.launcher is None)
    return Running(pid, flags, values, started, tuple(seen), not titled) if seen else None


def started_of(window: Window, subject: str) -> datetime | None:
    """When the main process started, by the list of processes."""
    listed_at = window.last(subject, Fact.PROCESSES, Processes)
    main = main_process(listed_at.value if listed_at else None)
    return main.started if main is not None else None


def main_process(processes: Processes | None) -> Process | None:
    """The youngest process that starts one of the programs."""
    mains = [p for p in processes.rows if p.launcher is not None or p.part in ("main", "router")] if processes else []
    return max(mains, key=lambda p: (p.started is not None, p.started.timestamp() if p.started else 0.0), default=None)


def pid_of(at: At[object] | None) -> int | None:
    pid = at.seen.more.get("pid") if at else None
    return pid if isinstance(pid, int) else None


def compared(subject: str, script_at: At[ScriptFile], process: Running) -> Verdict:
    """The finding, or that both agree as far as both are known."""
    script = script_at.value
    flags = tuple(flag_changes(script, process.flags)) if process.flags is not None else ()
    variables = tuple(variable_changes(script, process.environ)) if process.environ is not None else ()
    changes = (*(v for v in variables if process.whole or v.before is not None), *flags)
    unseen = [w for w, known in (("flags", process.flags), ("environment", process.environ)) if known is None]
    if not changes:
        not_seen = f" (its {' and '.join(unseen)} could not be read)" if unseen else ""
        return RuledOut("live-drift", subject, f"the process has what {script.path} sets{not_seen}")
    edited = script.mtime is not None and process.started is not None and script.mtime > process.started
    return found(
        "live-drift",
        subject,
        f"a restart of {subject} from {script.path} would change: {listed(changes)}"
        + (" (edited after the process started)" if edited else ""),
        confidence=Confidence.CERTAIN if edited else Confidence.LIKELY,
        evidence=tuple(evidence(script_at, process, changes, edited)),
        since=script.mtime if edited else process.started,
        against=against(script, process),
        limits=limits(script, process, unseen),
        next=(f"pdctl diff {subject}", f"pdctl restart {subject} --plan", "pdctl explain live-drift"),
    )


def limits(script: ScriptFile, process: Running, unseen: list[str]) -> tuple[str, ...]:
    """What the comparison leaves open."""
    undated = script.mtime is None or process.started is None
    when = ("when the process started is not known, so whether the script was edited after that is open",)
    return (*unsure(script), *(f"its {name} could not be read" for name in unseen), *(when if undated else ()))


def against(script: ScriptFile, process: Running) -> tuple[str, ...]:
    """A process younger than its script did not start from an older version of it."""
    if script.mtime is not None and process.started is not None and script.mtime <= process.started:
        return ("the process is younger than the script: started by hand, or by another script",)
    return ()


def evidence(
    script_at: At[ScriptFile], process: Running, changes: tuple[Change, ...], edited: bool
) -> Iterator[Evidence]:
    values = {c.name: {"running": c.before, "script": c.after} for c in changes}
    pid = f" of pid {process.pid}" if process.pid is not None else ""
    for at in process.seen:
        yield saw(f"running: {at.seen.fact}{pid}", at, differs=values)
    text = f"{script_at.value.path}, written {script_at.value.mtime}"
    yield saw(f"{text}, after the process started at {process.started}" if edited else text, script_at)


def flag_changes(script: ScriptFile, running_flags: dict[str, str]) -> Iterator[Change]:
    """From what runs to what the script says; options the script is unsure of, or may add to, are left out."""
    sure = {n: v for n, v in script.flags.items() if n not in script.doubtful and not NO_LIST.search(v)}
    open_ended = "*" in script.doubtful
    have = {n: v for n, v in running_flags.items() if n in sure or (n not in script.flags and not open_ended)}
    yield from differences("flag", have, sure)


def variable_changes(script: ScriptFile, environ: dict[str, str]) -> Iterator[Change]:
    """Only variables that the script exports: what else the process inherited is nobody's drift."""
    names = [n for n in script.variables if n in script.exported and n not in script.doubtful]
    sure = {n: script.variables[n] for n in names if not script.variables[n].startswith("~")}
    yield from differences("variable", {n: environ[n] for n in sure if n in environ}, sure)


CHECKS = (
    Check(
        "live-drift",
        "running processes that differ from their script",
        ("live-drift",),
        (Fact.SCRIPT,),
        judge,
    ),
)
