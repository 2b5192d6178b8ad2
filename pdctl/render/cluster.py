"""The instances a report is about, and the window it saw them in."""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.model.finding import InstanceReport, Report
from pdctl.render.look import Look, Mark
from pdctl.render.text import columns, counted, listed, pad, period, span, wrap

MOST_ROWS = 12  # a cluster larger than this is told in groups, except for what could not be read
ENGINES = ("prefill", "decode")
NARROW = 12  # with less room than this beside its name, what an instance said goes to the next line


def cluster_lines(report: Report, look: Look) -> Iterator[str]:
    """Each instance with its role, release and whether it answered, or why not."""
    rows = report.instances
    if not rows:
        return
    answered = sum(1 for row in rows if row.reachable)
    yield ""
    head = f"Cluster {look.say(report.cluster)}: {counted(len(rows), 'instance')}, {answered} answered"
    yield from wrap(head, look.width, "", "  ")
    alike = [row for row in rows if row.reachable] if len(rows) > MOST_ROWS else []
    yield from _grouped(alike, look)
    single = [row for row in rows if not (alike and row.reachable)]
    texts = [(look.say(row.name), look.say(row.role), look.say(_release(row))) for row in single]
    widths = (_widest(t[0] for t in texts), _widest(t[1] for t in texts), _widest(t[2] for t in texts))
    for row in single:
        yield from _row(row, widths, look)


def window_line(report: Report, look: Look) -> Iterator[str]:
    """How often and how long was looked, and when."""
    seconds = (report.end - report.start).total_seconds()
    looked = f"{counted(report.samples, 'sample')} over {span(seconds)}, " if seconds > 0 else "one look, "
    yield from wrap(f"Window: {looked}{period(report.start, report.end)}", look.width, "", "  ")


def _row(row: InstanceReport, widths: tuple[int, int, int], look: Look) -> Iterator[str]:
    mark, word = _state(row)
    said = f"{word}: {row.why}" if row.why and not row.reachable else word
    cells = zip((row.name, row.role, _release(row)), widths, strict=True)
    head = "  ".join(pad(look.say(text), width) for text, width in cells)
    first = f"  {look.mark(mark)} {head}  "
    if columns(first) > look.width - NARROW:
        yield first.rstrip()
        first = "      "
    yield from wrap(look.say(said), look.width, first, "      ")


def _release(row: InstanceReport) -> str:
    """The release; nothing of a router or proxy, which tell none."""
    return row.version or ("release unknown" if row.role in ENGINES else "")


def _state(row: InstanceReport) -> tuple[Mark, str]:
    if row.reachable is None:
        return Mark.UNCHECKED, "not asked"
    return (Mark.OK, "answered") if row.reachable else (Mark.UNKNOWN, "not readable")


def _grouped(rows: list[InstanceReport], look: Look) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        groups.setdefault((row.role, _release(row)), []).append(row.name)
    for (role, version), names in groups.items():
        said = f"{len(names)} {role} {version} answered: {listed(names, 3)}"
        yield from wrap(look.say(said), look.width, f"  {look.mark(Mark.OK)} ")


def _widest(words: Iterator[str]) -> int:
    return max(map(columns, words), default=0)
