"""Keeping what was seen: every answer to a capture on disk as it arrives, for as long as the disk takes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pdctl.errors import CaptureError
from pdctl.model.answer import Answer
from pdctl.model.cluster import Cluster

if TYPE_CHECKING:
    from pdctl.reach.capture_write import CaptureWriter

KEPT = 8  # recordings kept without being asked for


class Keeper:
    """Writes answers to a capture, or nowhere. A disk that takes no more is said once, in ``notes``, with what was
    kept until then; nothing more is written and the looking goes on. ``path`` is where the capture is."""

    def __init__(self, writer: CaptureWriter | None, path: Path | None) -> None:
        self._writer = writer
        self._count = 0
        self.path = path
        self.notes: list[str] = []

    def add(self, answer: Answer) -> None:
        """Keeps the answer, if that still goes. Never raises for what the disk does."""
        if self._writer is not None and not self.notes:
            self._guarded(lambda writer: writer.add(answer))
            self._count += not self.notes

    def close(self) -> None:
        """Makes the capture whole, as far as the disk lets it."""
        self._guarded(lambda writer: writer.close())

    def _guarded(self, act: Callable[[CaptureWriter], None]) -> None:
        if self._writer is None:
            return
        try:
            act(self._writer)
        except CaptureError as error:
            if not self.notes:
                self.notes.append(f"recording stopped after {self._count} answers: {error.message}")


@contextmanager
def keeping(path: Path | None, cluster: Cluster) -> Iterator[Keeper]:
    """A keeper that writes to ``path``, or nowhere. Raises CaptureError when ``path`` can't be made; where a look keeps
    its answers unasked (``own_folder``), a full disk is only noted."""
    if path is None:
        yield Keeper(None, None)
        return
    from pdctl.reach.capture_write import CaptureWriter

    try:
        keeper = Keeper(CaptureWriter(path, cluster), path)
    except CaptureError as error:
        if path.parent != own_folder():
            raise
        keeper = Keeper(None, None)
        keeper.notes.append(f"nothing is kept: {error.message}")
    try:
        yield keeper
    finally:
        keeper.close()


def own_folder() -> Path | None:
    """The folder of recordings that nobody asked for, below the user's state folder; None where there is no home. One
    that is not there (/nonexistent, say) is none: it is not for us to make."""
    state, home = os.environ.get("XDG_STATE_HOME"), os.environ.get("HOME")
    if not state and home and Path(home).is_dir():
        state = f"{home}/.local/state"
    return Path(state) / "pdctl" / "captures" if state else None


def default_record(cluster: Cluster, now: datetime) -> Path | None:
    """Where a look is kept when nobody said where: below the user's state folder, the newest few. None where there is
    no such folder to write to: looking goes before keeping."""
    folder = own_folder()
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted((p for p in folder.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)[: -KEPT + 1]:
            shutil.rmtree(old, ignore_errors=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in cluster.name) or "cluster"
    return folder / f"{safe}-{now:%Y%m%dT%H%M%S.%f}Z"
