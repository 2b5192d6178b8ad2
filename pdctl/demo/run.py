"""A running demo cluster, in a process of its own so that it costs the one that measures it nothing."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from pdctl.demo.core.release import RELEASES, is_release
from pdctl.demo.core.truth import Stuck, Truth
from pdctl.demo.faults import FAULTS
from pdctl.demo.serve import Order
from pdctl.errors import UsageError
from pdctl.model.cluster import Cluster, Instance, Role

RELEASE = "0.5.23"
ROUTERS = ("0.3.2", "smg", "none")
START_SECONDS = 60


@dataclass(frozen=True)
class Demo:
    """A demo that runs. ``cluster`` is its inventory, ``folder`` where its logs are, ``leads_to`` the findings a
    right report may be expected to hold."""

    fault: str
    cluster: Cluster
    leads_to: tuple[str, ...]
    folder: Path
    process: subprocess.Popen[bytes]

    def truth(self) -> Truth:
        """What is really stuck now. Raises RuntimeError when the demo has ended."""
        pipe = self.process.stdin
        assert pipe is not None
        try:
            pipe.write(b"truth\n")
            pipe.flush()
        except OSError:
            raise RuntimeError("the demo has ended") from None
        return _truth(_line(self.process))


@contextmanager
def started(
    fault: str, *, release: str | None = None, prefills: int = 1, decodes: int = 1, dp: int = 1, seed: int = 0,
    router: str = "0.3.2",
) -> Iterator[Demo]:  # fmt: skip
    """A simulated cluster on free loopback ports, with several minutes of past, until the block ends. ``router`` is
    "0.3.2", "smg" or "none". Raises UsageError for a fault, release or router there is not."""
    _check(fault, release, router)
    release = release or FAULTS[fault].release or RELEASE
    folder = Path(tempfile.mkdtemp(prefix="pdctl-demo-"))
    order = Order(fault, release, prefills, decodes, dp, seed, None if router == "none" else router, str(folder))
    try:
        with (folder / "demo.err").open("wb") as errors:
            process = _spawn(order, errors)
        with _ended(process):
            yield _demo(fault, folder, process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(fault: str, release: str | None, router: str) -> None:
    if fault not in FAULTS:
        raise UsageError(f"no fault {fault!r}", "There are: " + ", ".join(FAULTS))
    if router not in ROUTERS:
        raise UsageError(f"no router {router!r}", "There are: " + ", ".join(ROUTERS))
    if release is not None and not is_release(release):
        known = ", ".join(RELEASES)
        raise UsageError(f"no release {release!r} to simulate", f"Those told apart: {known}; any between two of them.")


def _spawn(order: Order, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pdctl.demo.serve", json.dumps(asdict(order))]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
    )


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the process when the block does: by the end of its input, else by its id."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        for end in (None, process.terminate, process.kill):
            if end is not None:
                end()
            try:
                process.wait(timeout=3)
                break
            except subprocess.TimeoutExpired:
                continue
        assert process.stdout is not None
        process.stdout.close()


def _demo(fault: str, folder: Path, process: subprocess.Popen[bytes]) -> Demo:
    line = _line(process)
    if not line:
        process.wait(timeout=START_SECONDS)
        raise RuntimeError("the demo did not start: " + (folder / "demo.err").read_text("utf-8", "replace")[-2000:])
    said = json.loads(line)
    instances = tuple(_instance(row) for row in said["instances"])
    return Demo(fault, Cluster("demo", instances, source=f"demo {fault}"), tuple(said["leads_to"]), folder, process)


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def _instance(row: dict[str, Any]) -> Instance:
    return Instance(
        row["name"], Role(row["role"]), row["url"], row["metrics_url"], log=row["log"],
        bootstrap_port=row["bootstrap_port"],
    )  # fmt: skip


def _truth(line: bytes) -> Truth:
    if not line:
        raise RuntimeError("the demo has ended")
    said = json.loads(line)
    return Truth(
        said["t"], said["fault"], tuple(Stuck(**row) for row in said["stuck"]),
        tuple((name, dp) for name, dp in said["stopped"]), said["lengths"], tuple(said["leads_to"]),
    )  # fmt: skip
