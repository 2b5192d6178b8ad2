"""What asking costs: many endpoints at once, slow ones, and ones that misbehave.

usage: python tests/bench/bench_sweep.py [--small]

Each run of pdctl's asking is a fresh process; runs are interleaved with those of curl on the same endpoints.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from endpoints import endpoints

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))
from nasty import OK, Nasty, Peer

PAGE = 115_000  # bytes: a prefill page with every scheduler's series
ASK = """
import json, resource, sys, time
from pdctl.facts import read
from pdctl.gather import Gatherer
from pdctl.model.answer import Fact
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import Cluster
from pdctl.reach.clock import SystemClock

def peak():  # of this program alone: ru_maxrss begins with what the parent had
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

urls, deadline, warm = json.loads(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "warm"
with Gatherer(Cluster("bench", ()), clock=SystemClock()) as gatherer:
    if warm:
        import pdctl.reach.http, pdctl.reach.wire, pdctl.reach.faults, pdctl.facts.metrics
    idle, begun = peak(), time.monotonic()
    answers = gatherer.gather([HttpAsk(str(n), Fact.METRICS, url) for n, url in enumerate(urls)], deadline)
    asked = time.monotonic()
    good = sum(answer.error is None for answer in answers)
    kept = sum(len(answer.body or b"") for answer in answers)
    seen = [read(answer, None) for answer in answers]
    print(json.dumps({"ask": asked - begun, "read": time.monotonic() - asked, "peak": peak(), "above": peak() - idle,
                      "good": good, "bytes": kept, "cpu": sum(resource.getrusage(resource.RUSAGE_SELF)[:2])}))
"""


def asked(urls: list[str], deadline: float = 10.0, *, warm: bool = False) -> dict[str, float]:
    """One gathering in a process of its own: its own figures, and "wall", the process from start to end."""
    begun = time.monotonic()
    words = [sys.executable, "-c", ASK, json.dumps(urls), str(deadline), "warm" if warm else "cold"]
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    said: dict[str, float] = json.loads(out.stdout)
    return {**said, "wall": time.monotonic() - begun}


def curl(config: Path, parallel: int) -> float:
    """Seconds curl takes for the same pages, all at once, bytes alone."""
    begun = time.monotonic()
    words = ["curl", "-sS", "-Z", "--parallel-immediate", "--parallel-max", str(parallel), "-K", str(config)]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begun


@contextmanager
def curl_config(urls: list[str]) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile("w", suffix=".curl") as out:
        out.writelines(f'url = "{url}"\noutput = "/dev/null"\n' for url in urls)
        out.flush()
        yield Path(out.name)


def row(what: str, figure: str, baseline: str, ratio: str, target: str) -> None:
    print(f"{what:<54} {figure:>11} {baseline:>11} {ratio:>7}  {target}")


def sweep(count: int, rounds: int) -> None:
    curls: list[float] = []
    runs: list[dict[str, float]] = []
    with endpoints(count, PAGE) as ports:
        urls = [f"http://127.0.0.1:{port}/metrics" for port in ports]
        with curl_config(urls) as config:
            for _ in range(rounds):
                curls.append(curl(config, count))
                runs.append(asked(urls, warm=True))
                assert runs[-1]["good"] == count
    base = statistics.median(curls)
    name = f"{count} endpoints of {PAGE // 1000} KB"
    for part, what, target in (("ask", "asked", "<= 3x"), ("wall", "asked and read, the whole process", "")):
        figure = statistics.median(run[part] for run in runs)
        row(f"{name}, {what}", f"{figure * 1000:.0f} ms", f"{base * 1000:.0f} ms", f"{figure / base:.2f}", target)
    row(f"{name}, resident at most", f"{max(run['peak'] for run in runs):.0f} MB", "", "", "< 150 MB")


def late_answers(count: int, rounds: int) -> None:
    with endpoints(count, 10_000, delay=0.2) as ports:
        urls = [f"http://127.0.0.1:{port}/metrics" for port in ports]
        runs = [asked(urls) for _ in range(rounds)]
    wall = statistics.median(run["wall"] for run in runs)
    name = f"{count} endpoints that answer after 200 ms, start-up included"
    row(name, f"{wall * 1000:.0f} ms", "200 ms", f"{wall / 0.2:.2f}", "< 600 ms")


def hang(peer: Peer) -> None:
    peer.hang()


def drip(peer: Peer) -> None:
    peer.say(OK + b"Content-Length: 100000\r\n\r\n")
    peer.drip(b"x 1\n" * 25_000, 0.01)


def endless(peer: Peer) -> None:
    peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while not peer.over.is_set():
        peer.say(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        time.sleep(0.001)


def large(peer: Peer) -> None:
    peer.reply(b"x 1\n" * (50_000_000 // 4))


def misbehaving(rounds: int) -> None:
    deadline = 1.0
    scripts: tuple[tuple[str, Callable[[Peer], None]], ...] = (
        ("hangs", hang),
        ("drips", drip),
        ("never ends", endless),
    )
    for name, script in scripts:
        with Nasty(script) as server:
            runs = [asked([server.url()], deadline, warm=True) for _ in range(rounds)]
        over = max(run["ask"] for run in runs) - deadline
        row(
            f"one that {name}: longer than the deadline by", f"{over * 1000:.0f} ms", f"{deadline:g} s", "", "<= 200 ms"
        )
    with Nasty(large) as server:
        run = asked([server.url()], 30.0, warm=True)
    assert run["bytes"] == 50_000_000
    row("one that sends 50 MB: resident above idle", f"{run['above']:.0f} MB", "", "", "< 60 MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few endpoints, two rounds, to see that it works")
    small = parser.parse_args().small
    print(f"{'what':<54} {'figure':>11} {'baseline':>11} {'ratio':>7}  target   (median; baseline of a sweep: curl)")
    sweep(16 if small else 256, 2 if small else 10)
    late_answers(16, 2 if small else 10)
    misbehaving(1 if small else 3)


if __name__ == "__main__":
    main()
