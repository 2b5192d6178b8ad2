"""``pdctl stacks`` for people, for programs, and as folded lines for flame graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pdctl.model.host import Frame, Stacks
from pdctl.model.host_view import StackGroup, StackView
from pdctl.render.look import Look, Mark
from pdctl.render.text import columns, counted, listed, span, wrap
from pdctl.render.wire import text

MOST_FRAMES = 14  # of one group; all of them in -o json and --raw
MOST_THREADS = 8
WAITS = {"collective": "waits in a collective", "device": "waits for the device", "other": ""}


def stacks_lines(views: Sequence[StackView], look: Look) -> Iterator[str]:
    """Each instance: its ranks grouped by where they are, the odd one first pointed at, then what could not be read."""
    for number, view in enumerate(views):
        if number:
            yield ""
        on = f" on {view.host}" if view.host else ""
        over = f" over {span(view.seconds)}" if view.dumps > 1 else ""
        dumps = f", {counted(view.dumps, 'dump')}{over}" if view.dumps else ""
        yield from wrap(f"{look.paint(look.say(view.name), 'bold')} ({look.say(view.role + on)}){dumps}", look.width)
        yield from _body(view, look)


def _body(view: StackView, look: Look) -> Iterator[str]:
    if view.why and not view.unread:
        yield from wrap(f"not seen: {look.say(view.why)}", look.width, f"  {look.mark(Mark.UNKNOWN)} ", "    ")
    for group in view.groups:
        yield from _group(group, look, alone=len(view.groups) == 1)
    for name, thread in view.others:
        at = " < ".join(frame.function for frame in thread.frames[:3])
        yield from wrap(look.say(f"{name}: {thread.state} at {at}"), look.width, "  ", "    ")
    if view.threads:
        yield "  Other threads of the schedulers"
    for thread_group in view.threads[:MOST_THREADS]:
        said = f"{thread_group.count} {thread_group.name} at {thread_group.at}"
        yield from wrap(look.say(said), look.width, "    ", "      ")
    if len(view.threads) > MOST_THREADS:
        yield f"    and {len(view.threads) - MOST_THREADS} more kinds, in -o json"
    for one in view.unread:
        said = f"no stack of {one.name}: {one.why}"
        yield from wrap(look.say(said), look.width, f"  {look.mark(Mark.UNKNOWN)} ", "    ")
    for note in view.notes:
        yield from wrap(look.say(note), look.width, "  ", "    ")


def _group(group: StackGroup, look: Look, *, alone: bool) -> Iterator[str]:
    who = listed(group.names, 6)
    count = f"{len(group.names)} ranks ({who})" if len(group.names) > 1 else f"1 rank ({who})"
    all_ = "all of " if alone and len(group.names) > 1 else ""
    wait = f", {WAITS[group.wait]}" if WAITS.get(group.wait) else ""
    moved = {True: ", UNMOVED between the dumps", False: ", moved between the dumps", None: ""}[group.unmoved]
    odd = "THE ODD ONE: " if group.odd else ""
    said = f"{odd}{all_}{count} at {group.place}{wait}{moved}"
    mark = look.mark(Mark.WARN) if group.odd else " "
    yield from wrap(look.say(said), look.width, f"  {mark} ", "      ")
    for frame in group.frames[:MOST_FRAMES]:
        yield _clipped(f"      {look.say(_frame(frame))}", look.width)
    if len(group.frames) > MOST_FRAMES:
        yield f"      and {len(group.frames) - MOST_FRAMES} more frames"


def _clipped(line: str, width: int) -> str:
    return line if columns(line) <= width else f"{line[: max(20, width - 3)]}..."


def _frame(frame: Frame) -> str:
    return (
        f"{frame.function} ({frame.file}:{frame.line})"
        if frame.line is not None
        else f"{frame.function} ({frame.file})"
    )


def folded_lines(dumps: Iterable[tuple[str, Stacks]], look: Look) -> Iterator[str]:
    """One line a stack, outermost frame first, with how often it was seen: what flame graph tools read. The instance,
    the process and the thread come first."""
    counted_: Counter[str] = Counter()
    for instance, stacks in dumps:
        for process in stacks.processes:
            for thread in process.threads:
                frames = [f"{frame.function} ({frame.file})" for frame in reversed(thread.frames)]
                names = [instance, process.title.split(" ")[0], thread.name or thread.tid, *frames]
                counted_[";".join(look.say(name).replace(";", ":") for name in names)] += 1
    for line, count in sorted(counted_.items()):
        yield f"{line} {count}"


def raw_lines(bodies: Iterable[tuple[str, bytes]], look: Look) -> Iterator[str]:
    """Each dump as py-spy printed it, under its instance's name and ask."""
    for title, body in bodies:
        yield look.paint(look.say(f"# {title}"), "bold")
        for line in body.decode("utf-8", "replace").splitlines():
            yield look.say(line)
        yield ""


def stacks_value(view: StackView) -> dict[str, Any]:
    """What JSON holds of an instance, beside its report."""
    return {
        "host": text(view.host) if view.host else None,
        "dumps": view.dumps,
        "groups": [
            {
                "ranks": [text(name) for name in group.names], "at": text(group.place), "wait": group.wait,
                "odd": group.odd, "unmoved": group.unmoved, "state": group.state,
                "frames": [{"function": text(f.function), "file": text(f.file), "line": f.line} for f in group.frames],
            }
            for group in view.groups
        ],
        "threads": [{"name": text(t.name), "at": text(t.at), "count": t.count} for t in view.threads],
        "unread": [{"name": text(u.name), "why": text(u.why)} for u in view.unread],
        "notes": [text(note) for note in view.notes],
    }  # fmt: skip
