"""What a changed file is, in words: a package, a kernel, a driver, a folder, a plain file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import TypeVar

from pdctl.model.host import WatchedFile
from pdctl.model.window import At

T = TypeVar("T", bound=At[WatchedFile])
_PACKAGE = re.compile(r"(?P<name>[^/]+?)-(?P<version>\d[^/]*)\.(?:dist|egg)-info$")
TOGETHER = timedelta(minutes=3)  # packages installed within this of one another are one installation
WHOLE_KERNEL: Mapping[str, str] = {
    "boot": "the host booted: everything on it started anew",
    "driver": "the driver is another: every process on the host uses it",
    "kernel": "a kernel was installed; it runs",
}


def package_named(path: str) -> str | None:
    """Name and version of an installed package by its folder, None for any other path.

    >>> package_named("/v/site-packages/torch-2.9.1.dist-info")
    'torch 2.9.1'
    """
    found = _PACKAGE.search(PurePosixPath(path).name)
    return f"{found['name']} {found['version']}" if found else None


def grouped(rows: Iterable[At[WatchedFile]]) -> list[list[At[WatchedFile]]]:
    """Files parted where nothing was written for a while, oldest first."""
    out: list[list[At[WatchedFile]]] = []
    dated = sorted((at.value.mtime, i, at) for i, at in enumerate(rows) if at.value.mtime is not None)
    for when, _, at in dated:
        last = out[-1][-1].value.mtime if out else None
        if last is not None and when - last <= TOGETHER:
            out[-1].append(at)
        else:
            out.append([at])
    return out


def said_of(file: WatchedFile) -> tuple[str, str]:
    """What changed, and its kind: boot, kernel, driver, package, folder or file."""
    if file.path == "/proc/version":
        return f"booted ({file.line or 'kernel not known'})", "boot"
    if file.path.startswith("/lib/modules/"):
        return f"kernel installed: {PurePosixPath(file.path).name}", "kernel"
    if file.path.startswith("/sys/module/"):
        return f"{file.line or file.path} installed", "driver"
    if file.path.endswith("/"):
        return f"{file.path}: entries were added or removed", "folder"
    named = package_named(file.path)
    return (f"{named} installed", "package") if named else (f"{file.path}: written", "file")


def clock(moment: datetime | None) -> str:
    """A time in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if moment is not None else "a time not known"
