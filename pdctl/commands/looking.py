"""What the judging commands share: a window, live or read back, and what to say of how it was come by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pdctl.commands.common import Target

if TYPE_CHECKING:
    from pdctl.model.cluster import Cluster
    from pdctl.model.finding import Report
    from pdctl.model.window import Window
    from pdctl.watch import Looked


@dataclass(frozen=True, slots=True)
class Seen:
    """A window to judge and what to say of it on stderr."""

    window: Window
    interrupted: bool = False
    lines: list[str] = field(default_factory=list)

    def tell(self) -> None:
        """Says where the evidence is and whether the look was cut short; people read stderr in every form."""
        from pdctl import outlet

        for line in self.lines:
            outlet.say(line)


def look_at(
    what: Target,
    *,
    stop: Callable[[Window], bool],
    interval: float,
    seconds: float,
    timeout: float,
    deadline: float | None,
    record: Path | None,
    keep: bool,
    hosts: bool = False,
) -> Seen:
    """The window: read from the capture, or looked for now until ``stop`` says that it suffices. ``hosts``: with what
    the hosts say (never for a demo, whose engines are one process)."""
    if what.capture is not None:
        from pdctl.replay import read_window

        window = sourced(read_window(what.capture), what.cluster)
        return Seen(window, lines=[window.note] if window.note else [])
    from pdctl.keep import default_record
    from pdctl.reach.clock import SystemClock
    from pdctl.watch import Look, watch

    kept = record or (default_record(what.cluster, SystemClock().wall()) if keep and what.demo is None else None)
    look = Look(interval, seconds, timeout, deadline, kept, stop, hosts=hosts and what.demo is None)
    looked = watch(what.cluster, look)
    return Seen(sourced(looked.window, what.cluster), looked.interrupted, said(looked))


def sourced(window: Window, cluster: Cluster) -> Window:
    """The window with each serve script read together with the files it reads in; as it is where there is none."""
    from pdctl.model.answer import Fact

    if not window.subjects(Fact.SCRIPT):
        return window
    from pdctl.looks.files import with_sources

    return with_sources(window, cluster)


def muted(report: Report, what: Target, lines: list[str]) -> Report:
    """The report with what somebody muted marked as that, and what is to be said of mutes added to ``lines``. A live
    report is noted, for a mute to start from; a demo has neither."""
    from pdctl.checkup.lastfound import note_found
    from pdctl.checkup.mutes import applied

    if what.demo is not None:
        return report
    report, said_of_mutes = applied(report, what.cluster)
    lines.extend(said_of_mutes)
    if what.capture is None:
        note_found(report)
    return report


def said(looked: Looked) -> list[str]:
    """What people should know of how the window came about."""
    lines = list(looked.notes)
    if looked.interrupted:
        lines.append(f"interrupted after {looked.window.seconds:.0f} s; this is judged from what was seen by then")
    if looked.kept is not None:
        lines.append(f"{'what was kept until then' if looked.notes else 'evidence kept'}: {looked.kept}")
    if looked.window.note:
        lines.append(looked.window.note)
    return lines
