"""Captures written while answers arrive: each is on disk, and its line in the index, before the next is looked at."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from pdctl import __version__
from pdctl.errors import CaptureError
from pdctl.model.answer import Answer, Fact
from pdctl.model.cluster import Cluster
from pdctl.model.secrets import mask_text
from pdctl.reach.capture_line import FORMAT, line_of, write_time
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.masking import masked

TOOL = f"pdctl {__version__}"
# Pages of numbers, and socket tables: they hold no secrets, and masking every page would cost more than reading it.
# What came instead of such a page (an error of a proxy, a sign-in page, a label with a login in a URL) is masked.
NOT_MASKED = frozenset({Fact.METRICS, Fact.LOADS, Fact.SOCKETS, Fact.NSTAT, Fact.GPU, Fact.LIMITS})
GOOD = (0, 200)  # exit status, HTTP status
_EXTENSIONS = {
    Fact.METRICS: "prom", Fact.LOADS: "json", Fact.SERVER_INFO: "json", Fact.WORKERS: "json", Fact.PROCESSES: "json",
    Fact.GIT: "json", Fact.PROBE: "json", Fact.LOG: "log", Fact.SCRIPT: "sh", Fact.GPU: "csv",
}  # fmt: skip
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


class CaptureWriter:
    """Writes a capture to a new directory, or to a .tar.gz, .tgz or .tar.zst bundle (packed by ``close``; until then
    its directory stands beside it as NAME.partial). Cut short at any moment, what was written can be read.

    Secrets are masked; other bytes are kept as they came. Every method raises CaptureError when the disk does not take
    it. Use it as a context manager: leaving the block, by Ctrl-C too, makes the capture whole."""

    def __init__(self, path: Path | str, cluster: Cluster, *, clock: Clock | None = None) -> None:
        from pdctl.inventory.toml import render_cluster
        from pdctl.reach.bundle import SUFFIXES, stem_of

        self.path = Path(path)
        self._bundle = self.path if self.path.name.endswith(SUFFIXES) else None
        self._root = self.path.with_name(f"{stem_of(self.path)}.partial") if self._bundle else self.path
        self._clock = clock or SystemClock()
        self._started: datetime | None = None
        self._numbers: dict[str, int] = {}
        self._good = 0
        self._closed = False
        with _told(self._root):
            _make_empty(self._root, self._bundle)
            (self._root / "cluster.toml").write_text(mask_text(render_cluster(cluster)), "utf-8")
            self._index = (self._root / "index.jsonl").open("xb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, answer: Answer) -> None:
        """Writes an answer. When that fails, the capture holds those before it."""
        self._started = self._started or answer.at - timedelta(seconds=answer.t)
        with _told(self._root):
            file, digest = (None, None) if answer.body is None else self._kept(answer)
            self._append(line_of(_masked(answer), file, content_type=answer.content_type, sha256=digest))

    def close(self) -> None:
        """Writes the manifest, and the bundle if it is to be one."""
        if self._closed:
            return
        self._closed = True
        self._index.close()
        with _told(self._root):
            self._write_manifest()
        if self._bundle is not None:
            from pdctl.reach.bundle import pack

            pack(self._root, self._bundle)
            shutil.rmtree(self._root, ignore_errors=True)

    def _kept(self, answer: Answer) -> tuple[str, str]:
        """Path and digest of the body, written."""
        body = answer.body or b""
        if answer.fact not in NOT_MASKED or answer.error is not None or answer.status not in GOOD or b"@" in body:
            body = masked(body)
        folder = f"{_folder_of(answer.subject)}/{answer.fact.value}"
        number = self._numbers[folder] = self._numbers.get(folder, -1) + 1
        tenths = max(0, int(answer.t * 10))
        name = f"{tenths // 10:05d}.{tenths % 10}.{number}.{_EXTENSIONS.get(answer.fact, 'txt')}"
        if number == 0:
            (self._root / folder).mkdir(parents=True, exist_ok=True)
        path = self._root / folder / name
        try:
            with path.open("xb") as out:
                out.write(body)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return f"{folder}/{name}", sha256(body).hexdigest()

    def _append(self, line: bytes) -> None:
        """The whole line or none of it."""
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._index.write(rest) :]
        except OSError:
            os.ftruncate(self._index.fileno(), self._good)
            self._index.seek(self._good)
            raise
        self._good += len(line)

    def _write_manifest(self) -> None:
        """A line at a time, from the index: a day's manifest is larger than it is wise to hold."""
        ended = self._clock.wall()
        head = {
            "format": FORMAT,
            "tool": TOOL,
            "started": write_time(self._started or ended),
            "ended": write_time(ended),
        }
        part = self._root / "manifest.json.part"
        with part.open("w", encoding="utf-8") as out:
            out.write(json.dumps(head)[:-1] + ', "sha256": {')
            for number, (name, digest) in enumerate(self._digests()):
                out.write(f"{',' if number else ''}\n{json.dumps(name)}: {json.dumps(digest)}")
            out.write("\n}}\n")
        part.replace(self._root / "manifest.json")

    def _digests(self) -> Iterator[tuple[str, str]]:
        for name in ("cluster.toml", "index.jsonl"):
            yield name, _digest_of(self._root / name)
        with (self._root / "index.jsonl").open("rb") as lines:
            for line in lines:
                said = json.loads(line)
                if said["file"] is not None:
                    yield said["file"], said["sha256"]


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns what the disk says into a CaptureError about ``path``."""
    try:
        yield
    except FileExistsError as error:
        raise CaptureError(f"{error.filename}: is there already", "A recording needs a new directory.") from None
    except OSError as error:
        raise CaptureError(f"{path}: cannot be recorded to: {error.strerror or error}") from None


def _make_empty(root: Path, bundle: Path | None) -> None:
    """The directory, new or empty, for its owner alone: logs and environments are nobody else's business."""
    if bundle is not None and bundle.exists():
        raise FileExistsError(17, "File exists", str(bundle))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise FileExistsError(17, "File exists", str(root))


def _masked(answer: Answer) -> Answer:
    more = {key: mask_text(value) if isinstance(value, str) else value for key, value in answer.more.items()}
    detail = mask_text(answer.detail) if answer.detail else answer.detail
    return replace(answer, ask=mask_text(answer.ask), detail=detail, more=more)


def _folder_of(subject: str) -> str:
    """A plain folder name; subjects that only differ in odd characters share one, which their numbers allow for."""
    return _ODD.sub("-", subject).lstrip(".")[:100] or "-"


def _digest_of(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while data := file.read(1024 * 1024):
            digest.update(data)
    return digest.hexdigest()
