"""How punctual sampling is: when requests arrived at the endpoints, beside the instants they were due.

usage: python tests/bench/bench_cadence.py [--small]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from endpoints import endpoints

from pdctl.gather import Gatherer
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.reach.clock import SystemClock
from pdctl.sample import SamplePlan, sample

PAGE = 35_000  # bytes: a prefill page of release 0.5.19


def sampled(count: int, rounds: int, interval: float) -> tuple[list[list[float]], float]:
    """For each round how late its requests arrived, in seconds, and the CPU seconds that sampling took."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "asked"
        with endpoints(count, PAGE, asked=asked) as ports:
            started, cpu = run(ports, rounds, interval)
        arrivals = [float(line.split()[0]) - started for line in asked.read_text().splitlines()]
    late: list[list[float]] = [[] for _ in range(rounds)]
    for arrival in arrivals:
        beat = min(rounds - 1, int(arrival / interval))
        late[beat].append(arrival - beat * interval)
    return late, cpu


def run(ports: list[int], rounds: int, interval: float) -> tuple[float, float]:
    instances = tuple(Instance(f"e{port}", Role.PREFILL, f"http://127.0.0.1:{port}") for port in ports)
    clock = SystemClock()
    plan = SamplePlan(interval, count=rounds, facts={Role.PREFILL: (Fact.METRICS,)})
    with Gatherer(Cluster("bench", instances), clock=clock) as gatherer:
        before = time.process_time()
        made = sample(gatherer, plan, clock=clock)
        windows = sum(1 for _ in made)
        assert windows == rounds
        assert gatherer.started is not None
        return gatherer.started, time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few endpoints and rounds, to see that it works")
    small = parser.parse_args().small
    count, rounds, interval = (8, 5, 0.5) if small else (64, 60, 1.0)
    late, cpu = sampled(count, rounds, interval)
    # The first round opens every connection and imports what speaks HTTP: it is told apart.
    every = sorted(seconds for beat in late[1:] for seconds in beat)
    medians = [statistics.median(beat) for beat in late[1:] if beat]
    drift = medians[-1] - medians[0]
    print(f"{'what':<54} {'figure':>11} {'baseline':>11}  target")
    name = f"{count} endpoints each {interval:g} s, {rounds} rounds"
    print(f"{name + ': requests that arrived':<54} {sum(map(len, late)):>11} {count * rounds:>11}  all")
    print(f"{name + ': late, median':<54} {statistics.median(every) * 1000:>8.1f} ms {'0 ms':>11}")
    print(f"{name + ': late, p99':<54} {every[int(len(every) * 0.99)] * 1000:>8.1f} ms {'0 ms':>11}  <= 50 ms")
    print(f"{'  first round, connections opened: late, most':<54} {max(late[0]) * 1000:>8.1f} ms {'0 ms':>11}")
    print(f"{'  drift from the second round to the last':<54} {drift * 1000:>8.1f} ms {'0 ms':>11}  none")
    print(f"{'  CPU for each answer, reading included':<54} {cpu / (count * rounds) * 1000:>8.2f} ms")


if __name__ == "__main__":
    main()
