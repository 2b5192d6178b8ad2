"""Where logs are: files of this machine, an inventory's instances, a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

from pdctl.facts.log import HEAD, Scanner, read_log_end
from pdctl.facts.log_time import offset_of
from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Instance, Role
from pdctl.reach import log_file
from pdctl.reach.clock import Clock

END = 256 * 1024  # bytes at a log's end that tell its clock


@dataclass(slots=True)
class Source:
    """One instance's log, to be read once. ``now`` is the present of its own clock, ``last`` the time of its last line
    and ``offset`` how far that clock is ahead of UTC, where anything tells; ``read_to`` where to begin to follow a
    file. ``ahead`` is how far its host's clock is ahead of this machine's, and ``follow_by`` what to ask the host to
    follow it, first and again after its connection was lost. ``clock`` and ``order`` are those of the last event read
    (see Entry)."""

    name: str
    role: Role | None
    lines: Callable[[], Iterable[bytes]]
    head: bytes
    asked: datetime
    now: datetime
    last: datetime | None
    offset: timedelta | None
    path: Path | None = None
    read_to: int = 0
    ahead: timedelta = timedelta()
    follow_by: tuple[CommandAsk, CommandAsk] | None = None
    scanner: Scanner = field(init=False)
    clock: datetime | None = field(default=None, init=False)
    order: datetime = field(default=datetime.min, init=False)

    def __post_init__(self) -> None:
        self.scanner = Scanner(self.role, self.asked, self.head)


def source_of_file(name: str, role: Role | None, path: Path, clock: Clock, *, following: bool = False) -> Source:
    """The source of a local file; to be followed later, its last line is left to that if it is not whole yet. Raises
    UsageError where the file cannot be read."""
    mtime, wall = log_file.written(path), clock.wall()
    head, end = log_file.head_of(path, HEAD), log_file.tail_of(path, END)
    now, last, offset = clock_of(role, head, end, mtime, wall)
    size = log_file.complete_size(path) if following else None
    return Source(name, role, lambda: log_file.lines(path, size), head, mtime, now, last, offset, path, size or 0)


def source_of_answers(instance: Instance, answers: Sequence[Answer]) -> Source | None:
    """The source of a recorded log, read any number of times; None where no reading of it came."""
    bodies = [(a.body, a.at, a.more.get("mtime")) for a in answers if a.body]
    if not bodies:
        return None
    body, asked, written = bodies[-1]
    mtime = datetime.fromisoformat(written) if isinstance(written, str) else None
    now, last, offset = clock_of(instance.role, body[:HEAD], body[-END:], mtime, asked)
    texts = [b for b, _, _ in bodies]
    return Source(instance.name, instance.role, lambda: _fresh_lines(texts), texts[0][:HEAD], asked, now, last, offset)


def _fresh_lines(bodies: Sequence[bytes]) -> Iterator[bytes]:
    """The lines of several readings of one log, those of an earlier one not repeated."""
    if len(bodies) == 1:
        yield from BytesIO(bodies[0])
        return
    seen: set[int] = set()
    for body in bodies:
        fresh = {hash(line) for line in BytesIO(body)} - seen
        yield from (line for line in BytesIO(body) if hash(line) in fresh)
        seen |= fresh


def clock_of(
    role: Role | None, head: bytes, end: bytes, mtime: datetime | None, asked: datetime
) -> tuple[datetime, datetime | None, timedelta | None]:
    """The log's own present and its clock's offset. Where nothing tells the offset, its last line is its present."""
    offset: timedelta | None
    last = read_log_end(end or head, role, asked)
    if last is not None and last.tzinfo is not None:
        last, offset = last.replace(tzinfo=None), timedelta()
    else:
        offset = offset_of(last, mtime, asked)
    if offset is None and last is not None:
        return last, last, None
    return asked.astimezone(UTC).replace(tzinfo=None) + (offset or timedelta()), last, offset


def of_files(paths: Sequence[Path], role: Role | None, clock: Clock, *, following: bool = False) -> list[Source]:
    """The sources of files given by name. Raises UsageError where one cannot be read."""
    return [source_of_file(str(path), role, path, clock, following=following) for path in paths]


def of_capture(answers: Iterable[Answer], chosen: Sequence[Instance]) -> list[Source]:
    """The sources of the logs a recording holds."""
    by_name: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer.fact is Fact.LOG:
            by_name.setdefault(answer.subject, []).append(answer)
    found = [source_of_answers(i, by_name.get(i.name, ())) for i in chosen]
    return [source for source in found if source is not None]


def of_instances(
    chosen: Sequence[Instance], clock: Clock, *, following: bool = False
) -> tuple[list[Source], list[str]]:
    """The sources of instances whose log file is on this machine, and for each other one why it is none."""
    sources, notes = [], []
    for instance in chosen:
        why = _why_not_here(instance)
        if why is None and instance.log is not None:
            path = Path(instance.log).expanduser()
            sources.append(source_of_file(instance.name, instance.role, path, clock, following=following))
        else:
            notes.append(f"{instance.name}: {why}")
    return sources, notes


def _why_not_here(instance: Instance) -> str | None:
    if instance.log is None:
        return "the inventory names no log file of it"
    return None if Path(instance.log).expanduser().exists() else f"{instance.log} is not there"
