"""Log files on this machine: read line by line in bounded memory, and followed while they grow or are rotated."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast

from pdctl.errors import UsageError
from pdctl.reach.clock import Clock

LONGEST_LINE = 1024 * 1024  # bytes; what is longer comes in pieces
PAUSE = 0.5  # seconds between two looks at a file that is followed


def lines(path: Path, upto: int | None = None) -> Iterator[bytes]:
    """Every line of the file, newline included, a ``.gz`` unpacked on the way; with ``upto`` only those that begin
    before that many bytes. Raises UsageError where it cannot be read."""
    begun = 0
    try:
        with _opened(path) as file:
            while (upto is None or begun < upto) and (line := file.readline(LONGEST_LINE)):
                yield line
                begun += len(line)
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def head_of(path: Path, size: int) -> bytes:
    """The first bytes of the file. Raises UsageError where it cannot be read."""
    try:
        with _opened(path) as file:
            return file.read(size)
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def tail_of(path: Path, size: int) -> bytes:
    """The last bytes of the file; nothing of a ``.gz``, whose end cannot be had without all before it."""
    if path.suffix == ".gz" or not path.is_file():
        return b""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - size))
        return file.read(size)


def complete_size(path: Path) -> int:
    """How many bytes of the file are whole lines: up to its last newline."""
    end = tail_of(path, LONGEST_LINE)
    return path.stat().st_size - (len(end) - end.rfind(b"\n") - 1) if b"\n" in end else 0


def written(path: Path) -> datetime:
    """When the file was last written, UTC. Raises UsageError where that cannot be known."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


class Growing:
    """A file that grows. Follows it by name: a file put in its place, or cut to nothing, is read from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: io.BufferedReader | None = None
        self._part = b""

    def start_at(self, position: int) -> None:
        """Passes over the first ``position`` bytes."""
        if (file := self._open()) is not None:
            file.seek(position)

    def fresh(self) -> list[bytes]:
        """The lines completed since the last look."""
        file = self._open()
        if file is None:
            return []
        text = self._part + file.read()
        *complete, self._part = text.split(b"\n")
        if len(self._part) > LONGEST_LINE:
            complete, self._part = [*complete, self._part], b""
        return [line + b"\n" for line in complete]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> io.BufferedReader | None:
        """The open file; opened anew where another has its name now, or where it has become shorter than was read."""
        try:
            named = self._path.stat()
        except OSError:
            return self._file
        if self._file is not None:
            held = os.fstat(self._file.fileno())
            if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino) and named.st_size >= self._file.tell():
                return self._file
            self.close()
            self._part = b""
        try:
            self._file = self._path.open("rb")
        except OSError:
            return None
        return self._file


def follow(files: Sequence[tuple[Path, int]], clock: Clock) -> Iterator[list[list[bytes]]]:
    """Looks at the files for ever, twice a second: each time the lines that each of them grew by, beginning at the
    byte given with it. Ends when the reader closes it."""
    growing = [Growing(path) for path, _ in files]
    try:
        for file, (_, position) in zip(growing, files, strict=True):
            file.start_at(position)
        while True:
            yield [file.fresh() for file in growing]
            clock.sleep(PAUSE)
    finally:
        for file in growing:
            file.close()
