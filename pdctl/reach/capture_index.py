"""A capture's index, read twice: once to know when each line happened and where it stands, once for what it says.

The first reading keeps sixteen bytes a line, whatever the lines hold: the index of a day fits in a few megabytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pdctl.errors import CaptureError
from pdctl.reach.capture_line import BadLine, Row, UnknownFact, moment, row_of

LONGEST_LINE = 1024 * 1024  # bytes
MOST_NAMED = 5  # unknown facts
# Far above a day at 1 Hz of a hundred pages (8.6 million lines of some 300 bytes); what is beyond would take minutes,
# and may be a few bytes that unpack to it.
LARGEST_INDEX = 8 * 1024 * 1024 * 1024  # bytes
MOST_LINES = 10_000_000
MOST_EMPTY = 1_000_000  # lines that stand for no answer, beyond one for each that does


@dataclass(frozen=True, slots=True)
class Placed:
    """A row with its ``t`` made out."""

    t: float
    row: Row


class Index:
    """The lines of index.jsonl in order of ``t``. ``started`` is the moment of ``t`` 0; ``notes`` say what was not
    read, one line each."""

    def __init__(self, path: Path, named: str = "") -> None:
        """Reads the lines at ``path``, which errors call ``named``. Raises CaptureError."""
        self._path = path
        self._named = named or str(path)
        self._times = array("d")
        self._offsets = array("Q")
        self._bad = 0
        self._blank = 0
        self._half = False
        self._unknown: dict[str, int] = {}
        self._started: datetime | None = None
        self._scan()
        self.started = self._started or datetime.fromtimestamp(path.stat().st_mtime, UTC)
        self._order = self._sorted()

    def __len__(self) -> int:
        return len(self._times)

    @property
    def last_t(self) -> float:
        """``t`` of the last answer, in seconds; 0 when there is none."""
        return max(self._times, default=0.0)

    @property
    def first_t(self) -> float:
        """``t`` of the first answer, in seconds; 0 when there is none."""
        return min(self._times, default=0.0)

    def t_of(self, place: int) -> float:
        """``t`` of the answer at that place in the order of ``rows``."""
        return self._times[self._order[place]]

    @property
    def notes(self) -> tuple[str, ...]:
        said = []
        if self._half:
            said.append("the last line of index.jsonl is half written: ignored")
        if self._bad:
            said.append(f"{self._bad} lines of index.jsonl stand for no answer: ignored")
        if self._unknown:
            named = ", ".join(ascii(fact) for fact in self._unknown)
            said.append(f"{sum(self._unknown.values())} answers about facts this version does not know: {named}")
        return tuple(said)

    def rows(self, since: float | None = None) -> Iterator[Placed]:
        """The rows in order of ``t``, from ``since`` on if given."""
        with self._path.open("rb") as file:
            at = -1
            for place in self._order:
                t, offset = self._times[place], self._offsets[place]
                if since is not None and t < since:
                    continue
                if offset != at:
                    file.seek(offset)
                line = file.readline(LONGEST_LINE)
                at = offset + len(line)
                yield Placed(t, row_of(line))

    def _sorted(self) -> range | list[int]:
        times = self._times
        if all(times[place] <= times[place + 1] for place in range(len(times) - 1)):
            return range(len(times))
        return sorted(range(len(times)), key=times.__getitem__)

    def _scan(self) -> None:
        try:
            with self._path.open("rb") as file:
                offset = 0
                while line := file.readline(LONGEST_LINE):
                    self._note(line, offset)
                    offset += len(line)
                    self._refuse_beyond(offset)
        except OSError as error:
            raise CaptureError(f"{self._named} cannot be read: {error.strerror or error}") from None

    def _refuse_beyond(self, offset: int) -> None:
        """Raises CaptureError that says which limit the index is beyond."""
        answers, empty = len(self._times), self._bad + self._blank
        if offset > LARGEST_INDEX:
            raise CaptureError(f"{self._named} is over {LARGEST_INDEX} bytes long")
        if answers + sum(self._unknown.values()) > MOST_LINES:
            raise CaptureError(f"{self._named} has more than {MOST_LINES} lines")
        if empty > MOST_EMPTY + answers:
            raise CaptureError(f"{self._named} has more than {MOST_EMPTY} lines that are blank or stand for no answer")

    def _note(self, line: bytes, offset: int) -> None:
        if not line.strip():
            self._blank += 1
            return
        try:
            row = row_of(line)
        except UnknownFact as unknown:
            fact = str(unknown) if len(self._unknown) < MOST_NAMED else "others"
            self._unknown[fact] = self._unknown.get(fact, 0) + 1
        except BadLine:
            if line.endswith(b"\n"):
                self._bad += 1
            else:
                self._half = True
        else:
            self._times.append(self._time_of(row))
            self._offsets.append(offset)

    def _time_of(self, row: Row) -> float:
        """``t`` as said, else from the time of day, else that of the line before."""
        if row.at is not None and self._started is None:
            self._started = moment(row.at, -(row.t or 0.0))
        if row.t is not None:
            return row.t
        if row.at is not None and self._started is not None:
            return (row.at - self._started).total_seconds()
        return self._times[-1] if self._times else 0.0
