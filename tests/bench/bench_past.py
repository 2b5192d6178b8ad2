"""What looking back costs: engines for an hour, remembered by a real Prometheus server that is filled for it.

usage: python tests/bench/bench_past.py [--small]

The target is a count: one range query a metric for each slice of the time, however many engines there are.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))
from prometheus_server import MISSING, is_there, prometheus
from test_past_prometheus import engine, samples

SINCE = "2026-03-01T02:00:00Z"


def looked_back(engines: int, minutes: int) -> dict[str, float]:
    """One look back over so many engines, in a process of its own; one request sticks after a minute."""
    rows = (
        engine(role, f"gpu{n}:{port}", 60 if n == 1 else None, seconds=60 * minutes)
        for n in range(engines // 2)
        for role, port in (("prefill", 30000), ("decode", 30002))
    )
    with tempfile.TemporaryDirectory() as folder, prometheus(Path(folder) / "p", samples=samples(*rows)) as server:
        until = f"2026-03-01T{2 + minutes // 60:02d}:{minutes % 60:02d}:00Z"
        words = ["past", server.url, "--since", SINCE, "--until", until, "--record", f"{folder}/kept", "-o", "json"]
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = [sys.executable, "-m", "pdctl", *words, "--match", "job=pd"]
        own = {**os.environ, "XDG_CONFIG_HOME": folder}
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True, env=own)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = [f["subject"] for f in json.loads(done.stdout)["findings"] if f["name"] == "request-pinned"]
    assert found == ["prefill-1"] or engines > 20, (found, done.stderr)
    scrapes, _, rest = done.stderr.partition(" scrapes in ")
    return {
        "queries": float(rest.partition(" ")[0]),
        "scrapes": float(scrapes.splitlines()[-1]),
        "wall": time.monotonic() - begun,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "found": float(len(found)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    if not is_there():
        print(MISSING)
        return
    print(f"{'engines':>8}{'minutes':>9}{'scrapes':>9}{'queries':>9}{'wall s':>8}{'CPU s':>8}{'pinned':>8}")
    for engines, minutes in ((4, 5), (20, 5)) if small else ((4, 60), (100, 60), (1000, 5)):
        got = looked_back(engines, minutes)
        print(
            f"{engines:>8}{minutes:>9}{got['scrapes']:>9.0f}{got['queries']:>9.0f}"
            f"{got['wall']:>8.1f}{got['cpu']:>8.1f}{got['found']:>8.0f}"
        )


if __name__ == "__main__":
    main()
