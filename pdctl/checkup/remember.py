"""What earlier runs of a check saw, kept from one to the next: a run each minute sees trends without waiting for them.

The memory is small, replaced whole, and forgotten rather than doubted: a file that is corrupt, of another version, of
another user or of another cluster is not read, and neither is one from before the clock was set or the machine started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pdctl.model.answer import Fact, Missed, Observation, Seen
from pdctl.model.cluster import Cluster
from pdctl.model.packed import BAD, FACT, KIND, MISSED, SUBJECT, kinds_of, pack, shape, unpack
from pdctl.model.window import Window
from pdctl.reach.clock import Clock
from pdctl.reach.state import own_folder, plain_name, read_own, replace_whole, since_boot, state_folder, sweep

FORMAT = 2
KEEP_RUNS = 15
KEEP_S = 900.0  # seconds
MOST_BYTES = 8 * 1024 * 1024
MOST_SOCKETS = 4_000  # rows of one listing
JUMP_S = 2.0  # what clocks that agree drift apart in a quarter of an hour is far below
DAMAGED = "its file is damaged"
FILES = 64  # memories of clusters; of more, those that nobody used for a day are removed
# Told once and true until the engine is another: the newest of them is remembered, for when it is not told again.
SETTINGS = (Fact.SERVER_INFO,)


@dataclass(frozen=True, slots=True)
class Instant:
    """The same moment by both clocks: ``wall`` in epoch seconds, ``boot`` in seconds since the machine started."""

    wall: float
    boot: float

    def jump(self, later: Instant) -> float:
        """By how many seconds the time of day was set between the two moments."""
        return (later.wall - self.wall) - (later.boot - self.boot)

    def fits(self, later: Instant) -> bool:
        """Whether both clocks went on as they were."""
        return later.boot >= self.boot and abs(self.jump(later)) <= JUMP_S


def instant(clock: Clock) -> Instant:
    return Instant(clock.wall().timestamp(), since_boot())


@dataclass(frozen=True, slots=True)
class Run:
    """One run: when its window started, and its rows (``packed``), whose ``t`` counts from there."""

    start: Instant
    rows: tuple[list[Any], ...]
    _seen: list[Observation[Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def seen(self) -> list[Observation[Any]]:
        """The rows unpacked: once, since they are judged in several windows. Raises one of ``BAD`` for damaged rows."""
        if not self._seen:
            self._seen.extend([unpack(row) for row in self.rows])
        return self._seen


@dataclass(slots=True)
class Memory:
    """What is remembered. ``forgot`` says why earlier runs are not, None where there were none or they are.

    ``last_success`` (epoch seconds) is when a run last could see all it asked; ``failing`` names what was wrong in the
    last run whose evidence was kept, and ``failing_at`` (epoch seconds) when that was."""

    runs: tuple[Run, ...] = ()
    last_success: float | None = None
    failing: str | None = None
    failing_at: float | None = None
    forgot: str | None = None

    @property
    def seconds(self) -> float:
        """How far back it reaches, from the newest run it holds."""
        return self.runs[-1].start.boot - self.runs[0].start.boot if self.runs else 0.0


def memory_path(cluster: Cluster, selection: str) -> Path:
    """The file for checks of this cluster that look at the same. Raises OSError where there can be none. Another
    inventory, or another choice of stages, is another file: two checks of one cluster don't mix up what they saw."""
    parts = [(i.name, i.role.value, i.url, i.metrics_url, i.host) for i in cluster.instances]
    told = json.dumps([cluster.name, sorted(map(str, parts)), selection])
    return state_folder(
        "check", f"{plain_name(cluster.name)}-{blake2b(told.encode(), digest_size=6).hexdigest()}.memory"
    )


def recall(path: Path, now: Instant, keep_s: float = KEEP_S) -> Memory:
    """What the file remembers of the last ``keep_s`` seconds. Never raises: what cannot be used is forgotten, and the
    memory says why."""
    try:
        data = read_own(path)
    except OSError as error:
        return Memory(forgot=f"{path} {error.strerror or error}")
    if data is None:
        return Memory()
    try:
        return _recalled(data, path.stem, now, keep_s)
    except _Forgotten as why:
        return Memory(forgot=str(why))
    except BAD:
        return Memory(forgot=DAMAGED)


class _Forgotten(Exception):
    """Why a memory is not used."""


def _recalled(data: bytes, of: str, now: Instant, keep_s: float) -> Memory:
    head, _, body = data.partition(b"\n")
    said = json.loads(head)
    if said["pdctl-memory"] != FORMAT or said["shape"] != _shape(said["kinds"]):
        raise _Forgotten("its file is of another version of pdctl")
    if said["of"] != of:
        raise _Forgotten("its file is of another cluster")
    if said["digest"] != _digest(body):
        raise _Forgotten(DAMAGED)
    value = json.loads(body)
    saved = Instant(*value["saved"])
    if not saved.fits(now):
        raise _Forgotten(_set(saved, now))
    runs = (Run(Instant(*run["start"]), tuple(run["rows"])) for run in value["runs"])
    kept = tuple(run for run in runs if now.boot - run.start.boot <= keep_s)
    return Memory(kept, value["last_success"], value["failing"], value["failing_at"])


def _set(saved: Instant, now: Instant) -> str:
    if now.boot < saved.boot:
        return "the machine was restarted since"
    jump = saved.jump(now)
    return f"the clock was set {'forward' if jump > 0 else 'back'} by {abs(jump):.0f} s since"


def joined(memory: Memory, window: Window, start: Instant) -> Window:
    """The window with what earlier runs saw put before it. ``start`` is the window's start by both clocks.

    An endpoint that does not answer now is judged by its silence, and what was not looked at now is not judged by an
    earlier look: of either, only earlier failures and settings are kept. Raises one of ``BAD`` for a memory that was
    not made by ``remembered``."""
    if not memory.runs:
        return window
    first = memory.runs[0].start
    now = {(o.subject, o.fact): isinstance(o.got, Seen) for o in window.observations}
    before = [o for o in _before(memory) if _still_counts(o, now)]
    shift = start.boot - first.boot
    later = [replace(o, t=o.t + shift) for o in window.observations]
    return replace(
        window, start=window.start - timedelta(seconds=shift), observations=(*before, *later)
    )  # fmt: skip


def _before(memory: Memory) -> Iterator[Observation[Any]]:
    first = memory.runs[0].start.boot
    for run in memory.runs:
        shift = run.start.boot - first
        for seen in run.seen():
            yield replace(seen, t=seen.t + shift) if shift else seen


def _still_counts(old: Observation[Any], now: dict[tuple[str, Fact], bool]) -> bool:
    if old.fact in SETTINGS and isinstance(old.got, Seen):
        return True
    answered = now.get((old.subject, old.fact))
    return answered is True or (answered is False and isinstance(old.got, Missed))


def remembered(memory: Memory, window: Window, start: Instant, ended: Instant, keep_s: float = KEEP_S) -> Memory:
    """The memory with this run added and what is too old left out. A run in which the clock was set is not added, and
    those before it are forgotten with it."""
    if not start.fits(ended):
        return replace(memory, runs=(), forgot=_set(start, ended))
    new = Run(start, tuple(row for seen in _ends(window.observations) if (row := pack(seen)) is not None))
    runs = [run for run in (*memory.runs, new) if ended.boot - run.start.boot <= keep_s]
    return replace(memory, runs=tuple(_newest_settings(_thinned(runs))))


def _thinned(runs: list[Run]) -> list[Run]:
    """No more than ``KEEP_RUNS``: of more, those between neighbours that are closest in time go, so that several runs a
    minute reach back as far as one does."""
    while len(runs) > KEEP_RUNS:
        gaps = {n: runs[n + 1].start.boot - runs[n - 1].start.boot for n in range(1, len(runs) - 1)}
        runs = [run for n, run in enumerate(runs) if n != min(gaps, key=gaps.__getitem__)]
    return runs


def _ends(observations: Iterable[Observation[Any]]) -> Iterator[Observation[Any]]:
    """The first and the last of each kind: what lies between two ends of a short look is of no use a minute later."""
    first: dict[tuple[str, Fact], Observation[Any]] = {}
    last: dict[tuple[str, Fact], Observation[Any]] = {}
    for seen in observations:
        if seen.fact is Fact.SOCKETS and isinstance(seen.got, Seen) and len(seen.got.value.rows) > MOST_SOCKETS:
            continue
        first.setdefault((seen.subject, seen.fact), seen)
        last[seen.subject, seen.fact] = seen
    for key, seen in first.items():
        yield seen
        if last[key] is not seen:
            yield last[key]


def _newest_settings(runs: list[Run]) -> Iterator[Run]:
    """The runs, settings kept only as they were last told."""
    newest: dict[str, list[Any]] = {}
    for run in runs:
        newest |= {row[SUBJECT]: row for row in run.rows if _is_setting(row)}
    for run in runs:
        yield Run(
            run.start, tuple(row for row in run.rows if not _is_setting(row) or newest[row[SUBJECT]] is row)
        )  # fmt: skip


def _is_setting(row: list[Any]) -> bool:
    return row[FACT] in SETTINGS and row[KIND] != MISSED


def keep(path: Path, memory: Memory, now: Instant) -> None:
    """Puts the memory in its file. Raises OSError when the disk does not take it; then the old one stands."""
    own_folder(path.parent)
    body = _body(memory, now)
    while len(body) > MOST_BYTES and memory.runs:
        memory = replace(memory, runs=memory.runs[1:])
        body = _body(memory, now)
    head = {"pdctl-memory": FORMAT, "of": path.stem, "digest": _digest(body)}
    kinds = kinds_of(row for run in memory.runs for row in run.rows)
    head |= {"kinds": kinds, "shape": _shape(kinds)}
    replace_whole(path, json.dumps(head).encode() + b"\n" + body)
    for pattern in ("*.memory", "*.lock"):
        sweep(path.parent, pattern, FILES, idle_s=86400.0)


def _body(memory: Memory, now: Instant) -> bytes:
    value = {
        "saved": [now.wall, now.boot],
        "last_success": memory.last_success,
        "failing": memory.failing,
        "failing_at": memory.failing_at,
        "runs": [{"start": [run.start.wall, run.start.boot], "rows": run.rows} for run in memory.runs],
    }
    return json.dumps(value, separators=(",", ":")).encode()


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=12).hexdigest()


def _shape(kinds: Iterable[str]) -> str:
    return blake2b(shape(kinds).encode(), digest_size=6).hexdigest()


def epoch(seconds: float | None) -> datetime | None:
    """Epoch seconds as a time."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
