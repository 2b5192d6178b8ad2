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
    other = () if changes else other_code(kept.file, script)
    if not changes and not other:
        same = "is the same" if kept.file.text == script.text else "differs in comments or layout alone"
        return RuledOut("script-drift", subject, f"{script.path} {same} as {kept.name}")
    what = listed(changes) if changes else f"{len(other)} other command(s), as {other[0]!r}"
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


def other_code(before: ScriptFile, after: ScriptFile) -> tuple[str, ...]:
    """Other commands, files read in, and how the engine is started (wrappers, image), that only one of the two has."""
    old, new = ((*s.others, *s.sources, *([" ".join(s.program)] if s.program else [])) for s in (before, after))
    return tuple([c for c in new if c not in old] + [c for c in old if c not in new])


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
