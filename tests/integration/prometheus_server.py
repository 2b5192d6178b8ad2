"""A real Prometheus server on loopback, scraping what is named to it or filled with samples of known moments."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MISSING = "no prometheus here (apt-get install -y --no-install-recommends prometheus)"


def is_there() -> bool:
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def value(self, query: str) -> float:
        """The first result of an instant query, 0 where there is none."""
        with urllib.request.urlopen(f"{self.url}/api/v1/query?query={query}", timeout=10) as answer:
            rows = json.load(answer)["data"]["result"]
        return float(rows[0]["value"][1]) if rows else 0.0

    def wait_for(self, query: str, least: float, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while self.value(query) < least:
            assert time.monotonic() < until, f"{query} stayed below {least}"
            time.sleep(0.2)


@contextmanager
def prometheus(folder: Path, targets: Sequence[str] = (), samples: str | None = None) -> Iterator[Prometheus]:
    """A server that scrapes the targets each second, or holds the samples (OpenMetrics text with times) from before."""
    folder.mkdir(parents=True, exist_ok=True)
    settings: Mapping[str, object] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "pd", "static_configs": [{"targets": list(targets)}]}] if targets else [],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    if samples is not None:
        (folder / "samples.txt").write_text(samples)
        words = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "samples.txt", "data"]
        subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=120)
    port = _free_port()
    words = [
        "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
        "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
    try:
        _wait_ready(port, process, folder / "log")
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(20)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
                return
        except OSError:
            assert process.poll() is None and time.monotonic() < until, log.read_text("utf-8", "replace")[-2000:]
            time.sleep(0.1)
