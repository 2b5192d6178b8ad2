"""Captures read back: the answers of a recording, one at a time, in the order they came.

A capture is data from elsewhere: its paths are kept inside it, its sizes bounded, and what cannot be read is an answer
that says so.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Self

from pdctl.errors import CaptureError, PdctlError
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Cluster
from pdctl.reach.capture_index import Index, Placed
from pdctl.reach.capture_line import FORMAT, moment

if TYPE_CHECKING:
    from pdctl.reach.bundle import Unpacked

MEGABYTE = 1024 * 1024
LARGEST_BODY = 256 * MEGABYTE
LARGEST_TOML = 16 * MEGABYTE
MANIFEST_HEAD = 64 * 1024
_FORMAT = re.compile(rb'"format"\s*:\s*(\d{1,9})')


class Capture:
    """An opened capture. ``cluster`` is the inventory it was taken with; ``started`` the moment of ``t`` 0;
    ``cut_short`` whether the recording ended before its time (no manifest); ``notes`` what of it could not be read.
    Unpacked bundles are removed by ``close``, or when it is forgotten."""

    def __init__(self, root: Path, source: str, bundle: Unpacked | None = None) -> None:
        self._bundle = bundle
        self.source = source
        self._root = root
        self._real_root = root.resolve()
        self.cut_short = _is_cut_short(root, source)
        self.cluster = _read_cluster(root, source)
        self._index = Index(root / "index.jsonl", f"{source}/index.jsonl")
        self.started = self._index.started
        self.notes = (*(bundle.notes if bundle else ()), *self._index.notes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes what was unpacked for it; a capture directory stays as it is."""
        if self._bundle is not None:
            self._bundle.remove()

    def __len__(self) -> int:
        """How many answers it holds."""
        return len(self._index)

    @property
    def seconds(self) -> float:
        """``t`` of its last answer."""
        return self._index.last_t

    @property
    def first_t(self) -> float:
        """``t`` of its first answer."""
        return self._index.first_t

    def t_of(self, place: int) -> float:
        """``t`` of the answer at that place in the order of ``answers``, from 0."""
        return self._index.t_of(place)

    @property
    def ended(self) -> datetime:
        """The moment of its last answer."""
        return moment(self.started, self.seconds)

    def answers(self, since: float | None = None) -> Iterator[Answer]:
        """The answers in order of ``t``, from ``since`` (seconds) on if given; bodies are read one at a time."""
        return (self.answer_of(placed) for placed in self.rows(since))

    def rows(self, since: float | None = None) -> Iterator[Placed]:
        """As ``answers``, but without reading any body."""
        return self._index.rows(since)

    def answer_of(self, placed: Placed) -> Answer:
        """The answer of a row. A body that is missing, too large or outside the capture is an error of the answer."""
        row = placed.row
        answer = Answer(
            row.instance, row.fact, row.ask, placed.t, row.at or moment(self.started, placed.t), row.took, row.status,
            row.error, row.detail, None, row.content_type, MappingProxyType(row.more),
        )  # fmt: skip
        if row.file is None:
            return answer
        try:
            return replace(answer, body=self._body(row.file))
        except _NoBody as why:
            said = f"{answer.detail}; {why}" if answer.detail else str(why)
            return replace(answer, error=answer.error or why.error, detail=said)

    def _body(self, file: str) -> bytes:
        try:
            path = self._inside(file)
            mode = path.stat()
            if not stat.S_ISREG(mode.st_mode):
                raise _NoBody("its file in the capture is no regular file")
            if mode.st_size > LARGEST_BODY:
                raise _NoBody(f"its file in the capture has {mode.st_size} bytes", Why.TOO_LARGE)
            return path.read_bytes()
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            raise _NoBody(f"its file in the capture cannot be read: {words or error}") from None

    def _inside(self, file: str) -> Path:
        name = PurePosixPath(file)
        if name.is_absolute() or ".." in name.parts:
            raise _NoBody("its path leads out of the capture")
        path = (self._root / name).resolve()
        if not path.is_relative_to(self._real_root):
            raise _NoBody("its path leads out of the capture")
        return path


class _NoBody(Exception):
    def __init__(self, text: str, error: Why = Why.OTHER) -> None:
        super().__init__(text)
        self.error = error


def open_capture(path: Path | str) -> Capture:
    """The capture at ``path``: a directory, or a .tar.gz or .tar.zst bundle of one. Raises CaptureError that says what
    is wrong with it; a recording that was cut short is not wrong."""
    place = Path(path)
    source = str(path)
    try:
        if place.is_dir():
            return _opened(place, source)
        if not place.exists():
            raise CaptureError(
                f"{source}: no such capture", "Give a capture directory, or a .tar.gz or .tar.zst of one."
            )
    except OSError as error:
        raise CaptureError(f"{source}: cannot be read: {error.strerror or error}") from None
    from pdctl.reach.bundle import unpacked

    bundle = unpacked(place)
    try:
        return _opened(bundle.root, source, bundle)
    except BaseException:
        bundle.remove()
        raise


def _opened(root: Path, source: str, bundle: Unpacked | None = None) -> Capture:
    for name in ("index.jsonl", "cluster.toml"):
        if not (root / name).is_file():
            raise CaptureError(f"{source} is no capture: it has no {name}", "pdctl ... --record DIR makes one.")
    return Capture(root, source, bundle)


def _read_cluster(root: Path, source: str) -> Cluster:
    from pdctl.inventory.toml import read_cluster

    where = f"{source}/cluster.toml"
    try:
        text = _small(root / "cluster.toml", LARGEST_TOML).decode("utf-8-sig", "replace")
        return read_cluster(text, where, recorded=True)
    except PdctlError as error:
        raise CaptureError(error.message, error.hint) from None
    except (OSError, ValueError) as error:
        raise CaptureError(f"{where}: cannot be read: {error}") from None


def _is_cut_short(root: Path, source: str) -> bool:
    """Whether there is no manifest, or only part of one. Raises CaptureError for one of a format yet to come. A long
    recording's manifest is large: only its ends are read."""
    try:
        with (root / "manifest.json").open("rb") as file:
            head = file.read(MANIFEST_HEAD)
            file.seek(max(0, file.seek(0, 2) - MANIFEST_HEAD))
            tail = file.read()
    except OSError:
        return True
    written = _FORMAT.search(head) or _FORMAT.search(tail)
    if written and int(written[1]) > FORMAT:
        raise CaptureError(f"{source}: is of format {int(written[1])}, and this pdctl reads {FORMAT}")
    return not (head.lstrip().startswith(b"{") and tail.rstrip().endswith(b"}"))


def _small(path: Path, most: int) -> bytes:
    if path.stat().st_size > most:
        raise ValueError(f"over {most} bytes long")
    return path.read_bytes()
