"""unit-flapping: systemd restarted a unit by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.events import Kind, Log
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.host import Processes, Unit
from pdctl.model.window import At, Window

RECENT = timedelta(hours=1)  # a restart this near the window's start still explains what is seen in it
ENDS = (Kind.CRASH, Kind.CHILD_DIED, Kind.WATCHDOG)


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each unit that was asked about. NRestarts counts only what systemd did by itself: a start by hand resets it."""
    for subject in window.subjects(Fact.UNIT):
        looks = window.seen(subject, Fact.UNIT, Unit)
        if looks:
            yield from judge_unit(window, subject, looks)


def judge_unit(window: Window, subject: str, looks: tuple[At[Unit], ...]) -> Iterator[Verdict]:
    first, last = looks[0], looks[-1]
    count, grown = last.value.restarts, growth(looks)
    restarting = last.value.sub == "auto-restart"
    since = started(window, subject, last)
    if count is None and not restarting:
        yield Unchecked("restarts by systemd", subject, "this systemd does not count restarts (NRestarts)")
        return
    if grown or restarting:
        yield finding(window, subject, looks, f"NRestarts went from {first.value.restarts} to {count}", since, True)
    elif count and since is not None and since >= window.start - RECENT:
        yield finding(window, subject, looks, f"NRestarts is {count}, running since {since}", since, False)
    elif count and since is None:
        yield finding(window, subject, looks, f"NRestarts is {count}, when it last started is not known", None, False)
    else:
        text = f"NRestarts is {count}" + (f", running since {since}" if count and since else "")
        yield RuledOut("unit-flapping", subject, text)


def growth(looks: tuple[At[Unit], ...]) -> int:
    counts = [at.value.restarts for at in looks if at.value.restarts is not None]
    return max(0, counts[-1] - counts[0]) if counts else 0


def started(window: Window, subject: str, last: At[Unit]) -> datetime | None:
    """When the unit's main process started: as systemd says, else by the process itself."""
    if last.value.since is not None:
        return last.value.since
    processes = window.last(subject, Fact.PROCESSES, Processes)
    rows = processes.value.rows if processes else ()
    return next((p.started for p in rows if p.pid == last.value.main_pid), None)


def finding(
    window: Window, subject: str, looks: tuple[At[Unit], ...], text: str, since: datetime | None, inside: bool
) -> Verdict:
    """The finding for one unit; what else shows the end of the process before makes it certain."""
    last = looks[-1].value
    support = list(signs(window, subject, looks))
    state = f"{last.active}/{last.sub}" if last.active else "state not known"
    name = last.properties.get("Id", subject)
    when = "inside the window" if inside else f"lately (it runs since {since})" if since else "at some time"
    return found(
        "unit-flapping",
        subject,
        f"systemd restarted {name} by itself {when}: NRestarts {last.restarts}, {state}"
        + (f", result {last.result}" if last.result not in (None, "", "success") else ""),
        confidence=Confidence.POSSIBLE if not inside and since is None else sureness(support),
        evidence=(saw(text, looks[-1], restarts=last.restarts), *support),
        since=since,
        limits=() if support else ("why the process ended before is not shown: its log tells",),
        next=(f"pdctl logs {subject}", f"pdctl ps {subject}", "pdctl explain unit-flapping"),
    )


def sureness(support: list[Evidence]) -> Confidence:
    return Confidence.CERTAIN if support else Confidence.LIKELY


def signs(window: Window, subject: str, looks: tuple[At[Unit], ...]) -> Iterator[Evidence]:
    """Another main process than at the first look, how the last one ended, what the log says of an end."""
    first, last = looks[0].value, looks[-1].value
    if first.main_pid and last.main_pid and first.main_pid != last.main_pid:
        yield saw(f"its main process went from {first.main_pid} to {last.main_pid}", looks[-1])
    status = last.properties.get("ExecMainStatus", "0")
    if last.result not in (None, "", "success") or status not in ("", "0"):
        yield saw(f"result {last.result or 'not said'}, exit status {status}", looks[-1])
    for seen in window.seen(subject, Fact.LOG, Log):
        ended = seen.value.of(*ENDS)
        if ended:
            yield saw(f"its log tells of {len(ended)} crash(es) or dead children", seen)


CHECKS = (
    Check(
        "unit-flapping",
        "units that systemd restarted by itself",
        ("unit-flapping",),
        (Fact.UNIT,),
        judge,
    ),
)
