"""live-drift of a process that hides its command line and environment (a router since 0.2.0): by its unit and by times.

A unit that runs the script itself started what the script was then; its newest backup from before tells what that was.
"""

from __future__ import annotations

import shlex
from datetime import datetime

from pdctl.checks.backups import baseline
from pdctl.checks.base import Verdict, found, saw
from pdctl.checks.script_drift import changes_between, other_code, unsure
from pdctl.checks.scripts import Scripts
from pdctl.checks.settings import listed
from pdctl.model.answer import Fact
from pdctl.model.finding import Confidence, RuledOut
from pdctl.model.host import Unit
from pdctl.model.window import At, Window

HIDDEN = "its command line is hidden: what it started from is told by its unit and by the times alone"


def unit_environment(unit: Unit) -> dict[str, str] | None:
    """The variables a unit gives its process by itself; None where files or the manager's own may add to them."""
    if unit.properties.get("EnvironmentFiles") or unit.properties.get("PassEnvironment"):
        return None
    try:
        words = shlex.split(unit.properties.get("Environment", ""))
    except ValueError:
        return None
    pairs = (word.partition("=") for word in words)
    return {name: value for name, equals, value in pairs if equals}


def by_times(window: Window, subject: str, scripts: Scripts, started: datetime | None) -> Verdict | None:
    """What a restart would change, as far as times and backups tell; None where they do not."""
    unit = window.last(subject, Fact.UNIT, Unit)
    script = scripts.main.value
    moment = started or (unit.value.since if unit is not None else None)
    if unit is None or script.path not in unit.value.properties.get("ExecStart", ""):
        return None
    if moment is None or script.mtime is None:
        return None
    if script.mtime <= moment:
        told = f"its unit starts {script.path}, which is older than the process ({HIDDEN})"
        return RuledOut("live-drift", subject, told)
    return _edited_since(subject, scripts, unit, moment)


def _edited_since(subject: str, scripts: Scripts, unit: At[Unit], started: datetime) -> Verdict:
    script = scripts.main.value
    kept = baseline(script, scripts.backups, started)
    changes = changes_between(kept.file, script) if kept is not None else ()
    others = other_code(kept.file, script) if kept is not None else ()
    if kept is not None and not changes and not others:
        return RuledOut("live-drift", subject, f"{script.path} was edited since, and means the same as {kept.name}")
    what = listed(changes) if changes else "other commands" if kept is not None else "what is not known"
    against = f" (against {kept.name}, of before the start)" if kept is not None else ""
    return found(
        "live-drift",
        subject,
        f"a restart of {subject} from {script.path} would change: {what}{against} (edited after the process started)",
        confidence=Confidence.LIKELY if kept is not None else Confidence.POSSIBLE,
        evidence=(
            saw(f"its unit starts {script.path}", unit),
            saw(f"{script.path}, written {script.mtime}, after the process started at {started}", scripts.main),
        ),
        since=script.mtime,
        limits=(HIDDEN, *([] if kept is not None else ["there is no backup from before the start"]), *unsure(script)),
        next=(f"pdctl diff {subject}", f"pdctl restart {subject} --plan", "pdctl explain live-drift"),
    )
