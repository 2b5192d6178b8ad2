"""script-drift: what a serve script sets differently from its backup."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.checks.backups import Backup, baseline
from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.scripts import Scripts, scripts_of
from pdctl.checks.settings import Change, differences, listed
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, RuledOut, Unchecked
from pdctl.model.host import ScriptFile
from pdctl.model.window import Window


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each instance whose script was read, against its newest backup from before the script's own time."""
    for subject in window.subjects(Fact.SCRIPT):
        scripts = scripts_of(window, cluster, subject)
        if scripts is None:
            continue
        kept = baseline(scripts.main.value, scripts.backups)
        if kept is None:
            yield Unchecked("the serve script against a backup", subject, f"{scripts.main.value.path} has no backup")
            continue
        yield compared(subject, scripts, kept)


def compared(subject: str, scripts: Scripts, kept: Backup) -> Verdict:
    """The finding, or that nothing that has a meaning differs."""
    script = scripts.main.value
    changes = changes_between(kept.file, script)
    lines = () if changes else other_lines(kept.file, script)
    if not changes and not lines:
        same = "is the same" if kept.file.text == script.text else "differs in comments or layout alone"
        return RuledOut("script-drift", subject, f"{script.path} {same} as {kept.name}")
    what = listed(changes) if changes else f"{len(lines)} line(s) beside flags and variables, as {lines[0]!r}"
    later = kept.when is not None and script.mtime is not None and kept.when <= script.mtime
    evidence = [saw(f"against {kept.name}: {what}", scripts.main, changed=[c.name for c in changes])]
    if later:
        evidence.append(saw(f"written {script.mtime}, the backup is of {kept.when}", scripts.files[kept.file.path]))
    return found(
        "script-drift",
        subject,
        f"{script.path} differs from {kept.name}: {what}",
        confidence=Confidence.CERTAIN if later and changes else Confidence.LIKELY,
        evidence=evidence,
        since=script.mtime,
        against=("name and mtime of the backup tell different times",) if kept.disagrees else (),
        limits=(*unsure(script), "an older script is not a better one: whether the change did harm is not said"),
        next=(f"pdctl diff {subject}", f"pdctl diff {subject} --list", "pdctl explain script-drift"),
    )


def changes_between(before: ScriptFile, after: ScriptFile) -> tuple[Change, ...]:
    """Flags first, then variables."""
    return (
        *differences("flag", before.flags, after.flags),
        *differences("variable", before.variables, after.variables),
    )


def other_lines(before: ScriptFile, after: ScriptFile) -> tuple[str, ...]:
    """Lines of code that only one of the two has; comments, blanks and indentation apart."""
    old, new = code_lines(before), code_lines(after)
    return tuple([line for line in new if line not in old] + [line for line in old if line not in new])


def code_lines(script: ScriptFile) -> list[str]:
    lines = (" ".join(line.split()) for line in script.text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def unsure(script: ScriptFile, most: int = 3) -> tuple[str, ...]:
    return tuple(f"not known without running it: {note}" for note in script.unsure[:most])


CHECKS = (
    Check(
        "script-drift",
        "serve scripts that differ from their backup",
        ("script-drift",),
        (Fact.SCRIPT,),
        judge,
    ),
)
