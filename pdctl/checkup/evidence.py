"""Evidence of the moment a check failed: captures in a folder, the newest few of which are kept."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from pdctl.model.answer import Answer
from pdctl.model.cluster import Cluster
from pdctl.reach.state import plain_name

KEPT = 10
AGAIN_S = 3600.0  # the same fault is kept again after so long


def is_new(now: str, before: str | None, at: float | None, wall: float) -> bool:
    """Whether a fault's evidence is to be kept: it is another than that of the last run, or that was long ago. A fault
    that stays must not push out the moment it began."""
    return now != before or at is None or not 0 <= wall - at < AGAIN_S


class Evidence:
    """The folder of one cluster's evidence; it may hold that of others, and anything else."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder = folder
        self._cluster = cluster
        self._stem = plain_name(cluster.name)

    def keep(self, answers: Iterable[Answer], now: datetime) -> Path:
        """Writes the answers as a capture and returns where; older ones beyond ``KEPT`` go. Raises CaptureError or
        OSError when the disk does not take it; then nothing new is there, and nothing old is gone."""
        from pdctl.reach.capture_write import CaptureWriter

        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._free(now)
        try:
            with CaptureWriter(path, self._cluster) as writer:
                for answer in sorted(answers, key=lambda a: a.t):
                    writer.add(answer)
        except BaseException:
            self._clear(path)
            raise
        self._prune()
        return path

    def _free(self, now: datetime) -> Path:
        """A name that no other check took for the same second: what is under way there is not for this one to clear."""
        while True:
            path = self._folder / f"{self._stem}-{now:%Y%m%dT%H%M%S}Z.tar.zst"
            if not path.exists() and not _half(path).exists():
                return path
            now += timedelta(seconds=1)

    def _clear(self, path: Path) -> None:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        shutil.rmtree(_half(path), ignore_errors=True)

    def _prune(self) -> None:
        """Files beyond the newest, and what a run that was killed left half made; only what bears a name of ours."""
        with suppress(OSError):
            for old in self._ours("tar.zst")[:-KEPT]:
                old.unlink()
            for half in self._ours("partial"):
                if time.time() - half.stat().st_mtime > AGAIN_S:
                    shutil.rmtree(half, ignore_errors=True)

    def _ours(self, ending: str) -> list[Path]:
        name = re.compile(re.escape(self._stem) + r"-\d{8}T\d{6}Z\." + re.escape(ending))
        return sorted(p for p in self._folder.iterdir() if name.fullmatch(p.name) and not p.is_symlink())


def _half(path: Path) -> Path:
    """Where a capture lies while it is written."""
    return path.with_name(path.name.replace(".tar.zst", ".partial"))
